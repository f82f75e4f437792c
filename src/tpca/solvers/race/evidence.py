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
gets better in a curve makes long sums alike, and short ones not, which noise that turns round slowly never does.
It is no larger than that of level 0, so what Ville's inequality says still holds.  A level that counts must have some
sub-batches, for fewer say nothing about how alike they are.
Where the rewards hardly scatter beside their mean (mean over deviation above ``STEADY``) they cannot come from noise
that turns round, and r, which the least trend then makes large, is not looked at.

==================  ===========================================================================
symbol              code
==================  ===========================================================================
x_b, n_b            ``x``, ``size``
lambda_g, log E_g   ``Wealth.bets``, ``Level.logs``
N, r, p             ``Level.count``, ``Level.autocorrelation(p)``
==================  ===========================================================================
"""

from __future__ import annotations

import itertools
import math
import operator
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
FIRST, SECOND = np.triu_indices(3)
FLOATS = BETS + LEVELS * (BETS + 6 + 6 + 3)  # that all levels hold
ROUNDING = 1e-9  # of squares: what scatters less does not scatter


def log_bets(bets: Array, x: Array) -> Array:
    """log(1 + tanh(λ x)) of every λ and its x."""
    logs: Array = math.log(2.0) - np.logaddexp(0.0, -2.0 * bets * x)
    return logs


@kept
class Level:
    """Bets on sums over 2^a consecutive sub-batches, and how alike neighbouring ones are."""

    def __init__(self) -> None:
        self.logs = np.zeros(BETS)
        self.count, self.seen = 0, 0.0
        # Of rows (x/√n, √n, t√n), t the place: products of every pair in a row, and with the row before it.
        self._same, self._lagged, self._last = np.zeros(6), np.zeros(6), np.zeros(3)
        self._waiting: tuple[float, float] | None = None  # x and n of one whose neighbour has not come yet

    def pairs(self, both: Array) -> Array:
        """Sums of rewards ``both[0]`` over ``both[1]`` samples, of neighbours: what the next level bets on."""
        if self._waiting is not None:
            both = np.concatenate([np.array(self._waiting)[:, None], both], axis=1)
        even = both.shape[1] // 2 * 2
        self._waiting = None if even == both.shape[1] else (float(both[0, even]), float(both[1, even]))
        return both[:, 0:even:2] + both[:, 1:even:2]

    def take(self, sums: Array, last: Array, count: int, seen: float) -> None:
        """Add up what ``count`` sub-batches until sample ``seen`` gave: logs, products, those with the one before."""
        self.logs += sums[:BETS]
        self._same += sums[BETS : BETS + 6]
        self._lagged += sums[BETS + 6 :]
        self._last = last.copy()
        self.count, self.seen = self.count + count, seen

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
        return float(self._same[1] / self._same[3])

    @property
    def scatter(self) -> float:
        """Σ e² about the mean reward."""
        return max(0.0, float(self._same[0] - self.mean**2 * self._same[3]))

    def autocorrelation(self, fitted: int) -> float:
        """r: about the mean reward, and with two ``fitted`` numbers about its trend; 0 where nothing scatters."""
        same, lagged = self._same.tolist(), self._lagged.tolist()
        mean, trend = same[1] / same[3], 0.0
        if fitted == 2 and (size := same[3] * same[5] - same[4] ** 2) > ROUNDING * same[3] * same[5]:
            mean = (same[5] * same[1] - same[4] * same[2]) / size
            trend = (same[3] * same[2] - same[4] * same[1]) / size
        weights = (1.0, -2 * mean, -2 * trend, mean**2, 2 * mean * trend, trend**2)  # of the upper halves
        scatter = sum(map(operator.mul, weights, same))
        return float(sum(map(operator.mul, weights, lagged)) / scatter) if scatter > ROUNDING * same[0] else 0.0

    def excess(self, fitted: int) -> float:
        """How many standard errors r is above what independent rewards have; 0 where it is not looked at."""
        if self.count < MIN_BLOCKS or (self.mean > 0 and self.mean**2 * self.seen > STEADY**2 * self.scatter):
            return 0.0
        return (self.autocorrelation(fitted) + fitted / self.count) * math.sqrt(self.count)


@kept
class Wealth:
    """What bets on the rewards of one attempt have come to, at all levels.

    ``log`` is the evidence, ``proves`` says whether it may prove anything, ``level`` the level that counts.
    """

    def __init__(self, sigma: float, first: int) -> None:
        """Bets for a noise level ``sigma`` of one sample and a first round of ``first`` samples, all known before."""
        self.bets: Array = 2.0 ** (2.0 - np.arange(BETS, dtype=np.float64)) / (sigma * math.sqrt(first))
        self.levels = [Level() for _ in range(LEVELS)]
        self.log, self.proves, self.level = 0.0, False, 0

    def add(self, sums: Array, sizes: Array) -> None:
        """Bet on the sums of rewards of consecutive sub-batches."""
        both: Array = np.stack([sums, sizes])
        parts = []
        for level in self.levels:
            if not both.size:
                break
            parts.append(both)
            both = level.pairs(both)
        if parts:
            bet(self.levels[: len(parts)], parts, self.bets)
        self._judge()

    @property
    def arrays(self) -> list[Array]:
        """What is held."""
        return [self.bets, *(array for level in self.levels for array in level.arrays)]

    @property
    def deviation(self) -> float:
        """Noise of the reward of one sample, along the vectors, from how sub-batches scatter; 0 before the second."""
        level = self.levels[0]
        return math.sqrt(level.scatter / (level.count - 1)) if level.count > 1 else 0.0

    def excesses(self) -> Iterator[float]:
        """How much more alike neighbours are than independent ones, at every level, in standard errors."""
        fitted = 1 if self.levels[0].count < TREND else 2
        return (level.excess(fitted) for level in self.levels)

    def _judge(self) -> None:
        alike = sum(1 for _ in itertools.takewhile(lambda excess: excess > Z, self.excesses()))
        self.level = alike - 1 + ABOVE if alike else 0
        least = MIN_ABOVE if alike else MIN_BLOCKS
        counted = [level.log for level in self.levels[: self.level + 1] if level.count >= least]
        self.proves = len(counted) > self.level
        self.log = min(counted, default=self.levels[0].log)


def bet(levels: Sequence[Level], parts: Sequence[Array], bets: Array) -> None:
    """Bet on ``parts[a]``, sums of rewards and the samples of each, at level a: at all levels at once."""
    counts = [part.shape[1] for part in parts]
    first = [0, *itertools.accumulate(counts[:-1])]
    which = np.repeat(np.arange(len(parts)), counts)
    x, size = np.concatenate(parts, axis=1)
    root, ends = np.sqrt(size), np.cumsum(size)
    ends += (np.array([level.seen for level in levels]) - (ends - size)[first])[which]
    rows = np.stack([x / root, root, root * (ends - size / 2)], axis=1)
    before = np.concatenate([rows[:1], rows[:-1]])
    before[first] = [level._last for level in levels]
    left, right = rows[:, FIRST], rows[:, SECOND]
    logs = log_bets(np.multiply.outer(2.0 ** (-np.arange(len(parts)) / 2), bets)[which], x[:, None])
    lagged = 0.5 * (left * before[:, SECOND] + right * before[:, FIRST])
    sums = np.add.reduceat(np.concatenate([logs, left * right, lagged], axis=1), first)
    for level, own, start, count in zip(levels, sums, first, counts, strict=True):
        level.take(own, rows[start + count - 1], count, float(ends[start + count - 1]))
