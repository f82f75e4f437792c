"""Streams of the rows of a table: one vector an event, dense or sparse; nothing is built from them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tpca.errors import SampleError, StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.checks import all_finite, as_array, float_dtype, to_floats
from tpca.streams.identity import read_cost, spread
from tpca.streams.protocol import Layout, NanPolicy, NumberedStream, Source, without_empty
from tpca.streams.sources import check_opened, stored_source
from tpca.streams.stored import even_edges, read_samples
from tpca.streams.stores import without_array
from tpca.tensors.digest import digest
from tpca.tensors.rows import RowsBatch

POLICIES = ("raise", "omit")


def open_rows(source: Any, nan_policy: str = "raise") -> RowsStream:
    """A stream of the rows of a table ``(n, d)``.

    ``source`` is an array of NumPy, Zarr, HDF5 or Dask, the path of one, a ``DataFrame``, a ``scipy.sparse`` matrix,
    or an iterable of batches of these.
    """
    if nan_policy not in POLICIES:
        raise StreamError(f"nan_policy must be one of {', '.join(POLICIES)} for rows, got {nan_policy!r}.")
    policy: Any = nan_policy
    if isinstance(source, RowsStream):
        check_opened(source, nan_policy=policy)
        return source
    if sparse.issparse(source):
        return SparseRows(source, policy)
    if isinstance(source, list | tuple) and not any(np.ndim(item) == 2 or sparse.issparse(item) for item in source):
        source = as_array(source)  # a table written out as lists
    stored = None if isinstance(source, list | tuple) else stored_source(source)
    if stored is not None:
        return StoredRows(stored, policy)
    if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
        raise StreamError(f"cannot read rows from {type(source).__name__}; give an array (n, d), or batches of rows.")
    return PassingBatches(source, policy)


class RowsStream(NumberedStream):
    """Rows of a table, batch by batch, as :class:`~tpca.tensors.rows.RowsBatch`, which does not contract itself."""

    kind = "rows"
    whole = False

    @property
    def identity(self) -> str:
        """Says which data these are."""
        return f"rows {self.dims}"


class StoredRows(RowsStream):
    """A table that can be sliced."""

    rereadable = True

    def __init__(self, source: Source, nan_policy: NanPolicy = "raise") -> None:
        self.dims = (_check_shape(source.shape),)
        self.length = source.shape[0]
        self.dtype = float_dtype(source.dtype)
        self._source, self.nan_policy = source, nan_policy
        self.ahead = int(source.kind != "array")
        self.readable_elsewhere = source.shared
        step = max(1, BATCH_ENTRIES // self.dims[0])
        bounds, certain = even_edges(self.length, step), nan_policy == "raise"
        self.layout: Layout = Layout(bounds, certain, self.dims[0], summable=False, private=not self.ahead)

    @cached_property
    def identity(self) -> str:
        """Length, dtype and a digest of some rows."""
        places = spread(self._source.shape[0], read_cost(self._source, self._source.shape[1:]))
        found = digest(self._read(place, place + 1) for place in places)
        return f"rows {self.dims} {self.length} {self.dtype} {found} {self.nan_policy}"

    def for_workers(self) -> Self:
        """What a worker needs of it: all but a Dask array, whose blocks come by themselves."""
        twin = copy.copy(self)
        twin._source = without_array(self._source)
        return twin

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as a Dask array, if they are in one."""
        part = self._source.part(*self._range(number))
        return None if part is None else [part]

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``; it may be empty."""
        first, stop = self._range(number)
        read = self._read(first, stop) if parts is None else parts[0]
        return cleaned(to_floats(read).astype(self.dtype, copy=False), first, self.nan_policy)

    def _read(self, first: int, stop: int) -> NDArray[Any]:
        return read_samples(self._source, (slice(first, stop),), "rows")


class SparseRows(RowsStream):
    """A sparse table in memory."""

    rereadable = True

    def __init__(self, table: Any, nan_policy: NanPolicy = "raise") -> None:
        self.dims = (_check_shape(table.shape),)
        self.length = int(table.shape[0])
        self._table = csr(table)
        self.dtype, self.nan_policy = self._table.dtype, nan_policy
        # Scores and factors of a row are many times its entries: batches are counted in rows, too.
        step = max(1, min(BATCH_ENTRIES // max(1, self._table.nnz // self.length), 2**14))
        self.layout: Layout = Layout(even_edges(self.length, step), nan_policy == "raise", 1, False, private=True)

    @property
    def identity(self) -> str:
        """Shape and a digest of the entries."""
        return f"sparse rows {self.dims} {self.length} {digest([self._table.data, self._table.indices])}"

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:  # noqa: ARG002
        """Batch ``number``; it may be empty."""
        first, stop = self._range(number)
        return cleaned(self._table[first:stop], first, self.nan_policy)


class PassingBatches(RowsStream):
    """Batches of rows from any iterable, read once."""

    def __init__(self, source: Iterable[Any], nan_policy: NanPolicy = "raise") -> None:
        items = iter(source)
        head = next(items, None)
        if head is None:
            raise StreamError("the stream of rows is empty; give at least one batch.")
        first = as_rows(head, 0)
        self.dims, self.dtype, self.nan_policy = (_check_shape(first.shape),), first.dtype, nan_policy
        self._items, self._position = itertools.chain([head], items), 0
        self.layout = None  # type: ignore[assignment]  # batches come in their own order only

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The iterable's own batches; those before ``start`` are drawn and dropped."""
        if start < self._position:
            raise StreamError(f"cannot go back to row {start}: an iterable is read once; give an array or a file.")
        return without_empty(self._batches(start))

    def _batches(self, start: int) -> Iterator[Any]:
        for item in self._items:
            first, rows = self._position, as_rows(item, self._position)
            if rows.ndim != 2 or rows.shape[1:] != self.dims:
                raise SampleError(f"batches must have shape (n, {self.dims[0]}), got {rows.shape} at row {first}.")
            self._position += rows.shape[0]
            if first >= start:
                yield cleaned(rows, first, self.nan_policy)


