"""Sums of samples in contiguous groups, as they are read: what the test of the mean flips, and errors are read off.

Groups are contiguous because samples that follow each other may be alike: two groups then touch at one end only.  Where
the number of samples is known, all get the same number of them, a multiple of ``block`` (and of two, so that pairs of
neighbours, which the noise model is learnt from, are in one group).  Where it is not, whenever all groups are taken the
first two neighbours that hold the fewest samples become one: the largest group is never more than about twice the
smallest.  Where samples hold unequal shares of the signal (derived ones, :mod:`tpca.streams.contrasts`) a group counts
as many as its shares add up to, N in all.  Groups are sums in float32, which is far more than their noise needs.  Of
samples in float64 the sum of all is kept as well; of others it is that of the groups, made when they are complete.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.tensors.blocks import Array

Array32 = NDArray[Any]  # of float32, which the toolbox for float64 works on as well

PIECE = 2**12  # entries of all groups that are widened at a time
CANCELLED = 1e-8  # of the energy of all groups: rounding in float32 leaves 1e-14 of it, chance about all


def equal_groups(samples: int, groups: int, block: int) -> list[int]:
    """The sizes of so many groups of ``samples``, or fewer: multiples of ``block``, the rest in the last."""
    even = math.lcm(2, block)
    step = even if samples >= groups * even else block
    groups = max(1, min(groups, samples // step))
    edges = [g * samples // (groups * step) * step for g in range(groups)] + [samples]
    return [stop - start for start, stop in itertools.pairwise(edges)]


@kept
class Grouping:
    """The sums of groups ``(G, *dims)``, of which the last is open, how many samples are in each, and the sum of all.

    ``plan`` has the sizes of all groups, where the number of samples is known; ``most`` is how many there may be.
    """

    def __init__(self, dims: Sequence[int], most: int, block: int = 1, plan: Sequence[int] | None = None) -> None:
        self.plan = None if plan is None else list(plan)
        self.sums: Array32 = np.zeros((most if plan is None else len(plan), *dims), dtype=np.float32)
        self.total: Array | None = None  # of samples in float32, once the groups are closed
        self.counts: list[int] = []
        self.worths: list[float] = []  # their shares of the signal
        self.size = block if plan is None else plan[0]  # of the open group, when it will be full

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

    def add(self, part: NDArray[np.floating], n: int, worth: float | None = None) -> None:
        """Add ``n`` samples, which sum to ``part`` and are ``worth`` so many, to the open group."""
        if not self.counts or self.counts[-1] >= self.size:
            self._open()
        if self.total is None and part.dtype.itemsize > self.sums.itemsize:
            self.total = self._all_groups()
        self.sums[len(self.counts) - 1] += part
        if self.total is not None:
            self.total += part
        self.counts[-1] += n
        self.worths[-1] += n if worth is None else worth

    def multiply(self, factor: float) -> None:
        """Have all sums in another unit."""
        self.sums *= np.float32(factor)
        if self.total is not None:
            self.total *= factor

    def transform(self, linear: Callable[[Array32], Array32]) -> None:
        """Have all sums transformed, one after the other."""
        for group in self.sums:
            group[...] = linear(group)
        if self.total is not None:
            self.total[...] = linear(self.total)

    @property
    def whole(self) -> Array:
        """The sum of all groups: kept, once they are closed."""
        return self._all_groups() if self.total is None else self.total

    @property
    def centred(self) -> bool:
        """Whether the groups cancel: their mean is zero to rounding, which chance never does."""
        if len(self.counts) < 2:
            return False
        energy = math.fsum(float(np.vdot(group, group)) for group in self.sums)
        return float(np.vdot(self.whole, self.whole)) < CANCELLED * energy

    def close(self) -> None:
        """There will be no more samples: a last group that is less than half of the smallest joins the one before."""
        if len(self.counts) > 1 and 2 * self.counts[-1] < min(self.counts[:-1]):
            self._merge(len(self.counts) - 2)
        if len(self.counts) < len(self.sums):
            self.sums = self.sums[: max(1, len(self.counts))].copy()
        if self.total is None:
            self.total = self._all_groups()

    def _all_groups(self) -> Array:
        """The sum of the groups in float64, some entries at a time."""
        total, flat = np.empty(self.sums.shape[1:]), self.sums.reshape(len(self.sums), -1)
        for some in _pieces(flat.shape[1]):
            flat[:, some].sum(axis=0, dtype=np.float64, out=total.reshape(-1)[some])
        return total

    def _next_size(self) -> int:
        if self.plan is not None:
            return self.plan[min(len(self.counts), len(self.plan) - 1)]
        return self.size if len(self.counts) < len(self.sums) else min(self._after_merging())

    def _after_merging(self) -> list[int]:
        pair = self._fewest()
        return [*self.counts[:pair], self.counts[pair] + self.counts[pair + 1], *self.counts[pair + 2 :]]

    def _fewest(self) -> int:
        """The first of the two neighbours that hold the fewest samples."""
        return int(np.argmin(np.add(self.counts[:-1], self.counts[1:])))

    def _open(self) -> None:
        self.size = self._next_size()
        if len(self.counts) == len(self.sums):
            if self.plan is not None:  # more samples than were said: the last group takes them
                return
            self._merge(self._fewest())
        self.counts.append(0)
        self.worths.append(0.0)

    def _merge(self, first: int) -> None:
        """Have a group and the next in one; those after it move up, one by one so that nothing is copied twice."""
        self.sums[first] += self.sums[first + 1]
        for group in range(first + 1, len(self.counts) - 1):
            self.sums[group] = self.sums[group + 1]
        self.sums[len(self.counts) - 1] = 0.0
        self.counts[first : first + 2] = [self.counts[first] + self.counts[first + 1]]
        self.worths[first : first + 2] = [self.worths[first] + self.worths[first + 1]]


def inner_products(sums: Array32) -> Array:
    """⟨S_g, S_h⟩ of all pairs, in float64, some entries at a time."""
    flat, count = sums.reshape(len(sums), -1), len(sums)
    # A row more: of a matrix and itself NumPy has BLAS make one half only, which of few rows takes seven times as long.
    wide, products = np.zeros((count + 1, PIECE)), np.zeros((count, count + 1))
    for some in _pieces(flat.shape[1]):
        own = wide[:, : some.stop - some.start]
        own[:count] = flat[:, some]
        products += own[:count] @ own.T
    return products[:, :count]


def _pieces(entries: int) -> Iterator[slice]:
    return (slice(first, min(first + PIECE, entries)) for first in range(0, entries, PIECE))
