"""Samples without a signal: laws of noise as mean and as effect, and designs that invite false claims.

Every row is an honest null: with ``found_`` at 5 % no more than 5 % of runs may claim.  Real data without their signal
are in :mod:`research.real`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from research.noise.laws import LAWS, Dims, Law, Rng, chain, exponential, levelled, lognormal, serial, white
from research.noise.row import Case, Row, claims
from tpca.tensors.blocks import Array

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


def half_negated(law: Law) -> Law:
    """Half the rows of every sample are negated, so that skewness cancels over all entries."""

    def drawn(rng: Rng, n: int, dims: Dims) -> Array:
        noise = law(rng, n, dims)
        noise[:, : dims[0] // 2] *= -1
        return noise

    return drawn


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


def in_order(rng: Rng, phi: float, y: Array) -> Case:
    """A condition y that follows the order, in noise with a memory."""
    return Case(chain(white, serial(phi))(rng, len(y), DIMS), y)


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


def rare_events(rng: Rng) -> Case:
    """12 events among 600 samples."""
    return Case(white(rng, 600, DIMS), rng.permutation(np.arange(600) < 12).astype(int))


def with_nuisance(rng: Rng) -> Case:
    """A nuisance that y is correlated with moves the samples."""
    y = rng.standard_normal(60)
    age = y + rng.standard_normal(60)
    return Case(white(rng, 60, DIMS) + np.multiply.outer(age, white(rng, 1, DIMS)[0]), y, {"nuisance": age})


BOXCAR = (np.arange(N) // 10 % 2).astype(float)
HALVES = (np.arange(N) >= N // 2).astype(float)


def _rows() -> list[Row]:
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
        "boxcar y, AR(0.5)": (lambda rng: in_order(rng, 0.5, BOXCAR), {}),
        "all of A before all of B, AR(0.8)": (lambda rng: in_order(rng, 0.8, HALVES), {}),
        "y between 20 groups of 5": (lambda rng: between_groups(rng, 20, 5), {}),
        "y between 10 groups of 4": (lambda rng: between_groups(rng, 10, 4), {}),
        "mean of 12 groups of 5": (lambda rng: between_groups(rng, 12, 5, mean=True), {}),
        "30 % of entries missing, mean": (lambda rng: missing(rng, False), {}),
        "30 % of entries missing, effect": (lambda rng: missing(rng, True), {}),
        "3 of 30 three times louder": (loud_class, {}),
        "noise e^y, n = 20": (dose_is_loud, {}),
        "12 events in 600 samples": (rare_events, {}),
        "a nuisance that y follows": (with_nuisance, {}),
        "scattered copies": (scattered_copies, {"found": COPIES, "entries": COPIES}),
    }
    for name, (draw, excluded) in designs.items():
        found.append(Row("claims", name, RUNS, draw, claims, {"question": "design"}, excluded))
    return found


ROWS = _rows()
