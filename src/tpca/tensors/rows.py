"""Rows of one table, or of several views of the same things, as a batch; and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.accumulators import Accumulator
from tpca.tensors.blocks import Array


class RowsBatch:
    """``n`` rows of every view, arrays ``(n, d_i)`` of finite floats; a table is one view.

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


class Scores(Accumulator):
    """Scores of all rows: ``weights[i]`` is ``(c, d_i)``; ``means`` are subtracted from the columns first."""

    LISTS = ("parts",)

    def __init__(self, weights: Sequence[Array], means: Sequence[Array]) -> None:
        super().__init__(list(weights), list(means))
        self.parts: list[list[NDArray[Any]]] = []

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        self.parts.append([(x - m) @ w.T.astype(x.dtype) for x, w, m in zip(batch.views, *self.question, strict=True)])
        self.n += len(batch)

    def joined(self) -> list[NDArray[Any]]:
        """Scores ``(n, c)`` of every view."""
        none = [np.empty((0, len(w))) for w in self.question[0]]
        return [np.concatenate(view) for view in zip(none, *self.parts, strict=True)]
