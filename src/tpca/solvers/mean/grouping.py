"""Sums of samples in contiguous groups, as they are read: what the test of the mean flips, and errors are read off.

Groups are contiguous because samples that follow each other may be alike: two groups then touch at one end only.  Where
the number of samples is known, all get the same number of them, a multiple of ``block`` (and of two, so that pairs of
neighbours, which the noise model is learnt from, are in one group).  Where it is not, whenever all groups are taken the
first two neighbours that hold the fewest samples become one: the largest group is never more than about twice the
smallest.  Where samples hold unequal shares of the signal (derived ones, :mod:`tpca.streams.contrasts`) a group counts
as many as its shares add up to, N in all.  Groups are sums in float32, which is far more than their noise needs.  Of
samples in float64 the sum of all is kept as well; of others it is that of the groups, made at the end: in float64, and
in float32, as the samples are, where these are ``LARGE``.  Groups in less memory: :mod:`tpca.solvers.mean.compact`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.solvers.mean.contrasts import Coded
from tpca.tensors.blocks import Array
from tpca.threads import share

Array32 = NDArray[Any]  # of float32, which the toolbox for float64 works on as well
Sums = Array32 | Coded  # of groups, or what these are combinations of

LARGE = 2**14  # entries, from which samples are neither copied nor widened as a whole: the work of a fit is less then
PIECE = 2**14  # entries of all groups that are worked on at a time: these stay in the second cache


def equal_groups(samples: int, groups: int, block: int) -> list[int]:
    """The sizes of so many groups of ``samples``, or fewer: multiples of ``block``, the rest in the last."""
    even = math.lcm(2, block)
    step = even if samples >= groups * even else block
    groups = max(1, min(groups, samples // step))
    edges = [g * samples // (groups * step) * step for g in range(groups)] + [samples]
    return [stop - start for start, stop in itertools.pairwise(edges)]


@kept
class Grouping:
    """The sums of groups, of which the last is open, how many samples are in each, and the sum of all.

    ``plan`` has the sizes of all groups, where the number of samples is known; ``most`` is how many there may be.
    """

    def __init__(self, dims: Sequence[int], most: int, block: int = 1, plan: Sequence[int] | None = None) -> None:
        self.plan = None if plan is None else list(plan)
        self.dims, self.most = tuple(dims), most if plan is None else len(plan)
        self._room = self._make_room()
        self.total: Array | None = None  # kept of samples in float64
        self.counts: list[int] = []
        self.worths: list[float] = []  # their shares of the signal
        self.size = block if plan is None else plan[0]  # of the open group, when it will be full

    def _make_room(self) -> Array32:
        return np.zeros((self.most, *self.dims), dtype=np.float32)  # in one piece: it is had sooner

    @property
    def sums(self) -> Array32:
        """The sums of all groups that have begun: ``(G, *dims)``."""
        return self._room[: len(self.counts)]

    @property
    def rows(self) -> Sums:
        """What all groups are combinations of: the sums themselves."""
        return self.sums

    @property
    def basis(self) -> Array | None:
        """As which combinations of the rows, ``(G, G)``; ``None`` where they are the sums."""
        return None

    @property
    def samples(self) -> int:
        """In all groups."""
        return sum(self.counts)

    @property
    def sizes(self) -> Array:
        """How much of the signal every group holds, in samples: as many as it has, where all hold as much."""
        worths = np.array(self.worths)
        return worths * (self.samples / max(float(worths.sum()), 1e-300))

    @property
    def filling(self) -> tuple[int, int]:
        """Samples that the open group, or the next if that is full, has room for, and those it will have then."""
        if self.counts and self.counts[-1] < self.size:
            return self.size - self.counts[-1], self.size
        return self._next_size(), self._next_size()

    @property
    def ahead(self) -> list[int]:
        """The room of the open group and the sizes of those after it; empty where there is no plan."""
        if self.plan is None:
            return []
        left = self.size - self.counts[-1] if self.counts else 0
        return [*([left] if left > 0 else []), *self.plan[len(self.counts) :]]

    @property
    def vacant(self) -> list[Array32]:
        """The memory of the next group, where a plan says that the samples to come are its first; empty elsewhere."""
        planned = self.plan is not None and len(self.counts) < self.most
        return [self._room[len(self.counts)]] if self._begins and planned else []

    @property
    def _begins(self) -> bool:
        """Whether the samples to come are the first of a group, or more than were said."""
        return not self.counts or self.counts[-1] >= self.size

    def add(self, part: NDArray[np.floating], n: int, worth: float | None = None) -> None:
        """Add ``n`` samples, which sum to ``part`` and are ``worth`` so many, to the open group."""
        if self.total is None and part.dtype.itemsize > 4:
            self.total = self.whole.astype(np.float64)
        if self._begins:
            self._open()
        if self.total is not None:
            self.total += part
        if self.counts[-1]:
            self.sums[-1] += part
        elif part.base is not self._room:  # else it is there already
            self.sums[-1] = part
        self.counts[-1] += n
        self.worths[-1] += n if worth is None else worth

    def multiply(self, factor: float) -> None:
        """Have all sums in another unit."""
        sums = self.sums
        sums *= np.float32(factor)
        if self.total is not None:
            self.total *= factor

    def transform(self, linear: Callable[[Array32], Array32]) -> None:
        """Have all sums transformed, one after the other."""
        for group in (*self.sums, *([] if self.total is None else [self.total])):
            group[...] = linear(group)

    @property
    def whole(self) -> Array:
        """The sum of all groups."""
        if self.total is not None:
            return self.total
        total = np.zeros(self.dims, total_type(self.dims))
        for group in self.sums:
            total += group
        return total

    def close(self) -> None:
        """There will be no more samples: a last group that is less than half of the smallest joins the one before."""
        if len(self.counts) > 1 and 2 * self.counts[-1] < min(self.counts[:-1]):
            self._merge(len(self.counts) - 2)
        self.most = max(1, len(self.counts))
        if self.most < len(self._room):
            self._room = self._room[: self.most].copy()

    def _next_size(self) -> int:
        if self.plan is not None:
            return self.plan[min(len(self.counts), len(self.plan) - 1)]
        return self.size if len(self.counts) < self.most else min(self._after_merging())

    def _after_merging(self) -> list[int]:
        pair = self._fewest()
        return [*self.counts[:pair], self.counts[pair] + self.counts[pair + 1], *self.counts[pair + 2 :]]

    def _fewest(self) -> int:
        """The first of the two neighbours that hold the fewest samples."""
        return int(np.argmin(np.add(self.counts[:-1], self.counts[1:])))

    def _open(self) -> None:
        self.size = self._next_size()
        if len(self.counts) == self.most:
            if self.plan is not None:  # more samples than were said: the last group takes them
                return
            self._merge(self._fewest())
        self.counts.append(0)
        self.worths.append(0.0)

    def _merge(self, first: int) -> None:
        """Have a group and the next in one; those after it move up, one by one so that nothing is copied twice."""
        sums = self.sums
        sums[first] += sums[first + 1]
        for group in range(first + 1, len(sums) - 1):
            sums[group] = sums[group + 1]
        self.counts[first : first + 2] = [self.counts[first] + self.counts[first + 1]]
        self.worths[first : first + 2] = [self.worths[first] + self.worths[first + 1]]


def total_type(dims: Sequence[int]) -> type[np.floating]:
    """The type of the sum of groups of samples in float32."""
    return np.float32 if math.prod(dims) > LARGE else np.float64


def pieces(entries: int) -> list[slice]:
    """All entries, some at a time."""
    return [slice(first, min(first + PIECE, entries)) for first in range(0, entries, PIECE)]


def inner_products(sums: Array32, total: Array | None = None) -> Array:
    """⟨S_g, S_h⟩ of all pairs, some entries at a time, which are added up in float64; on the way the ``total``, too.

    Of large samples the products of a piece are in float32: with 1e-6 of each at random, and many pieces, next to none.
    """
    flat, first = sums.reshape(len(sums), -1), len(sums) // 2
    parts, entries = pieces(flat.shape[1]), flat.shape[1]
    products = np.empty((len(parts), len(sums), len(sums)))

    def multiply(number: int) -> None:
        own = flat[:, parts[number]]
        if entries <= LARGE:
            own = own.astype(np.float64)
        # In two parts: of a matrix and itself NumPy has BLAS make one half only, which of few rows takes far longer.
        products[number, :, :first] = own @ own[:first].T
        products[number, :, first:] = own @ own[first:].T
        if total is not None:
            np.add.reduce(own, axis=0, out=total.reshape(-1)[parts[number]])

    share(multiply, range(len(parts)))
    both: Array = products.sum(axis=0)
    return (both + both.T) / 2
