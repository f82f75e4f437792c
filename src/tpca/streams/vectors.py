"""Streams of vectors, row by row: what the rows of one table and those of several views share."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.checks import float_dtype, to_floats
from tpca.streams.protocol import Layout, NanPolicy, NumberedStream, Source, read_cost, spread, without_empty
from tpca.streams.stored import even_edges, read_samples
from tpca.streams.stores import without_array
from tpca.tensors.digest import digest

POLICIES = ("raise", "omit")


def check_policy(nan_policy: str, what: str) -> Any:
    """What to do about rows with NaN or Inf."""
    if nan_policy not in POLICIES:
        raise StreamError(f"nan_policy must be one of {', '.join(POLICIES)} for {what}, got {nan_policy!r}.")
    return nan_policy


class VectorStream(NumberedStream):
    """Rows, batch by batch."""

    whole = False

    @property
    def identity(self) -> str:
        """Says which data these are."""
        return f"{self.kind} {self.dims}"


class StoredVectors(VectorStream):
    """Tables that can be sliced, of the same length; ``dims`` are their widths."""

    rereadable = True

    def __init__(self, sources: Sequence[Source], dims: tuple[int, ...], nan_policy: NanPolicy) -> None:
        self.dims, self.nan_policy, self._sources = dims, nan_policy, list(sources)
        self.length = sources[0].shape[0]
        places = [f" in view {i}" for i in range(len(sources))] if len(sources) > 1 else [""]
        self.dtype = np.result_type(*(float_dtype(s.dtype, at) for s, at in zip(sources, places, strict=True)))
        self.ahead = int(any(source.kind != "array" for source in sources))
        in_place = {source.edges is not None for source in sources}
        self.readable_elsewhere = len(in_place) == 1 and all(source.shared for source in sources)
        bounds, certain = even_edges(self.length, max(1, BATCH_ENTRIES // sum(dims))), nan_policy == "raise"
        self.layout: Layout = Layout(bounds, certain, sum(dims), summable=False, private=not self.ahead)

    @cached_property
    def identity(self) -> str:
        """Lengths, dtypes and a digest of some rows."""
        cost = sum(read_cost(source, source.shape[1:]) for source in self._sources)
        rows = spread(self._sources[0].shape[0], cost)
        found = digest(_read(source, row, row + 1) for row in rows for source in self._sources)
        return f"{self.kind} {self.dims} of {self.length} rows {self.dtype} {found} {self.nan_policy}"

    def for_workers(self) -> Self:
        """What a worker needs of it: all but Dask arrays, whose blocks come by themselves."""
        twin = copy.copy(self)
        twin._sources = [without_array(source) for source in self._sources]
        return twin

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as Dask arrays, if all tables are."""
        parts = [source.part(*self._range(number)) for source in self._sources]
        return None if any(part is None for part in parts) else parts

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``; it may be empty."""
        first, stop = self._range(number)
        read = [_read(source, first, stop) for source in self._sources] if parts is None else parts
        return self._made([to_floats(rows).astype(self.dtype, copy=False) for rows in read], first)

    def _made(self, rows: list[NDArray[Any]], first: int) -> Any:
        """The batch of the rows of every table from place ``first`` on, those with missing entries refused or not."""
        raise NotImplementedError


def _read(source: Source, first: int, stop: int) -> NDArray[Any]:
    return read_samples(source, (slice(first, stop),), "rows")


class PassingVectors(VectorStream):
    """Batches from any iterable, read once."""

    def __init__(self, source: Iterable[Any], nan_policy: NanPolicy) -> None:
        items = iter(source)
        head = next(items, None)
        if head is None:
            raise StreamError(f"the stream of {self.kind} is empty; give at least one batch.")
        self.nan_policy, self._position = nan_policy, 0
        self._items = itertools.chain([self._first(head)], items)

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The iterable's own batches; those before ``start`` are drawn and dropped."""
        if start < self._position:
            raise StreamError(f"cannot go back to row {start}: an iterable is read once; give arrays or files.")
        return without_empty(self._batches(start))

    def _batches(self, start: int) -> Iterator[Any]:
        for item in self._items:
            batch = self._batch(item, self._position)
            self._position += len(batch) + batch.dropped
            if batch.first >= start:
                yield batch

    def _first(self, head: Any) -> Any:
        """Learn widths and dtype from the first item; the item, as it is read again."""
        raise NotImplementedError

    def _batch(self, item: Any, first: int) -> Any:
        """The batch of an item that begins with row ``first``."""
        raise NotImplementedError


class MadeVectors(VectorStream):
    """The rows of another stream, every batch made into another."""

    def __init__(self, stream: VectorStream) -> None:
        self.dims, self.length, self.dtype, self.layout = stream.dims, stream.length, stream.dtype, stream.layout
        self.rereadable, self.ahead = stream.rereadable, stream.ahead
        self.readable_elsewhere = stream.readable_elsewhere
        self._stream = stream

    def made(self, batch: Any) -> Any:
        """What a batch becomes."""
        raise NotImplementedError

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches made of those of the stream."""
        return map(self.made, self._stream.batches(start))

    def for_workers(self) -> Self:
        """What a worker needs of it: all but Dask arrays, whose blocks come by themselves."""
        twin = copy.copy(self)
        twin._stream = self._stream.for_workers()
        return twin

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as Dask arrays, if all tables are."""
        return self._stream.lazy_parts(number)

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``; it may be empty."""
        return self.made(self._stream.batch(number, parts))


class KeptVectors(VectorStream):
    """Rows that are kept once they were read, as what ``prepared`` makes of every batch; or are ``kept`` already."""

    rereadable = True

    def __init__(
        self, stream: VectorStream, prepared: Callable[[Any], Any] | None = None, kept: list[Any] | None = None
    ) -> None:
        self.kind, self.length, self.layout = stream.kind, stream.length, stream.layout
        self.dims, self.dtype = stream.dims, stream.dtype
        self._stream, self._prepared, self._kept = stream, prepared, kept

    def batches(self, start: int = 0) -> Iterator[Any]:
        """All batches; ``start`` is 0."""
        assert start == 0, "passes over kept rows are whole"
        if self._kept is None:
            read = self._stream.batches()
            self._kept = list(read if self._prepared is None else map(self._prepared, read))
        return iter(self._kept)
