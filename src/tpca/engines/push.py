"""The engine whose samples are handed in, batch after batch of any size: ``partial_fit``.

Samples that do not fill a round yet wait as an accumulator, never as samples.
"""

from __future__ import annotations

from typing import Generic

from tpca.engines.base import A
from tpca.labels import Labels
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.dense import refuse_beyond_memory


class PushEngine(Generic[A]):
    """Takes samples as they come, and says when as many as were asked for are there."""

    length, endless, rereadable, whole = None, False, False, True

    def __init__(self, dims: tuple[int, ...], labels: Labels | None = None, partial: bool = False) -> None:
        self.dims, self.labels, self.partial = dims, labels, partial
        self.buffer_bytes = self.n_skipped = 0
        self.pending: A | None = None

    def accept(self, batch: Batch) -> None:
        """Look at a batch before any of it is used: what is refused must leave no trace in the sums."""
        if isinstance(batch, DenseBatch):
            batch.check()
        self.n_skipped += batch.dropped

    def push(self, batch: Batch, blank: A, n: int) -> A | None:
        """Add a batch, of no more samples than are missing, to those of ``n``; the accumulator when all are there."""
        part = blank.fresh() if self.pending is None else self.pending
        try:
            part.add(batch, part.n)
        except Exception as cause:
            refuse_beyond_memory(cause, batch)
            raise
        self.buffer_bytes = max(self.buffer_bytes, batch.nbytes + part.nbytes)
        self.pending = None if part.n >= n else part
        if self.pending is not None:
            return None
        part.finish()
        return part

    @property
    def waiting(self) -> int:
        """Samples of a round that is not complete."""
        return 0 if self.pending is None else self.pending.n
