"""Engines of this process, and whatever a user gives as data: as a stream, or as an engine that reads it.

Samples are pulled from a stream, or handed in (``partial_fit``), batch after batch of any size.  Those that are handed
in and do not fill a round yet wait as an accumulator, never as samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar

import numpy as np

from tpca.data import Stream, open_stream
from tpca.data.base import NAN_POLICIES, NumberedStream, SampleDim
from tpca.data.iterables import BatchStream
from tpca.data.open import check_opened, open_known, refuse_class
from tpca.data.stores import labelled_source
from tpca.engines.base import A, Engine, Groups, Receipt, StreamEngine, cut_samples
from tpca.engines.dask.cluster import active_client
from tpca.engines.dask.engine import DaskEngine
from tpca.errors import SampleError
from tpca.labels import Labels, labels_of
from tpca.tensors import Batch, Rewards
from tpca.tensors.blocks import Array
from tpca.tensors.dense import refuse_beyond_memory
from tpca.tensors.namespaces import home_of, library

PIECE = 2**20  # rewards that are held at once
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))  # that samples are worked on in as they are


class LocalEngine(StreamEngine):
    """Reads the next samples of a stream; holds no more than a batch and the accumulators of a few groups."""

    def __init__(self, source: Any) -> None:
        super().__init__(source if isinstance(source, Stream) else open_stream(source))

    def _reduce(self, blank: A, n: int | None) -> A:
        cut = cut_samples(self.stream.layout, self.stream.dtype, blank, self._place, n)
        groups, taken = Groups(blank), 0
        while (batch := self._take(None if n is None else n - taken)) is not None:
            _add(groups.part_of(cut.group(self._batch.first)), batch, taken)
            taken += len(batch)
            self._note_buffer(0 if blank.goes_on else groups.nbytes)
        if not taken:
            return blank.fresh()
        part = groups.merged() if cut.closes else groups.part_of(0)
        part.finish()
        if not blank.goes_on:  # what goes on is the solver's, and not in flight
            self._note_buffer(part.nbytes)
        return part

    def _note_buffer(self, held: int) -> None:
        """What is held of sums, with the batch in hand, and as many like it as may be read meanwhile."""
        batches = 0 if self._batch is None else (1 + self.stream.ahead) * self._batch.nbytes
        self.buffer_bytes = max(self.buffer_bytes, batches + held)

    def _next_batch(self) -> bool:
        there = super()._next_batch()
        if there and self._receipt is not None:
            self._receipt.take(self._batch)
        return there

    def _read_again(self, before: Receipt) -> Receipt:
        self._open(before.begin)
        now = self._receipt = Receipt(before.endless, before.begin, before.begin)
        while now.end < before.end and self._next_batch():
            pass
        return now


def _add(part: A, batch: Batch, at: int) -> None:
    """Add a batch; where a device has no memory for that, say what may fit."""
    try:
        part.add(batch, at)
    except Exception as cause:
        refuse_beyond_memory(cause, batch)
        raise


class PushEngine(Generic[A]):
    """Takes samples as they come, and says when as many as were asked for are there."""

    length: int | None = None
    endless, rereadable, whole = False, False, True

    def __init__(self, dims: tuple[int, ...], labels: Labels | None = None, partial: bool = False) -> None:
        self.dims, self.labels, self.partial = dims, labels, partial
        self.n_skipped = 0
        self.pending: A | None = None
        self.waiting = 0
        """Samples of a round that is not complete."""
        self._most_bytes = 0  # in rounds that are complete
        self._batch_bytes = 0  # of the largest batch of a round

    @property
    def buffer_bytes(self) -> int:
        """Most bytes held so far for samples in flight."""
        return max(self._most_bytes, self._held(self.pending))

    def _held(self, part: A | None) -> int:
        """Bytes of an accumulator and the largest of its batches; what goes on is the solver's, and not in flight."""
        if part is None:
            return 0
        if part.goes_on:
            return self._batch_bytes
        return self._batch_bytes + part.nbytes

    def push(self, batch: Batch, blank: A, n: int) -> A | None:
        """Add a batch, of no more samples than are missing, to those of ``n``; the accumulator when all are there."""
        part = blank.fresh() if self.pending is None else self.pending
        _add(part, batch, self.waiting)
        self._batch_bytes = max(self._batch_bytes, batch.nbytes)
        self.waiting += len(batch)
        if self.waiting < n:
            self.pending = part
            return None
        self.pending = None
        self.waiting = 0
        self._most_bytes = max(self._most_bytes, self._held(part))
        self._batch_bytes = 0
        part.finish()
        return part


def is_engine(source: Any) -> TypeGuard[Engine]:
    """Whether ``source`` reduces samples itself: labelled arrays have ``dims`` and ``reduce`` too, but no passes."""
    return all(hasattr(source, name) for name in ("dims", "reduce", "rewind"))


def open_engine(source: Any) -> Engine:
    """``source`` itself if it is an engine, else a local engine over it as a stream."""
    engine = source if is_engine(source) else LocalEngine(source)
    refuse_rows(getattr(engine, "stream", None))
    return engine


