r"""Streams of the rows of several views, or of one table, dense or sparse.

A key of every row depends on what is in it, and on nothing else.  Whoever splits rows by it gets the same parts
whatever the order of the rows, the seed, the batches, or who reads them; and rows that are the same are in the same
part, so that none is judged by a copy of itself.

Entries are taken in single precision, with :math:`b_{jc}` the bits of entry c of row j, all views side by side, and
:math:`m_c` odd numbers of 64 bits:

.. math::
    h_j = \sum_c m_c\, b_{jc} \bmod 2^{64}, \qquad u_j = \mathrm{mix}(h_j) / 2^{64},

mix being the finaliser of SplitMix64 (Steele, Lea and Flood 2014), after which u is as good as uniform on [0, 1).
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tpca.data.base import (
    Layout,
    NanPolicy,
    NumberedStream,
    Source,
    all_finite,
    as_array,
    float_dtype,
    read_cost,
    spread,
    to_floats,
    without_empty,
)
from tpca.data.open import check_opened, stored_source
from tpca.data.stored import even_edges, read_samples
from tpca.data.stores import without_array
from tpca.errors import SampleError, StreamError
from tpca.model import BATCH_ENTRIES
from tpca.randomness import generator
from tpca.tensors.accumulators import digest
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch, ViewsBatch

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
        self.files = tuple(file for source in sources for file in source.files)
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
        self.readable_elsewhere, self.files = stream.readable_elsewhere, stream.files
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


SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
COLUMNS = 256  # so many at a time: what is formed for them stays small


def row_keys(views: Sequence[Any]) -> NDArray[np.uint64]:
    """H of every row of some views; of sparse ones the same as of dense ones, since zeros add nothing."""
    widths = [view.shape[1] for view in views]
    drawn = generator(0, "places of rows").integers(0, 2**63, sum(widths), dtype=np.uint64)
    factors = np.split(2 * drawn + np.uint64(1), np.cumsum(widths)[:-1])
    total = np.zeros(views[0].shape[0], np.uint64)
    for view, own in zip(views, factors, strict=True):
        is_sparse: bool = sparse.issparse(view)
        if is_sparse:
            owners = np.repeat(np.arange(len(total)), np.diff(view.indptr))
            np.add.at(total, owners, _bits(view.data) * own[view.indices])
            continue
        for first in range(0, view.shape[1], COLUMNS):
            some = slice(first, first + COLUMNS)
            total += _bits(view[:, some]) @ own[some]
    return total


def _bits(entries: NDArray[Any]) -> NDArray[np.uint32]:
    with np.errstate(over="ignore"):  # beyond single precision all are infinite, which is as good as any bits
        single = entries.astype(np.float32) + np.float32(0)  # no two zeros
    return np.ascontiguousarray(single).view(np.uint32)


def mixed(numbers: NDArray[np.uint64]) -> Array:
    """mix(h)/2^64 of some h, in [0, 1)."""
    for shift, factor in SHIFTS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((numbers ^ (numbers >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def open_views(source: Any, *, groups: Any = None, nan_policy: str = "raise") -> ViewsStream:
    """A stream of views.

    Parameters
    ----------
    source
        A sequence, or a mapping by names, of two or more views, each ``(n, d_i)``: an array of NumPy, Zarr, HDF5 or
        Dask, or the path of one;
        a pandas ``DataFrame``; or an iterable of batches, each a tuple of arrays ``(n_j, d_i)``.
    groups
        For a ``DataFrame``: columns of every view, as a mapping or as a sequence of sequences; by default the top level
        of its columns, if they have levels.
    nan_policy
        ``"raise"`` an error for a row with NaN or Inf in any view, or ``"omit"`` it.
    """
    policy = check_policy(nan_policy, "views")
    if isinstance(source, ViewsStream):
        check_opened(source, nan_policy=policy)
        return source
    if hasattr(source, "columns") and hasattr(source, "loc"):
        source = _column_groups(source, groups)
    elif isinstance(source, Mapping):
        source = list(source.values())
    elif groups is not None:
        raise StreamError("groups are the columns of a DataFrame; give the views themselves, or a DataFrame.")
    if isinstance(source, str | os.PathLike) or hasattr(source, "shape"):
        raise StreamError("at least two views are needed, got one; give a list of arrays or paths, one per view.")
    batches = isinstance(source, Sequence) and len(source) > 0 and all(isinstance(item, tuple) for item in source)
    if isinstance(source, Sequence) and not batches:  # the views themselves
        return StoredViews([_source(view, i) for i, view in enumerate(source)], policy)
    if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
        raise StreamError(f"cannot read views from {type(source).__name__}; give a list of arrays or paths.")
    return IterableViews(source, policy)


class ViewsStream(VectorStream):
    """Rows of several views, batch by batch, as :class:`~tpca.tensors.ViewsBatch`."""

    kind = "views"


class StoredViews(StoredVectors, ViewsStream):
    """Views that can be sliced, all of the same length."""

    def __init__(self, sources: Sequence[Source], nan_policy: NanPolicy = "raise") -> None:
        dims = _check_shapes([source.shape for source in sources])
        lengths = [source.shape[0] for source in sources]
        if len(set(lengths)) > 1:
            raise SampleError(f"views must have the same number of rows, got {', '.join(map(str, lengths))}.")
        if lengths[0] == 0:
            raise StreamError("the views have no rows; give at least one.")
        super().__init__(sources, dims, nan_policy)

    def _made(self, rows: list[NDArray[Any]], first: int) -> ViewsBatch:
        return _clean(rows, first, self.nan_policy)


class IterableViews(PassingVectors, ViewsStream):
    """Batches of views from any iterable, read once."""

    def _first(self, head: Any) -> list[NDArray[Any]]:
        if not isinstance(head, Iterable):
            raise StreamError(f"batches must be tuples of arrays, one per view, got a {type(head).__name__}.")
        views = [as_array(view) for view in head]
        self.dims = _check_shapes([view.shape for view in views])
        self.dtype = np.result_type(*(float_dtype(view.dtype) for view in views))
        return views

    def _batch(self, item: Any, first: int) -> ViewsBatch:
        rows = [to_floats(as_array(view, first)) for view in item]
        shapes = [view.shape for view in rows]
        if _check_shapes(shapes) != self.dims or len({len(view) for view in rows}) > 1:
            raise SampleError(f"batches must hold views of widths {self.dims}, got shapes {shapes} at row {first}.")
        return _clean([view.astype(self.dtype, copy=False) for view in rows], first, self.nan_policy)


def _source(view: Any, number: int) -> Source:
    if isinstance(view, list | tuple):
        view = as_array(view)
    source = stored_source(view)
    if source is None:
        raise StreamError(f"view {number} is a {type(view).__name__}; give an array or the path of one.")
    return source


def _check_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if len(shapes) < 2:
        raise StreamError(f"at least two views are needed, got {len(shapes)}.")
    for i, shape in enumerate(shapes):
        if len(shape) != 2 or shape[1] < 2:
            raise SampleError(
                f"view {i} must have shape (n, d) with d at least 2, got {shape}; reshape images to rows, "
                "and put single columns together."
            )
    return tuple(shape[1] for shape in shapes)


def _clean(rows: list[NDArray[Any]], first: int, policy: NanPolicy) -> ViewsBatch:
    """The rows of every view, those with missing entries refused or left out."""
    if all(all_finite(view) for view in rows):
        return ViewsBatch(rows, None, first)
    finite = [np.isfinite(view).all(axis=1) for view in rows]
    whole = np.logical_and.reduce(finite)
    if policy == "raise":
        row = int(np.argmin(whole))
        view = next(i for i, good in enumerate(finite) if not good[row])
        raise SampleError(
            f"row {first + row} of view {view} contains NaN or Inf; clean it, or give "
            'nan_policy="omit" (tpca: --nan-policy).'
        )
    left_out = int(np.count_nonzero(~whole))
    return ViewsBatch([view[whole] for view in rows], None, first, left_out, first + np.flatnonzero(whole))


def _column_groups(frame: Any, groups: Any) -> list[NDArray[Any]]:
    """Views of a DataFrame."""
    if groups is None:
        if getattr(frame.columns, "nlevels", 1) < 2:
            raise StreamError("groups must name the columns of every view, as in {'left': ['a', 'b'], 'right': ...}.")
        return [frame[name].to_numpy() for name in dict.fromkeys(frame.columns.get_level_values(0))]
    chosen = list(groups.values()) if isinstance(groups, Mapping) else list(groups)
    text = next((columns for columns in chosen if isinstance(columns, str)), None)
    if text is not None:
        raise StreamError(f"every group must be a list of columns, got the text {text!r}; write [{text!r}, ...].")
    missing = [column for columns in chosen for column in columns if column not in frame.columns]
    if missing:
        raise StreamError(f"the DataFrame has no column {missing[0]!r}; it has {', '.join(map(repr, frame.columns))}.")
    return [frame[list(columns)].to_numpy() for columns in chosen]


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
