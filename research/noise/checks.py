"""Claims, power and coverage of TensorPCA where noise is not white: ``python -m research.noise.checks``.

Runs are deterministic, from the name of their row and their number.  A trial is a chunk of runs of one row, stored as
those of any study; a chunk counts as long as its row still draws the same samples (``digest``).  To run rows again
that draw the same, remove the store.  What it came to is written to ``--out``, with the revision that each row was run
with, and drawn; docs/noise.md shows it.

Rows without a signal are honest nulls: laws of noise as mean and as effect, and designs that invite false claims; with
``found_`` at 5 % no more than 5 % of runs may claim.  Real data without their signal are in :mod:`research.real`.  Rows
with a signal: how often it is found (power), and how often intervals hold the truth (coverage).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import tpca
from research.noise.laws import (
    LAWS,
    Dims,
    Law,
    Rng,
    chain,
    exponential,
    half_negated,
    levelled,
    lognormal,
    outer,
    random_vectors,
    serial,
    white,
)
from research.noise.tables import LEVEL, TABLES, draw
from research.studies.store import Store, made, run_studies, write_rows
from research.studies.study import Params, Records, Study, chosen
from tpca.solvers.rank_one import best_rank_one
from tpca.tensors.blocks import Array, unit

Outcome = dict[str, float]


@dataclass(frozen=True)
class Case:
    """Samples of one run, what is given to ``fit`` with them, options of the estimator, and the planted truth.

    ``truth`` has the vectors of every component, ``strengths`` how strong each is; there is none where nothing is
    planted.
    """

    X: Array
    y: Any = None
    given: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    truth: list[list[Array]] = field(default_factory=list)
    strengths: tuple[float, ...] = ()

    def fitted(self, **options: Any) -> tpca.TensorPCA:
        """TensorPCA with its defaults but for what the case, or the study, asks for."""
        target = "mean" if self.y is None else "effect"
        return tpca.TensorPCA(**{"target": target, **options, **self.options}).fit(self.X, self.y, **self.given)

    @property
    def digest(self) -> str:
        """Tells samples from others; rounded, so that the last bits of a machine's algebra do not matter."""
        whole = hashlib.sha256()
        for part in (self.X, self.y, *(self.given[name] for name in sorted(self.given))):
            if part is not None:
                numbers = np.asarray(part)
                if numbers.dtype.kind == "f":
                    numbers = np.round(np.nan_to_num(numbers, nan=1e6) * 1e3).astype(np.int64)
                whole.update(np.ascontiguousarray(numbers).tobytes())
        return whole.hexdigest()[:12]