def refuse_rows(stream: Any) -> None:
    """What solvers of samples cannot read."""
    if getattr(stream, "kind", "") == "views":
        raise SampleError("views are no samples of a tensor: TensorCCA fits views.")


def opened(X: Any, dims: tuple[int, ...] | None, **options: Any) -> Stream | Engine:
    """An engine as it is; anything else as a stream, or on the active Dask client if it is a Dask array."""
    refuse_class(X)
    if is_engine(X):
        check_opened(X.stream if isinstance(X, StreamEngine) else Stream(), **options)
        return X
    stream = open_known(X, dims, **options)
    refuse_rows(stream)
    client = active_client() if stream.kind == "dask" and stream.readable_elsewhere else None
    return stream if client is None else DaskEngine(client, stream)


S = TypeVar("S", bound=NumberedStream)
Reader = Callable[[NumberedStream], Engine]


def rows_opened(X: Any, stream_of: Callable[[Any], S], hold: float = 0.0) -> tuple[S, Reader]:
    """Rows as a stream, and what reads it: this process, or the workers of a Dask client, which may ``hold`` rows."""
    client = X.cluster.client if isinstance(X, DaskEngine) else None
    stream = stream_of(X.stream if isinstance(X, StreamEngine) else X)
    if client is None and stream.readable_elsewhere and stream.lazy_parts(0) is not None:
        client = active_client()
    return stream, lambda rows: LocalEngine(rows) if client is None else DaskEngine(client, rows, hold=hold)


def reader(
    X: Any, dims: tuple[int, ...], nan_policy: str, dim: SampleDim = None, labels: Labels | None = None
) -> Engine:
    """New samples from the first on, which must look like the fitted ones."""
    data = opened(X, dims, nan_policy=nan_policy, dim=dim)
    if data.dims != dims:
        raise SampleError(
            f"samples must have the shape that was fitted, {dims}, got {data.dims}; give one sample as x[None]."
        )
    check_labels(labels, data.labels, "as they were fitted")
    engine = open_engine(data)
    if is_engine(X) and engine.rereadable:
        engine.rewind()
    return engine


def check_labels(own: Labels | None, others: Labels | None, expected: str) -> None:
    """Refuse samples whose entries have other names: in another order the answer would be wrong, without a word."""
    if own is not None and others is not None and (difference := own.difference(others)):
        raise SampleError(
            f"samples must have their axes and entries {expected}: {difference}; put them in that order "
            "(DataArray.transpose and reindex; of a table, modes={name: levels}), or give arrays without names."
        )


def handed(X: Any, dims: tuple[int, ...] | None, nan_policy: Any) -> Stream:
    """The batch that ``partial_fit`` is given, with its names where it has any."""
    is_plain = type(X) is np.ndarray and X.dtype in FLOATS and len(X) > 0
    if is_plain and X.shape[1:] == dims and nan_policy in NAN_POLICIES:
        return BatchStream(X, nan_policy)
    refuse_class(X)
    labels = None
    if library(X) == "xarray":
        source = labelled_source(X)
        labels = labels_of(source.axes, source.name) if source.axes else None
        X = source.read((slice(None),) * len(source.shape))
    stream = open_known(iter([X]), dims, "batches", nan_policy=nan_policy)
    stream.labels = labels
    return stream


class Form(NamedTuple):
    """What all batches of a run share: the dtype, and library and device of samples, or that they are sparse."""

    dtype: np.dtype[Any]
    home: str

    def __str__(self) -> str:
        return f"{self.dtype} {self.home}"


def form_of(stream: Stream) -> Form:
    """The form of the samples of a stream."""
    return Form(stream.dtype, "sparse" if stream.kind == "sparse" else home_of(stream.like) or "NumPy")


def reward_pieces(engine: Engine, vectors: Sequence[Array], together: Sequence[Sequence[int]] = ()) -> Iterator[Array]:
    """Rewards ``(n, c)`` of the next samples, piece after piece; ``together`` as of :class:`Rewards`."""
    step = max(1, PIECE // max(1, len(vectors[0])))
    while (part := engine.reduce(Rewards(vectors, together), step)).n:
        yield part.rewards


def mean_and_error(pieces: Iterable[Array], columns: int) -> tuple[Array, Array, int]:
    """Mean of every column of some rows, its standard error, and how many rows; NaN where these are too few.

    Sums of squared deviations are merged as in Chan, Golub and LeVeque (1979): nothing cancels.
    """
    n, mean, scatter = 0, np.zeros(columns), np.zeros(columns)
    for piece in pieces:
        own, both = piece.mean(axis=0), n + len(piece)
        shift = own - mean
        scatter += ((piece - own) ** 2).sum(axis=0) + shift**2 * (n * len(piece) / both)
        mean += shift * (len(piece) / both)
        n = both
    unknown = np.full(columns, math.nan)
    return (mean if n else unknown), (np.sqrt(scatter / (n - 1) / n) if n > 1 else unknown), n
