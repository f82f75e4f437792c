"""Groups: how samples that are read are cut, so that their sums come out bit by bit the same, whoever adds them up.

Sums of floating-point numbers depend on their order.  Samples are therefore cut into K = 2^p groups of whole batches,
each reduced by itself, batch after batch; what is left of the groups is merged in pairs, the pairs in pairs, and so on.
Groups and tree follow from the place in the stream, the samples asked for and the accumulator, never from the number of
workers: one process that does all groups one after the other (:class:`~tpca.engines.LocalEngine`) and any number of
workers that do some each (:class:`~tpca.engines.DaskEngine`) get the same bits.

How small may a group be?  It costs, beside the reading of its samples, a task and, at the end, what its accumulator
does to close it: the contraction of a sum with all R replicas, about 4R operations an entry.  In a group of
``REPLICA_SAMPLES``·R samples that is 2 operations for every number read: by estimate from arrays in memory (R = 50, one
core) 15 % of the time of a plain ``.npy`` file in the system's cache, 2 % of that of a compressed Zarr store.  Rounds
over arrays in memory, which are read faster still and only here, are not cut; whole passes are.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from tpca.data.base import Layout
from tpca.tensors import Accumulator

GROUP_ENTRIES = 2**22  # numbers read for a group: tens of milliseconds, many times what a task costs
GROUP_SAMPLES = 8  # so that merging is little beside adding up
MAX_GROUPS = 2**14

A = TypeVar("A", bound=Accumulator)


@dataclass(frozen=True)
class Cut:
    """The groups of one reading: group g has the batches from number ``edges[g]`` on, the last one all that follow."""

    edges: tuple[int, ...]
    closes: bool
    """Whether groups are closed; not where all samples are one group that nobody else can read."""

    @property
    def leaves(self) -> int:
        """Leaves of the tree: the number of groups, or the next power of two."""
        return 1 << (len(self.edges) - 1).bit_length()

    def group(self, number: int) -> int:
        """The group of batch ``number``."""
        return max(0, int(np.searchsorted(self.edges, number, side="right")) - 1)


def cut_samples(layout: Layout | None, dtype: Any, blank: Accumulator, place: int, n: int | None) -> Cut:
    """How to cut ``n`` samples from place ``place`` of a stream on; one group where no worker could read it anyway."""
    if layout is None or (layout.private and n is not None):
        return Cut((0,), False)
    end = int(layout.bounds[-1])
    stop = end if n is None else min(place + n, end)
    least = max(GROUP_SAMPLES, -(-GROUP_ENTRIES // layout.entries), blank.least_samples(sum_bytes(layout, dtype)))
    return Cut(edges_of(layout, place, stop, max(1, stop - place if n is None else n) // least), True)


def sum_bytes(layout: Layout, dtype: Any) -> int | None:
    """Bytes of a sum of samples; ``None`` where they do not come whole."""
    return layout.entries * np.dtype(dtype).itemsize if layout.summable else None


def edges_of(layout: Layout, place: int, stop: int, most: int) -> tuple[int, ...]:
    """Edges of 2^p groups of whole batches, about equal, ``most`` of them; batches that stay alone are a group each."""
    first = max(0, int(np.searchsorted(layout.bounds, place, side="right")) - 1)
    last = int(np.searchsorted(layout.bounds, stop, side="left"))
    batches = max(1, last - first)
    count = min(batches, MAX_GROUPS)
    if not layout.alone:
        count = 2 ** (max(1, min(count, most)).bit_length() - 1)
    return tuple(first + g * batches // count for g in range(count))


class Tree(Generic[A]):
    """Merges the leaves of a complete binary tree as they come, in their order; leaves may be missing.

    Holds no more than one part a level.  Parts that are given are changed: give copies of what others hold.
    """

    def __init__(self, leaves: int) -> None:
        self._levels = (leaves - 1).bit_length()
        self._next = 0
        self._waiting: dict[int, A | None] = {}
        self._root: A | None = None

    def put(self, leaf: int, part: A) -> None:
        """Take leaf number ``leaf``; those before it that have not come are missing."""
        while self._next < leaf:
            self._push(None)
        self._push(part)

    def root(self) -> A | None:
        """All leaves, merged; ``None`` if all are missing."""
        while self._next < 2**self._levels:
            self._push(None)
        return self._root

    def waiting(self) -> list[A]:
        """What is held."""
        return [part for part in self._waiting.values() if part is not None]

    def _push(self, part: A | None) -> None:
        leaf, self._next = self._next, self._next + 1
        for level in range(self._levels):
            if not (leaf >> level) & 1:
                self._waiting[level] = part
                return
            part = _merged(self._waiting.pop(level), part)
        self._root = part


def _merged(left: A | None, right: A | None) -> A | None:
    if left is None or right is None:
        return right if left is None else left
    left.merge(right)
    return left


class Groups(Generic[A]):
    """The groups of a reading, in their order, each an accumulator like ``blank``; those that are over are merged."""

    def __init__(self, blank: A, leaves: int) -> None:
        self._blank, self._tree, self._group = blank, Tree[A](leaves), 0
        self._part: A | None = None

    def part_of(self, group: int) -> A:
        """The accumulator of a group; those before it are over."""
        if group != self._group:
            self._close()
        self._group, self._part = group, self._blank.fresh() if self._part is None else self._part
        return self._part

    @property
    def nbytes(self) -> int:
        """Of all that is held."""
        return sum(part.nbytes for part in (self._part, *self._tree.waiting()) if part is not None)

    def merged(self) -> A:
        """All groups, of which there is at least one."""
        self._close()
        root = self._tree.root()
        assert root is not None
        return root

    def _close(self) -> None:
        if self._part is not None:
            self._part.close()
            self._tree.put(self._group, self._part)
            self._part = None


def merge_all(parts: Sequence[A | None]) -> A | None:
    """The root over some leaves, which are not changed themselves."""
    tree: Tree[A] = Tree(len(parts))
    for leaf, part in enumerate(parts):
        if part is not None:
            tree.put(leaf, copy.deepcopy(part))
    return tree.root()
