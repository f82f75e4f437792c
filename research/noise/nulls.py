"""Samples without a signal: laws of noise as mean and as effect, designs that invite false claims, real data.

Every row is an honest null: with ``found_`` at 5 % no more than 5 % of runs may claim.  Real data become one by random
signs of the samples (for the mean: whatever the samples are, with their signs they are independent and symmetric), or
by labels in random order (for effects).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from research.noise.laws import LAWS, Dims, Law, Rng, chain, exponential, levelled, lognormal, serial, white
from research.noise.row import Case, Row, claims
from tpca.tensors.blocks import Array

RUNS, REAL_RUNS = 400, 100
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


# Real data ------------------------------------------------------------------------------------------------------------


def _scaled(table: Any) -> Array:
    """Every column over its standard deviation."""
    columns = np.asarray(table, dtype=np.float64)
    return np.asarray(columns / columns.std(axis=0))


def _sklearn(name: str) -> tuple[Array, Any]:
    from sklearn import datasets

    data = getattr(datasets, f"load_{name}")()
    table = np.asarray(data.data, dtype=np.float64)
    if name == "digits":
        return table[:400].reshape(-1, 8, 8), data.target[:400].astype(str)
    if name == "breast_cancer":
        return _scaled(table).reshape(-1, 3, 10).swapaxes(1, 2), data.target
    return (table.reshape(-1, 2, 2) if name == "iris" else _scaled(table)), data.target.astype(str)


def _tensorly(name: str) -> tuple[Array, Any]:
    from tensorly import datasets

    tensor = np.asarray(getattr(datasets, f"load_{name}")().tensor, dtype=np.float64)
    if name == "IL2data":
        plates = tensor.reshape(-1, 12, 8)
        return plates[np.isfinite(plates).all(axis=(1, 2))], None
    if name == "kinetic":
        return tensor.reshape(*tensor.shape[:-1], -1, 6).mean(axis=-1), None
    return tensor, None


def _statsmodels(name: str) -> tuple[Array, Any]:
    from statsmodels import datasets

    table = getattr(datasets, name).load_pandas().data
    if name == "elnino":
        return np.asarray(table, dtype=np.float64)[:, 1:].reshape(-1, 4, 3), None
    if name == "modechoice":
        return _scaled(table[["ttme", "invc", "invt", "gc"]]).reshape(-1, 4, 4), None
    names = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi", "m1", "pop"]
    return _scaled(np.diff(np.log(np.asarray(table[names])), axis=0)[:200]).reshape(-1, 4, 8), None


SETS: dict[str, tuple[Callable[[str], tuple[Array, Any]], str, str]] = {
    "digits (scikit-learn)": (_sklearn, "digits", "image, 8×8"),
    "breast cancer (scikit-learn)": (_sklearn, "breast_cancer", "tumour, 10 properties × 3 statistics"),
    "iris (scikit-learn)": (_sklearn, "iris", "flower, 2 leaves × 2 lengths"),
    "wine (scikit-learn)": (_sklearn, "wine", "wine, 13 properties"),
    "interleukin 2 (TensorLy)": (_tensorly, "IL2data", "plate, 12 doses × 8 cells"),
    "kinetic fluorescence (TensorLy)": (_tensorly, "kinetic", "measurement, 12 × 10 wavelengths × 10 times"),
    "COVID serology (TensorLy)": (_tensorly, "covid19_serology", "serum, 6 antigens × 11 receptors"),
    "El Niño (statsmodels)": (_statsmodels, "elnino", "year, 4 quarters × 3 months"),
    "economy (statsmodels)": (_statsmodels, "macrodata", "year, 4 quarters × 8 changes"),
    "travel (statsmodels)": (_statsmodels, "modechoice", "traveller, 4 ways × 4 costs"),
}


@functools.cache
def real(name: str) -> tuple[Array, Any]:
    """Samples of a set, and their labels; ``None`` where it has none."""
    load, data, _ = SETS[name]
    return load(data)


def flipped(rng: Rng, name: str) -> Case:
    """Every sample with a random sign."""
    samples, _ = real(name)
    return Case(levelled(samples, rng.choice([-1.0, 1.0], len(samples))))


def relabelled(rng: Rng, name: str) -> Case:
    """The labels of the data in random order; halves where there are none."""
    samples, y = real(name)
    return Case(samples, labels(rng, len(samples)) if y is None else rng.permutation(y))


def _real_rows() -> list[Row]:
    found = []
    for name, (_, _, what) in SETS.items():
        for form, draw in {"random signs": flipped, "random labels": relabelled}.items():
            about = {"sample": what, "null": form, "set": name}
            found.append(Row("real", f"{name}, {form}", REAL_RUNS, functools.partial(draw, name=name), claims, about))
    return found


ROWS = [*_rows(), *_real_rows()]
