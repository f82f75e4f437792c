r"""Several components, fitted together: are they the sources, are they counted right, do intervals hold the truth?

``python -m research.components`` measures, on planted sources of known congruence (the cosine of two vectors of an
axis),

* **match**: the least, over components, of the cosine of unit tensors with the truth, best assignment; beside the fit
  of lowest cost among ten random starts of TensorLy's ``parafac`` and ten of pyttb's ``cp_als`` on the same mean;
* **number**: how often ``n_components="auto"`` gives the right number, one too few, too many, where the weakest source
  has a strength of 1.5, 2 or 3 times L0, the median length of the best rank-one fit to noise;
* **intervals**: how often 95 % intervals of entries hold the truth, with errors scaled by the normal quantile;
* **order**: the largest change of an entry when samples are shuffled;

and on real data, where nobody knows the truth,

* **real**: the share of the squares of a whole tensor, samples being one axis and centred, that the fit explains,
  beside the best of TensorLy's and pyttb's random starts; and the seconds of each.

All seeds are those of the place in the table.  The result is a file of JSON, with the revision that made it;
:data:`TABLES` are what docs/components.md shows of it (``make components``).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tpca
from research.real.sets import SETS
from research.studies.store import made
from tpca.solvers.components import fit_ranks, match_components, settled
from tpca.solvers.rank_one import fits
from tpca.tensors.blocks import Array

CONGRUENCES = (0.0, 0.3, 0.6, 0.8)
SHAPES = {3: (10, 8, 6), 4: (7, 6, 5, 4)}
PEER_STARTS = 10
PEER_STEPS = 1000
PEER_TOLERANCE = 1e-10
NULL_LENGTHS = 200
REAL_SETS = ("serology", "digits", "breast cancer", "kinetic", "gapminder", "Atlantic", "firms", "travel")
REAL_RANKS = (2, 3, 4)
TOLERATED = 0.005
"""Difference of matches that counts as none."""


@dataclass(frozen=True)
class Setting:
    """One line of a table: what is planted, and in how many samples."""

    kind: str
    order: int
    congruence: float
    n: int
    strengths: tuple[float, ...]
    runs: int
    name: str = ""

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return SHAPES[self.order]

    def rng(self, run: int) -> np.random.Generator:
        """The generator of one run."""
        return np.random.default_rng([zlib.crc32(repr(self).encode()), run])


def null_length(dims: Sequence[int]) -> float:
    """L0: the median length of the best rank-one fit to white noise of standard deviation one."""
    rng = np.random.default_rng(0)
    return float(np.median(fits(rng.standard_normal((NULL_LENGTHS, *dims)))[1]))


def sources(dims: Sequence[int], count: int, congruence: float, rng: np.random.Generator) -> list[Array]:
    """Unit vectors (count, d_m) of every axis; any two of an axis have this cosine."""
    gram = (1 - congruence) * np.eye(count) + congruence
    root = np.linalg.cholesky(gram)
    vectors = []
    for length in dims:
        frame = np.linalg.qr(rng.standard_normal((length, count)))[0]
        vectors.append(root @ frame.T)
    return vectors


def tensor_of(vectors: Sequence[Array], strengths: Array) -> Array:
    """The sum of all sources."""
    total = np.zeros([rows.shape[1] for rows in vectors])
    for c, strength in enumerate(strengths):
        pattern = np.asarray(strength)
        for rows in vectors:
            pattern = np.multiply.outer(pattern, rows[c])
        total += pattern
    return total


def draw(setting: Setting, run: int) -> tuple[Array, list[Array], Array]:
    """Samples, sources, and strengths: those of the setting are in lengths L0 of the noise of a mean."""
    rng = setting.rng(run)
    vectors = sources(setting.dims, len(setting.strengths), setting.congruence, rng)
    strengths = np.array(setting.strengths) * null_length(setting.dims) / math.sqrt(setting.n)
    noise = rng.standard_normal((setting.n, *setting.dims))
    return noise + tensor_of(vectors, strengths), vectors, strengths


# What is measured -----------------------------------------------------------------------------------------------------


def least_match(vectors: Sequence[Array], truth: Sequence[Array]) -> float:
    """The least size of the cosines of matched components."""
    return float(np.min(np.abs(match_components(vectors, truth).cosines)))


def tensorly_fits(D: Array, rank: int) -> Iterator[list[Array]]:
    """Components (rank, d_m) of ten random starts of TensorLy."""
    from tensorly.decomposition import parafac

    for seed in range(PEER_STARTS):
        model = parafac(D, rank, n_iter_max=PEER_STEPS, init="random", tol=PEER_TOLERANCE, random_state=seed)
        factors = [np.array(factor) for factor in model.factors]
        factors[0] = factors[0] * model.weights
        yield [factor.T for factor in factors]


def pyttb_fits(D: Array, rank: int) -> Iterator[list[Array]]:
    """Components (rank, d_m) of ten random starts of pyttb."""
    from pyttb.cp_als import cp_als
    from pyttb.tensor import tensor

    for seed in range(PEER_STARTS):
        np.random.seed(seed)  # noqa: NPY002  (its starts are drawn from the global generator)
        model, _, _ = cp_als(tensor(D), rank, maxiters=PEER_STEPS, stoptol=PEER_TOLERANCE, printitn=0, init="random")
        factors = [np.array(factor) for factor in model.factor_matrices]
        factors[0] = factors[0] * model.weights
        yield [factor.T for factor in factors]


def best_of(models: Iterator[list[Array]], D: Array) -> list[Array]:
    """The model of lowest cost."""
    costs = []
    components = []
    for vectors in models:
        residual = D - tensor_of(vectors, np.ones(len(vectors[0])))
        costs.append(float(np.vdot(residual, residual)))
        components.append(vectors)
    return components[int(np.argmin(costs))]


def match_run(setting: Setting, run: int) -> dict[str, float]:
    """Matches with the truth: ours, and those of peers on the same mean."""
    X, truth, _ = draw(setting, run)
    D = X.mean(axis=0)
    rank = len(setting.strengths)
    pca = tpca.TensorPCA(rank, n_resamples=19, random_state=0).fit(X)
    return {
        "tpca": least_match(pca.components_, truth),
        "tensorly": least_match(best_of(tensorly_fits(D, rank), D), truth),
        "pyttb": least_match(best_of(pyttb_fits(D, rank), D), truth),
    }


def number_run(setting: Setting, run: int) -> dict[str, float]:
    """The number of components that is found."""
    X, _, _ = draw(setting, run)
    pca = tpca.TensorPCA("auto", n_resamples=199, random_state=run).fit(X)
    return {"found": float(pca.n_proven_)}


def interval_run(setting: Setting, run: int) -> dict[str, float]:
    """Share of entries, and of strengths, whose interval holds the truth."""
    X, truth, strengths = draw(setting, run)
    pca = tpca.TensorPCA(len(setting.strengths), n_resamples=19, random_state=0).fit(X)
    pairs = match_components(pca.components_, truth)
    held = []
    for c, source in zip(pairs.rows, pairs.others, strict=True):
        for rows, errors, truth_rows in zip(pca.components_, pca.standard_errors_, truth, strict=True):
            sign = np.sign(rows[c] @ truth_rows[source])
            held.append(np.abs(rows[c] - sign * truth_rows[source]) <= 1.96 * errors[c])
    intervals = pca.strength_intervals_[pairs.rows]
    true_strengths = strengths[pairs.others]
    strengths_held = (intervals[:, 0] <= true_strengths) & (true_strengths <= intervals[:, 1])
    return {"entries": float(np.mean(np.concatenate(held))), "strengths": float(np.mean(strengths_held))}


def order_run(setting: Setting, run: int) -> dict[str, float]:
    """The largest change of an entry of a component when the samples are shuffled."""
    X, _, _ = draw(setting, run)
    rank = len(setting.strengths)
    shuffled = setting.rng(run + 1000).permutation(X)
    first = tpca.TensorPCA(rank, n_resamples=19, random_state=0).fit(X).components_
    second = tpca.TensorPCA(rank, n_resamples=19, random_state=0).fit(shuffled).components_
    changes = [np.abs(a - b).max() for a, b in zip(first, second, strict=True)]
    return {"change": float(max(changes))}


def real_run(setting: Setting, rank: int) -> dict[str, float]:
    """Shares of a real tensor, ours and the best of peers, and seconds."""
    samples = np.asarray(SETS[setting.name].load().X, dtype=np.float64)
    tensor = samples - samples.mean(axis=0)
    energy = float(np.vdot(tensor, tensor))
    began = time.process_time()
    fit = next(itertools.islice(fit_ranks(tensor), rank - 1, None))
    fit = settled(fit, tensor)
    seconds = time.process_time() - began
    peers = {}
    for name, fits_of in (("tensorly", tensorly_fits), ("pyttb", pyttb_fits)):
        began = time.process_time()
        vectors = best_of(fits_of(tensor, rank), tensor)
        peers[f"{name}_seconds"] = time.process_time() - began
        residual = tensor - tensor_of(vectors, np.ones(rank))
        peers[name] = 1 - float(np.vdot(residual, residual)) / energy
    return {"rank": float(rank), "tpca": 1 - fit.cost / energy, "ridge": fit.ridge, "seconds": seconds, **peers}


RUNS: dict[str, Callable[[Setting, int], dict[str, float]]] = {
    "match": match_run,
    "number": number_run,
    "intervals": interval_run,
    "order": order_run,
    "real": real_run,
}


def settings(share: float) -> list[Setting]:
    """All lines; a ``share`` of the runs of each."""

    def runs(count: int) -> int:
        return max(1, round(count * share))

    lines = []
    for order in SHAPES:
        for congruence in CONGRUENCES:
            for n in (20, 200, 2000):
                at_20 = np.array([4.0, 3.0, 2.0])  # in noise that grows as the samples get fewer
                strengths = tuple(float(size) for size in at_20 * math.sqrt(n / 20))
                lines.append(Setting("match", order, congruence, n, strengths, runs(20)))
    for order in SHAPES:
        for congruence in CONGRUENCES:
            for weakest in (1.5, 2.0, 3.0):
                for strengths in ((weakest,), (2 * weakest, weakest), (3 * weakest, 2 * weakest, weakest)):
                    if len(strengths) > 1 or congruence == 0:
                        lines.append(Setting("number", order, congruence, 100, strengths, runs(100)))
    for order in SHAPES:
        for congruence in CONGRUENCES:
            lines.append(Setting("intervals", order, congruence, 200, (12.0, 9.0, 6.0), runs(100)))
            lines.append(Setting("order", order, congruence, 200, (12.0, 9.0, 6.0), runs(5)))
    for name in REAL_SETS:
        if SETS[name].installed:
            lines.append(Setting("real", 0, 0.0, 0, (), len(REAL_RANKS), name))
    return lines


def outcomes(setting: Setting) -> dict[str, Any]:
    """All runs of one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = REAL_RANKS if setting.kind == "real" else range(setting.runs)
        records = [RUNS[setting.kind](setting, place) for place in places]
    return {**asdict(setting), "records": records}