@dataclass(frozen=True)
class Row:
    """``draw`` makes a case from a generator; ``judge`` fits it and says what came out, as numbers that add up.

    ``about`` is what tables show beside the name, ``excluded`` why no target is set for ``found`` or for ``entries``.
    """

    kind: str
    name: str
    runs: int
    draw: Callable[[Rng], Case]
    judge: Callable[[Case, int], Outcome]
    about: dict[str, Any] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name among all rows."""
        return f"{self.kind}: {self.name}"

    def case(self, seed: int) -> Case:
        """The samples of one run."""
        return self.draw(np.random.default_rng([zlib.crc32(self.key.encode()), seed]))

    @property
    def digest(self) -> str:
        """Tells what the row draws from what it once drew."""
        return hashlib.sha256("".join(self.case(seed).digest for seed in range(4)).encode()).hexdigest()[:12]

    def run(self, seed: int) -> Outcome:
        """What comes out of one run."""
        return self.judge(self.case(seed), seed)


def claims(case: Case, seed: int) -> Outcome:
    """Whether a signal is claimed, whether any entry is, whether it was tested at all."""
    pca = case.fitted(n_resamples=199, random_state=seed)
    entries = pca.entry_p_values_
    assert entries is not None
    tested = str(pca.verdict_) != "not tested"
    return {"found": float(pca.found_), "entries": float((entries <= LEVEL).any()), "tested": float(tested)}


# Without a signal -----------------------------------------------------------------------------------------------------

RUNS = 400
DIMS, N = (6, 5, 4), 100
SKEWED = "p-values of entries assume symmetric noise; the result says so"
SLOW = "one slow direction in white noise is hard to see; the note on neighbours shows where it is"
COPIES = "scattered copies break every test; the result says so"


def labels(rng: Rng, n: int) -> Array:
    """Two labels, as many of each, in random order."""
    return rng.permutation(np.arange(n) % 2)


def of_law(law: Law, n: int = N, dims: Dims = DIMS, effect: bool = False) -> Callable[[Rng], Case]:
    """The mean of noise, or the effect of labels that have nothing to do with it."""
    return lambda rng: Case(law(rng, n, dims), labels(rng, n) if effect else None)


def few_cells(rng: Rng, n: int, dims: Dims, cells: int = 25) -> Array:
    """±1 in a few cells of a large sample, others in every sample."""
    noise = np.zeros((n, int(np.prod(dims))))
    for row in noise:
        row[rng.choice(noise.shape[1], cells, replace=False)] = rng.choice([-1.0, 1.0], cells)
    return noise.reshape(n, *dims)


def twice_in_a_row(rng: Rng, effect: bool) -> Case:
    """50 samples, each followed by its copy, y with it."""
    y = np.repeat(labels(rng, N // 2), 2) if effect else None
    return Case(np.repeat(white(rng, N // 2, DIMS), 2, axis=0), y)


def scattered_copies(rng: Rng) -> Case:
    """50 samples and a copy of each, anywhere."""
    noise = white(rng, N // 2, DIMS)
    return Case(np.concatenate([noise, noise])[rng.permutation(N)])


def between_groups(rng: Rng, subjects: int, each: int, mean: bool = False) -> Case:
    """Subjects with an effect of their own as large as the noise; y, patient or control, is one value a subject."""
    own = np.repeat(white(rng, subjects, DIMS), each, axis=0)
    groups = np.repeat(np.arange(subjects), each)
    y = None if mean else np.repeat(labels(rng, subjects), each)
    return Case(own + white(rng, subjects * each, DIMS), y, {"groups": groups})


def missing(rng: Rng, effect: bool) -> Case:
    """30 % of entries are missing."""
    noise = white(rng, N, DIMS)
    noise[rng.random(noise.shape) < 0.3] = np.nan
    return Case(noise, labels(rng, N) if effect else None, options={"nan_policy": "zero"})


def loud_class(rng: Rng) -> Case:
    """3 of 30 samples have the other label, and are three times louder."""
    y = rng.permutation(np.arange(30) < 3).astype(int)
    return Case(levelled(white(rng, 30, DIMS), 1.0 + 2.0 * y), y)


def dose_is_loud(rng: Rng) -> Case:
    """The level of the noise is e^y."""
    y = rng.standard_normal(20)
    return Case(levelled(white(rng, 20, DIMS), np.exp(y)), y)


def with_nuisance(rng: Rng) -> Case:
    """A nuisance that y is correlated with moves the samples."""
    y = rng.standard_normal(60)
    age = y + rng.standard_normal(60)
    return Case(white(rng, 60, DIMS) + np.multiply.outer(age, white(rng, 1, DIMS)[0]), y, {"nuisance": age})


BOXCAR = (np.arange(N) // 10 % 2).astype(float)  # conditions that follow the order, in noise with a memory
HALVES = (np.arange(N) >= N // 2).astype(float)


def _null_rows() -> list[Row]:
    found = []
    for name, law in LAWS.items():
        slow = {"found": SLOW, "entries": SLOW} if name == "slow-direction" else {}
        skewed = {"entries": SKEWED} if name in ("chi2", "exponential", "skewed") else {}
        for effect in (False, True):
            about = {"question": "effect" if effect else "mean", "law": name}
            excluded = slow | ({} if effect else skewed)
            label = f"{name}, {about['question']}"
            found.append(Row("claims", label, RUNS, of_law(law, effect=effect), claims, about, excluded))
    designs: dict[str, tuple[Callable[[Rng], Case], dict[str, str]]] = {
        "half-negated exponential, n = 40": (of_law(half_negated(exponential), 40), {"entries": SKEWED}),
        "half-negated lognormal, n = 40": (of_law(half_negated(lognormal), 40), {"entries": SKEWED}),
        "exponential 4×4, n = 40": (of_law(exponential, 40, (4, 4)), {"entries": SKEWED}),
        "exponential 2×2×2, n = 40": (of_law(exponential, 40, (2, 2, 2)), {"entries": SKEWED}),
        "exponential 4×4, effect, n = 40": (of_law(exponential, 40, (4, 4), True), {}),
        "exponential 2×2×2, effect, n = 40": (of_law(exponential, 40, (2, 2, 2), True), {}),
        "±1 in 25 of 50×50 cells, n = 8": (of_law(few_cells, 8, (50, 50)), {}),
        "±1 in 25 of 50×50 cells, n = 16": (of_law(few_cells, 16, (50, 50)), {}),
        "white, mean, n = 12": (of_law(white, 12), {}),
        "white, effect, n = 12": (of_law(white, 12, effect=True), {}),
        "every sample twice in a row, mean": (lambda rng: twice_in_a_row(rng, False), {}),
        "every sample twice in a row, effect": (lambda rng: twice_in_a_row(rng, True), {}),
        "boxcar y, AR(0.5)": (lambda rng: Case(LAWS["serial0.5"](rng, N, DIMS), BOXCAR), {}),
        "all of A before all of B, AR(0.8)": (lambda rng: Case(chain(white, serial(0.8))(rng, N, DIMS), HALVES), {}),
        "y between 20 groups of 5": (lambda rng: between_groups(rng, 20, 5), {}),
        "y between 10 groups of 4": (lambda rng: between_groups(rng, 10, 4), {}),
        "mean of 12 groups of 5": (lambda rng: between_groups(rng, 12, 5, mean=True), {}),
        "30 % of entries missing, mean": (lambda rng: missing(rng, False), {}),
        "30 % of entries missing, effect": (lambda rng: missing(rng, True), {}),
        "3 of 30 three times louder": (loud_class, {}),
        "noise e^y, n = 20": (dose_is_loud, {}),
        "12 events in 600 samples": (
            lambda rng: Case(white(rng, 600, DIMS), rng.permutation(np.arange(600) < 12).astype(int)),
            {},
        ),
        "a nuisance that y follows": (with_nuisance, {}),
        "scattered copies": (scattered_copies, {"found": COPIES, "entries": COPIES}),
    }
    for name, (drawn, excluded) in designs.items():
        found.append(Row("claims", name, RUNS, drawn, claims, {"question": "design"}, excluded))
    return found


# Power ----------------------------------------------------------------------------------------------------------------

POWER_RUNS, COVERAGE_RUNS = 200, 150
BRAIN = (32, 20, 30)  # sensors, frequencies, times


def effect(rng: Rng, law: str, n: int, strength: float, dims: Dims = (12, 10, 8)) -> Case:
    """±strength with the label, along random vectors."""
    y = labels(rng, n)
    pattern = strength * outer(random_vectors(rng, dims))
    noise = LAWS[law](rng, n, dims) * (math.sqrt(3.0) if law == "t3" else 1.0)  # Student's t as it is, of variance 3
    return Case(noise + np.multiply.outer(2.0 * y - 1.0, pattern), y)


def mean(rng: Rng, n: int, strength: float, dims: Dims = (12, 10, 8)) -> Case:
    """The same in all samples, with t₃ entries."""
    return Case(LAWS["t3-entries"](rng, n, dims) + strength * outer(random_vectors(rng, dims)))


def one_entry(rng: Rng, strength: float) -> Case:
    """Nothing but one entry, of 400 samples."""
    noise = rng.standard_normal((400, 12, 10, 8))
    noise[:, 3, 4, 5] += strength
    return Case(noise)


def broad(rng: Rng, level: float) -> Case:
    """40 subjects, half waves along all modes of total strength 140, in smooth noise of so many units an entry."""
    pattern = outer([unit(np.sin(math.pi * (np.arange(d) + 0.5) / d)) for d in BRAIN])
    return Case(level * LAWS["smooth0.9"](rng, 40, BRAIN) + 140.0 * pattern)


# Shares of runs with a claim: by the machine that least squares replaced (of 40), by the prototype (of 60).
_POWER: list[tuple[str, Callable[[Rng], Case], str, float, float]] = [
    ("white, n = 40, λ = 1.0", lambda r: effect(r, "white", 40, 1.0), "found", 12 / 40, 24 / 60),
    ("white, n = 40, λ = 1.4", lambda r: effect(r, "white", 40, 1.4), "found", 33 / 40, 52 / 60),
    ("white, n = 200, λ = 0.45", lambda r: effect(r, "white", 200, 0.45), "found", 12 / 40, 30 / 60),
    ("white, n = 200, λ = 0.6", lambda r: effect(r, "white", 200, 0.6), "found", 31 / 40, 51 / 60),
    ("smooth 0.9, n = 40, λ = 0.7", lambda r: effect(r, "smooth0.9", 40, 0.7), "found", 8 / 40, 58 / 60),
    ("one direction 8 × louder, n = 200, λ = 0.45", lambda r: effect(r, "dir8", 200, 0.45), "found", 10 / 40, 21 / 60),
    ("one direction 8 × louder, n = 200, λ = 0.6", lambda r: effect(r, "dir8", 200, 0.6), "found", 18 / 40, 49 / 60),
    ("t₃ samples, n = 200, λ = 0.6", lambda r: effect(r, "t3", 200, 0.6), "found", 5 / 40, 11 / 60),
    ("t₃ samples, n = 200, λ = 0.9", lambda r: effect(r, "t3", 200, 0.9), "found", 30 / 40, 45 / 60),
    ("broad pattern in smooth noise, mean of 40 × (32, 20, 30)", lambda r: broad(r, 8.5), "found", 0.02, 0.60),
    ("one entry of 400 × (12, 10, 8), component", lambda r: one_entry(r, 0.33), "found", 0.44, 0.50),
    ("one entry of 400 × (12, 10, 8), entries", lambda r: one_entry(r, 0.33), "entries", 0.44, 0.90),
    ("t₃ entries, dense pattern, mean of 400 × (12, 10, 8)", lambda r: mean(r, 400, 0.27), "found", 0.53, 0.20),
]
POWER = [
    Row("power", name, POWER_RUNS, drawn, claims, {"counted": counted, "before": before, "prototype": prototype})
    for name, drawn, counted, before, prototype in _POWER
]

# Coverage -------------------------------------------------------------------------------------------------------------

ABOVE_NOISE = 2.5  # strength over the usual best fit to noise alone
SECOND = 0.5
ALIKE, SHARED = 0.5, 0.95  # cosines from which on two components are hard to tell apart; the result says so


@functools.cache
def noise_length(law: str, dims: Dims) -> float:
    """Usual length of the best rank-one fit of √n times the mean of noise."""
    rng = np.random.default_rng(0)
    return float(np.median([best_rank_one(8.0 * LAWS[law](rng, 64, dims).mean(axis=0))[1] for _ in range(20)]))


def _another(rng: Rng, first: list[Array]) -> list[Array]:
    """Vectors of a second component: at right angles along the longest mode, and not alike in the others.

    Of a matrix, at right angles in both modes: its components are singular vectors.
    """
    dims = tuple(len(v) for v in first)
    turned = range(2) if len(dims) == 2 else [int(np.argmax(dims))]
    while True:
        found = random_vectors(rng, dims)
        for m in turned:
            found[m] = unit(found[m] - (found[m] @ first[m]) * first[m])
        cosines = sorted(abs(float(v @ u)) for v, u in zip(first, found, strict=True))
        if cosines[-1] * cosines[-2] < ALIKE and cosines[-1] < SHARED:
            return found


def known(rng: Rng, law: str, n: int, dims: Dims, components: int, missing: float) -> Case:
    """Samples whose mean has one or two components of known strength."""
    weakest = ABOVE_NOISE * noise_length(law, dims) / math.sqrt(n * (1 - missing))
    strengths = (weakest,) if components == 1 else (weakest / SECOND, weakest)
    truth = [random_vectors(rng, dims)]
    if components == 2:
        truth.append(_another(rng, truth[0]))
    X = LAWS[law](rng, n, dims) + sum(s * outer(v) for s, v in zip(strengths, truth, strict=True))
    X[rng.random(X.shape) < missing] = np.nan
    options = {"n_components": components, "nan_policy": "zero" if missing else "raise"}
    return Case(X, options=options, truth=truth, strengths=strengths)


def coverage(case: Case, seed: int) -> Outcome:
    """Whether the interval of every strength holds it, and the share of entries within their t-interval.

    An estimate is compared with the truth that it is nearest to.
    """
    pca = case.fitted(n_resamples=19, random_state=seed)
    reach = float(student.ppf(0.975, len(case.X) - 1))
    strengths, entries, widths = [], [], []
    for vectors, strength in zip(case.truth, case.strengths, strict=True):
        inner = [np.array([row @ v for row in rows]) for rows, v in zip(pca.components_, vectors, strict=True)]
        own = int(np.argmax(np.abs(np.prod(inner, axis=0))))
        low, high = pca.strength_intervals_[own]
        strengths.append(low <= strength <= high)
        widths.append((high - low) / strength)
        for m, v in enumerate(vectors):
            off = np.sign(inner[m][own]) * pca.components_[m][own] - v
            entries.append(np.abs(off) <= reach * pca.standard_errors_[m][own])
    held = np.concatenate(entries)
    return {"strength": float(np.mean(strengths)), "entries": float(held.mean()), "width": float(np.mean(widths))}


def _coverage_rows() -> list[Row]:
    found = []
    for law in ("white", "smooth0.9", "dir8", "t3"):
        for dims, sizes in (((8, 6, 5), (12, 40, 200)), ((2, 200, 2), (12, 40, 200)), ((8, 6), (40,))):
            for n in sizes:
                for form, components, missing in (("one", 1, 0.0), ("two", 2, 0.0), ("30 % missing", 1, 0.3)):
                    shape = "×".join(map(str, dims))
                    draw = functools.partial(known, law=law, n=n, dims=dims, components=components, missing=missing)
                    about = {"law": law, "dims": shape, "n": n, "form": form}
                    name = f"{law}, {shape}, n = {n}, {form}"
                    found.append(Row("coverage", name, COVERAGE_RUNS, draw, coverage, about))
    return found


ROWS: dict[str, Row] = {row.key: row for row in [*_null_rows(), *POWER, *_coverage_rows()]}

# The command ----------------------------------------------------------------------------------------------------------

CHUNK = 25
HEAD = 2  # runs whose outcome is kept one by one, so that a test can repeat them


def run_chunk(params: Params) -> dict[str, Any]:
    """Some runs of a row: sums of their outcomes."""
    row = ROWS[params["row"]]
    each = [row.run(seed) for seed in range(params["first"], params["first"] + params["count"])]
    sums = {what: sum(one[what] for one in each) for what in each[0]}
    head = each[:HEAD] if params["first"] == 0 else []
    return {"sums": sums, "head": head, "revision": made()["revision"]}


def study(rows: Sequence[Row], share: float = 1.0) -> Study:
    """The chunks of some rows; all rows grow together, so that an early look sees all of them."""
    trials: list[Params] = []
    for row in rows:
        runs, drawn = max(1, math.ceil(row.runs * share)), row.digest
        for first in range(0, runs, CHUNK):
            trials.append({"row": row.key, "digest": drawn, "first": first, "count": min(CHUNK, runs - first)})
    trials.sort(key=lambda params: params["first"])
    return Study("chunks", "Noise", "", trials, run_chunk)


def summary(records: Records) -> dict[str, Any]:
    """A record for every row that was run, and what all of it was made with."""
    found = []
    for row in ROWS.values():
        if own := chosen(records, row=row.key, digest=row.digest):
            own.sort(key=lambda r: int(r.params["first"]))
            results = [r.result for r in own]
            sums = {what: round(sum(each["sums"][what] for each in results), 6) for what in results[0]["sums"]}
            found.append(
                {"kind": row.kind, "name": row.name, "runs": sum(r.params["count"] for r in own), **sums, **row.about,
                 "excluded": row.excluded, "digest": row.digest, "head": results[0]["head"],
                 "revisions": sorted({each["revision"] for each in results})}
            )  # fmt: skip
    return {"made": made(), "rows": found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("noise-checks"), help="folder of the finished runs")
    parser.add_argument("--out", type=Path, default=Path("noise-checks.json"))
    parser.add_argument("--figure", type=Path, default=None, help="PNG to draw; none without")
    parser.add_argument("--share", type=float, default=1.0, help="of the runs of every row; 0.01 is a quick look")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--processes", type=int, default=2, help="0: all in this one")
    options = parser.parse_args(arguments)
    store = Store(options.store)
    asked = study([row for name, row in ROWS.items() if options.rows in name], options.share)
    run_studies([asked], "full", store, processes=options.processes)
    whole = summary(store.records(asked))
    write_rows(options.out, whole)
    sys.stdout.write("\n".join(table(whole) for table in TABLES.values()))
    if options.figure is not None:
        draw(whole, options.figure)


if __name__ == "__main__":
    main()
