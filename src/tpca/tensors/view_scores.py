"""Scores of the rows of views, on several sets of weights at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.accumulators import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.views import ViewsBatch


class Scores(Accumulator):
    """Scores of rows of views, for several sets of vectors; ``vectors[i]`` is ``(c, d_i)``.

    With ``means`` they are subtracted from the views first; with a ``step`` only rows 0, step, 2·step, ... count.
    """

    def __init__(self, levels: Sequence[Sequence[Array]], means: Sequence[Array] | None = None, step: int = 1) -> None:
        super().__init__(list(levels), means, step)
        self.levels: list[list[list[NDArray[Any]]]] = [[] for _ in levels]

    def add(self, batch: ViewsBatch, at: int) -> None:
        """Take the rows of a batch."""
        assert self.question is not None
        levels, means, step = self.question
        rows = [view[-at % step :: step] for view in batch.views]
        if means is not None:
            rows = [view - mean for view, mean in zip(rows, means, strict=True)]
        for vectors, own in zip(levels, self.levels, strict=True):
            own.append([view @ v.T.astype(view.dtype) for view, v in zip(rows, vectors, strict=True)])
        self.n += len(batch)

    def merge(self, other: Scores) -> None:
        """Take the rows that come after."""
        for own, others in zip(self.levels, other.levels, strict=True):
            own += others
        self.n += other.n

    def joined(self, level: int = 0) -> list[NDArray[Any]]:
        """Scores ``(n, c)`` of every view for one set of vectors."""
        assert self.question is not None
        empty = [[np.empty((0, len(v))) for v in self.question[0][level]]]
        return [np.concatenate(view) for view in zip(*(self.levels[level] or empty), strict=True)]

    @property
    def nbytes(self) -> int:
        """The scores."""
        return sum(view.nbytes for parts in self.levels for part in parts for view in part)
