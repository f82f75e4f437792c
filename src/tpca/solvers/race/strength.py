r"""The strength, from the rewards of the refinement; and whether these rewards still say what was claimed.

With :math:`R_j` the mean reward of sub-batch j of :math:`n_j` samples and w the estimated overlap of all vectors, fixed
before its round,

.. math:: \hat\lambda = \frac{\sum_j n_j w R_j}{\sum_j n_j w^2}, \qquad
    \mathrm{Var}(\hat\lambda) = \frac{\sum_j (n_j w R_j - \hat\lambda n_j w^2)^2}{(\sum_j n_j w^2)^2} ,

and the mean reward :math:`\bar R` is the same with w = 1 (:mod:`tpca.solvers.race.sandwich`).

**Contradiction.**  A true signal goes on to give what it gave when it was claimed, :math:`R_0`, or more, for the
vectors get better.  With t the 99.9 % quantile, :math:`\bar R + t\,s(\bar R) < R_0/2` says that it does not.
:math:`R_0` is what happened to be enough for a claim, and on average too large by about its own error, a fourth of it
or less; so a true signal is accused in less than one run of a thousand.

Whether neighbouring rewards are alike, as those of a slow direction of the noise are, is watched at several levels
(:mod:`tpca.solvers.race.evidence`), and said (:func:`tpca.noise.checks.steadiness`).
"""

from __future__ import annotations

import math

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.evidence import MIN_BLOCKS, Wealth
from tpca.solvers.race.sandwich import Sandwich
from tpca.tensors import SubBatches
from tpca.tensors.blocks import Array

MIN_AFTER = 6  # sub-batches after a claim before they may contradict it
HALF = 0.5
SURE = 0.999
# Of rows (nR, n, nwR, nw²): what the mean reward and the strength are made of, each with what was estimated.
MEAN, STRENGTH = (0, 1), (2, 3)


@kept
class RewardsAfter:
    """Sums over the rewards after a claim of a mean reward ``claimed``."""

    def __init__(self, claimed: float, sigma: float, dependent: bool) -> None:
        self.claimed, self.dependent = claimed, dependent
        self._wealth = Wealth(sigma or 1.0, 1)
        self._totals = np.zeros(4)
        self._scatter = Sandwich(4, True, dependent)

    def add(self, overlap: float, parts: SubBatches) -> None:
        """Take the sub-batches of a round, with the overlap w that was estimated before it."""
        n, rewards = parts.sizes, parts.rewards
        rows = np.stack([n * rewards, n, n * overlap * rewards, n * overlap**2], axis=1)
        self._totals += rows.sum(axis=0)
        self._wealth.add(n * rewards, n)
        self._scatter.add(rows, n)

    @property
    def count(self) -> float:
        """Sub-batches."""
        return self._scatter.count

    @property
    def mean(self) -> float:
        """The mean reward."""
        return self._ratio(MEAN)

    @property
    def strength(self) -> float:
        """λ: the mean reward, corrected for the overlaps."""
        return self._ratio(STRENGTH)

    @property
    def weight(self) -> float:
        """Σ n w²."""
        return float(self._totals[3])

    @property
    def total(self) -> float:
        """Σ n w R."""
        return float(self._totals[2])

    def strength_error(self, sigma: float) -> float:
        """Standard error of the strength; ``sigma`` is believed before there are sub-batches."""
        return self._error(STRENGTH, sigma)

    def quantile(self, probability: float) -> float:
        """Of Student's t, for intervals of the strength."""
        return self._scatter.quantile(probability)

    def at_all_times(self, alpha: float) -> float:
        """How many standard errors hold at all times at once."""
        return self._scatter.at_all_times(alpha)

    def limit(self, sigma: float) -> float:
        """95 % upper limit on the size of the mean reward; infinite before the second sub-batch.

        Nothing is assumed of the noise but that sub-batches are independent, so this holds where a claim has failed.
        """
        if self.count < 2:
            return math.inf
        return abs(self.mean) + self.quantile(0.95) * self._error(MEAN, sigma)

    def contradiction(self, sigma: float) -> str | None:
        """What these rewards say against the claim, in words."""
        if self.count < MIN_AFTER or self.claimed <= 0:
            return None
        if self.mean + self.quantile(SURE) * self._error(MEAN, sigma) >= HALF * self.claimed:
            return None
        return f"a mean reward of {self.mean / self.claimed:.2g} times the one at the claim"

    @property
    def excess(self) -> float | None:
        """How much more alike neighbouring rewards are than independent ones, in standard errors.

        ``None`` after too few, or where neighbouring samples are known to be alike.
        """
        if self.dependent or self.count < MIN_BLOCKS:
            return None
        return next(self._wealth.excesses())  # of the shortest sums: vectors that get better make longer ones alike

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What is held."""
        return (self._totals, *self._scatter.arrays, *self._wealth.arrays)

    def _ratio(self, which: tuple[int, int]) -> float:
        top, bottom = self._totals[list(which)]
        return float(top / bottom) if bottom else 0.0

    def _error(self, which: tuple[int, int], sigma: float) -> float:
        top, bottom = which
        direction = np.zeros(4)
        direction[top], direction[bottom] = 1.0, -self._ratio(which)
        weight = float(self._totals[bottom])
        return math.sqrt(self._scatter.spread(direction, sigma**2 * weight)) / weight if weight else math.inf
