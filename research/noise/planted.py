"""Samples with a signal: how often it is found (power), and how often intervals hold the truth (coverage)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy.stats import t as student

from research.noise.laws import LAWS, Dims, Rng, outer, random_vectors
from research.noise.nulls import labels
from research.noise.row import Case, Outcome, Row, claims
from tpca.solvers.rank_one import best_rank_one
from tpca.tensors.blocks import Array, unit

POWER_RUNS, COVERAGE_RUNS = 200, 150
BRAIN = (32, 20, 30)  # sensors, frequencies, times


# Power ----------------------------------------------------------------------------------------------------------------


def effect(rng: Rng, law: str, n: int, strength: float, dims: Dims = (12, 10, 8)) -> Case:
    """±strength with the label, along random vectors."""
    y = labels(rng, n)
    pattern = strength * outer(random_vectors(rng, dims))
    noise = LAWS[law](rng, n, dims) * (math.sqrt(3.0) if law == "t3" else 1.0)  # Student's t as it is, of variance 3
    return Case(noise + np.multiply.outer(2.0 * y - 1.0, pattern), y)


def mean(rng: Rng, law: str, n: int, strength: float, dims: Dims = (12, 10, 8)) -> Case:
    """The same in all samples."""
    return Case(LAWS[law](rng, n, dims) + strength * outer(random_vectors(rng, dims)))


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
_POWER: list[tuple[str, Callable[..., Case], tuple[object, ...], str, float, float]] = [
    ("white, n = 40, λ = 1.0", effect, ("white", 40, 1.0), "found", 12 / 40, 24 / 60),
    ("white, n = 40, λ = 1.4", effect, ("white", 40, 1.4), "found", 33 / 40, 52 / 60),
    ("white, n = 200, λ = 0.45", effect, ("white", 200, 0.45), "found", 12 / 40, 30 / 60),
    ("white, n = 200, λ = 0.6", effect, ("white", 200, 0.6), "found", 31 / 40, 51 / 60),
    ("smooth 0.9, n = 40, λ = 0.7", effect, ("smooth0.9", 40, 0.7), "found", 8 / 40, 58 / 60),
    ("one direction 8 × louder, n = 200, λ = 0.45", effect, ("dir8", 200, 0.45), "found", 10 / 40, 21 / 60),
    ("one direction 8 × louder, n = 200, λ = 0.6", effect, ("dir8", 200, 0.6), "found", 18 / 40, 49 / 60),
    ("t₃ samples, n = 200, λ = 0.6", effect, ("t3", 200, 0.6), "found", 5 / 40, 11 / 60),
    ("t₃ samples, n = 200, λ = 0.9", effect, ("t3", 200, 0.9), "found", 30 / 40, 45 / 60),
    ("broad pattern in smooth noise, mean of 40 × (32, 20, 30)", broad, (8.5,), "found", 0.02, 0.60),
    ("one entry of 400 × (12, 10, 8), component", one_entry, (0.33,), "found", 0.44, 0.50),
    ("one entry of 400 × (12, 10, 8), entries", one_entry, (0.33,), "entries", 0.44, 0.90),
    ("t₃ entries, dense pattern, mean of 400 × (12, 10, 8)", mean, ("t3-entries", 400, 0.27), "found", 0.53, 0.20),
]


def _power_rows() -> list[Row]:
    found = []
    for name, draw, how, counted, before, prototype in _POWER:
        about = {"counted": counted, "before": before, "prototype": prototype}
        found.append(Row("power", name, POWER_RUNS, functools.partial(_drawn, draw, how), claims, about))
    return found


def _drawn(draw: Callable[..., Case], how: tuple[object, ...], rng: Rng) -> Case:
    return draw(rng, *how)


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


ROWS = [*_power_rows(), *_coverage_rows()]
