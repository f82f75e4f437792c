"""A stream yields batches; it may be endless, and may be read again if it says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tpca.batches import DenseBatch


class Stream(Protocol):
    """Samples of one shape, batch by batch."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def length(self) -> int | None:
        """Number of samples; ``None`` if unknown or endless."""

    @property
    def endless(self) -> bool:
        """Whether the samples are known never to end."""

    @property
    def rereadable(self) -> bool:
        """Whether :meth:`batches` may be called again for another pass over the same finite data."""

    def batches(self) -> Iterator[DenseBatch]:
        """The batches, from the first sample on."""
