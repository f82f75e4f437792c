"""Starts of a climb of views: how many, those of all folds side by side, and which of them go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tpca.solvers.moments.accumulators import Folds
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

SAME_TOP = 0.99  # overlap of all vectors at which two climbs count as one


@dataclass(frozen=True)
class Effort:
    """How much goes into a climb: ``random`` starts, of which ``second`` go on, and ``finalists`` of all starts.

    Finalists make so many ``sweeps``, or rest when their squared change is below ``tolerance``; the best of them makes
    ``last_sweeps`` more, or rests at ``last_tolerance``.  Wide views have fewer random starts, as many as have
    ``ENTRIES`` in all, but no fewer than ``second``.
    """

    random: int
    second: int
    finalists: int
    sweeps: int
    tolerance: float
    last_sweeps: int = 0
    last_tolerance: float = 0.0

    ENTRIES: ClassVar[int] = 2**15

    def starts(self, dims: Sequence[int]) -> int:
        """Random starts for views of these widths."""
        return max(self.second, min(self.random, self.ENTRIES // sum(dims)))


@dataclass(frozen=True)
class Starts:
    """Places to climb from, or that were reached: ``vectors[i]`` is ``(S, d_i)``.

    ``out`` has the fold that each leaves out, ``heights`` the moments.
    """

    vectors: list[Array]
    out: Folds
    heights: Array

    @classmethod
    def at(cls, vectors: Sequence[Array], out: Folds) -> Starts:
        """Places whose heights are not known yet."""
        return cls(list(vectors), out, np.zeros(len(out)))

    def __getitem__(self, some: Any) -> Starts:
        return Starts([v[some] for v in self.vectors], self.out[some], self.heights[some])

    def joined(self, other: Starts) -> Starts:
        """Those of both."""
        pairs = zip(self.vectors, other.vectors, strict=True)
        return Starts(
            [np.concatenate(pair) for pair in pairs],
            np.concatenate([self.out, other.out]),
            np.concatenate([self.heights, other.heights]),
        )

    def put(self, places: Folds, others: Starts) -> None:
        """Others in some of the places."""
        for own, theirs in zip(self.vectors, others.vectors, strict=True):
            own[places] = theirs
        self.heights[places] = others.heights

    def best(self, most: int) -> Starts:
        """The highest that have not ended at the same place as a higher one, up to ``most`` for every fold."""
        chosen: list[int] = []
        for fold in np.unique(self.out):
            own = np.flatnonzero(self.out == fold)
            chosen += own[distinct([v[own] for v in self.vectors], self.heights[own], most)].tolist()
        return self[chosen]

    def top(self, fold: int) -> RankOne:
        """The highest of a fold."""
        best = int(np.argmax(np.where(self.out == fold, self.heights, -np.inf)))
        return RankOne(float(self.heights[best]), tuple(v[best] for v in self.vectors))


def distinct(vectors: Sequence[Array], moments: Array, most: int) -> list[int]:
    """The best starts that have not ended at the same place as a better one."""
    alike = np.min([np.abs(v @ v.T) for v in vectors], axis=0) > SAME_TOP
    chosen: list[int] = []
    for r in np.argsort(-moments, kind="stable"):
        if len(chosen) < most and not alike[r, chosen].any():
            chosen.append(int(r))
    return chosen
