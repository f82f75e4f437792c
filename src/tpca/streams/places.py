r"""A number for every row of views that depends on what is in it, and on nothing else.

Whoever splits rows by it gets the same parts whatever the order of the rows, the seed, the batches, or who reads them;
and rows that are the same are in the same part, so that none is judged by a copy of itself.

Entries are taken in single precision, with :math:`b_{jc}` the bits of entry c of row j, all views side by side, and
:math:`m_c` odd numbers of 64 bits:

.. math::
    h_j = \sum_c m_c\, b_{jc} \bmod 2^{64}, \qquad u_j = \mathrm{mix}(h_j) / 2^{64},

mix being the finaliser of SplitMix64 (Steele, Lea and Flood 2014), after which u is as good as uniform on [0, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.randomness import generator
from tpca.tensors.blocks import Array
from tpca.tensors.views import ViewsBatch

SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
COLUMNS = 256  # so many at a time: what is formed for them stays small


class PlacedBatch(ViewsBatch):
    """Rows with the ``places`` of what they were before they were clipped and whitened."""

    def __init__(self, batch: ViewsBatch, places: Array) -> None:
        super().__init__(batch.views, batch.weights, batch.first, batch.dropped)
        self.places = places

    def __getitem__(self, some: slice) -> PlacedBatch:
        return PlacedBatch(super().__getitem__(some), self.places[some])


def places(batch: ViewsBatch) -> Array:
    """The number of every row of a batch."""
    if isinstance(batch, PlacedBatch):
        return batch.places
    return places_of(batch.views)


def places_of(views: Sequence[NDArray[Any]]) -> Array:
    """The number u of every row of some views."""
    widths = [view.shape[1] for view in views]
    drawn = generator(0, "places of rows").integers(0, 2**63, sum(widths), dtype=np.uint64)
    factors = np.split(2 * drawn + np.uint64(1), np.cumsum(widths)[:-1])
    total = np.zeros(len(views[0]), np.uint64)
    for view, own in zip(views, factors, strict=True):
        for first in range(0, view.shape[1], COLUMNS):
            some = slice(first, first + COLUMNS)
            with np.errstate(over="ignore"):  # beyond single precision all are infinite, which is as good as any bits
                single = view[:, some].astype(np.float32) + np.float32(0)  # no two zeros
            total += single.view(np.uint32) @ own[some]
    return mixed(total)


def mixed(numbers: NDArray[np.uint64]) -> Array:
    """mix(h)/2^64 of some h, in [0, 1)."""
    for shift, factor in SHIFTS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((numbers ^ (numbers >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
