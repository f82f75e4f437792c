"""Rows of several views of the same things as a batch; what is added up of them, or listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.accumulators import Accumulator, plus
from tpca.tensors.blocks import Array

OfBatch = Callable[..., Sequence[Any]]


class RowsBatch:
    """``n`` rows of every view, arrays ``(n, d_i)`` of finite floats.

    ``first`` is the place of the batch in its stream, ``dropped`` how many of its rows the stream left out, ``places``
    the numbers of those here.
    """

    summable = False

    def __init__(
        self, views: Sequence[NDArray[Any]], first: int = 0, dropped: int = 0, places: NDArray[np.int64] | None = None
    ) -> None:
        self.views, self.first, self.dropped = tuple(views), first, dropped
        self.places = np.arange(first, first + len(self.views[0])) if places is None else places

    def __len__(self) -> int:
        return len(self.views[0])

    def __getitem__(self, some: slice) -> RowsBatch:
        return RowsBatch([view[some] for view in self.views], self.first, 0, self.places[some])

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held."""
        return sum(view.nbytes for view in self.views)

    def content(self) -> list[NDArray[Any]]:
        """The views."""
        return list(self.views)


class BatchSums(Accumulator):
    """``sums`` over all batches of what ``function(batch, *arguments)`` says of each: arrays, in double precision."""

    SUMS = ("sums",)

    def __init__(self, function: OfBatch, *arguments: Any) -> None:
        super().__init__(function, *arguments)
        self.sums: Any = None

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        function, *arguments = self.question
        self.sums = plus(self.sums, [np.array(own, dtype=np.float64) for own in function(batch, *arguments)])
        self.n += len(batch)


class BatchLists(Accumulator):
    """What ``function(batch, *arguments)`` says of the rows of every batch: arrays, ``joined`` to those of all rows."""

    LISTS = ("parts",)

    def __init__(self, function: OfBatch, *arguments: Any) -> None:
        super().__init__(function, *arguments)
        self.parts: list[Sequence[NDArray[Any]]] = []

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        function, *arguments = self.question
        self.parts.append(function(batch, *arguments))
        self.n += len(batch)

    def joined(self) -> list[NDArray[Any]]:
        """The arrays of all rows."""
        return [np.concatenate(own) for own in zip(*self.parts, strict=True)]


def scores(batch: RowsBatch, weights: Sequence[Array], means: Sequence[Array]) -> list[NDArray[Any]]:
    """Scores ``(n, c)`` of every view by weights ``(c, d_i)``; ``means`` are subtracted from the columns first."""
    return [(x - mean) @ w.T.astype(x.dtype) for x, w, mean in zip(batch.views, weights, means, strict=True)]


def placed_scores(batch: RowsBatch, weights: Sequence[Array], means: Sequence[Array]) -> list[NDArray[Any]]:
    """The scores of every view, and behind them the numbers ``(n,)`` of the rows."""
    return [*scores(batch, weights, means), batch.places]
