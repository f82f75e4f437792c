r"""Real data without a signal: samples that ship with scikit-learn, TensorLy and statsmodels, times random signs.

Let :math:`x_1, \dots, x_n` be the samples, as they were measured or changed in any way that does not look at the signs:
scaled, centred, sorted.  With fair independent signs ε the samples :math:`ε_i x_i` are, given all x, independent and
symmetric about zero: an exact null, whatever the covariance, the tails, the outliers and the drift of the x, and
although the x may be alike from neighbour to neighbour.  A claim on them is a false one.  Three forms:

==============  ==================================================================================================
``single``      ε_i x_i.  The mean of x is not lost: it becomes a direction along which every sample is far from
                zero, with either sign, so that noise is strongest where x has its background.
``centred``     ε_j (x_{2j} − x_{2j−1})/√2: neighbours' differences, half as many; what all samples share is gone.
``groups``      the same differences, with one sign for a whole group of ``GROUP`` neighbours: exact for groups, and
                differences within one stay as alike as they were.  For sets whose order means something.
==============  ==================================================================================================

Nothing is downloaded.  statsmodels and TensorLy are imported where they are used (``pip install tpca[dev]``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.errors import StudyError
from tpca.tensors.blocks import Array

GROUP = 5
FORMS = ("single", "centred", "groups")


def digits() -> Array:
    """1797 handwritten digits, 8 × 8 pixels from 0 to 16.  Writers follow each other; classes are mixed."""
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().images, dtype=np.float64)


def _patches(image: Array, side: int) -> Array:
    """Squares of an image (rows, columns, channels) without overlap, in the order of a page."""
    rows, columns = image.shape[0] // side, image.shape[1] // side
    cut = image[: rows * side, : columns * side].reshape(rows, side, columns, side, -1)
    return np.ascontiguousarray(cut.swapaxes(1, 2).reshape(rows * columns, side, side, -1))


def _means(tensor: Array, count: int) -> Array:
    """Means of ``count`` neighbours along the last mode."""
    means: Array = tensor.reshape(*tensor.shape[:-1], -1, count).mean(axis=-1)
    return means


def _photograph(name: str) -> Array:
    """Squares of 8 × 8 points × 3 colours of a photograph at half its resolution; neighbours are alike."""
    from sklearn.datasets import load_sample_image

    image = np.asarray(load_sample_image(name), dtype=np.float64)
    image = image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]
    half = image.reshape(image.shape[0] // 2, 2, image.shape[1] // 2, 2, 3).mean(axis=(1, 3))
    return _patches(half, 8)


def _scaled(table: Any) -> Array:
    """Every column over its standard deviation."""
    columns = np.asarray(table, dtype=np.float64)
    scaled: Array = columns / columns.std(axis=0)
    return scaled


def breast_cancer() -> Array:
    """569 tumours: 10 properties of their cells × (mean, error, worst), each over its standard deviation."""
    from sklearn.datasets import load_breast_cancer

    return _scaled(load_breast_cancer().data).reshape(-1, 3, 10).swapaxes(1, 2)


def iris() -> Array:
    """150 flowers: (sepal, petal) × (length, width), in cm; sorted by species."""
    from sklearn.datasets import load_iris

    return np.asarray(load_iris().data, dtype=np.float64).reshape(-1, 2, 2)


def serology() -> Array:
    """438 sera: 6 antigens × 11 receptors, logarithms; sorted by the state of the patients."""
    from tensorly.datasets import load_covid19_serology

    return np.asarray(load_covid19_serology().tensor, dtype=np.float64)


def interleukin() -> Array:
    """50 plates (13 mutants of IL-2 × 4 times, two are missing): 12 doses × 8 kinds of cells."""
    from tensorly.datasets import load_IL2data

    plates = np.asarray(load_IL2data().tensor, dtype=np.float64).reshape(-1, 12, 8)
    return plates[np.isfinite(plates).all(axis=(1, 2))]


def fluorescence() -> Array:
    """64 measurements of catecholamines: 12 emission × 10 excitation wavelengths × 10 times (means of six)."""
    from tensorly.datasets import load_kinetic

    return _means(np.asarray(load_kinetic().tensor, dtype=np.float64), 6)


def hyperspectral() -> Array:
    """841 squares of a scene seen from the air: 5 × 5 points × 20 bands (means of ten); neighbours are alike."""
    from tensorly.datasets import load_indian_pines

    scene = np.asarray(load_indian_pines().tensor, dtype=np.float64)
    return _patches(_means(scene, 10), 5)


def elnino() -> Array:
    """61 years of the temperature of the sea: 4 quarters × 3 months; years follow each other."""
    from statsmodels.datasets import elnino as data

    return np.asarray(data.load_pandas().data, dtype=np.float64)[:, 1:].reshape(-1, 4, 3)


def economy() -> Array:
    """50 years of the United States: 4 quarters × changes of 8 quantities, each over its standard deviation."""
    from statsmodels.datasets import macrodata

    table = macrodata.load_pandas().data
    names = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi", "m1", "pop"]
    return _scaled(np.diff(np.log(np.asarray(table[names])), axis=0)[:200]).reshape(-1, 4, 8)


def travel() -> Array:
    """210 travellers: 4 ways to go × (waiting, cost, time, both together), each over its standard deviation."""
    from statsmodels.datasets import modechoice

    return _scaled(modechoice.load_pandas().data[["ttme", "invc", "invt", "gc"]]).reshape(-1, 4, 4)


@dataclass(frozen=True)
class RealSet:
    """How to load the samples, what one is, and whether neighbours have to do with each other."""

    load: Callable[[], Array]
    sample: str
    package: str
    ordered: bool = False

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of the null that say something here."""
        return FORMS if self.ordered else FORMS[:2]


