r"""Streams of the rows of several views.

A key of every row depends on what is in it, and on nothing else.  Whoever splits rows by it gets the same parts
whatever the order of the rows, the seed, the batches, or who reads them; and rows that are the same are in the same
part, so that none is judged by a copy of itself.

Entries are taken in single precision, with :math:`b_{jc}` the bits of entry c of row j, all views side by side, and
:math:`m_c` odd numbers of 64 bits:

.. math::
    h_j = \sum_c m_c\, b_{jc} \bmod 2^{64}, \qquad u_j = \mathrm{mix}(h_j) / 2^{64},

mix being the finaliser of SplitMix64 (Steele, Lea and Flood 2014), after which u is as good as uniform on [0, 1).

Fits read their rows many times.  Batches that come only once, from an iterable, are kept in memory.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.data.alignment import SampleLabels, aligned_views, labels_of_rows
from tpca.data.base import (
    Layout,
    NumberedStream,
    Source,
    all_finite,
    as_array,
    float_dtype,
    read_cost,
    spread,
    to_floats,
)
from tpca.data.open import check_opened, stored_source
from tpca.data.stored import even_edges, read_samples
from tpca.errors import SampleError, StreamError
from tpca.model import BATCH_ENTRIES
from tpca.randomness import generator
from tpca.tensors.accumulators import digest
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch

POLICIES = ("raise", "omit")
KEPT_BYTES = 1e9  # of the rows of an iterable
SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
COLUMNS = 256  # so many at a time: what is formed for their keys stays small


def open_views(
    source: Any, *, groups: Any = None, nan_policy: str = "raise", memory_limit: float = KEPT_BYTES
) -> RowsStream:
    """A stream of views.

    Parameters
    ----------
    source
        A sequence, or a mapping by names, of two or more views, each ``(n, d_i)``: an array of NumPy, Zarr, HDF5 or
        Dask, or the path of one; a pandas ``DataFrame``; or an iterable of batches, each a tuple of arrays
        ``(n_j, d_i)``, which are kept in memory.  Views with an index (pandas) or a coordinate (xarray) along their
        rows are put in the order of the first of them; where labels differ they are refused.
    groups
        For a ``DataFrame``: columns of every view, as a mapping or as a sequence of sequences; by default the top level
        of its columns, if they have levels.
    nan_policy
        ``"raise"`` an error for a row with NaN or Inf in any view, or ``"omit"`` it.
    memory_limit
        Bytes that the rows of an iterable may take; by default 1 GB.
    """
    if isinstance(source, RowsStream):
        return _as_opened(source, nan_policy)
    samples: SampleLabels | None = None
    advice: list[str] = []
    if hasattr(source, "columns") and hasattr(source, "loc"):
        samples = labels_of_rows(source)
        source = _column_groups(source, groups)
    elif isinstance(source, Mapping):
        source, samples, advice = aligned_views(source)
    elif groups is not None:
        raise StreamError("groups are the columns of a DataFrame; give the views themselves, or a DataFrame.")
    if isinstance(source, str | os.PathLike) or hasattr(source, "shape"):
        raise StreamError("at least two views are needed, got one; give a list of arrays or paths, one per view.")
    batches = isinstance(source, Sequence) and len(source) > 0 and all(isinstance(item, tuple) for item in source)
    if not isinstance(source, Sequence) or batches:
        source = _kept(source, memory_limit)
    elif samples is None:
        source, samples, advice = aligned_views(source)
    sources = []
    for number, view in enumerate(source):
        stored = stored_source(as_array(view) if isinstance(view, list | tuple) else view)
        if stored is None:
            raise StreamError(f"view {number} is a {type(view).__name__}; give an array or the path of one.")
        sources.append(stored)
    stream = RowsStream(sources, nan_policy)
    stream.samples = samples
    stream.advice = advice
    return stream


def _as_opened(stream: RowsStream, nan_policy: str) -> RowsStream:
    """A stream as it is; what it was not opened with is refused."""
    check_opened(stream, nan_policy=_check_policy(nan_policy))
    return stream


def _check_policy(nan_policy: str) -> Any:
    if nan_policy not in POLICIES:
        raise StreamError(f"nan_policy must be one of {', '.join(POLICIES)} for views, got {nan_policy!r}.")
    return nan_policy


def _kept(batches: Any, most: float) -> list[NDArray[Any]]:
    """The rows of an iterable of batches, tuples of one array per view, as one array for every view."""
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping | bytes):
        raise StreamError(f"cannot read views from {type(batches).__name__}; give a list of arrays or paths.")
    parts: list[list[NDArray[Any]]] = []
    rows = held = 0
    for item in batches:
        if not isinstance(item, list | tuple):
            raise StreamError(f"batches must be tuples of arrays, one per view, got a {type(item).__name__}.")
        batch = [to_floats(as_array(view, rows)) for view in item]
        shapes = [view.shape for view in batch]
        dims = _check_shapes(shapes)
        first = tuple(view.shape[1] for view in parts[0]) if parts else dims
        if dims != first or len({len(view) for view in batch}) > 1:
            raise SampleError(f"batches must hold views of widths {first}, got shapes {shapes} at row {rows}.")
        parts.append(batch)
        rows, held = rows + len(batch[0]), held + sum(view.nbytes for view in batch)
        if held > most:
            raise StreamError(
                f"{rows} rows of an iterable take more than {most / 1e6:.4g} MB, and fits read rows many times; save "
                "them to files (.npy, Zarr, HDF5) and give the paths, or raise memory_limit."
            )
    if not parts:
        raise StreamError("the stream of views is empty; give at least one batch.")
    return [np.concatenate(view) for view in zip(*parts, strict=True)]


def _check_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The numbers of columns."""
    if len(shapes) < 2:
        raise StreamError(f"at least two views are needed, got {len(shapes)}.")
    for i, shape in enumerate(shapes):
        if len(shape) != 2 or shape[1] < 2:
            raise SampleError(
                f"view {i} must have shape (n, d) with d at least 2, got {shape}; reshape images to rows, "
                "and put single columns together."
            )
    return tuple(shape[1] for shape in shapes)


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


