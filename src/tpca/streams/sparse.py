"""Streams of sparse samples: scipy matrices, or coordinates of any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpca.errors import SampleError, StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.protocol import Stream, spread
from tpca.tensors.blocks import check_dims
from tpca.tensors.digest import digest
from tpca.tensors.sparse import SparseBatch

BATCH_SAMPLES = 256


def is_sparse(item: Any) -> bool:
    """Whether an item of an iterable is a sparse sample, or a batch of them."""
    coordinates = hasattr(item, "coords") and hasattr(item, "data")
    return isinstance(item, SparseBatch) or hasattr(item, "tocoo") or coordinates


class SparseStream(Stream):
    """Sparse samples, or sparse batches, from a sequence (which may be read again) or any iterable (which may not).

    A sample is a ``scipy.sparse`` matrix, or anything with ``coords``, ``data`` and ``shape``, as ``sparse.COO`` has.
    """

    kind = "sparse"
    dtype = np.dtype(np.float64)
    whole = False

    def __init__(self, source: Iterable[Any]) -> None:
        self.rereadable = isinstance(source, Sequence)
        items = iter(source)
        head = next(items, None)
        if head is None:
            raise StreamError("the stream is empty: it ended before the first sample; give at least one.")
        self.dims = check_dims(head.dims if isinstance(head, SparseBatch) else head.shape)
        self.length = sum(len(i) if isinstance(i, SparseBatch) else 1 for i in source) if self.rereadable else None
        self._source = source if self.rereadable else itertools.chain([head], items)
        self._position = 0

    @property
    def identity(self) -> str:
        """Dims and length, and a digest of some samples where all are there already."""
        looked = f" {self._some()}" if self.rereadable else ""
        return f"sparse {self.dims} {self.length}{looked}"

    def batches(self, start: int = 0) -> Iterator[SparseBatch]:
        """Samples put together, a bounded number of entries at a time."""
        if self.rereadable:
            self._position = 0
        elif start < self._position:
            raise StreamError(f"cannot go back to sample {start}: an iterable is read once; give a list.")
        for batch in self._batches():
            if batch.dims != self.dims:
                raise SampleError(
                    f"samples must have shape {self.dims}, got {batch.dims} at sample {self._position}; "
                    "all samples of a stream share one shape."
                )
            batch.first, self._position = self._position, self._position + len(batch)
            if batch.first >= start:
                yield batch

    def _some(self) -> str:
        """A digest of some items of the sequence."""
        items: Any = self._source
        some = [items[place] for place in spread(len(items), cost=0)]
        batches = [item if isinstance(item, SparseBatch) else _together([item]) for item in some]
        return digest(array for batch in batches for array in batch.content())

    def _batches(self) -> Iterator[SparseBatch]:
        waiting: list[Any] = []
        entries = 0
        for item in self._source:
            if isinstance(item, SparseBatch):
                yield item
                continue
            waiting.append(item)
            entries += int(getattr(item, "nnz", 0))
            if len(waiting) == BATCH_SAMPLES or entries >= BATCH_ENTRIES:
                yield _together(waiting)
                waiting, entries = [], 0
        if waiting:
            yield _together(waiting)


def _together(samples: list[Any]) -> SparseBatch:
    if hasattr(samples[0], "tocoo") and not hasattr(samples[0], "fill_value"):
        return SparseBatch.from_scipy(samples)
    return SparseBatch.from_coo(samples)
