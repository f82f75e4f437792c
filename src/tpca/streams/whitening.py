r"""Whitening, learnt from a stream: running mean and covariance of every view, d² numbers each.

With the shrunk covariance :math:`C_s = (1-s)\,C + s\,\frac{\mathrm{tr}\,C}{d}\,I = L L^\top` a row becomes
:math:`z = L^{-1}(x - \mu)`, of mean zero and (about) unit covariance.  Any other square root of C_s would give the same
components, turned; this one is the cheapest.

``shrinkage="auto"`` is the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010, Eq. 23), a function of
the covariance and the number of rows alone, but at least d/n: whitened noise of few rows looks related.

Rows may be clipped before (:mod:`tpca.streams.clipping`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from tpca.errors import SampleError
from tpca.streams.clipping import Clipper, clipped
from tpca.streams.places import PlacedBatch, places
from tpca.streams.views import ViewsStream
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.views import ViewsBatch


class RunningMoments:
    """Mean and covariance of rows that come in batches (Chan, Golub and LeVeque 1979)."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = np.zeros(width)
        # Sums of equal numbers are rounded, so that their variance does not tell a column that never moves.
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self._scatter = np.zeros((width, width))

    def add(self, rows: NDArray[Any]) -> None:
        """Take some more rows."""
        if len(rows) == 0:
            return
        mean, both = rows.mean(axis=0, dtype=np.float64), self.count + len(rows)
        shift = mean - self.mean
        # The outer product of the shift is added as one more row: no d² numbers of its own.
        further = math.sqrt(self.count * len(rows) / both) * shift
        centred = np.vstack([rows - mean.astype(rows.dtype), further.astype(rows.dtype)])
        self._scatter += centred.T @ centred
        self.low, self.high = np.minimum(self.low, rows.min(axis=0)), np.maximum(self.high, rows.max(axis=0))
        self.mean, self.count = self.mean + shift * (len(rows) / both), both

    def merge(self, other: RunningMoments) -> None:
        """Take the rows that another has seen."""
        if other.count == 0:
            return
        shift, both = other.mean - self.mean, self.count + other.count
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        self._scatter += other._scatter
        self._scatter += (self.count * other.count / both) * np.multiply.outer(shift, shift)
        self.mean = self.mean + shift * (other.count / both)
        self.count = both

    def covariance(self) -> Array:
        """The covariance, with n - 1."""
        return self._scatter / max(self.count - 1, 1)


class ViewCovariances(Accumulator):
    """Mean and covariance of every view; with ``clippers`` rows are drawn back first."""

    def __init__(self, dims: Sequence[int], clippers: Sequence[Clipper] | None) -> None:
        super().__init__(dims, clippers)
        self.moments = [RunningMoments(width) for width in dims]

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        for own, rows in zip(self.moments, clipped(batch.views, self.question[1]), strict=True):
            own.add(rows)
        self.n += len(batch)

    def merge(self, other: ViewCovariances) -> None:
        """Take the rows that another has seen."""
        for own, others in zip(self.moments, other.moments, strict=True):
            own.merge(others)
        self.n += other.n


