"""What passes over the rows of views add up, batch by batch: tallies (:mod:`tpca.engines.sweeps`).

All of them are sums over rows, so that workers can each do some; what is worked out from the sums is in
:mod:`tpca.solvers.moments.solver`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpca.engines.sweeps import Tally
from tpca.randomness import generator
from tpca.tensors import Query, Reduction, ViewsBatch, reduction
from tpca.tensors.blocks import Array

AnyTally = TypeVar("AnyTally", bound=Tally)


def tally(rows: Any, blank: AnyTally) -> AnyTally:
    """The tally of some rows: a part of the rows of a fit, batches, or something that gives batches when called."""
    if hasattr(rows, "total"):
        total: AnyTally = rows.total(blank)
        return total
    batches: Iterable[ViewsBatch] = rows() if callable(rows) else rows
    for batch in batches:
        blank.add(batch)
    return blank


@dataclass(frozen=True)
class Split:
    """Rows in two parts, by chance, the same every time."""

    share: float
    seed: int

    def __call__(self, batch: ViewsBatch, part: str) -> list[ViewsBatch]:
        """The rows of a batch to learn from (``train``), to judge by (``held``), or both."""
        aside = generator(self.seed, f"held out {batch.first}").random(len(batch)) < self.share
        kinds = {"train": ~aside, "held": aside}
        chosen = kinds.values() if part == "all" else [kinds[part]]
        return [ViewsBatch([view[some] for view in batch.views]) for some in chosen if part != "all" or some.any()]


class OnPart:
    """Another tally, of one part of the rows only."""

    def __init__(self, inner: Any, split: Split, part: str) -> None:
        self.inner, self._split, self._part = inner, split, part

    @property
    def asked(self) -> Any:
        """What the inner tally needs."""
        return self.inner.asked

    @asked.setter
    def asked(self, asked: Any) -> None:
        self.inner.asked = asked

    def add(self, batch: ViewsBatch) -> None:
        """Take the rows of a batch that belong to the part."""
        for piece in self._split(batch, self._part):
            self.inner.add(piece)

    def merge(self, other: OnPart) -> None:
        """Take what another has."""
        self.inner.merge(other.inner)


class RowCount:
    """How many rows there are."""

    asked = None

    def __init__(self) -> None:
        self.count = 0

    def add(self, batch: ViewsBatch) -> None:
        """Count the rows of a batch."""
        self.count += len(batch)

    def merge(self, other: RowCount) -> None:
        """Take what another has counted."""
        self.count += other.count


class ModeSums:
    """Sums of z_m times the products of all other scores; ``asked`` are the vectors, the mode m and the clip."""

    def __init__(self, vectors: Sequence[Array], mode: int, clip: float | None) -> None:
        self.asked: tuple[list[Array], int, float | None] | None = (list(vectors), mode, clip)
        self.total, self.count = np.zeros(vectors[mode].shape), 0

    def add(self, batch: ViewsBatch) -> None:
        """Take the rows of a batch."""
        assert self.asked is not None
        vectors, mode, clip = self.asked
        product: Any = 1.0
        for i, v in enumerate(vectors):
            if i != mode:
                product = product * bounded(batch.views[i] @ v.T.astype(batch.views[i].dtype), clip)
        self.total += product.T @ batch.views[mode]
        self.count += len(batch)

    def merge(self, other: ModeSums) -> None:
        """Take what another has."""
        self.total += other.total
        self.count += other.count


class BasisImage:
    """All views side by side, times a basis, times themselves transposed; ``asked`` is the basis."""

    def __init__(self, basis: Array, dims: Sequence[int]) -> None:
        self.asked: Array | None = basis
        self.image = np.zeros(basis.shape)
        self._cuts = np.cumsum(dims)[:-1]

    def add(self, batch: ViewsBatch) -> None:
        """Take the rows of a batch."""
        assert self.asked is not None
        parts, images = np.split(self.asked, self._cuts), np.split(self.image, self._cuts)
        pairs = list(zip(batch.views, parts, strict=True))
        together: Any = sum(view @ part.astype(view.dtype) for view, part in pairs)
        for (view, _), own in zip(pairs, images, strict=True):
            own += view.T @ together

    def merge(self, other: BasisImage) -> None:
        """Take what another has."""
        self.image += other.image


class GradientSums:
    """The reduction of one query; ``asked`` is the query."""

    def __init__(self, query: Query) -> None:
        self._query: Query | None = query
        self.kept: Reduction | None = None

    @property
    def asked(self) -> Query | None:
        """The query."""
        return self._query

    @asked.setter
    def asked(self, query: Query | None) -> None:
        self._query = query
        if self.kept is not None:
            self.kept.queries = () if query is None else (query,)

    def add(self, batch: ViewsBatch) -> None:
        """Take the rows of a batch."""
        assert self.asked is not None
        self.kept = reduction(batch, [self.asked]) if self.kept is None else self.kept
        self.kept.add(batch)

    def merge(self, other: GradientSums) -> None:
        """Take what another has."""
        if self.kept is None:
            self.kept = other.kept
        elif other.kept is not None:
            self.kept.merge(other.kept)


class Scores:
    """Scores of all rows, for several sets of vectors; ``asked`` are the vectors."""

    def __init__(self, levels: Sequence[Sequence[Array]]) -> None:
        self.asked: list[Sequence[Array]] | None = list(levels)
        self.levels: list[list[list[NDArray[Any]]]] = [[] for _ in levels]

    def add(self, batch: ViewsBatch) -> None:
        """Take the rows of a batch."""
        assert self.asked is not None
        for vectors, own in zip(self.asked, self.levels, strict=True):
            own.append([view @ v.T.astype(view.dtype) for view, v in zip(batch.views, vectors, strict=True)])

    def merge(self, other: Scores) -> None:
        """Take the rows that come after."""
        for own, others in zip(self.levels, other.levels, strict=True):
            own += others


def bounded(scores: NDArray[Any], clip: float | None) -> NDArray[Any]:
    """Scores of at most ``clip`` in size."""
    return scores if clip is None else np.clip(scores, -clip, clip)
