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
x_b, n_b            ``x``, ``sizes``
lambda_g, log E_g   ``Wealth.bets``, ``Wealth.logs``
N, r, p             ``count`` and ``fitted`` of :class:`Neighbours`
==================  ===========================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.tensors.blocks import Array

BETS = 6  # λ_g: large ones for what is found soon after an attempt began, small ones for what takes long
LEVELS = 5
MIN_BLOCKS = 12  # of level 0, and of any level that is asked whether neighbours are alike
FEW = 8  # of a higher level that counts, and of any variance that is believed: fewer prove nothing anyway
ABOVE = 2
TREND = 32
Z = 1.64  # in white noise neighbours are taken for alike at 1 of 20 looks
STEADY = 4.0
FLOATS = BETS + LEVELS * (
    1 + BETS + 2 + 8 + 4 + 3 + 4
)  # that all levels hold; the last four: a sum that waits, and numbers
ROUNDING = 1e-9  # of squares: what scatters less does not scatter


@kept
class Neighbours:
    """How alike neighbouring sums of samples are.

    Of y = x/√n, a sum x over n samples, of one entry or of several, and of what may be fitted to it, z = (√n, t√n) with
    t the place, all products are added up: of a sum with itself, and with the one before.
    """

    def __init__(self, entries: int = 1, fitted: int = 2) -> None:
        self.count, self.seen = 0, 0.0
        self.yy, self.zz, self.zy = np.zeros(2), np.zeros((2, fitted, fitted)), np.zeros((2, fitted, entries))
        self.y, self.z = np.zeros(entries), np.zeros(fitted)  # the last

    def add(self, x: Array, sizes: Array) -> None:
        """Sums ``x`` (b, entries) over so many samples each."""
        root, ends = np.sqrt(sizes), self.seen + np.cumsum(sizes)
        y, z = x / root[:, None], np.stack([root, root * (ends - sizes / 2)], axis=1)[:, : len(self.z)]
        before = np.concatenate([self.y[None], y[:-1]]), np.concatenate([self.z[None], z[:-1]])
        for lag, (other_y, other_z) in enumerate(((y, z), before)):
            self.yy[lag] += np.vdot(y, other_y)
            self.zz[lag] += z.T @ other_z
            self.zy[lag] += 0.5 * (z.T @ other_y + other_z.T @ y)
        self.y, self.z = y[-1].copy(), z[-1].copy()
        self.count, self.seen = self.count + len(x), float(ends[-1])

    @property
    def mean(self) -> float:
        """Of what one sample adds to the first entry."""
        return float(self.zy[0, 0, 0] / self.zz[0, 0, 0])

    def scatter(self, fitted: int = 1, lag: int = 0) -> float:
        """Σ⟨e_b, e_{b - lag}⟩ about the mean, or with two ``fitted`` numbers about a trend."""
        zz, zy = self.zz[:, :fitted, :fitted], self.zy[:, :fitted]
        fit = np.linalg.solve(zz[0], zy[0])
        return float(self.yy[lag] - 2 * np.vdot(fit, zy[lag]) + np.vdot(fit, zz[lag] @ fit))

    def autocorrelation(self, fitted: int = 1) -> float:
        """The lag-one autocorrelation r, and p/N: what independent sums have less."""
        same = self.scatter(fitted)
        r = self.scatter(fitted, 1) / same if same > ROUNDING * self.yy[0] else 0.0
        return r + fitted / self.count

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What is held."""
        return (self.yy, self.zz, self.zy, self.y, self.z)


@kept
class Wealth:
    """What bets on the rewards of one attempt have come to, at all levels.

    ``log`` is the evidence now, ``proof`` the most that it has been, ``level`` the level that counts.
    """

    def __init__(self, won: Sequence[tuple[float, float]] = ()) -> None:
        """``won`` is what was won before, at every level: the log of what there is, and of the most that there was."""
        won = won or [(0.0, 0.0)] * LEVELS  # every bet begins with one
        self.bets: Array = np.zeros(BETS)
        self.logs, self.peaks = np.array([[now] * BETS for now, _ in won]), np.array([most for _, most in won])
        self.sums = [Neighbours() for _ in won]
        self._waiting = [np.zeros((2, 0)) for _ in won]  # x and n of one whose neighbour has not come yet
        self.log, self.level = 0.0, 0

    def begin(self, sigma: float, first: int) -> None:
        """Choose bets for a noise level ``sigma`` of one sample and a first round of ``first``, both known before."""
        self.bets = 2.0 ** (2.0 - np.arange(BETS, dtype=np.float64)) / (sigma * math.sqrt(first))

    def add(self, sums: Array, sizes: Array) -> None:
        """Bet on the sums of rewards of consecutive sub-batches, and judge what that proves."""
        both: Array = np.stack([sums, sizes])
        for a, level in enumerate(self.sums):
            if not both.size:
                break
            x, n = both[0][:, None], both[1]
            level.add(x, n)
            # log(1 + tanh u) = log 2 - log(1 + exp(-2u)), however large u is
            self.logs[a] += np.sum(math.log(2.0) - np.logaddexp(0.0, -2.0 * self.bets * 2.0 ** (-a / 2) * x), axis=0)
            both = np.concatenate([self._waiting[a], both], axis=1)
            even = both.shape[1] // 2 * 2
            self._waiting[a], both = both[:, even:].copy(), both[:, 0:even:2] + both[:, 1:even:2]
        alike = sum(1 for _ in itertools.takewhile(lambda a: self.excess(a) > Z, range(LEVELS)))
        self.level = alike - 1 + ABOVE if alike else 0
        now, counts = self._now(), [level.count for level in self.sums]
        counted = [e for e, count in zip(now[: self.level + 1], counts, strict=False) if count >= FEW]
        self.log = min(counted, default=now[0])
        reached = itertools.accumulate(now, min)
        for a, (most, count) in enumerate(zip(reached, counts, strict=True)):
            if count >= (FEW if a else MIN_BLOCKS):
                self.peaks[a] = max(self.peaks[a], most)

    def _now(self) -> list[float]:
        """Log E of every level: the mean over all bets."""
        logs: list[float] = (np.logaddexp.reduce(self.logs, axis=1) - math.log(BETS)).tolist()
        return logs

    @property
    def won(self) -> tuple[tuple[float, float], ...]:
        """What bets that go on begin with."""
        return tuple(zip(self._now(), self.peaks.tolist(), strict=True))

    @property
    def arrays(self) -> list[Array]:
        """What is held."""
        return [self.bets, self.peaks, self.logs, *(array for level in self.sums for array in level.arrays)]

    @property
    def proof(self) -> float:
        """Log of the largest evidence so far, at the level that counts now."""
        return float(self.peaks[min(self.level, LEVELS - 1)])

    @property
    def deviation(self) -> float:
        """Noise of the reward of one sample, along the vectors, from how sub-batches scatter; 0 before the second."""
        shortest = self.sums[0]
        return math.sqrt(max(0.0, shortest.scatter()) / (shortest.count - 1)) if shortest.count > 1 else 0.0

    def excess(self, a: int) -> float:
        """How many standard errors r of level ``a`` is above what independent rewards have; 0 where it is not asked."""
        level = self.sums[a]
        if level.count < MIN_BLOCKS or (level.mean > 0 and level.mean**2 * level.seen > STEADY**2 * level.scatter()):
            return 0.0
        return level.autocorrelation(1 if self.sums[0].count < TREND else 2) * math.sqrt(level.count)
