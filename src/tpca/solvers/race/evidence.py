r"""Evidence for a signal along fixed vectors that needs no model of the noise, valid at any stopping time.

A candidate's vectors are fixed before a round, which is cut into sub-batches, also fixed before (a sub-batch is made of
whole blocks where neighbouring samples are alike).  With :math:`x_j` the sum of the rewards in sub-batch j, bet a share
:math:`\tanh(\lambda x_j)` of what one has on a positive sum:

.. math:: E_\lambda = \prod_j \bigl(1 + \tanh(\lambda x_j)\bigr), \qquad E = \frac16\sum_{g=0}^{5} E_{\lambda_g},
    \qquad \lambda_g = \frac{2^{2-g}}{s_0\sqrt{B_1}} .

tanh is odd, so that :math:`\mathbb E[1 + \tanh(\lambda x_j) \mid \text{past}] = 1` whenever :math:`x_j` is as likely as
:math:`-x_j`: E is a nonnegative martingale for noise that is symmetric given the past, of any covariance, any tails,
and levels that drift.  Nothing that is estimated enters validity: the noise level :math:`s_0` and the size
:math:`B_1` of the first round, known before it, only say which bets are worth trying.  By Ville's inequality
:math:`P(\sup E \ge 1/\delta) \le \delta`.  Where noise is not symmetric, :math:`\log(1 + \tanh u) = u - \log\cosh u`
has no third-order term: the log of the wealth drifts down for any law of mean zero.

**Slow directions.**  A direction of the noise in which neighbouring samples are alike, while the rest is white, pays
for many sub-batches in a row before it turns round.  The same bets are therefore placed at several levels, level a on
sums over :math:`2^a` consecutive sub-batches.  At each level of N of them, :math:`x_b` over :math:`n_b` samples, the
lag-one autocorrelation r of :math:`e_b = (x_b - n_b\hat R_b)/\sqrt{n_b}` is watched, where :math:`\hat R_b` is the mean
reward, with a linear trend once there are ``TREND`` sub-batches, for candidates get better on the way.  With p = 1 or 2
fitted numbers independent rewards have an r of -p/N on average, and neighbours are taken for *alike* if

.. math:: (r + p/N)\sqrt N > \texttt{Z} .

What counts is level 0, or, if neighbours are alike there, the level ``ABOVE`` higher than the last of those, from 0 on,
at which they are; and of that and all below it the smallest evidence.  Beginning at level 0 matters: a candidate that
gets better in a curve makes long sums alike, and short ones not, which noise that turns round slowly never does.  Where
the rewards hardly scatter beside their mean (mean over deviation above ``STEADY``) they cannot come from noise that
turns round, and r, which the least trend then makes large, is not looked at.

**A proof counts once it was reached.**  Ville's inequality bounds the supremum over time, so evidence that crossed
its bar and fell again is a proof.  :math:`\texttt{peaks}[a] = \sup_t\min_{b\le a} E_b(t)`, and that of the level that
counts *now* is the proof: neighbours that turn out to be alike later take back what was only reached on sums that are
too short.  It is no larger than that of level 0, whatever level is chosen by looking.

==================  ===========================================================================
symbol              code
==================  ===========================================================================
x_b, n_b            ``x``, ``size``
lambda_g, log E_g   ``Wealth.bets``, ``Level.logs``
N, r, p             ``Level.count``, ``r`` and ``fitted`` in :meth:`Level.excess`
==================  ===========================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.tensors.blocks import Array

BETS = 6  # λ_g: large ones for what is found soon after an attempt began, small ones for what takes long
LEVELS = 5
MIN_BLOCKS = 12  # of level 0, and of any level that is asked whether neighbours are alike
MIN_ABOVE = 8  # of a higher level that counts: evidence of fewer proves nothing anyway
ABOVE = 2
TREND = 32
Z = 1.64  # in white noise neighbours are taken for alike at 1 of 20 looks
STEADY = 4.0
FLOATS = BETS + LEVELS * (1 + BETS + 9 + 9 + 3)  # that all levels hold: small replicas are no larger
ROUNDING = 1e-9  # of squares: what scatters less does not scatter


def log_bets(bets: Array, x: Array) -> Array:
    """log(1 + tanh(λ x)) of every λ and its x."""
    logs: Array = math.log(2.0) - np.logaddexp(0.0, -2.0 * bets * x)
    return logs


@kept
class Level:
    """Bets on sums over 2^a consecutive sub-batches, and how alike neighbouring ones are."""

    def __init__(self, won: float = 0.0) -> None:
        self.logs = np.full(BETS, won)
        self.count, self.seen = 0, 0.0
        # Of rows (x/√n, √n, t√n), t the place: products with each other, and with the row before.
        self._same, self._lagged, self._last = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3)
        self._waiting = np.zeros((2, 0))  # x and n of one whose neighbour has not come yet

    def add(self, both: Array, bets: Array) -> Array:
        """Bet on sums of rewards ``both[0]`` over ``both[1]`` samples; those of neighbours, for the next level."""
        x, size = both
        root, ends = np.sqrt(size), self.seen + np.cumsum(size)
        rows = np.stack([x / root, root, root * (ends - size / 2)], axis=1)
        lagged = rows.T @ np.concatenate([self._last[None], rows[:-1]])
        self._same += rows.T @ rows
        self._lagged += lagged
        self._last = rows[-1].copy()
        self.logs += log_bets(bets, x[:, None]).sum(axis=0)
        self.count, self.seen = self.count + len(x), float(ends[-1])
        waiting = np.concatenate([self._waiting, both], axis=1)
        even = waiting.shape[1] // 2 * 2
        self._waiting = waiting[:, even:].copy()
        pairs: Array = waiting[:, 0:even:2] + waiting[:, 1:even:2]
        return pairs

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What is held."""
        return (self.logs, self._same, self._lagged, self._last)

    @property
    def log(self) -> float:
        """Log E: the mean over all bets."""
        logs = self.logs.tolist()
        most = max(logs)
        return float(most + math.log(sum(math.exp(one - most) for one in logs) / BETS))

    @property
    def mean(self) -> float:
        """The mean reward."""
        return float(self._same[0, 1] / self._same[1, 1])

    @property
    def scatter(self) -> float:
        """Σ e² about the mean reward."""
        return max(0.0, float(self._same[0, 0] - self.mean**2 * self._same[1, 1]))

    def excess(self, fitted: int) -> float:
        """How many standard errors r is above what independent rewards have; 0 where it is not looked at.

        About the mean reward, and with two ``fitted`` numbers about its trend.
        """
        if self.count < MIN_BLOCKS or (self.mean > 0 and self.mean**2 * self.seen > STEADY**2 * self.scatter):
            return 0.0
        same, weights = self._same, np.array([1.0, -self.mean, 0.0])
        size = same[1, 1] * same[2, 2] - same[1, 2] ** 2
        if fitted == 2 and size > ROUNDING * same[1, 1] * same[2, 2]:
            weights[1:] = -np.linalg.solve(same[1:, 1:], same[1:, 0])
        scatter = float(weights @ same @ weights)
        r = float(weights @ self._lagged @ weights) / scatter if scatter > ROUNDING * same[0, 0] else 0.0
        return (r + fitted / self.count) * math.sqrt(self.count)


