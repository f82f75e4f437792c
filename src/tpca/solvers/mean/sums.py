"""Sums of groups of samples: of several at once, or made where they are kept.

Of small samples a reading takes longer than adding them up; of large ones a copy, and fresh memory for it, are worth
saving.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tpca.solvers.mean.grouping import Array32
from tpca.tensors import Accumulator, Batch, DenseBatch, TensorSum


class SumInPlace(TensorSum):
    """A sum that is made in the memory that ``room`` holds, if that is of the dtype of the samples and they are dense.

    The first part that has samples takes it; what is copied, or sent to a worker, has memory of its own.
    """

    def __init__(self, weight: float, room: list[Array32]) -> None:
        super().__init__(weight)
        self.question, self._room = (weight, room), room

    def _plus(self, batch: Batch) -> Any:
        if self.total is None and self._room and type(batch) is DenseBatch:
            (room,) = self._room
            if len(batch) and room.dtype == batch.content()[0].dtype:
                self._room.clear()
                batch.sum_into(room, self.weight)
                return room
        return super()._plus(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "question": (self.weight, []), "_room": []}


class GroupSums(Accumulator):
    """The sums of groups of so many samples that follow each other: ``parts``, one for every group."""

    in_one = True

    def __init__(self, weight: float, sizes: Sequence[int]) -> None:
        super().__init__(weight, sizes)
        self._edges = [0, *itertools.accumulate(sizes)]
        self.parts = [TensorSum(weight) for _ in sizes]

    def add(self, batch: Batch, at: int) -> None:
        """Add the samples to the groups that they belong to."""
        stop = at + len(batch)
        for part, (start, end) in zip(self.parts, itertools.pairwise(self._edges), strict=True):
            if start < stop and at < end:
                part.add(batch[max(start - at, 0) : end - at])
        self.n += len(batch)

    def merge(self, other: GroupSums) -> None:
        """Add the sums of every group."""
        for own, others in zip(self.parts, other.parts, strict=True):
            own.merge(others)
        self.n += other.n

    def finish(self) -> None:
        """Sums on a device come to the host."""
        for part in self.parts:
            part.finish()

    @property
    def nbytes(self) -> int:
        """All sums."""
        return sum(part.nbytes for part in self.parts)
