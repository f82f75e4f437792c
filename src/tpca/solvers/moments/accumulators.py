"""What passes over the rows of views add up, batch by batch.

All of them are sums over rows, so that workers can each do some; what is worked out from the sums is in
:mod:`tpca.solvers.moments.climb`.  Climbs that leave out one fold each go over the same rows together: ``out`` has, for
every one of them, the fold that it leaves out, or ``NONE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.moments.rows import Rows, SplitBatch
from tpca.tensors import Accumulator, ViewsBatch
from tpca.tensors.blocks import Array

A = TypeVar("A", bound=Accumulator)
Folds = NDArray[np.int_]
NONE = -1


def total(rows: Rows | Iterable[ViewsBatch], blank: A) -> A:
    """An accumulator of some rows: those of a fit, or batches in memory."""
    if isinstance(rows, Rows):
        return rows.total(blank)
    for batch in rows:
        blank.add(batch, blank.n)
    if blank.n:
        blank.finish()
    return blank


class FoldCounts(Accumulator):
    """How many rows there are, and in every one of ``folds`` folds."""

    def __init__(self, folds: int) -> None:
        super().__init__(folds)
        self.held = np.zeros(folds, np.int64)

    def add(self, batch: SplitBatch, at: int = 0) -> None:  # noqa: ARG002
        """Count the rows of a batch."""
        self.held += np.diff(batch.edges)
        self.n += len(batch)

    def merge(self, other: FoldCounts) -> None:
        """Take what another has counted."""
        self.held += other.held
        self.n += other.n


class Products(Accumulator):
    """Sums of z_m times the products of all other scores, m = ``mode``, each of at most ``clip`` in size.

    ``seen`` are the rows that count for every start.
    """

    def __init__(self, vectors: Sequence[Array], mode: int, clip: float | None, out: Folds | None = None) -> None:
        super().__init__(list(vectors), mode, clip, out)
        self.total, self.seen = np.zeros(vectors[mode].shape), np.zeros(len(vectors[mode]))

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        vectors, mode, clip, out = self.question
        if isinstance(batch, SplitBatch):
            batch.forget(mode)
        first, *others = (bounded(along(batch, i, v), clip) for i, v in enumerate(vectors) if i != mode)
        product = first * others[0] if others else first.copy()
        for scores in others[1:]:
            product *= scores
        self.seen += len(batch) - left_out(batch, product, out)
        self.total += product.T @ batch.views[mode]
        self.n += len(batch)

    def merge(self, other: Products) -> None:
        """Take what another has."""
        self.total += other.total
        self.seen += other.seen
        self.n += other.n


class BasisImage(Accumulator):
    """All views side by side, times a basis, times themselves transposed; for several bases ``(F, D, c)``."""

    def __init__(self, bases: Array, dims: Sequence[int], out: Folds | None = None) -> None:
        super().__init__(bases, dims, out)
        self.image = np.zeros(bases.shape)
        self._cuts = np.cumsum(dims)[:-1]

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        bases, _, out = self.question
        count, width, columns = bases.shape
        flat = bases.transpose(1, 0, 2).reshape(width, -1)
        pairs = list(zip(batch.views, np.split(flat, self._cuts), strict=True))
        together: Any = sum(view @ part.astype(view.dtype) for view, part in pairs)
        left_out(batch, together, None if out is None else np.repeat(out, columns))
        for view, own in zip(batch.views, np.split(self.image, self._cuts, axis=1), strict=True):
            own += (view.T @ together).reshape(-1, count, columns).transpose(1, 0, 2)
        self.n += len(batch)

    def merge(self, other: BasisImage) -> None:
        """Take what another has."""
        self.image += other.image
        self.n += other.n


class HeldScores(Accumulator):
    """Scores of the rows of every fold: ``vectors[f][i]`` are ``(c, d_i)``, ``joined(f)[i]`` then ``(n_f, c)``."""

    def __init__(self, vectors: Sequence[Sequence[Array]]) -> None:
        super().__init__(list(vectors))
        self.scores: list[list[list[NDArray[Any]]]] = [[] for _ in vectors]

    def add(self, batch: SplitBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        for own, vectors, rows in zip(self.scores, self.question[0], batch.held(), strict=True):
            own.append([view[rows] @ v.T.astype(view.dtype) for view, v in zip(batch.views, vectors, strict=True)])
        self.n += len(batch)

    def merge(self, other: HeldScores) -> None:
        """Take the rows that come after."""
        for own, others in zip(self.scores, other.scores, strict=True):
            own += others
        self.n += other.n

    def joined(self, fold: int) -> list[NDArray[Any]]:
        """Scores of the rows of one fold, view by view."""
        return [np.concatenate(view) for view in zip(*self.scores[fold], strict=True)]

    @property
    def nbytes(self) -> int:
        """The scores."""
        return sum(view.nbytes for fold in self.scores for part in fold for view in part)


def along(batch: ViewsBatch, view: int, vectors: Array) -> NDArray[Any]:
    """Scores ``(n, c)`` of one view of a batch."""
    if isinstance(batch, SplitBatch):
        return batch.along(view, vectors)
    rows = batch.views[view]
    return np.asarray(rows @ vectors.T.astype(rows.dtype))


def left_out(batch: ViewsBatch, columns: NDArray[Any], out: Folds | None) -> Array:
    """Set what is left out to zero, column by column; for every column how many rows those are."""
    counts = np.zeros(columns.shape[1])
    if out is not None:
        assert isinstance(batch, SplitBatch)
        for fold, rows in enumerate(batch.held()):
            columns[rows, out == fold] = 0
            counts[out == fold] = rows.stop - rows.start
    return counts


def bounded(scores: NDArray[Any], clip: float | None) -> NDArray[Any]:
    """Scores of at most ``clip`` in size."""
    return scores if clip is None else np.clip(scores, -clip, clip)
