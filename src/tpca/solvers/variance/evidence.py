r"""Evidence for a component of variation, on samples that came after its candidate.

Evidence for the candidate u, fixed before the samples come, is what bets win,

.. math:: E = \frac16\sum_g\prod_b\bigl(1 + \min(\lambda_{g,b}\,x_b, 2)\bigr), \qquad
    x_b = \nu_b\,\Bigl(\frac{V_b}{e^{s_0^2}\,V_{0,b}} - 1\Bigr), \qquad \lambda_{g,b}\le\frac{0.8}{\nu_b} ,

on the sub-batches b of ν degrees of freedom, where V and V_0 come from the same samples, so that a level that changes
from sample to sample cancels.  In noise of separable covariance the mean of x is not positive: s_0², the scatter of
:math:`\log(V_{0,b}/\tau_b)`, makes up for :math:`\mathbb E[1/V_{0,b}] > 1/\mathbb E V_{0,b}`, as it would if that log
were normal.  (Of a mean of m squares :math:`\mathbb E[1/V_0] = m/(m - 2)`, against 1.90 for 2 at m = 4, 1.48 for 1.5 at
m = 6; sub-batches are large enough for m = 20, :func:`tpca.solvers.variance.limits.edges_within`.)  As
:math:`x\ge-\nu`, no factor is negative, and cutting wins at twice the stake only makes them smaller: where the mean of
x is not positive, bets win nothing on average, whatever the tails.

Bets of earlier rounds, on a candidate that was none yet, are not held against later ones: with the :math:`E_k` of bets
that begin with round k, one before that, :math:`\sum_k E_k/(k(k + 1))` is as fair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.evidence import BETS
from tpca.solvers.variance.accumulator import Variances
from tpca.solvers.variance.level import least_noise, noise_level
from tpca.tensors.blocks import Array

MAX_STAKE, CAP = 0.8, 2.0  # of what was won so far: the most that is put on one sub-batch, and the most that it adds
CHI = math.sqrt(2.0)  # standard deviation of (r² - V)/V for one sample, in Gaussian noise


@kept
class Bets:
    """Bets for a first test of ``first`` samples, and the logarithms of what they have come to."""

    def __init__(self, first: int) -> None:
        self.bets: Array = 2.0 ** (2.0 - np.arange(BETS, dtype=np.float64)) / (CHI * math.sqrt(first))
        self.logs = np.zeros(BETS)

    def add(self, x: Array, freedoms: Array) -> None:
        """Bet on every sub-batch."""
        stakes = np.minimum(self.bets, MAX_STAKE / freedoms[:, None])
        self.logs += np.log1p(np.minimum(stakes * x[:, None], CAP)).sum(axis=0)

    @property
    def log(self) -> float:
        """Log E: the mean over all bets."""
        most = float(self.logs.max())
        return most + math.log(float(np.exp(self.logs - most).mean()))


def log_won(bets: Sequence[Bets]) -> float:
    """Log of the weighted mean over bets that began with every test, those to come being worth one."""
    weighted = [one.log - math.log(k * (k + 1)) for k, one in enumerate(bets, 1)]
    return float(np.logaddexp.reduce([*weighted, -math.log(len(weighted) + 1)]))


def most_won(sub_batches: Sequence[int]) -> float:
    """What :func:`log_won` can come to at most, after tests of so many sub-batches; one alone is no test."""
    logs = [count * math.log1p(CAP) for count in sub_batches if count > 1]
    weighted = [sum(logs[k - 1 :]) - math.log(k * (k + 1)) for k in range(1, len(logs) + 1)]
    return float(np.logaddexp.reduce([*weighted, -math.log(len(weighted) + 1)]))


def contrasts(part: Variances, vectors: Sequence[Array]) -> tuple[Array, Array]:
    """x_b and ν_b of all sub-batches; none where there is but one, for then the scatter of V_0 is not known."""
    each = part.by_part
    variances = np.array([one.squares[0] for one in each])
    totals = np.array([one.total for one in each])
    along = np.array([[float(h[0] @ u) for h, u in zip(one.energies, vectors, strict=True)] for one in each])
    varied = totals > 0
    if varied.sum() < 2:
        return np.zeros(0), np.zeros(0)
    variances, totals, along = variances[varied], totals[varied], along[varied]
    levels = noise_level(variances, totals, along)
    rest = np.maximum(totals - variances, least_noise(variances, totals))
    scatter = float(np.log(levels / rest).var(ddof=1))
    freedoms = part.freedoms[varied]
    return freedoms * (variances / (math.exp(min(scatter, 700.0)) * levels) - 1), freedoms