@kept
class Wealth:
    """What bets on the rewards of one attempt have come to, at all levels.

    ``log`` is the evidence now, ``proof`` the most that it has been, ``level`` the level that counts.
    """

    def __init__(self, sigma: float, first: int, won: Sequence[tuple[float, float]] = ()) -> None:
        """Bets for a noise level ``sigma`` of one sample and a first round of ``first`` samples, all known before.

        ``won`` is what was won before, at every level: the log of what there is, and of the most that there was.
        """
        won = won or [(0.0, 0.0)] * LEVELS  # every bet begins with one
        self.bets: Array = 2.0 ** (2.0 - np.arange(BETS, dtype=np.float64)) / (sigma * math.sqrt(first))
        self.levels, self.peaks = [Level(now) for now, _ in won], np.array([most for _, most in won])
        self.log, self.level = 0.0, 0

    def add(self, sums: Array, sizes: Array) -> None:
        """Bet on the sums of rewards of consecutive sub-batches, and judge what that proves."""
        both: Array = np.stack([sums, sizes])
        for a, level in enumerate(self.levels):
            if not both.size:
                break
            both = level.add(both, self.bets * 2.0 ** (-a / 2))
        alike = sum(1 for _ in itertools.takewhile(lambda excess: excess > Z, self.excesses()))
        self.level = alike - 1 + ABOVE if alike else 0
        least = MIN_ABOVE if alike else MIN_BLOCKS
        counted = [level.log for level in self.levels[: self.level + 1] if level.count >= least]
        self.log = min(counted, default=self.levels[0].log)
        smallest = math.inf
        for a, level in enumerate(self.levels):
            if level.count < (MIN_ABOVE if a else MIN_BLOCKS):
                break
            smallest = min(smallest, level.log)
            self.peaks[a] = max(self.peaks[a], smallest)

    @property
    def won(self) -> tuple[tuple[float, float], ...]:
        """What bets that go on begin with."""
        return tuple((level.log, float(most)) for level, most in zip(self.levels, self.peaks, strict=True))

    @property
    def arrays(self) -> list[Array]:
        """What is held."""
        return [self.bets, self.peaks, *(array for level in self.levels for array in level.arrays)]

    @property
    def proof(self) -> float:
        """Log of the largest evidence so far, at the level that counts now."""
        return float(self.peaks[min(self.level, LEVELS - 1)])

    @property
    def deviation(self) -> float:
        """Noise of the reward of one sample, along the vectors, from how sub-batches scatter; 0 before the second."""
        level = self.levels[0]
        return math.sqrt(level.scatter / (level.count - 1)) if level.count > 1 else 0.0

    def excesses(self) -> Iterator[float]:
        """How much more alike neighbours are than independent ones, at every level, in standard errors."""
        fitted = 1 if self.levels[0].count < TREND else 2
        return (level.excess(fitted) for level in self.levels)
