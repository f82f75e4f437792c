"""Six-way counts, day by day: who buys what, where, when, how, in ways that no table of two or three columns shows.

Every day is one sample, counts of part of the day × weather × region × product × channel × age: 40 320 cells with about
one sale each.  A campaign moves sales within all six columns at once, less than one percent up here and down there, so
that every total by one column, and every table of two to five of them, stays the same.  The race runs in a fifth of the
memory that a single day takes.

    python examples/order6_stream.py [--out order6.png] [--quick]
"""

import argparse
import functools
import itertools
import math
from pathlib import Path

import numpy as np
from scipy.stats import norm

import tpca
from tpca.report.style import COLOURS, drawing
from tpca.solvers import LeastSquares

COLUMNS = {"part of day": 7, "weather": 6, "region": 8, "product": 6, "channel": 4, "age": 5}
EFFECT = 0.008  # typical change of a cell, as a fraction


def margins(rng):
    """Share of every level of every column."""
    return [rng.dirichlet(np.full(d, 8.0)) for d in COLUMNS.values()]


def contrasts(shares, rng):
    """For every column a change of mean zero and variance one over its shares: totals stay as they are."""
    changes = []
    for p in shares:
        c = rng.standard_normal(len(p))
        c -= p @ c
        changes.append(c / math.sqrt(p @ c**2))
    return changes


def outer(vectors):
    return functools.reduce(np.multiply.outer, vectors)


def days(expected, truth_rate, count, rng, together=20):
    """Standardised counts (day, six columns): (count - expected) / sqrt(expected), batch by batch."""
    for start in range(0, count, together):
        shape = (min(together, count - start), *expected.shape)
        yield (rng.poisson(truth_rate, shape) - expected) / np.sqrt(expected)


def as_stream(batches):
    """What a solver is given: of an iterable it cannot see whether it gives batches or single samples."""
    return tpca.open_stream(batches, items="batches")


def adding(batches, total):
    """The same batches; their sum is left in ``total``."""
    for batch in batches:
        total += batch.sum(axis=0)
        yield batch


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("order6_stream.png"))
    parser.add_argument("--quick", action="store_true", help="fewer days")
    options = parser.parse_args(arguments)
    count = 400 if options.quick else 600

    rng = np.random.default_rng(4)
    shares = margins(rng)
    changes = contrasts(shares, rng)
    cells = math.prod(COLUMNS.values())
    expected = cells * outer(shares)
    rate = expected * np.clip(1 + EFFECT * outer(changes), 0, None)
    # Standardised by sqrt(expected), which is a product too, the effect stays of rank one.
    truth = tpca.SpikedTensor(
        tuple(np.sqrt(p) * c for p, c in zip(shares, changes, strict=True)), EFFECT * math.sqrt(cells)
    )

    race = tpca.RaceSolver(random_state=0, memory_limit="64kB").run(
        as_stream(days(expected, rate, count, np.random.default_rng(5)))
    )
    total = np.zeros(expected.shape)
    mean = LeastSquares().run(as_stream(adding(days(expected, rate, count, np.random.default_rng(5)), total)))
    print(f"{count} days of {cells} cells ({8 * cells:,} bytes a day), effect {EFFECT:.1%} of a cell")
    for name, r in (("race", race), ("least squares", mean)):
        own = r.components[0]
        print(f"{name}: {r.verdict}, p = {r.signal_p:.2g}")
        print(f"  overlaps {np.round(truth.overlaps(own.vectors), 2)}, state {r.state_bytes:,} bytes")
        print(f"  strength {own.strength:.2f} {np.round(own.strength_interval, 2)}, planted {truth.strength:.2f}")

    total /= math.sqrt(count)
    tables = {n: largest_table(total, expected, n) for n in (1, 2, 3)}
    for n, (value, limit) in tables.items():
        print(f"  tables of {n} columns: largest deviation {value:.1f} standard errors, by chance up to {limit:.1f}")
    stale = expected * (1 + 0.03 * (np.arange(COLUMNS["product"]) == 2))[:, None, None]
    drift = LeastSquares().run(as_stream(days(expected, stale, 60, np.random.default_rng(6))))
    answers = [v / np.sqrt(p) for v, p in zip(drift.components[0].vectors, shares, strict=True)]
    flat = [np.std(one) / abs(np.mean(one)) for one in answers]
    print("one product 3 % up, plan not updated: found, spread of every column's answer:", np.round(flat, 2))
    draw(truth, race.components[0], mean.components[0], shares, options.out)
    return {"truth": truth, "race": race, "mean": mean, "tables": tables, "flat": flat}


def largest_table(total, expected, columns):
    """Largest standardised deviation in any table of that many columns, and its 95 % limit for pure noise."""
    raw, largest, cells = total * np.sqrt(expected), 0.0, 0
    for kept in itertools.combinations(range(total.ndim), columns):
        rest = tuple(set(range(total.ndim)) - set(kept))
        z = raw.sum(axis=rest) / np.sqrt(expected.sum(axis=rest))
        largest, cells = max(largest, float(np.abs(z).max())), cells + z.size
    return largest, float(norm.isf(0.025 / cells))


def draw(truth, race, mean, shares, out):
    with drawing() as plt:
        figure, axes = plt.subplots(2, 3, figsize=(12, 5.2), layout="constrained")
        for axis, (mode, name) in zip(axes.ravel(), enumerate(COLUMNS), strict=True):
            at, scale = np.arange(len(truth.vectors[mode])), np.sqrt(shares[mode])
            answers = (("race, 64 kB", race, -0.13, COLOURS[0], "o"), ("mean of all days", mean, 0.13, COLOURS[2], "^"))
            for label, r, shift, colour, marker in answers:
                sign = np.sign(r.vectors[mode] @ truth.vectors[mode])
                axis.errorbar(
                    at + shift, sign * r.vectors[mode] / scale, 2 * r.standard_errors[mode] / scale,
                    color=colour, marker=marker, ls="", capsize=2, label=f"{label} ± 2 errors",
                )  # fmt: skip
            axis.plot(
                at, truth.vectors[mode] / scale, color=COLOURS[1], marker="_", ms=16, mew=2, ls="", label="planted"
            )
            axis.axhline(0, color="0.5", lw=0.8)
            axis.set(title=name, xticks=at, ylabel="change, standardised")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
