"""Several accumulators as one, so that samples are read once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpca.tensors.accumulators import Accumulator


class Together(Accumulator):
    """Several accumulators, filled with the same samples: ``parts``, in the order in which they were given."""

    def __init__(self, parts: Sequence[Accumulator]) -> None:
        super().__init__(tuple(parts))
        self.parts = tuple(part.fresh() for part in parts)
        self.of_few = any(part.of_few for part in parts)

    def add(self, batch: Any, at: int) -> None:
        """Hand the samples to every part."""
        for part in self.parts:
            part.add(batch, at)
        self.n += len(batch)

    def merge(self, other: Together) -> None:
        """Every part takes what its fellow has."""
        for own, others in zip(self.parts, other.parts, strict=True):
            own.merge(others)
        self.n += other.n

    def close(self) -> None:
        """A group of batches is complete for every part."""
        for part in self.parts:
            part.close()

    def finish(self) -> None:
        """Every part works out what was asked for."""
        for part in self.parts:
            part.finish()

    def forget(self) -> None:
        """Every part leaves its question behind."""
        super().forget()
        for part in self.parts:
            part.forget()

    def recall(self, blank: Together) -> None:
        """Every part takes its question up again."""
        super().recall(blank)
        for own, asked in zip(self.parts, blank.parts, strict=True):
            own.recall(asked)

    @property
    def nbytes(self) -> int:
        """What all parts hold."""
        return sum(part.nbytes for part in self.parts)

    def least_samples(self, sum_bytes: int | None) -> int:
        """Enough for every part."""
        return max((part.least_samples(sum_bytes) for part in self.parts), default=1)

    def for_worker(self, sum_bytes: int | None) -> Together:
        """What a worker needs of every part."""
        return Together([part.for_worker(sum_bytes) for part in self.parts])