SETS: dict[str, RealSet] = {
    "digits": RealSet(digits, "image, 8×8", "scikit-learn"),
    "china": RealSet(lambda: _photograph("china.jpg"), "square of a photograph, 8×8×3", "scikit-learn", True),
    "flower": RealSet(lambda: _photograph("flower.jpg"), "square of a photograph, 8×8×3", "scikit-learn", True),
    "breast cancer": RealSet(breast_cancer, "tumour, 10 properties × 3 statistics", "scikit-learn"),
    "iris": RealSet(iris, "flower, 2 leaves × 2 lengths", "scikit-learn"),
    "serology": RealSet(serology, "serum, 6 antigens × 11 receptors", "TensorLy"),
    "interleukin": RealSet(interleukin, "plate, 12 doses × 8 cells", "TensorLy"),
    "fluorescence": RealSet(fluorescence, "measurement, 12 × 10 wavelengths × 10 times", "TensorLy"),
    "hyperspectral": RealSet(hyperspectral, "square of a scene, 5×5×20 bands", "TensorLy", True),
    "El Niño": RealSet(elnino, "year, 4 quarters × 3 months", "statsmodels"),
    "economy": RealSet(economy, "year, 4 quarters × 8 changes", "statsmodels"),
    "travel": RealSet(travel, "traveller, 4 ways × 4 costs", "statsmodels"),
}


@functools.cache
def samples_of(name: str) -> Array:
    """The samples as they are."""
    samples = SETS[name].load()
    samples.setflags(write=False)
    return samples


def null_of(name: str, form: str, rng: np.random.Generator) -> Array:
    """One draw of the signs, on the samples or on the differences of neighbours."""
    if form not in SETS[name].forms:
        raise StudyError(f"form must be one of {', '.join(SETS[name].forms)} for {name!r}, got {form!r}.")
    samples = samples_of(name)
    if form != "single":
        even = len(samples) // 2 * 2
        samples = (samples[1:even:2] - samples[:even:2]) / math.sqrt(2.0)
    length = GROUP if form == "groups" else 1
    signs = np.repeat(rng.choice([-1.0, 1.0], -(-len(samples) // length)), length)[: len(samples)]
    flipped: Array = samples * signs.reshape(-1, *[1] * (samples.ndim - 1))
    return flipped
