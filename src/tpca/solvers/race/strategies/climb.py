"""Climbs: proposals under way, alternating between weights p and vectors, each the best given the other.

All climbs of a proposal go in step, as stacks of arrays: one pass over the columns, and one call of every routine,
serve them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.rank_one import rank_ones
from tpca.tensors.blocks import Array, Partition
from tpca.tensors.contraction import outer


def blocks_of(partition: Partition, m: int, vectors: Sequence[Array]) -> Array:
    """The outer products of the vectors (c, d_i) of block m, (c, *block shape)."""
    return outer([vectors[i] for i in partition.groups[m]]).reshape(-1, *partition.shapes[m])


class Climbs:
    """Weights ``p`` (c, r), and what was found with them: ``vectors`` (c, d_i) by mode, once there are any."""

    def __init__(self, partition: Partition, p: Array, vectors: Sequence[Array] | None = None) -> None:
        self.partition, self.p = partition, p
        self.vectors = [np.empty((len(p), 0))] * partition.order if vectors is None else list(vectors)
        self._known = [vectors is not None] * 2
        self._signals = np.zeros((2, len(p)))

    def __len__(self) -> int:
        return len(self.p)

    def __getitem__(self, some: NDArray[np.intp] | slice) -> Climbs:
        """Some of the climbs."""
        twin = Climbs(self.partition, self.p[some], [v[some] for v in self.vectors])
        twin._known, twin._signals = list(self._known), self._signals[:, some]
        return twin

    @classmethod
    def together(cls, parts: Sequence[Climbs]) -> Climbs:
        """All of several stacks that are equally far."""
        vectors = [np.concatenate(mode) for mode in zip(*(part.vectors for part in parts), strict=True)]
        whole = cls(parts[0].partition, np.concatenate([part.p for part in parts]), vectors)
        whole._known = parts[0]._known
        whole._signals = np.concatenate([part._signals for part in parts], axis=1)
        return whole

    @property
    def signals(self) -> Array:
        """√(s_A² + s_B²) of each, which climbs."""
        return np.asarray(np.hypot(*self._signals))

    def block(self, m: int) -> Array | None:
        """The outer products of the vectors of block m, (c, *block shape)."""
        if not self._known[m]:
            return None
        return blocks_of(self.partition, m, self.vectors)

    def fit(self, m: int, known: Array) -> None:
        """The vectors of block m from what is known about it, s v + noise."""
        group = self.partition.groups[m]
        fitted = rank_ones(known, [self.vectors[i] for i in group] if self._known[m] else None)
        for i, v in zip(group, fitted, strict=True):
            self.vectors[i] = v
        self._known[m] = True
        outer = self.block(m)
        assert outer is not None
        self._signals[m] = np.einsum("ci,ci->c", known.reshape(len(self), -1), outer.reshape(len(self), -1))
