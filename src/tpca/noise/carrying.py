r"""Vectors of whitened data carried back, with what is known of them: errors of entries, and of lengths.

A vector û of whitened data with errors of covariance Σ is :math:`y = W^{-1}\hat u` of the data, with errors of
covariance :math:`K = W^{-1}\Sigma W^{-1}`; told are the unit vector :math:`\hat v = y/\|y\|` and a length.  Where noise
is far louder in some directions than in others, K is not small along these even where Σ is: y may have most of its
length there by chance.  Slopes at v̂ then make errors too small just where they are large, for v̂ itself lies along
what is wrong with it, and is too long.  So truth is not taken to be at y, but where y and a belief say together:

.. math:: y_0 \sim N(0, \tau^2R^2), \qquad y \sim N(y_0, K), \qquad
    \tau^2 = \arg\max_{\tau^2} p(y\mid\tau^2): \quad \sum_k\frac{y_k^2 - \kappa_k - \tau^2}{(\kappa_k + \tau^2)^2} = 0

with κ_k the eigenvalues of :math:`R^{-1}KR^{-1}` and y_k the entries of :math:`R^{-1}y` along its axes :math:`x_k`.
There are two beliefs, each counted by its :math:`p(y\mid\tau^2)`: all directions are alike in the data (R = I: signals
that are rougher than the noise), or in whitened data (R = W^-1: such as look like the noise).  Given one of them, with
:math:`a_k = \tau^2/(\tau^2 + \kappa_k)`,

.. math:: y_0 \sim N(m, P), \qquad m = R\sum_k a_ky_kx_k, \qquad P = R\sum_k a_k\kappa_kx_kx_k^\top R, \qquad
    L^2 = E\|y_0\|^2 = \|m\|^2 + \mathrm{tr}\,P .

To second order :math:`\ln\|y_0\|` has the mean :math:`\ln L - \rho_1 - \rho_2` and the variance
:math:`\rho_1 + \rho_2 + \rho_3`,

.. math:: \rho_1 = \frac{m^\top Pm}{L^4}, \qquad \rho_2 = \frac{\mathrm{tr}\,P^2}{2L^4}, \qquad
    \rho_3 = \frac14\Bigl(\frac{\partial\ln L^2}{\partial\ln\tau^2}\Bigr)^2\mathrm{Var}\ln\tau^2, \qquad
    \mathrm{Var}\ln\tau^2 = \frac{2}{\sum a_k^2} ,

the last for τ² is an estimate, too.  With c = m/L and J the projection across m

.. math::
    E(\hat v - v)(\hat v - v)^\top = \frac{J P J}{L^2} + (\rho_2 + \rho_3)\,cc^\top + (c - \hat v)(c - \hat v)^\top .

As û has the length one with its errors, and u without them, a length is that of y_0 over that which the same says of û
itself (W = I): where there is nothing to carry it is one.  Where K is small both beliefs say what slopes do:
:math:`J K J/\|y\|^2`, and :math:`\hat v^\top K\hat v/\|y\|^2` for the variance of the logarithm of a length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.tensors.blocks import Array

GRID, GRIDS = 33, 4  # values of τ² that are tried, and how often, ever closer: to five digits, more than are known
MIN_SPREAD = 1e-6  # τ² over that of a y without errors


@dataclass(frozen=True)
class Carried:
    """One vector of whitened data as one of the data.

    ``vector`` is v̂, ``errors`` the mean of (v̂ − v)(v̂ − v)ᵀ; ``length`` is that of W⁻¹u, known up to e^±``relative``.
    """

    vector: Array
    errors: Array
    length: float
    relative: float

    @property
    def error(self) -> float:
        """Root mean squared error of the vector; √2 where nothing is known."""
        return math.sqrt(min(2.0, max(0.0, float(np.trace(self.errors)))))


@dataclass(frozen=True)
class Belief:
    """What y says under one belief: ln p(y), E(v̂ − v)(v̂ − v)ᵀ, and mean and variance of ln ‖y_0‖."""

    log_likelihood: float
    errors: Array
    log_length: float
    variance: float


def carried(inverse: Array, vector: Array, covariance: Array) -> Carried:
    """W⁻¹û of a unit vector û whose errors have the ``covariance`` Σ."""
    raw = inverse @ vector
    size = float(np.linalg.norm(raw))
    v, seen = raw / size, covariance / size**2
    in_data = _belief(v, v, inverse @ seen @ inverse, None)
    in_whitened = _belief(v, vector / size, seen, inverse)
    odds = in_whitened.log_likelihood - in_data.log_likelihood
    share = 1 / (1 + math.exp(-odds)) if odds > 0 else 1 - 1 / (1 + math.exp(odds))
    one, other = 1 - share, share
    log_length = one * in_data.log_length + other * in_whitened.log_length
    apart = one * other * (in_data.log_length - in_whitened.log_length) ** 2
    variance = one * in_data.variance + other * in_whitened.variance + apart
    length = size * math.exp(log_length - _belief(vector, vector, covariance, None).log_length)
    return Carried(v, one * in_data.errors + other * in_whitened.errors, length, math.sqrt(variance))


def carried_interval(
    strength: float, ends: tuple[float, float], factor: float, relative: float, correlation: float = 0.0
) -> tuple[float, float]:
    """An interval times a factor that is known up to e^±``relative``: on a scale of logarithms, where errors add up.

    ``correlation`` is that of the errors of both.
    """
    if not 0 < strength < math.inf:  # nothing that could be said of the data
        return ends
    own = (abs(math.log(end / strength)) if end > 0 else math.inf for end in ends)
    low, high = (added(reach, relative, correlation) for reach in own)
    return strength * factor * math.exp(-low), strength * factor * math.exp(high)


def added(one: float, other: float, correlation: float) -> float:
    """Standard error of a sum, from those of its parts."""
    if math.isinf(one):
        return one
    return math.sqrt(max(0.0, one**2 + other**2 + 2 * correlation * one * other))


def errors_of_entries(each: Sequence[Array]) -> tuple[Array, ...]:
    """Errors of single entries of vectors, from the mean squares of these; no vector is wrong by more than √2."""
    roots = [np.sqrt(np.maximum(np.diag(errors), 0.0)) for errors in each]
    return tuple(e * min(1.0, math.sqrt(2) / (float(np.linalg.norm(e)) or 1.0)) for e in roots)


def _belief(v: Array, y: Array, covariance: Array, root: Array | None) -> Belief:
    """What ``y`` = R^-1 y, with errors of the ``covariance`` R^-1 K R^-1, says; ``root`` is R, ``None`` where R = I."""
    values, axes = np.linalg.eigh(covariance)
    kappa, seen = np.maximum(values, 0.0), axes.T @ y
    prior = _prior(seen**2, kappa)
    a = prior / (prior + kappa)
    log_likelihood = -0.5 * float(np.sum(np.log(prior + kappa) + seen**2 / (prior + kappa)))
    if root is not None:
        axes = root @ axes  # R x_k
        log_likelihood -= float(np.linalg.slogdet(root)[1])
    m, moved = axes @ (a * seen), axes @ (a * (1 - a) * seen)  # moved: the slope of m by ln τ²
    spread = (axes * (a * kappa)) @ axes.T  # P
    widths = np.sum(axes**2, axis=0) * a * kappa
    squared = float(m @ m + np.sum(widths))  # L²
    pulled = spread @ m
    first, second = float(m @ pulled) / squared**2, float(np.sum(spread**2)) / (2 * squared**2)
    slope = float(2 * m @ moved + widths @ (1 - a)) / squared
    third = slope**2 / (2 * float(np.sum(a**2)))
    along, c = m / np.linalg.norm(m), m / math.sqrt(squared)
    # J P J, with P m = ``pulled``
    tilt = np.outer(along, pulled / np.linalg.norm(m))
    across = spread - tilt - tilt.T + np.outer(along, along) * float(along @ spread @ along)
    errors = across / squared + (second + third) * np.outer(c, c) + np.outer(c - v, c - v)
    return Belief(log_likelihood, errors, 0.5 * math.log(squared) - first - second, first + second + third)


def _prior(squares: Array, kappa: Array) -> float:
    """τ², from the ``squares`` of the entries of R^-1 y along the axes."""
    high = float(np.sum(squares))
    low = MIN_SPREAD * high / len(squares)
    for _ in range(GRIDS):
        tried = np.geomspace(low, high, GRID)
        slopes = np.sum((squares - kappa - tried[:, None]) / (kappa + tried[:, None]) ** 2, axis=1)
        rising = int(np.flatnonzero(slopes > 0)[-1]) if slopes[0] > 0 else 0
        low, high = tried[rising], tried[min(rising + 1, GRID - 1)]
    return math.sqrt(low * high)
