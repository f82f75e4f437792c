"""Whatever an estimator is given as data: as a stream, or as an engine that reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tpca.engines import (
    DaskEngine,
    Engine,
    LocalEngine,
    StreamEngine,
    active_client,
    is_engine,
    on_active_cluster,
    open_engine,
)
from tpca.errors import SampleError, SolverError
from tpca.labels import Labels, labels_of
from tpca.solvers.base import ClaimingSolver, Solver
from tpca.solvers.loop import Feed
from tpca.solvers.recovery import Recovery
from tpca.streams import Stream
from tpca.streams.axes import SampleDim, along
from tpca.streams.checks import are_samples, shape_of
from tpca.streams.device import device_source
from tpca.streams.iterables import IterableStream
from tpca.streams.labelled import is_labelled
from tpca.streams.protocol import NumberedStream
from tpca.streams.sources import check_opened, open_known, stored_source
from tpca.streams.sparse import is_sparse
from tpca.tensors import DenseBatch
from tpca.tensors.namespaces import home_of


def opened(X: Any, dims: tuple[int, ...] | None, **options: Any) -> Stream | Engine:
    """An engine as it is; anything else as a stream, or on the active Dask client if it is a Dask array."""
    if not is_engine(X):
        return on_active_cluster(open_known(X, dims, **options))
    check_opened(X.stream if isinstance(X, StreamEngine) else Stream(), **options)
    return X


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
    X: Any, dims: tuple[int, ...], nan_policy: str, sample_dim: SampleDim = None, labels: Labels | None = None
) -> Engine:
    """New samples from the first on, which must look like the fitted ones; rows stay aligned: none is skipped."""
    data = opened(X, dims, nan_policy="zero" if nan_policy == "zero" else "raise", sample_dim=sample_dim)
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
            f"samples must have their modes and entries {expected}: {difference}; put them in that order "
            "(DataArray.transpose and reindex; of a table, modes={name: levels}), or give arrays without names."
        )


def handed(X: Any, dims: tuple[int, ...] | None, items: Any, nan_policy: Any, sample_dim: SampleDim) -> Stream:
    """What ``partial_fit`` is given: a batch or a sample, with its names where it has any."""
    labels = None
    if is_labelled(X) or sample_dim is not None:
        source = device_source(X) or stored_source(X)
        if source is None:
            raise SampleError(f"sample_dim={sample_dim!r} needs an array, got {type(X).__name__}.")
        if len(source.shape) > len(dims or ()) or sample_dim is not None:  # a batch, not one sample
            source = along(source, sample_dim)
            labels = labels_of(source.axes, source.name) if source.axes else None
        X = source.read((slice(None),) * len(source.shape))
        items = "batches" if labels is not None or sample_dim is not None else items
    if items == "auto" and dims is None and not is_sparse(X):  # one array, which may be a batch: refused if it could be
        items = "samples" if are_samples([shape_of(X)], items, dims, "an array") else "batches"
    stream = open_known(iter([X]), dims, items, nan_policy=nan_policy)
    stream.labels = labels
    return stream


def refuse_elsewhere(data: Stream | Engine, what: str) -> None:
    """Refuse samples on a device where nothing works on them yet: they are never copied to the host in secret."""
    if data.like is not None:
        raise SampleError(
            f"{what} cannot work on samples on a device yet, got {home_of(data.like)}; give NumPy arrays, e.g. "
            "X.cpu().numpy() of PyTorch, numpy.asarray(X) of JAX, X.get() of CuPy."
        )


class HandedIn:
    """The samples of ``partial_fit``: batches of one shape and one form, for a run that they feed."""

    def __init__(self, solver: Solver, first: Stream) -> None:
        if not isinstance(solver, ClaimingSolver):
            raise SolverError(f"partial_fit needs solver='race', 'mean' or 'auto', got {solver!r}; use fit.")
        self.dims, self._form = first.dims, _form(first)
        self.labels = first.labels
        self._feed = Feed(solver.start, first.dims, first.labels, first.partial)

    def take_plain(self, X: Any, nan_policy: str) -> bool:
        """Take an array like those before, if that is what ``X`` is; what else it may be takes longer to find out."""
        if type(X) is not np.ndarray or nan_policy != "raise" or (IterableStream.__name__, X.dtype) != self._form:
            return False
        samples = X[None] if X.shape == self.dims else X
        if samples.shape[1:] != self.dims or not len(samples):
            return False
        self._feed.pour(DenseBatch(np.ascontiguousarray(samples), unchecked=0))
        return True

    def take(self, batches: Stream, X: Any) -> None:
        """The next samples, opened from what was given as ``X``."""
        if batches.dims != self.dims:
            raise SampleError(
                f"samples must have shape (n, {', '.join(map(str, self.dims))}) as in the first batch, "
                f"got {np.shape(X)}; call fit to start afresh."
            )
        check_labels(self.labels, batches.labels, "as in the first batch")
        form = _form(batches)
        if form != self._form:
            raise SampleError(
                f"all batches share one dtype and one form, expected {' '.join(map(str, self._form))}, "
                f"got {' '.join(map(str, form))}; convert them to one."
            )
        self._feed.take(batches)

    def recovery(self) -> Recovery:
        """What is known so far."""
        return self._feed.recovery()


def _form(batches: Stream) -> tuple[Any, ...]:
    home = home_of(batches.like)
    return type(batches).__name__, batches.dtype, *([home] if home else [])