# What it comes to -----------------------------------------------------------------------------------------------------


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """All that was measured, in Markdown."""
    parts = []
    for kind, table in TABLES.items():
        of_kind = [line for line in lines if line["kind"] == kind]
        if of_kind:
            parts.append(table(of_kind))
    return "\n\n".join(parts)


def match_table(lines: Sequence[dict[str, Any]]) -> str:
    """Mean of the least match, beside peers."""
    text = [
        "| axes | cosine of sources | samples | tpca | TensorLy, best of 10 | pyttb, best of 10 | "
        "runs no worse than both |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        columns = {
            name: np.array([record[name] for record in line["records"]]) for name in ("tpca", "tensorly", "pyttb")
        }
        best = np.maximum(columns["tensorly"], columns["pyttb"])
        level = int(np.sum(columns["tpca"] >= best - TOLERATED))
        means = " | ".join(f"{values.mean():.3f}" for values in columns.values())
        text.append(f"| {line['order']} | {line['congruence']:g} | {line['n']:,} | {means} | {level} of {len(best)} |")
    return "\n".join(text)


def number_table(lines: Sequence[dict[str, Any]]) -> str:
    """How often the number is right, and too large; a column for every strength of the weakest source."""
    weakest = sorted({line["strengths"][-1] for line in lines})
    columns = " | ".join(f"weakest {strength:g} L0" for strength in weakest)
    text = [f"| axes | cosine of sources | true number | {columns} |", "|---|---|---|" + "---|" * len(weakest)]
    rows: dict[tuple[int, float, int], dict[float, str]] = {}
    for line in lines:
        found = np.array([record["found"] for record in line["records"]])
        true = len(line["strengths"])
        cell = f"{np.mean(found == true):.0%}, {np.mean(found > true):.0%} too many"
        rows.setdefault((line["order"], line["congruence"], true), {})[line["strengths"][-1]] = cell
    for (order, congruence, true), cells in rows.items():
        told = " | ".join(cells.get(strength, "") for strength in weakest)
        text.append(f"| {order} | {congruence:g} | {true} | {told} |")
    return "\n".join(text)


