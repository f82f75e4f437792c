"""Where the climbs of the test for a signal begin (:mod:`tpca.solvers.mean.test`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.fit import leading_of_modes, most_starts
from tpca.solvers.mean.grouping import Array32
from tpca.solvers.mean.symmetric import random_rows
from tpca.solvers.rank_one import units

MIXTURES, MORE_MIXTURES, RANDOM = 6, 18, 3  # starts; more from order 4 on, where fits miss more
MAX_MIXED = 32  # leading vectors that are mixed


@dataclass(frozen=True)
class Starts:
    """Where climbs begin, the same for the mean and all flips, for T to be one function.

    Besides the leading vectors of all modes: mixtures of the leading quarter of them, which are closer to a signal than
    chance is (20⁴: with eight of them the best maximum in 23 of 24 tensors, with eight at random in 16), and some at
    random.
    """

    mixtures: list[Array32]
    random: list[Array32]
    equal: Array32 | None
    """Unit vectors ``(R, d)`` for symmetric fits."""

    @classmethod
    def drawn(cls, dims: Sequence[int], rng: np.random.Generator, with_symmetric: bool = False) -> Starts:
        """Coefficients ``(R, q_i)`` and unit vectors ``(R, d_i)``."""
        room = max(0, most_starts(dims) - 1)
        mixtures = min(MIXTURES if len(dims) == 3 else MORE_MIXTURES, room)
        random = min(RANDOM, room - mixtures)
        quarters = [min(d, max(2, min(d // 4, MAX_MIXED))) for d in dims]
        mixed, free = _rows(rng, mixtures, quarters), _rows(rng, random, dims)
        return cls(mixed, free, random_rows(dims[0], rng) if with_symmetric and len(dims) > 2 else None)

    def of(self, tensors: Array32, mode: int) -> Array32:
        """Unit vectors ``(T, R, d)`` of one mode of some tensors."""
        mixing, random = self.mixtures[mode], self.random[mode]
        leading = leading_of_modes(tensors, mode, mixing.shape[1]).astype(np.float32)
        first = 1 + len(mixing)
        starts = np.empty((len(tensors), first + len(random), leading.shape[2]), np.float32)
        starts[:, 0], starts[:, 1:first] = leading[:, 0], mixing[:, : leading.shape[1]] @ leading
        starts[:, first:] = random
        return starts


def _rows(rng: np.random.Generator, count: int, lengths: Sequence[int]) -> list[Array32]:
    return [units(rng.standard_normal((count, d))).astype(np.float32) for d in lengths]
