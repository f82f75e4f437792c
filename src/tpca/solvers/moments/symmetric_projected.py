"""Rows as whitened ones of fewer columns: worked out for every batch, or kept once they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.moments.symmetric_whitening import RowWhitening
from tpca.streams.table_rows import RowsStream
from tpca.tensors.rows import RowsBatch


def projected(batch: RowsBatch, whitening: RowWhitening) -> RowsBatch:
    """The whitened rows of a batch."""
    assert whitening.weights is not None
    scores = batch.scores(whitening.weights, whitening.centre)
    return RowsBatch(scores, batch.places, batch.first, batch.dropped)


class ProjectedRows(RowsStream):
    """The rows of a stream, centred and whitened."""

    def __init__(self, stream: RowsStream, whitening: RowWhitening) -> None:
        self.dims, self.length, self.dtype = (whitening.q,), stream.length, np.dtype(np.float64)
        self.rereadable, self.ahead, self.layout = stream.rereadable, stream.ahead, stream.layout
        self.readable_elsewhere = stream.readable_elsewhere
        self._stream, self._whitening = stream, whitening

    def batches(self, start: int = 0) -> Iterator[Any]:
        """Whitened batches."""
        return (projected(batch, self._whitening) for batch in self._stream.batches(start))

    def for_workers(self) -> Self:
        """What a worker needs of it: all but a Dask array, whose blocks come by themselves."""
        return type(self)(self._stream.for_workers(), self._whitening)

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as a Dask array, if they are in one."""
        return self._stream.lazy_parts(number)

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``, whitened; it may be empty."""
        return projected(self._stream.batch(number, parts), self._whitening)


class KeptRows(RowsStream):
    """Rows that are kept once they were read, or batches that are kept already."""

    rereadable = True

    def __init__(self, stream: RowsStream, kept: list[RowsBatch] | None = None) -> None:
        self.dims, self.length, self.dtype, self.layout = stream.dims, stream.length, stream.dtype, stream.layout
        self._stream, self._kept = stream, kept

    def batches(self, start: int = 0) -> Iterator[Any]:
        """All batches; ``start`` is 0."""
        assert start == 0, "passes over kept rows are whole"
        if self._kept is None:
            self._kept = list(self._stream.batches())
        return iter(self._kept)


class HandedRows(RowsStream):
    """What is known of rows that are handed in."""

    def __init__(self, d: int, dtype: np.dtype[Any], count: int) -> None:
        self.dims, self.dtype, self.length = (d,), dtype, count
        self.layout = None  # type: ignore[assignment]  # they come in their own order only