def interval_table(lines: Sequence[dict[str, Any]]) -> str:
    """How often intervals hold the truth."""
    text = ["| axes | cosine of sources | entries | strengths |", "|---|---|---|---|"]
    for line in lines:
        entries = np.mean([record["entries"] for record in line["records"]])
        strengths = np.mean([record["strengths"] for record in line["records"]])
        text.append(f"| {line['order']} | {line['congruence']:g} | {entries:.1%} | {strengths:.1%} |")
    return "\n".join(text)


def real_table(lines: Sequence[dict[str, Any]]) -> str:
    """Shares of real tensors, and seconds."""
    text = [
        "| data | components | tpca, % | TensorLy, best of 10, % | pyttb, best of 10, % | "
        "seconds | of TensorLy | of pyttb |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        for record in line["records"]:
            shares = " | ".join(f"{100 * record[name]:.3f}" for name in ("tpca", "tensorly", "pyttb"))
            if record["ridge"] > 0:
                shares = shares.replace(" | ", f", ridge {record['ridge']:g} | ", 1)
            seconds = " | ".join(f"{record[name]:.2g}" for name in ("seconds", "tensorly_seconds", "pyttb_seconds"))
            text.append(f"| {line['name']} | {record['rank']:.0f} | {shares} | {seconds} |")
    return "\n".join(text)


def order_line(lines: Sequence[dict[str, Any]]) -> str:
    """How far shuffled samples move an entry."""
    changes = [record["change"] for line in lines for record in line["records"]]
    return f"Shuffled samples move entries of components by {max(changes):.0e} at most ({len(changes)} fits)."


TABLES = {
    "match": match_table,
    "number": number_table,
    "intervals": interval_table,
    "order": order_line,
    "real": real_table,
}


def main() -> None:
    """Run all lines on two processes, store them, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="file of JSON to write")
    parser.add_argument("--share", type=float, default=1.0, help="share of the runs of every line")
    parser.add_argument("--kinds", nargs="*", default=list(RUNS), choices=list(RUNS))
    options = parser.parse_args()
    revision = made()  # as it is now, whatever is committed meanwhile
    lines = [setting for setting in settings(options.share) if setting.kind in options.kinds]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(outcomes, lines))
    if options.out is not None:
        options.out.write_text(json.dumps({"made": revision, "lines": results}, indent=1) + "\n")
    print(tables(results))  # noqa: T201


if __name__ == "__main__":
    main()
