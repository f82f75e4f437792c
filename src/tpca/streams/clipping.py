"""Clipping of views: a row farther off than ``clip`` times the typical row is drawn back to that distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.tensors import Accumulator
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