class RowsStream(NumberedStream):
    """Rows of views that can be sliced, all of the same length, as :class:`~tpca.tensors.rows.RowsBatch`.

    ``dims`` are the widths.
    """

    kind = "views"
    whole = False
    rereadable = True
    samples: SampleLabels | None = None
    """Labels of the rows, where views have any."""
    advice: Sequence[str] = ()
    """A line for every view whose rows were put in another order."""

    def __init__(self, sources: Sequence[Source], nan_policy: str) -> None:
        self.nan_policy = _check_policy(nan_policy)
        self.dims = _check_shapes([source.shape for source in sources])
        self._sources = list(sources)
        lengths = [source.shape[0] for source in sources]
        if len(set(lengths)) > 1:
            raise SampleError(f"views must have the same number of rows, got {', '.join(map(str, lengths))}.")
        self.length = lengths[0]
        if not self.length:
            raise StreamError("0 sample(s) while a minimum of 1 is required: the views have no rows; give some.")
        self.files = tuple(file for source in sources for file in source.files)
        self.dtype = np.result_type(*(float_dtype(s.dtype, f" in view {i}") for i, s in enumerate(sources)))
        self.ahead = int(any(source.kind != "array" for source in sources))
        in_place = {source.edges is not None for source in sources}
        self.readable_elsewhere = len(in_place) == 1 and all(source.shared for source in sources)
        bounds = even_edges(self.length, max(1, BATCH_ENTRIES // sum(self.dims)))
        self.layout: Layout = Layout(bounds, nan_policy == "raise", sum(self.dims), False, private=not self.ahead)

    @cached_property
    def identity(self) -> str:
        """Lengths, dtypes and a digest of some rows."""
        cost = sum(read_cost(source, source.shape[1:]) for source in self._sources)
        rows = spread(self._sources[0].shape[0], cost)
        found = digest(read_samples(source, (slice(row, row + 1),), "rows") for row in rows for source in self._sources)
        return f"views {self.dims} of {self.length} rows {self.dtype} {found} {self.nan_policy}"

    def for_workers(self) -> Self:
        """What a worker needs of it: all but Dask arrays, whose blocks come by themselves."""
        twin = copy.copy(self)
        twin._sources = [source.for_workers() for source in self._sources]
        return twin

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as Dask arrays, if all views are."""
        parts = [source.part(*self._range(number)) for source in self._sources]
        return None if any(part is None for part in parts) else parts

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> RowsBatch:
        """Batch ``number``, without rows that have missing entries, if these are not refused; it may be empty."""
        first, stop = self._range(number)
        if parts is None:
            parts = [read_samples(source, (slice(first, stop),), "rows") for source in self._sources]
        views = [to_floats(rows).astype(self.dtype, copy=False) for rows in parts]
        if all(all_finite(view) for view in views):
            return RowsBatch(views, first)
        finite = [np.isfinite(view).all(axis=1) for view in views]
        whole = np.logical_and.reduce(finite)
        if self.nan_policy == "raise":
            row = int(np.argmin(whole))
            view = next(i for i, good in enumerate(finite) if not good[row])
            raise SampleError(
                f'row {first + row} of view {view} contains NaN or Inf; clean it, or give nan_policy="omit" '
                "(tpca: --nan-policy)."
            )
        left_out = int(np.count_nonzero(~whole))
        return RowsBatch([view[whole] for view in views], first, left_out, first + np.flatnonzero(whole))


class MadeRows(RowsStream):
    """The rows of another stream, every batch made into another."""

    def __init__(self, stream: RowsStream) -> None:
        self.dims, self.length, self.dtype = stream.dims, stream.length, stream.dtype
        self.layout, self.ahead, self.files = stream.layout, stream.ahead, stream.files
        self.readable_elsewhere, self._stream = stream.readable_elsewhere, stream

    @property
    def identity(self) -> str:
        """That of the rows it is made of."""
        return f"made of {self._stream.identity}"

    def made(self, batch: RowsBatch) -> Any:
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
        """The rows of a batch as Dask arrays, if all views are."""
        return self._stream.lazy_parts(number)

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``; it may be empty."""
        return self.made(self._stream.batch(number, parts))


class KeptRows(MadeRows):
    """The batches of another stream, kept once they were read."""

    _batches: list[Any] | None = None

    def batches(self, start: int = 0) -> Iterator[Any]:
        """All batches; ``start`` is 0."""
        assert start == 0, "passes over kept rows are whole"
        if self._batches is None:
            self._batches = list(self._stream.batches())
        return iter(self._batches)


def row_keys(views: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """H of every row of some views."""
    widths = [view.shape[1] for view in views]
    drawn = generator(0, "places of rows").integers(0, 2**63, sum(widths), dtype=np.uint64)
    factors = np.split(2 * drawn + np.uint64(1), np.cumsum(widths)[:-1])
    total = np.zeros(len(views[0]), np.uint64)
    for view, own in zip(views, factors, strict=True):
        for first in range(0, view.shape[1], COLUMNS):
            some = slice(first, first + COLUMNS)
            with np.errstate(over="ignore"):  # beyond single precision all are infinite, which is as good as any bits
                single = view[:, some].astype(np.float32) + np.float32(0)  # no two zeros
            total += np.ascontiguousarray(single).view(np.uint32) @ own[some]
    return total


def mixed(numbers: NDArray[np.uint64]) -> Array:
    """mix(h)/2^64 of some h, in [0, 1)."""
    for shift, factor in SHIFTS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((numbers ^ (numbers >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
