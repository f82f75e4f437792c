r"""Errors from how sub-batches scatter, whatever the noise: the sandwich.

An estimate that is a sum over sub-batches, :math:`\sum_j e_j`, each of mean zero about what it estimates and
independent of the others, has the covariance :math:`\mathbb E\,S,\ S = \sum_j e_j e_j^\top`, in noise of any law and
any level.  If in white noise sub-batch j would add :math:`\omega_j\sigma^2`, then with :math:`\Omega = \sum_j\omega_j`

.. math:: \hat V = \frac{N\,S/\Omega + \kappa\,V_0}{N + \kappa}

is the variance per unit of weight, where :math:`V_0` is what is believed before the first sub-batch, worth
:math:`\kappa` of them.  Of sub-batches of unequal weight so many count:
:math:`N_{\rm eff} = \Omega^2/\sum_j\omega_j^2`; quantiles are those of Student's t with
:math:`N_{\rm eff} - 1 + \kappa` degrees of freedom.

Where neighbouring samples are alike the blocks that sub-batches are made of are alike a little, too: the products of
neighbours, :math:`e_j e_{j+1}^\top + e_{j+1} e_j^\top`, are added to S (``dependent``).

An interval that holds at all times at once, while the stream runs, is wider (Waudby-Smith, Arbour, Sinha, Kennedy,
Ramdas 2021, Eq. 6, an asymptotic confidence sequence): with s the standard error after N sub-batches

.. math:: \pm s\sqrt{2\,\frac{N\rho^2 + 1}{N\rho^2}\,\ln\frac{\sqrt{N\rho^2 + 1}}{\alpha}}, \qquad
    \rho^2 = \frac{-2\ln\alpha + \ln(1 - 2\ln\alpha)}{N_0} ,

which is narrowest, beside others of its kind, at :math:`N_0` sub-batches.

=============  ==================================
symbol         code
=============  ==================================
S, Ω, N        ``_sum``, ``weight``, ``count``
V_0, κ         ``prior``, ``PRIOR``
=============  ==================================
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri, stdtrit

from tpca.checkpoint import kept
from tpca.tensors.blocks import Array

PRIOR = 4.0  # κ
NARROWEST = 64.0  # N_0


@kept
class Sandwich:
    """Sums over sub-batches of what they add to an estimate of ``size`` numbers: squares, or (``full``) products."""

    def __init__(self, size: int, full: bool, dependent: bool) -> None:
        self._sum = np.zeros((size, size) if full else size)
        self._last = np.zeros(size if dependent else 0)
        self.weight = self.count = self._squared_weights = 0.0

    def add(self, rows: Array, weights: Array) -> None:
        """Take ``rows[j]``, what sub-batch j adds, and what it would weigh in white noise."""
        self._sum += rows.T @ rows if self._sum.ndim == 2 else np.einsum("jk,jk->k", rows, rows)
        if len(self._last):
            before = np.concatenate([self._last[None], rows[:-1]])
            lagged = rows.T @ before if self._sum.ndim == 2 else np.einsum("jk,jk->k", rows, before)
            self._sum += lagged + lagged.T
            self._last = rows[-1].copy()
        self.weight += float(weights.sum())
        self._squared_weights += float(weights @ weights)
        self.count += len(weights)

    def variance(self, prior: Array) -> Array:
        """V: per unit of weight."""
        return self._shrunk(self._sum, self.weight * prior) / self.weight if self.weight else prior

    def spread(self, direction: Array, prior: float) -> float:
        """Variance of a sum along one direction with one number fitted; in white noise it would be ``prior``."""
        found = max(0.0, float(direction @ self._sum @ direction)) * self.count / max(1.0, self.count - 1)
        return float(self._shrunk(np.array(found), np.array(prior)))

    def _shrunk(self, found: Array, believed: Array) -> Array:
        """Both, by the sub-batches behind them; positive, also where products of neighbours are not."""
        mixed: Array = (self.count * found + PRIOR * believed) / (self.count + PRIOR)
        return mixed if mixed.ndim == 2 else np.maximum(mixed, 0.1 * PRIOR / (self.count + PRIOR) * believed)

    @property
    def freedom(self) -> float:
        """Degrees of freedom behind a variance."""
        effective = self.weight**2 / self._squared_weights if self._squared_weights else 1.0
        return max(1.0, effective - 1 + PRIOR)

    def quantile(self, probability: float) -> float:
        """Of Student's t."""
        return float(stdtrit(self.freedom, probability))

    @property
    def widened(self) -> float:
        """What a standard error is multiplied by, so that 1.96 of them are 95 %: 1 for many sub-batches."""
        return self.quantile(0.975) / float(ndtri(0.975))

    def at_all_times(self, alpha: float) -> float:
        """How many standard errors hold at all times at once with probability 1 − α."""
        spread = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / NARROWEST
        times = max(self.count, 1.0) * spread
        return self.widened * math.sqrt(2 * (times + 1) / times * math.log(math.sqrt(times + 1) / alpha))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What is held."""
        return (self._sum, self._last)
