"""The local oracle: samples from a stream, contracted on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.batches import DenseBatch, Query, contract
from tpca.model.sampling import BATCH_ENTRIES
from tpca.oracles.protocol import Round
from tpca.streams import Stream, open_stream


class LocalOracle:
    """Answers queries over the next samples of a stream; keeps no more than a batch and a sum of samples.

    A round of n samples is reduced to its sum first: contraction is linear, so the cost of replicas does not grow
    with n.
    """

    def __init__(self, source: Any) -> None:
        self.stream: Stream = open_stream(source)
        self.buffer_bytes = 0
        self._batches: Iterator[DenseBatch] = self.stream.batches()
        self._left: DenseBatch | None = None
        self._batch_bytes = 0

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.stream.dims

    @property
    def endless(self) -> bool:
        """Whether the samples never end."""
        return self.stream.endless

    @property
    def length(self) -> int | None:
        """Samples in one pass, where that is known."""
        return self.stream.length

    @property
    def rereadable(self) -> bool:
        """Whether :meth:`rewind` may be called."""
        return self.stream.rereadable

    def rewind(self) -> None:
        """Start the next pass over a re-readable stream."""
        self._batches = self.stream.batches()
        self._left = None

    def mean(self, queries: Sequence[Query], n: int, scale: float = 1.0) -> Round:
        """Mean gradients of all queries over the next ``n`` samples, each multiplied by ``scale``."""
        total: NDArray[Any] | None = None
        taken = 0
        while taken < n and (batch := self._take(n - taken)) is not None:
            part = batch.total()
            total = part if total is None else np.add(total, part, out=total)
            taken += len(batch)
            self._note_buffer(self._batch_bytes + 2 * total.nbytes)
        if total is None:
            return Round(0, ())
        mean = np.multiply(total, scale / taken, out=total)
        return Round(taken, tuple(contract(mean, query) for query in queries))

    def each(self, query: Query, n: int) -> Round:
        """Up to ``n`` steps with a fresh sample for every replica at every step; fewer when the buffer is full."""
        count = len(query.replicas[0])
        steps = max(1, min(n, BATCH_ENTRIES // (count * math.prod(self.dims))))
        parts, taken = [], 0
        while taken < steps * count and (batch := self._take(steps * count - taken)) is not None:
            parts.append(batch.samples)
            taken += len(batch)
        whole = taken - taken % count
        if whole == 0:
            return Round(0, ())
        samples = parts[0] if len(parts) == 1 else np.concatenate(parts)
        answer = DenseBatch(samples[:whole]).each(query)
        copied = samples.nbytes if len(parts) > 1 else 0
        self._note_buffer(sum(part.nbytes for part in parts) + copied + answer.nbytes)
        return Round(whole, (answer,))

    def _take(self, n: int) -> DenseBatch | None:
        """Up to ``n`` samples of the batch in hand, or of the next one; ``None`` at the end of the stream."""
        while self._left is None or len(self._left) == 0:
            self._left = next(self._batches, None)
            if self._left is None:
                return None
            self._batch_bytes = self._left.nbytes
        batch = self._left[: min(n, len(self._left))]
        self._left = self._left[len(batch) :]
        return batch

    def _note_buffer(self, nbytes: int) -> None:
        self.buffer_bytes = max(self.buffer_bytes, nbytes)
