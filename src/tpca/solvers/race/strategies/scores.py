"""What every small strategy keeps besides its replicas: the noise level, and fading sums of rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tpca.checkpoint import kept
from tpca.tensors import Answer
from tpca.tensors.blocks import Array

MEMORY_OF_SCORES = 0.9
PIECE = 2**10  # entries of a working copy


def all_finite(answers: Iterable[Answer]) -> bool:
    """Whether no gradient left the range of its type: samples so wild that one does are passed over."""
    return all(np.isfinite(g).all() for answer in answers for g in answer.gradients.values())


@kept
class NoiseLevel:
    """sigma² as the mean over rounds of B ‖G‖² / D: the signal's share of a gradient's energy is negligible."""

    def __init__(self) -> None:
        self._energy = 0.0
        self._rounds = 0

    def absorb(self, answer: Answer, n: int, gain: float = 1.0) -> None:
        """Take the energy of all gradients of one answer over ``n`` samples; they come ``gain`` times too large."""
        entries = sum(g.size for g in answer.gradients.values())
        energy = sum(_squares(g) for g in answer.gradients.values())
        self._energy += n * energy / (entries * gain**2)
        self._rounds += 1

    @property
    def sigma(self) -> float:
        """The estimate so far; 1 before the first round or when the data are all zero."""
        return math.sqrt(self._energy / self._rounds) if self._energy > 0 else 1.0


@kept
class Scores:
    """Fading sums of rewards, one per replica, and their variance in units of sigma²."""

    def __init__(self, replicas: int) -> None:
        self.sums = np.zeros(replicas)
        self._variance = 0.0

    def absorb(self, rewards: Array, n: int) -> None:
        """Take the mean rewards over ``n`` samples."""
        self.sums *= MEMORY_OF_SCORES
        self.sums += n * rewards
        self._variance = MEMORY_OF_SCORES**2 * self._variance + n

    def take_over(self, fewer: Scores) -> None:
        """Go on with the scores of ``fewer`` replicas; those of the others are 0."""
        self.sums[: len(fewer.sums)] = fewer.sums
        self._variance = fewer._variance

    def restart(self) -> None:
        """Forget all rewards."""
        self.sums[:] = 0.0
        self._variance = 0.0

    def best(self) -> int:
        """Return the replica with the best score."""
        return int(np.argmax(self.sums))

    def z(self, replica: int, sigma: float) -> float:
        """Return a replica's score in standard deviations of pure noise."""
        return float(self.sums[replica]) / (sigma * math.sqrt(max(self._variance, 1.0)))


def _squares(gradients: Array) -> float:
    """Sum of squares in double precision, a few thousand entries widened at a time."""
    flat = gradients.reshape(-1)
    pieces = (flat[first : first + PIECE].astype(np.float64) for first in range(0, flat.size, PIECE))
    return sum(float(piece @ piece) for piece in pieces)
