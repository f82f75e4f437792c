"""A climb: one reading under way, alternating between the weights p and the vectors, each the best given the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from tpca.blocks import Array, Partition
from tpca.solvers.rankone import rank_one


class Climb:
    """Weights p, and what was found with them: ``vectors`` by mode, the outer products ``blocks``, their signals."""

    def __init__(self, partition: Partition, p: Array, vectors: Sequence[Array] | None = None) -> None:
        self.partition, self.p = partition, p
        self.vectors = [np.empty(0)] * partition.order if vectors is None else list(vectors)
        self.blocks: list[Array | None] = [None, None] if vectors is None else list(partition.outer(vectors))
        self._signals = [0.0, 0.0]

    @property
    def signal(self) -> float:
        """√(s_A² + s_B²), which climbs."""
        return math.hypot(*self._signals)

    def fit(self, m: int, known: Array) -> None:
        """The vectors of block m from what is known about it, s v + noise."""
        group = self.partition.groups[m]
        fitted = rank_one(known, None if self.blocks[m] is None else [self.vectors[i] for i in group])
        for i, v in zip(group, fitted, strict=True):
            self.vectors[i] = v
        outer = functools.reduce(np.multiply.outer, fitted)
        self.blocks[m], self._signals[m] = outer, float(np.vdot(known, outer))
