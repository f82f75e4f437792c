"""Streams of the rows of a table: one vector an event, dense or sparse; nothing is built from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tpca.errors import SampleError, StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.checks import all_finite, as_array, float_dtype, to_floats
from tpca.streams.protocol import Layout, NanPolicy, Source
from tpca.streams.sources import check_opened, stored_source
from tpca.streams.stored import even_edges
from tpca.streams.vectors import PassingVectors, StoredVectors, VectorStream, check_policy
from tpca.tensors.digest import digest
from tpca.tensors.rows import RowsBatch


def open_rows(source: Any, nan_policy: str = "raise") -> RowsStream:
    """A stream of the rows of a table ``(n, d)``.

    ``source`` is an array of NumPy, Zarr, HDF5 or Dask, the path of one, a ``DataFrame``, a ``scipy.sparse`` matrix,
    or an iterable of batches of these.
    """
    policy = check_policy(nan_policy, "rows")
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


class RowsStream(VectorStream):
    """Rows of a table, batch by batch, as :class:`~tpca.tensors.rows.RowsBatch`, which does not contract itself."""

    kind = "rows"


class StoredRows(StoredVectors, RowsStream):
    """A table that can be sliced."""

    def __init__(self, source: Source, nan_policy: NanPolicy = "raise") -> None:
        super().__init__([source], (_check_shape(source.shape),), nan_policy)

    def _made(self, rows: list[NDArray[Any]], first: int) -> RowsBatch:
        return cleaned(rows[0], first, self.nan_policy)


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


class PassingBatches(PassingVectors, RowsStream):
    """Batches of rows from any iterable, read once."""

    def _first(self, head: Any) -> Any:
        rows = as_rows(head, 0)
        self.dims, self.dtype = (_check_shape(rows.shape),), rows.dtype
        return rows

    def _batch(self, item: Any, first: int) -> RowsBatch:
        rows = as_rows(item, first)
        if rows.ndim != 2 or rows.shape[1:] != self.dims:
            raise SampleError(f"batches must have shape (n, {self.dims[0]}), got {rows.shape} at row {first}.")
        return cleaned(rows, first, self.nan_policy)


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
