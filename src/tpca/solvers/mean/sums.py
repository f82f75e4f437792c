"""The sums of several groups of samples, read at once: of small samples a reading takes longer than adding them up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tpca.tensors import Accumulator, Batch, TensorSum


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
