"""Groups: how a round is cut, so that its sums come out bit by bit the same, whoever adds them up.

Sums of floating-point numbers depend on their order.  A round is therefore cut into K = 2^p groups of whole batches,
each reduced by itself, batch after batch; what is left of the groups is merged in pairs, the pairs in pairs, and so on.
Groups and tree follow from the place in the stream, the samples asked for and the shapes of the questions, never from
the number of workers: one process that does all groups one after the other (:class:`~tpca.engines.LocalOracle`) and any
number of workers that do some each (:class:`~tpca.engines.DaskOracle`) get the same bits.

How small may a group be?  It costs, beside the reading of its samples, a task and, at the end,

* the contraction of its sum with all R replicas, about 4R operations an entry.  In a group of ``REPLICA_SAMPLES``·R
  samples that is 2 operations for every number read: by estimate from arrays in memory (R = 50, one core) 15 % of the
  time of a plain ``.npy`` file in the system's cache, 2 % of that of a compressed Zarr store.  Arrays in memory, which
  are read faster still and only here, are not cut;
* where the sum of the samples is smaller than the gradients of all replicas, it is not contracted at all: the sums are
  merged, and the contraction is done once, at the end (:func:`travels_as_sum`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from tpca.streams.protocol import Layout
from tpca.tensors import Query

GROUP_ENTRIES = 2**22  # numbers read for a group: tens of milliseconds, many times what a task costs
GROUP_SAMPLES = 8  # so that merging is little beside adding up
REPLICA_SAMPLES = 2.0
MOST_GROUPS = 2**14


class Mergeable(Protocol):
    """Something that takes up another of its kind."""

    def merge(self, other: Self, /) -> None:
        """Add what ``other`` holds."""


Part = TypeVar("Part", bound=Mergeable)


@dataclass(frozen=True)
class Cut:
    """The groups of one round: group g has the batches from number ``edges[g]`` on, the last one all that follow."""

    edges: tuple[int, ...]
    contracts: bool
    """Whether groups end as gradients; else as sums of samples, contracted when all are merged."""

    @property
    def leaves(self) -> int:
        """Leaves of the tree: the number of groups, or the next power of two."""
        return 1 << (len(self.edges) - 1).bit_length()

    def group(self, number: int) -> int:
        """The group of batch ``number``."""
        return max(0, int(np.searchsorted(self.edges, number, side="right")) - 1)


def cut_round(layout: Layout | None, dtype: Any, queries: Sequence[Query], place: int, n: int) -> Cut:
    """How to cut ``n`` samples from place ``place`` of a stream on; one group where no worker could read it anyway."""
    if layout is None or layout.private:
        return Cut((0,), False)
    contracts = not (layout.summable and travels_as_sum(layout, dtype, queries))
    return Cut(cut_batches(layout, place, n, least_samples(layout, queries if contracts else ())), contracts)


def cut_batches(layout: Layout, place: int, n: int, least: int) -> tuple[int, ...]:
    """Edges of 2^p groups of whole batches, about equal, of ``least`` samples or more as far as can be told.

    Batches that stay alone are a group each.
    """
    bounds = layout.bounds
    first = max(0, int(np.searchsorted(bounds, place, side="right")) - 1)
    last = int(np.searchsorted(bounds, min(place + n, int(bounds[-1])), side="left"))
    batches = max(1, last - first)
    count = min(batches, MOST_GROUPS)
    if not layout.alone:
        count = 2 ** (max(1, min(count, n // least)).bit_length() - 1)
    return tuple(first + g * batches // count for g in range(count))


def least_samples(layout: Layout, queries: Sequence[Query]) -> int:
    """Samples that make a group worth its while, if it ends with the contraction of ``queries``."""
    least = max(GROUP_SAMPLES, -(-GROUP_ENTRIES // layout.entries))
    if not layout.summable:  # contracted batch by batch in any case
        return least
    replicas = sum(len(query.replicas[0]) for query in queries if len(query.partition) > 1)
    return max(least, int(REPLICA_SAMPLES * replicas))


def travels_as_sum(layout: Layout, dtype: Any, queries: Sequence[Query]) -> bool:
    """Whether the sum of some samples is no larger than the gradients of all queries."""
    return bool(layout.entries * np.dtype(dtype).itemsize <= gradient_bytes(queries))


def gradient_bytes(queries: Sequence[Query]) -> int:
    """Bytes of the summed gradients of all queries, in float64."""
    return 8 * sum(len(q.replicas[0]) * sum(q.partition.sizes[m] for m in q.blocks) for q in queries)


def answer_bytes(queries: Sequence[Query]) -> int:
    """Bytes of the answers to all queries: gradients in the precision of their replicas, and rewards."""
    return sum(
        len(q.replicas[0]) * (8 + sum(q.partition.sizes[m] * q.replicas[m].dtype.itemsize for m in q.blocks))
        for q in queries
    )


class Tree(Generic[Part]):
    """Merges the leaves of a complete binary tree as they come, in their order; leaves may be missing.

    Holds no more than one part a level.  Parts that are given are changed: give copies of what others hold.
    """

    def __init__(self, leaves: int) -> None:
        self._levels = (leaves - 1).bit_length()
        self._next = 0
        self._waiting: dict[int, Part | None] = {}
        self._root: Part | None = None

    def put(self, leaf: int, part: Part) -> None:
        """Take leaf number ``leaf``; those before it that have not come are missing."""
        while self._next < leaf:
            self._push(None)
        self._push(part)

    def root(self) -> Part | None:
        """All leaves, merged; ``None`` if all are missing."""
        while self._next < 2**self._levels:
            self._push(None)
        return self._root

    def waiting(self) -> list[Part]:
        """What is held."""
        return [part for part in self._waiting.values() if part is not None]

    def _push(self, part: Part | None) -> None:
        leaf, self._next = self._next, self._next + 1
        for level in range(self._levels):
            if not (leaf >> level) & 1:
                self._waiting[level] = part
                return
            part = _merged(self._waiting.pop(level), part)
        self._root = part


def _merged(left: Part | None, right: Part | None) -> Part | None:
    if left is None or right is None:
        return right if left is None else left
    left.merge(right)
    return left


def merge_all(parts: Sequence[Part | None], copied: Callable[[Part], Part]) -> Part | None:
    """The root over some leaves, which are not changed themselves."""
    tree: Tree[Part] = Tree(len(parts))
    for leaf, part in enumerate(parts):
        if part is not None:
            tree.put(leaf, copied(part))
    return tree.root()
