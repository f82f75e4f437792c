r"""Digests of samples: a number that their entries alone decide, whatever the order in which samples come.

A sample x is cut into rows of ``WIDTH`` entries.  With fixed numbers :math:`a_r, b_w`, uniform between -1 and 1,
:math:`t_w = b_w\sum_r a_rx_{rw}`, and t is folded: its second half is added to the first, again and again, until
``LANES`` numbers are left.  Their bits, times fixed odd numbers, are added up and mixed (SplitMix64; Steele, Lea and
Flood 2014).

All is done entry by entry, in the precision of the sample, without a library of linear algebra, so that the bits do not
depend on threads, nor on how many samples come at a time.  Sums that are too large or too small for single precision
are formed in double precision.  Every entry counts: the borders of images are often empty.
Multiples of the bits of entries, which are cheaper still, do not tell samples of zeros and ones apart: these bits end
in dozens of zeros.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

LANES = 16
"""Sums that are left of a sample: of float32, 16 times 24 bits."""
WIDTH = 1024
"""Entries of a row: sums of rows stay in the fastest cache."""
PRODUCTS = 2**17
"""Numbers of row sums that are worked on at a time: about a cacheful."""
HUGE = 2.0**120
TINY = 2.0**-100
"""Sizes of sums beyond which single precision does not hold those before them."""
SEED = 20260
ROW_SEED = 20262


def digests(samples: NDArray[Any]) -> Digests:
    """The digest (n,) of every row of samples (n, E), which are float32 or float64."""
    count = samples.shape[0]
    width = min(samples.shape[1], WIDTH)
    step = max(1, PRODUCTS // max(1, width))
    digest = np.empty(count, np.uint64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):  # whoever uses the samples judges them
        for start in range(0, count, step):
            piece = samples[start : start + step]
            lanes = lanes_of(piece).astype(np.float64, copy=False)
            sizes = np.abs(lanes).max(axis=1)
            odd_size = ~((sizes > TINY) & (sizes < HUGE))
            if odd_size.any() and samples.dtype != np.float64:
                lanes[odd_size] = lanes_of(piece[odd_size].astype(np.float64))
            digest[start : start + step] = words_of(lanes)
    return scrambled(digest)


def lanes_of(samples: NDArray[Any]) -> NDArray[Any]:
    """Sums (n, LANES or fewer) of all entries of every sample, each times two numbers."""
    width = min(samples.shape[1], WIDTH)
    return folded(row_sums(samples) * factors_of(width, samples.dtype.str))


def row_sums(samples: NDArray[Any]) -> NDArray[Any]:
    """The sum (n, WIDTH) of all rows of WIDTH entries, each times a number; a sample that is shorter is one row."""
    count, entries = samples.shape
    if entries <= WIDTH:
        return samples
    n_rows = entries // WIDTH
    whole = n_rows * WIDTH
    factors = factors_of(n_rows + 1, samples.dtype.str, ROW_SEED)
    sums = np.empty((count, WIDTH), samples.dtype)
    for sample, row_sum in zip(samples, sums, strict=True):
        np.einsum("r,rw->w", factors[:n_rows], sample[:whole].reshape(n_rows, WIDTH), out=row_sum)
    sums[:, : entries - whole] += factors[n_rows] * samples[:, whole:]
    return sums


def folded(products: NDArray[Any]) -> NDArray[Any]:
    """Sums (n, LANES or fewer) of all products (n, w), which are used up."""
    width = products.shape[1]
    while width > LANES:
        half = (width + 1) // 2
        products[:, : width - half] += products[:, half:width]
        width = half
    return products[:, :width] + 0.0  # -0 is 0


def words_of(lanes: NDArray[Any]) -> Digests:
    """One word of all lanes (n, w)."""
    bits = lanes.view(np.uint64)
    multiples = bits * odd_numbers()[: bits.shape[1]]
    return np.asarray(np.add.reduce(multiples ^ (multiples >> np.uint64(32)), axis=1, dtype=np.uint64))


def scrambled(words: Digests) -> Digests:
    """Words whose every bit depends on all bits of those given."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@functools.lru_cache(maxsize=4)
def factors_of(count: int, dtype: str, seed: int = SEED) -> NDArray[Any]:
    """So many fixed numbers :math:`a` or :math:`b`."""
    rng = np.random.default_rng(seed)
    uniform = 2 * rng.random(count, dtype=np.float32) - 1
    return uniform.astype(dtype)


@functools.cache
def odd_numbers() -> Digests:
    """A fixed odd number for every lane."""
    rng = np.random.default_rng(SEED + 1)
    return rng.integers(2**63, size=LANES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
