"""Streams of views: several vectors of the same event, row by row; their outer product is the sample."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.checks import all_finite, as_array, float_dtype, to_floats
from tpca.streams.identity import read_cost, spread
from tpca.streams.protocol import Layout, NanPolicy, NumberedStream, Source, without_empty
from tpca.streams.sources import check_opened, stored_source
from tpca.streams.stored import even_edges, read_samples
from tpca.streams.stores import without_array
from tpca.tensors.digest import digest
from tpca.tensors.views import ViewsBatch

POLICIES = ("raise", "omit")


def open_views(source: Any, *, groups: Any = None, nan_policy: str = "raise") -> ViewsStream:
    """A stream of views.

    Parameters
    ----------
    source
        A sequence of two or more views, each ``(n, d_i)``: an array of NumPy, Zarr, HDF5 or Dask, or the path of one;
        a pandas ``DataFrame``; or an iterable of batches, each a tuple of arrays ``(n_j, d_i)``.
    groups
        For a ``DataFrame``: columns of every view, as a mapping or as a sequence of sequences; by default the top level
        of its columns, if they have levels.
    nan_policy
        ``"raise"`` an error for a row with NaN or Inf in any view, or ``"omit"`` it.
    """
    if nan_policy not in POLICIES:
        raise StreamError(f"nan_policy must be one of {', '.join(POLICIES)} for views, got {nan_policy!r}.")
    policy: Any = nan_policy
    if isinstance(source, ViewsStream):
        check_opened(source, nan_policy=policy)
        return source
    if hasattr(source, "columns") and hasattr(source, "loc"):
        source = _column_groups(source, groups)
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


class ViewsStream(NumberedStream):
    """Rows of several views, batch by batch, as :class:`~tpca.tensors.ViewsBatch`."""

    kind = "views"
    whole = False

    @property
    def identity(self) -> str:
        """Says which data these are."""
        return f"views {self.dims}"


class StoredViews(ViewsStream):
    """Views that can be sliced, all of the same length."""

    rereadable = True

    def __init__(self, sources: Sequence[Source], nan_policy: NanPolicy = "raise") -> None:
        self.dims = _check_shapes([source.shape for source in sources])
        lengths = [source.shape[0] for source in sources]
        if len(set(lengths)) > 1:
            raise SampleError(f"views must have the same number of rows, got {', '.join(map(str, lengths))}.")
        if lengths[0] == 0:
            raise StreamError("the views have no rows; give at least one.")
        self.length = lengths[0]
        self.dtype = np.result_type(*(float_dtype(s.dtype, f" in view {i}") for i, s in enumerate(sources)))
        self._sources, self.nan_policy = list(sources), nan_policy
        self.ahead = int(any(source.kind != "array" for source in sources))
        in_place = {source.edges is not None for source in sources}
        self.readable_elsewhere = len(in_place) == 1 and all(source.shared for source in sources)
        bounds, certain = even_edges(self.length, max(1, BATCH_ENTRIES // sum(self.dims))), nan_policy == "raise"
        self.layout: Layout = Layout(bounds, certain, sum(self.dims), summable=False, private=not self.ahead)

    @cached_property
    def identity(self) -> str:
        """Lengths, dtypes and a digest of some rows."""
        cost = sum(read_cost(source, source.shape[1:]) for source in self._sources)
        rows = spread(self._sources[0].shape[0], cost)
        found = digest(_read(source, row, row + 1) for row in rows for source in self._sources)
        return f"views {self.dims} of {self.length} rows {self.dtype} {found} {self.nan_policy}"

    def for_workers(self) -> Self:
        """What a worker needs of it: all but Dask arrays, whose blocks come by themselves."""
        twin = copy.copy(self)
        twin._sources = [without_array(source) for source in self._sources]
        return twin

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as Dask arrays, if all views are."""
        parts = [source.part(*self._range(number)) for source in self._sources]
        return None if any(part is None for part in parts) else parts

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> ViewsBatch:
        """Batch ``number``; it may be empty."""
        first, stop = self._range(number)
        read = [_read(source, first, stop) for source in self._sources] if parts is None else parts
        return _clean([to_floats(view) for view in read], first, self.nan_policy, self.dtype)


class IterableViews(ViewsStream):
    """Batches of views from any iterable, read once."""

    def __init__(self, source: Iterable[Any], nan_policy: NanPolicy = "raise") -> None:
        items = iter(source)
        head = next(items, None)
        if head is None:
            raise StreamError("the stream of views is empty; give at least one batch.")
        if not isinstance(head, Iterable):
            raise StreamError(f"batches must be tuples of arrays, one per view, got a {type(head).__name__}.")
        first = [as_array(view) for view in head]
        self.dims = _check_shapes([view.shape for view in first])
        self.dtype = np.result_type(*(float_dtype(view.dtype) for view in first))
        self._items, self.nan_policy = itertools.chain([first], items), nan_policy
        self._position = 0

    def batches(self, start: int = 0) -> Iterator[ViewsBatch]:
        """The iterable's own batches; those before ``start`` are drawn and dropped."""
        if start < self._position:
            raise StreamError(f"cannot go back to row {start}: an iterable is read once; give arrays or files.")
        return without_empty(self._batches(start))

    def _batches(self, start: int) -> Iterator[ViewsBatch]:
        for item in self._items:
            first, rows = self._position, [to_floats(as_array(view, self._position)) for view in item]
            shapes = [view.shape for view in rows]
            if _check_shapes(shapes) != self.dims or len({len(view) for view in rows}) > 1:
                raise SampleError(f"batches must hold views of widths {self.dims}, got shapes {shapes} at row {first}.")
            self._position += len(rows[0])
            if first >= start:
                yield _clean(rows, first, self.nan_policy, self.dtype)


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


def _read(source: Source, first: int, stop: int) -> NDArray[Any]:
    return read_samples(source, (slice(first, min(stop, source.shape[0])),), "rows")


def _clean(rows: list[NDArray[Any]], first: int, policy: NanPolicy, dtype: np.dtype[Any]) -> ViewsBatch:
    """The rows in one dtype, those with missing entries refused or left out."""
    rows = [view.astype(dtype, copy=False) for view in rows]
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
    return ViewsBatch([view[whole] for view in rows], None, first, int(np.count_nonzero(~whole)))


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
