"""What passes over the rows of views add up, batch by batch.

All of them are sums over rows, so that workers can each do some; what is worked out from the sums is in
:mod:`tpca.solvers.moments.solver`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.moments.rows import PartOfRows
from tpca.tensors import Accumulator, ViewsBatch
from tpca.tensors.blocks import Array

A = TypeVar("A", bound=Accumulator)


def total(rows: PartOfRows | Iterable[ViewsBatch], blank: A) -> A:
    """An accumulator of some rows: a part of the rows of a fit, or batches in memory."""
    if isinstance(rows, PartOfRows):
        return rows.total(blank)
    for batch in rows:
        blank.add(batch, blank.n)
    if blank.n:
        blank.finish()
    return blank


class RowCount(Accumulator):
    """How many rows there are."""

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Count the rows of a batch."""
        self.n += len(batch)

    def merge(self, other: RowCount) -> None:
        """Take what another has counted."""
        self.n += other.n


class Products(Accumulator):
    """Sums of z_m times the products of all other scores, m = ``mode``, each of at most ``clip`` in size."""

    def __init__(self, vectors: Sequence[Array], mode: int, clip: float | None) -> None:
        super().__init__(list(vectors), mode, clip)
        self.total = np.zeros(vectors[mode].shape)

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        vectors, mode, clip = self.question
        product: Any = 1.0
        for i, v in enumerate(vectors):
            if i != mode:
                product = product * bounded(batch.views[i] @ v.T.astype(batch.views[i].dtype), clip)
        self.total += product.T @ batch.views[mode]
        self.n += len(batch)

    def merge(self, other: Products) -> None:
        """Take what another has."""
        self.total += other.total
        self.n += other.n


class BasisImage(Accumulator):
    """All views side by side, times a basis, times themselves transposed."""

    def __init__(self, basis: Array, dims: Sequence[int]) -> None:
        super().__init__(basis, dims)
        self.image = np.zeros(basis.shape)
        self._cuts = np.cumsum(dims)[:-1]

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        parts, images = np.split(self.question[0], self._cuts), np.split(self.image, self._cuts)
        pairs = list(zip(batch.views, parts, strict=True))
        together: Any = sum(view @ part.astype(view.dtype) for view, part in pairs)
        for (view, _), own in zip(pairs, images, strict=True):
            own += view.T @ together
        self.n += len(batch)

    def merge(self, other: BasisImage) -> None:
        """Take what another has."""
        self.image += other.image
        self.n += other.n


def bounded(scores: NDArray[Any], clip: float | None) -> NDArray[Any]:
    """Scores of at most ``clip`` in size."""
    return scores if clip is None else np.clip(scores, -clip, clip)
