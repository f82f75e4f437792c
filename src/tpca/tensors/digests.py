r"""Digests of samples: a number that their entries alone decide, whatever the order in which samples come.

With fixed numbers :math:`r_e`, uniform between -1 and 1, the products :math:`x_e r_e` of a sample x are folded: its
entries are cut into rows of ``WIDTH``, all rows are added up, and of the sums the second half is added to the first,
again and again, until ``LANES`` are left.  Their bits, times fixed odd numbers, are added up and mixed (SplitMix64;
Steele, Lea and Flood 2014).

All is done entry by entry, in the dtype of the sample, so every processor and every library of linear algebra gives
the same bits.  Every entry counts: the borders of images are often empty.  Multiples of the bits of entries, which are
cheaper still, do not tell samples of zeros and ones apart: these bits end in dozens of zeros.
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
"""Entries of a row: sums of a row stay in the fastest cache."""
PRODUCTS = 2**17
"""Products of small samples that are formed at a time: about a cacheful."""
SEED = 20260


def digests(samples: NDArray[Any]) -> Digests:
    """The digest (n,) of every row of samples (n, E), which are float32 or float64."""
    entries = samples.shape[1]
    factors = factors_of(entries, samples.dtype.str)
    step = max(1, PRODUCTS // max(1, entries))
    if entries >= WIDTH:
        step = 1
    digest = np.empty(len(samples), np.uint64)
    products = np.empty((min(step, len(samples)), entries), samples.dtype)
    for start in range(0, len(samples), step):
        rows = samples[start : start + step]
        lanes = folded(rows, factors, products[: len(rows)])
        digest[start : start + step] = words_of(lanes)
    return mixed(digest)


def folded(samples: NDArray[Any], factors: NDArray[Any], products: NDArray[Any]) -> NDArray[Any]:
    """Sums (n, LANES or fewer) of all ``products`` of entries and factors, which are formed in that memory."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):  # whoever uses the samples judges them
        np.multiply(samples, factors, out=products)
        if products.shape[1] > WIDTH:
            products = added_rows(products)
        width = products.shape[1]
        while width > LANES:
            half = (width + 1) // 2
            products[:, : width - half] += products[:, half:width]
            width = half
        return products[:, :width] + 0.0  # -0 is 0


def added_rows(products: NDArray[Any]) -> NDArray[Any]:
    """The sum (n, WIDTH) of all rows of WIDTH entries; a last row that is shorter is added to its first columns."""
    count, entries = products.shape
    whole = entries // WIDTH * WIDTH
    sums = np.add.reduce(products[:, :whole].reshape(count, -1, WIDTH), axis=1)
    sums[:, : entries - whole] += products[:, whole:]
    return np.asarray(sums)


def words_of(lanes: NDArray[Any]) -> Digests:
    """One word of all lanes (n, w)."""
    bits = lanes.astype(np.float64).view(np.uint64)
    multiples = bits * odd_numbers()[: bits.shape[1]]
    return np.asarray(np.add.reduce(multiples ^ (multiples >> np.uint64(32)), axis=1, dtype=np.uint64))


def mixed(words: Digests) -> Digests:
    """Words whose every bit depends on all bits of those given."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@functools.lru_cache(maxsize=4)
def factors_of(entries: int, dtype: str) -> NDArray[Any]:
    """The fixed numbers :math:`r_e` of samples with so many entries."""
    rng = np.random.default_rng(SEED)
    uniform = 2 * rng.random(entries, dtype=np.float32) - 1
    return uniform.astype(dtype)


@functools.cache
def odd_numbers() -> Digests:
    """A fixed odd number for every lane."""
    rng = np.random.default_rng(SEED + 1)
    return rng.integers(2**63, size=LANES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
