"""Climbs: proposals under way, alternating between weights p and vectors, each the best given the other.

All climbs of a proposal go in step, as stacks of arrays in single precision: one pass over the columns, and one call of
every routine, serve them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.race.strategies.columns import Stored
from tpca.solvers.rank_one import rank_ones
from tpca.tensors.blocks import Partition


class Climbs:
    """Weights ``p`` (c, r), and what was found with them: ``vectors`` (c, d_i) by mode, once there are any.

    ``sides[m]`` is what the columns of block m say of the weights, for the vectors as they are: worked out once.
    """

    def __init__(self, partition: Partition, p: Stored | None, vectors: Sequence[Stored] | None = None) -> None:
        self.partition = partition
        self.vectors: list[Stored] = [np.empty((0, 0))] * partition.order if vectors is None else list(vectors)
        self._known = [vectors is not None] * 2
        count = len(self.vectors[0]) if p is None else len(p)
        self._signals = np.zeros((2, count))
        self.sides: list[Stored | None] = [None, None]
        self._p = p

    def __len__(self) -> int:
        return self._signals.shape[1]

    def __getitem__(self, some: NDArray[np.intp] | slice) -> Climbs:
        """Some of the climbs."""
        twin = Climbs(self.partition, self.p[some], [v[some] for v in self.vectors] if self._known[0] else None)
        twin._known, twin._signals = list(self._known), self._signals[:, some]
        return twin

    @classmethod
    def together(cls, parts: Sequence[Climbs]) -> Climbs:
        """All of several stacks that are equally far."""
        if len(parts) == 1:
            return parts[0]
        vectors = [np.concatenate(mode) for mode in zip(*(part.vectors for part in parts), strict=True)]
        whole = cls(parts[0].partition, np.concatenate([part.p for part in parts]), vectors)
        whole._signals = np.concatenate([part._signals for part in parts], axis=1)
        return whole

    @property
    def p(self) -> Stored:
        """The weights."""
        assert self._p is not None
        return self._p

    @p.setter
    def p(self, weights: Stored) -> None:
        self._p = weights

    @property
    def signals(self) -> Stored:
        """√(s_A² + s_B²) of each, which climbs."""
        return np.asarray(np.hypot(*self._signals))

    def settled(self, before: Stored, tolerance: float) -> bool:
        """Whether every climb is on top, or too far below the highest to come up to it in two more such sweeps."""
        now = self.signals
        highest = float(now.max())
        pairs = zip(now.tolist(), before.tolist(), strict=True)
        return all(s < (1 + tolerance) * b or 0 < s**3 < b**2 * highest for s, b in pairs)

    def knows(self, m: int) -> bool:
        """Whether there are vectors of block m."""
        return self._known[m]

    def block(self, m: int) -> Stored:
        """The outer products of the vectors of block m, as rows."""
        first, *others = (self.vectors[i] for i in self.partition.groups[m])
        for v in others:
            first = (first[:, :, None] * v[:, None, :]).reshape(len(v), -1)
        return first

    def fit(self, m: int, known: Stored) -> None:
        """The vectors of block m from what is known about it, s v + noise."""
        group = self.partition.groups[m]
        start = [self.vectors[i] for i in group] if self._known[m] else None
        fitted, self._signals[m] = rank_ones(known.reshape(len(self), *self.partition.shapes[m]), start)
        for i, v in zip(group, fitted, strict=True):
            self.vectors[i] = v
        self._known[m], self.sides[m] = True, None
