r"""Whitening and clipping of views.  Whitening is learnt from a stream: mean and covariance of every view, d² numbers.

With the shrunk covariance :math:`C_s = (1-s)\,C + s\,\frac{\mathrm{tr}\,C}{d}\,I = L L^\top` a row becomes
:math:`z = L^{-1}(x - \mu)`, of mean zero and (about) unit covariance.  Any other square root of C_s would give the same
components, turned; this one is the cheapest.

``shrinkage="auto"`` is the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010, Eq. 23), a function of
the covariance and the number of rows alone, but at least d/n: whitened noise of few rows looks related.

Rows may be clipped before: one farther off than ``clip`` times the typical row is drawn back to that distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from tpca.errors import SampleError
from tpca.streams.places import PlacedBatch, places
from tpca.streams.vectors import MadeVectors
from tpca.streams.views import ViewsStream
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.views import ViewsBatch


class Clipper:
    """Draws far rows of one view back: a robust centre and typical distance from the first rows it saw."""

    def __init__(self, rows: NDArray[Any], clip: float) -> None:
        if len(rows) == 0:
            raise SampleError("clip needs rows to tell what is far, got none; give rows without NaN or Inf.")
        self.center = np.median(rows, axis=0).astype(np.float64)
        spread = np.median(np.abs(rows - self.center), axis=0)
        largest = float(spread.max())
        # Columns that hardly ever move count by their mean distance, so that they neither vanish nor dominate.
        fallback = np.mean(np.abs(rows - self.center), axis=0) if largest == 0 else np.full(rows.shape[1], largest)
        self.scale = np.where(spread > 1e-3 * largest, spread, np.where(fallback > 0, fallback, 1.0))
        distance = self._distance(rows)
        typical = float(np.median(distance))
        if typical == 0 and distance.any():  # most rows are the same: the typical row is one of the others
            typical = float(np.median(distance[distance > 0]))
        self._limit = clip * typical

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The rows, none farther than the limit."""
        distance = self._distance(rows)
        far = distance > self._limit
        if not far.any():
            return rows
        drawn, center = rows.copy(), self.center.astype(rows.dtype)
        drawn[far] = center + (rows[far] - center) * (self._limit / distance[far, None]).astype(rows.dtype)
        return drawn

    def _distance(self, rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.linalg.norm((rows - self.center) / self.scale, axis=1))


class FirstRows(Accumulator):
    """Clippers learnt from the first batch, with the bound ``clip``."""

    def __init__(self, clip: float) -> None:
        super().__init__(clip)
        self.clippers: list[Clipper] | None = None

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Learn from a batch, if it is the first."""
        assert self.question is not None
        if self.clippers is None:
            self.clippers = [Clipper(view, self.question[0]) for view in batch.views]
        self.n += len(batch)

    def merge(self, other: FirstRows) -> None:
        """What comes later does not matter."""
        self.clippers, self.n = self.clippers or other.clippers, self.n + other.n


def clipped(views: Sequence[NDArray[Any]], clippers: Sequence[Clipper] | None) -> list[NDArray[Any]]:
    """The views with far rows drawn back, if there is anything to do that."""
    return list(views) if clippers is None else [c(view) for c, view in zip(clippers, views, strict=True)]


class RunningMoments:
    """Mean and covariance of rows that come in batches (Chan, Golub and LeVeque 1979)."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = np.zeros(width)
        # Sums of equal numbers are rounded, so that their variance does not tell a column that never moves.
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.scatter = np.zeros((width, width))

    def add(self, rows: NDArray[Any]) -> None:
        """Take some more rows."""
        if len(rows) == 0:
            return
        mean, both = rows.mean(axis=0, dtype=np.float64), self.count + len(rows)
        shift = mean - self.mean
        # The outer product of the shift is added as one more row: no d² numbers of its own.
        further = math.sqrt(self.count * len(rows) / both) * shift
        centred = np.vstack([rows - mean.astype(rows.dtype), further.astype(rows.dtype)])
        self.scatter += centred.T @ centred
        self.low, self.high = np.minimum(self.low, rows.min(axis=0)), np.maximum(self.high, rows.max(axis=0))
        self.mean, self.count = self.mean + shift * (len(rows) / both), both

    def merge(self, other: RunningMoments) -> None:
        """Take the rows that another has seen."""
        if other.count == 0:
            return
        shift, both = other.mean - self.mean, self.count + other.count
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        self.scatter += other.scatter
        self.scatter += (self.count * other.count / both) * np.multiply.outer(shift, shift)
        self.mean = self.mean + shift * (other.count / both)
        self.count = both

    def covariance(self) -> Array:
        """The covariance, with n - 1."""
        return self.scatter / max(self.count - 1, 1)


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


class WhitenedViews(MadeVectors, ViewsStream):
    """A stream of views, clipped if wanted, centred and whitened."""

    def __init__(self, stream: ViewsStream, whiteners: Sequence[Whitener], clippers: Sequence[Clipper] | None) -> None:
        super().__init__(stream)
        self._whiteners, self._clippers = list(whiteners), clippers

    @property
    def identity(self) -> str:
        """Says which data these are."""
        return f"whitened {self._stream.identity}"

    def made(self, batch: ViewsBatch) -> ViewsBatch:
        """One batch, clipped, centred and whitened."""
        rows = zip(self._whiteners, clipped(batch.views, self._clippers), strict=True)
        white = ViewsBatch([w(view) for w, view in rows], batch.weights, batch.first, batch.dropped)
        return PlacedBatch(white, places(batch))