class Whitener:
    """Rows of one view, centred and whitened."""

    def __init__(self, mean: Array, factor: Array) -> None:
        self.mean, self.factor = mean, factor  # z = (x - mean) @ factor

    @classmethod
    def learn(cls, moments: RunningMoments, shrinkage: float | str, center: bool, view: int) -> Whitener:
        """From mean and covariance; columns without any variation are named if they are in the way."""
        if moments.count < 2:
            raise SampleError(f"at least two rows are needed to whiten view {view}, got {moments.count}.")
        covariance, still = moments.covariance(), moments.low == moments.high
        width, spread = len(covariance), np.diag(covariance).copy()
        if still.all():
            raise SampleError(f"view {view} is constant: all its rows are the same; leave it out.")
        share = chosen_shrinkage(covariance, moments.count) if isinstance(shrinkage, str) else float(shrinkage)
        covariance *= 1 - share
        covariance[np.diag_indices(width)] += share * spread.mean()
        try:
            lower = cholesky(covariance, lower=True, check_finite=False)
            if np.any(np.diag(lower) <= 1e-7 * np.sqrt(np.diag(covariance))) or (still.any() and share == 0):
                raise LinAlgError
        except LinAlgError:
            why = f"{moments.count} rows cannot tell {width} columns apart"
            why = f"column {int(np.argmax(still))} is constant" if still.any() else why
            way_out = "leave such columns out, or set shrinkage above 0"
            raise SampleError(f"view {view} cannot be whitened: {why}; {way_out}.") from None
        factor = solve_triangular(lower, np.eye(width), lower=True, check_finite=False).T
        return cls(moments.mean if center else np.zeros(width), np.ascontiguousarray(factor))

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Whitened rows, in their own dtype."""
        return np.asarray((rows - self.mean.astype(rows.dtype)) @ self.factor.astype(rows.dtype))

    def weights(self, vectors: Array) -> Array:
        """Directions ``(d, c)`` among whitened columns as weights on the raw ones."""
        return self.factor @ vectors


def chosen_shrinkage(covariance: Array, count: int) -> float:
    """``shrinkage="auto"``."""
    return min(1.0, max(auto_shrinkage(covariance, count), len(covariance) / max(count, 1)))


def auto_shrinkage(covariance: Array, count: int) -> float:
    """Oracle approximating shrinkage: between 0 and 1, falling with the number of rows."""
    width = len(covariance)
    squares, trace = float(np.sum(covariance**2)), float(np.trace(covariance))
    top = (1 - 2 / width) * squares + trace**2
    bottom = (count + 1 - 2 / width) * (squares - trace**2 / width)
    return 1.0 if bottom <= 0 else min(1.0, top / bottom)


class WhitenedViews(ViewsStream):
    """A stream of views, clipped if wanted, centred and whitened."""

    def __init__(self, stream: ViewsStream, whiteners: Sequence[Whitener], clippers: Sequence[Clipper] | None) -> None:
        self.dims, self.length, self.dtype, self.layout = stream.dims, stream.length, stream.dtype, stream.layout
        self.rereadable, self.ahead = stream.rereadable, stream.ahead
        self.readable_elsewhere = stream.readable_elsewhere
        self._stream, self._whiteners, self._clippers = stream, list(whiteners), clippers

    @property
    def identity(self) -> str:
        """Says which data these are."""
        return f"whitened {self._stream.identity}"

    def batches(self, start: int = 0) -> Iterator[ViewsBatch]:
        """Whitened batches."""
        return map(self.whiten, self._stream.batches(start))

    def for_workers(self) -> Self:
        """What a worker needs of it: all but Dask arrays, whose blocks come by themselves."""
        return type(self)(self._stream.for_workers(), self._whiteners, self._clippers)

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The rows of a batch as Dask arrays, if all views are."""
        return self._stream.lazy_parts(number)

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> ViewsBatch:
        """Batch ``number``, whitened; it may be empty."""
        return self.whiten(self._stream.batch(number, parts))

    def whiten(self, batch: ViewsBatch) -> ViewsBatch:
        """One batch, clipped, centred and whitened."""
        rows = zip(self._whiteners, clipped(batch.views, self._clippers), strict=True)
        white = ViewsBatch([w(view) for w, view in rows], batch.weights, batch.first, batch.dropped)
        return PlacedBatch(white, places(batch))


class KeptViews(ViewsStream):
    """Views that are kept once they were read, as what ``prepared`` makes of every batch."""

    rereadable = True

    def __init__(self, stream: ViewsStream, prepared: Callable[[ViewsBatch], ViewsBatch]) -> None:
        self.dims, self.length, self.dtype, self.layout = stream.dims, stream.length, stream.dtype, stream.layout
        self._stream, self._prepared = stream, prepared
        self._kept: list[ViewsBatch] | None = None

    def batches(self, start: int = 0) -> Iterator[ViewsBatch]:
        """All batches; ``start`` is 0."""
        assert start == 0, "passes over kept rows are whole"
        if self._kept is None:
            self._kept = [self._prepared(batch) for batch in self._stream.batches()]
        return iter(self._kept)
