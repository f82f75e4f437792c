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
        """Leaves of the tree over the groups: as many, or the next power of two."""
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


class Groups(Generic[A]):
    """The groups of a reading, in their order, each an accumulator like ``blank``; those that are over are merged.

    No more than one part a level of the tree is held.
    """

    def __init__(self, blank: A) -> None:
        self._blank = blank
        self._parts: list[tuple[int, A]] = []  # the last one is open

    def part_of(self, group: int) -> A:
        """The accumulator of a group; those before it are over, and some may have had no samples."""
        if not self._parts or self._parts[-1][0] != group:
            if self._parts:
                self._parts[-1][1].close()
                _merge(self._parts, group)
            self._parts.append((group, self._blank.fresh()))
        return self._parts[-1][1]

    @property
    def nbytes(self) -> int:
        """Of all that is held."""
        return sum(part.nbytes for _, part in self._parts)

    def merged(self) -> A:
        """All groups, of which there is at least one."""
        self._parts[-1][1].close()
        _merge(self._parts)
        return self._parts[0][1]


def merge_all(parts: Sequence[A | None]) -> A | None:
    """The root over some leaves, which are not changed themselves; ``None`` where all are missing."""
    held: list[tuple[int, A]] = []
    for leaf, part in enumerate(parts):
        if part is not None:
            _merge(held, leaf)
            held.append((leaf, copy.deepcopy(part)))
    _merge(held)
    return held[0][1] if held else None


def _merge(held: list[tuple[int, A]], following: int | None = None) -> None:
    """Merge neighbours, each with one of its leaves, that meet in the tree before leaf ``following`` meets them.

    Leaves a and b of a complete binary tree meet at the level of the highest bit in which their numbers differ.
    """
    while len(held) > 1:
        (left, own), (right, other) = held[-2:]
        if following is not None and (left ^ right) > (right ^ following):
            return
        own.merge(other)
        held[-2:] = [(left, own)]