def as_rows(item: Any, first: int) -> Any:
    """Some rows as floats, sparse or not."""
    return csr(item) if sparse.issparse(item) else to_floats(as_array(item, first))


def csr(table: Any) -> Any:
    """A sparse table of floats in rows, entries of one place added up."""
    found = sparse.csr_array(table, dtype=float_dtype(table.dtype))
    found.sum_duplicates()
    return found


def cleaned(rows: Any, first: int, policy: NanPolicy) -> RowsBatch:
    """Rows from place ``first`` on; those with missing entries are refused or left out."""
    count = rows.shape[0]
    places = np.arange(first, first + count)
    is_sparse: bool = sparse.issparse(rows)
    stored = rows.data if is_sparse else rows
    if all_finite(stored):
        return RowsBatch(rows, places, first)
    if is_sparse:
        owners = np.repeat(np.arange(count), np.diff(rows.indptr))
        whole = np.bincount(owners, ~np.isfinite(stored), minlength=count) == 0
    else:
        whole = np.isfinite(rows).all(axis=1)
    if policy == "raise":
        row = first + int(np.argmin(whole))
        raise SampleError(f'row {row} contains NaN or Inf; clean it, or give nan_policy="omit".')
    return RowsBatch(rows[whole], places[whole], first, int(np.count_nonzero(~whole)))


def _check_shape(shape: tuple[int, ...]) -> int:
    """The number of columns."""
    if len(shape) != 2:
        raise SampleError(
            f"rows must have shape (n, d), a 2D array, got {shape}; one row is x.reshape(1, -1). "
            "Reshape your data, images to rows."
        )
    if shape[1] < 1:
        raise SampleError(f"0 feature(s) (shape={shape}) while a minimum of 1 is required: a table needs columns.")
    if shape[0] < 1:
        raise StreamError(f"0 sample(s) (shape={shape}) while a minimum of 1 is required: the table has no rows.")
    return int(shape[1])
