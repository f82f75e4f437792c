"""Streams of views: several vectors of the same event, row by row; their outer product is the sample."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError
from tpca.streams.checks import all_finite, as_array, float_dtype, to_floats
from tpca.streams.protocol import NanPolicy, Source
from tpca.streams.sources import check_opened, stored_source
from tpca.streams.vectors import PassingVectors, StoredVectors, VectorStream, check_policy
from tpca.tensors.views import ViewsBatch


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
    policy = check_policy(nan_policy, "views")
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
