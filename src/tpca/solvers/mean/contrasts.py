r"""Sums of groups of large samples as their total and their contrasts, of which one byte an entry is kept.

With :math:`S_g` the sum of group g, which holds :math:`n_g` of the signal, :math:`T_g = S_1 + \dots + S_g` and
:math:`N_g = n_1 + \dots + n_g`, the contrasts (Helmert, but for a factor)

.. math:: D_g = S_g - r_gT_g, \qquad r_g = \frac{n_g}{N_g}, \qquad g = 2, \dots, G ,

have nothing of the signal, and all groups are combinations of these and of :math:`T = T_G`:

.. math:: S_g = D_g + r_gT_g, \qquad T_{g-1} = T_g - S_g, \qquad S_1 = T_1 .

*Rounding.*  The mean is made of T, which is kept as it is.  An entry of a contrast is the nearest of −127, …, 127 times
a unit that it shares with those of its block: the largest of these over 127.  What rounding adds is uniform and
uncorrelated with noise that spreads over half a unit, of the variance unit²/12: 10⁻⁴ of that of Gaussian noise, of
which the largest of 2¹⁵ is 4.3σ.  So flips have a little more noise than the mean, and the test
(:mod:`tpca.solvers.mean.test`) errs on the safe side.

*Outliers.*  Where the largest is more than ``FAR`` times the mean size, entries of more than ``FAR`` times the median,
or one in ``SPARSE`` if these are more, are kept as they are, and the unit is that of the others.  Single large entries,
which make a fit as long as any, are the same in all flips: what decides is the noise of other groups at their places,
and rounding must not drown it, for the error of a contrast is shared out evenly over all groups before it, which no
flip of signs does.  (With all rounded alike, tests of Cauchy noise claimed a signal in one of nine cases.)
Where more than one in ``SPARSE`` is large, several groups have large entries at one place, and decide.

What is rounded must not have directions that are far quieter than others, such as smooth noise has: it is white, or
whitened before (:mod:`tpca.solvers.mean.compact`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import middle
from tpca.tensors.dense import total_size
from tpca.tensors.products import gram_of
from tpca.threads import gathered, share

BLOCK = 2**15  # entries with one unit, that are worked on at a time: in the second cache; or one row, if that is more
STRANDS = 4  # of blocks, whose sums are added up: always the same, whoever makes them
PARTS = 4  # of a block, of which BLAS makes the products sooner than of the whole
MAX_NUMBER = 127
FAR, SPARSE = 32, 16
TINY = 1e-30  # entries that are none: one over them would leave the range of float32

Linear = Callable[[NDArray[Any]], NDArray[Any]]
Rows = NDArray[np.float32]
NONE = np.empty(0, np.int32), np.empty(0, np.float32)


@functools.lru_cache(64)
def blocks_of(dims: tuple[int, ...]) -> list[slice]:
    """Entries of the blocks: rows of the matrix that is a tensor with its modes cut in the middle."""
    width = math.prod(dims[middle(dims) :])
    step, entries = width * max(1, BLOCK // width), math.prod(dims)
    return [slice(first, min(first + step, entries)) for first in range(0, entries, step)]


def contrast_bytes(dims: Sequence[int], count: int) -> int:
    """Bytes of so many contrasts: an entry takes one, a block the four of its unit, an outlier eight.

    And of what two threads read, a block of all rows each in float32.
    """
    sizes: list[int] = [some.stop - some.start for some in blocks_of(tuple(dims))]
    return count * (sum(sizes) + 4 * len(sizes) + 8 * sum(map(_most_outliers, sizes))) + 2 * 4 * (count + 1) * max(
        sizes
    )


def _outliers(sizes: NDArray[Any]) -> NDArray[np.int32]:
    """Where entries are that are kept as they are."""
    where = np.flatnonzero(sizes > FAR * np.median(sizes))
    most = _most_outliers(len(sizes))
    if len(where) > most:
        where = np.sort(np.argpartition(sizes, -most)[-most:])
    return where.astype(np.int32)


def _most_outliers(entries: int) -> int:
    return 1 + entries // SPARSE


@kept
class RoundedContrasts:
    """So many contrasts, as whole ``numbers`` ``(count, entries)`` and the ``units`` of blocks ``(count, blocks)``.

    ``outliers`` has places and values of those of a contrast's block, for which numbers are 0.
    """

    def __init__(self, dims: Sequence[int], count: int) -> None:
        self.dims = tuple(dims)
        self.numbers = np.zeros((count, math.prod(dims)), np.int8)
        self.units = np.zeros((count, len(blocks_of(self.dims))), np.float32)
        self.outliers: dict[tuple[int, int], tuple[NDArray[np.int32], Rows]] = {}

    def put(self, place: int, values: NDArray[Any]) -> None:
        """Keep one contrast, which is used up."""
        flat, blocks = values.reshape(-1), blocks_of(self.dims)
        share(lambda block: self.put_block(place, block, flat[blocks[block]]), range(len(blocks)))

    def put_block(self, place: int, block: int, values: NDArray[Any]) -> None:
        """Keep a block of a contrast; its ``values`` are used up."""
        self.outliers.pop((place, block), None)
        largest = _largest(values)
        if largest * len(values) > FAR * total_size(values):
            where = _outliers(np.abs(values))
            self.outliers[place, block] = where, values[where].astype(np.float32)
            values[where] = 0
            largest = _largest(values)
        unit = largest / MAX_NUMBER if largest > TINY else 1.0
        values *= 1 / unit
        np.rint(values, out=values)
        np.copyto(self.numbers[place, blocks_of(self.dims)[block]], values, casting="unsafe")
        self.units[place, block] = unit

    def read(self, block: int, out: Rows) -> Rows:
        """A block of all contrasts, in units that are returned, ``(count, 1)``."""
        units = self.units[:, block, None]
        out[...] = self.numbers[:, blocks_of(self.dims)[block]]
        if self.outliers:
            for place, own in enumerate(out):
                if (place, block) in self.outliers:
                    where, values = self.outliers[place, block]
                    own[where] = values / units[place]
        return units

    def shorten(self, count: int) -> None:
        """Keep the first few only."""
        if count < len(self.units):
            self.numbers, self.units = self.numbers[:count].copy(), self.units[:count].copy()

    def multiply(self, factor: float) -> None:
        """Have all in another unit."""
        self.units *= np.float32(factor)
        for _, values in self.outliers.values():
            values *= np.float32(factor)

    def transform(self, linear: Linear) -> None:
        """Have all transformed, one after the other."""
        blocks = blocks_of(self.dims)
        for place in range(len(self.units)):
            whole = self.numbers[place].astype(np.float32)
            for block, some in enumerate(blocks):
                whole[some] *= self.units[place, block]
                where, values = self.outliers.get((place, block), NONE)
                whole[some][where] = values
            self.put(place, np.ascontiguousarray(linear(whole.reshape(self.dims))))


def _largest(values: NDArray[Any]) -> float:
    """The size of the largest."""
    return float(max(np.maximum.reduce(values), -np.minimum.reduce(values)))


class Coded:
    """The rows of which groups are combinations: the ``head``, a multiple of T, and the contrasts."""

    def __init__(self, head: Array, contrasts: RoundedContrasts) -> None:
        self.head, self.contrasts = head, contrasts
        self.blocks = blocks_of(head.shape)

    def __len__(self) -> int:
        return 1 + len(self.contrasts.units)

    def block(self, number: int) -> tuple[Rows, Rows]:
        """A block of all rows, ``(G, n)``, and the units that these are in, ``(G, 1)``."""
        some, units = self.blocks[number], np.ones((len(self), 1), np.float32)
        found = np.empty((len(self), some.stop - some.start), np.float32)
        found[0] = self.head.reshape(-1)[some]
        units[1:] = self.contrasts.read(number, found[1:])
        return found, units

    def products(self) -> Array:
        """The inner products of all rows, a block at a time, which are added up in float64."""
        found = np.empty((len(self.blocks), len(self), len(self)))

        def multiply(number: int) -> None:
            own, units = self.block(number)
            parts = PARTS if own.shape[1] % PARTS == 0 else 1
            each = own.reshape(len(own), parts, -1).transpose(1, 0, 2)
            found[number] = gram_of(each).sum(axis=0, dtype=np.float64) * (units * units.T)

        share(multiply, range(len(self.blocks)))
        both: Array = found.sum(axis=0)
        return (both + both.T) / 2

    def mixed(self, coefficients: Rows) -> Rows:
        """Combinations of the rows, ``(count, entries)``."""
        found = np.empty((len(coefficients), self.head.size), np.float32)

        def mix(number: int) -> None:
            own, units = self.block(number)
            np.matmul(coefficients * units.T, own, out=found[:, self.blocks[number]])

        share(mix, range(len(self.blocks)))
        return found

    def contracted(self, left: NDArray[Any], right: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """All rows, as matrices, times one vector from the right and one from the left: ``(G, L)`` and ``(G, R)``."""
        found = np.empty((len(self), len(left)), np.float32)

        def strand(numbers: NDArray[np.intp]) -> Rows:
            total = np.zeros((len(self), len(right)), np.float32)
            for number in numbers:
                some, matrices, units = self._matrices(number, len(right))
                found[:, some] = units * (matrices @ right)
                total += units * (left[some] @ matrices)
            return total

        each = gathered(strand, np.array_split(np.arange(len(self.blocks)), STRANDS))
        return found, functools.reduce(np.add, each)

    def along(self, left: NDArray[Any], right: NDArray[Any]) -> Array:
        """All rows, as matrices, between some vectors ``(R, L)`` and as many ``(R, R)``: ``(G, R)``."""
        found = np.zeros((len(self), len(left)))
        for number in range(len(self.blocks)):
            some, matrices, units = self._matrices(number, right.shape[1])
            found += units * np.sum((matrices @ right.T) * left.T[some], axis=1)
        return found

    def _matrices(self, number: int, width: int) -> tuple[slice, Rows, Rows]:
        """Which rows of the matrices that tensors are a block is, these rows ``(G, n, width)``, and their units."""
        own, units = self.block(number)
        some = self.blocks[number]
        return slice(some.start // width, some.stop // width), own.reshape(len(own), -1, width), units


def group_rows(ratios: Sequence[float]) -> Array:
    """All S_g as combinations of T and the D_g: ``(G, G)``, from r_2, ..., r_G."""
    unit = np.eye(1 + len(ratios))
    total, rows = unit[0], []
    for own, ratio in zip(unit[:0:-1], reversed(ratios), strict=True):
        rows.append(own + ratio * total)
        total = total - rows[-1]
    return np.stack([total, *reversed(rows)])
