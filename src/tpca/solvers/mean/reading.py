r"""What the length of a best rank-one fit means: the strength behind it, and how far its vectors are off.

A fit is longer than the signal, for it fits noise as well, and its vectors are turned towards that.  How far depends on
the energy of the noise that each vector can move into,

.. math:: e_i = E\,\bigl\|(I - v_iv_i^\top)\,(E\cdot_{j\ne i} v_j)\bigr\|^2 ,

:math:`(d_i - 1)\sigma^2` in white noise.  For large dims (Seddik, Guillaud & Couillet 2021), with
:math:`n = \sum e_i,\ c_i = e_i/n,\ z = Z/\sqrt n` and :math:`a = \sqrt N\lambda`,

.. math::
    g_i = \tfrac12\bigl(y - \sqrt{y^2 + 4c_i}\bigr), \qquad z = y - \sum g_i, \qquad
    q_i^2 = \langle\hat v_i, v_i\rangle^2 = 1 - g_i^2/c_i, \qquad a/\sqrt n = y/\prod q_i ,

so the observed Z gives y, the overlaps and the strength.  To first order this is right for small dims and noise of any
covariance, too: bias :math:`\sum e_i/2a`, squared error :math:`e_i/a^2`.

With all vectors the same (:mod:`tpca.solvers.mean.symmetric`) k gradients are averaged: e is the energy of their mean,
:math:`(d - 1)\sigma^2/k` in white noise, and (Jagannath, Lopatto & Miolane 2020; Goulart, Couillet & Comon 2022)

.. math:: Z = y + (k - 1)\frac{e}{y}, \qquad q^2 = 1 - \frac{e}{y^2}, \qquad a = y\,q^{2-k} .

**Symmetric or not.**  If the vectors are the same, letting them differ adds to Z² as much as (k − 1)(d − 1) more
parameters fit of the noise (Wilks 1938):

.. math:: (Z^{unrestricted})^2 - Z^2 \sim \sigma^2\chi^2_{(k-1)(d-1)} .

Of weak signals it adds more, by as much as the two laws above differ: the length :math:`Z^{unrestricted}` of the
strength that is read off Z.  Symmetry is rejected if more than the quantile ``SAME`` of that was added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri

from tpca.tensors.blocks import Array

SAME = 0.95  # so one in twenty of vectors that are the same is taken for different (up to 8 % for weak signals)
LEAST_OVERLAP = 1e-3


@dataclass(frozen=True)
class Reading:
    """What an observed Z means: √N λ, the overlap of every vector with the truth; ``edge`` if noise reaches as far."""

    strength: float
    overlaps: tuple[float, ...]
    edge: bool

    @property
    def error(self) -> float:
        """Root mean squared error of the least certain vector: √(2 − 2q)."""
        return math.sqrt(max(2 - 2 * q for q in self.overlaps))


Law = Callable[[Sequence[float], float], Reading]


def read(energies: Sequence[float], value: float) -> Reading:
    """Strength and overlaps behind an observed Z = ``value`` with ``energies`` e_i of the noise around the vectors."""
    free = np.asarray(energies, dtype=float)
    unit = math.sqrt(float(free.sum()))
    if unit <= 1e-12 * value:
        return Reading(value, (1.0,) * len(free), value <= 0)
    c, z = np.maximum(free / free.sum(), 1e-12), value / unit
    least = _edge(c)
    edge = z <= _observed(c, least)
    y = least if edge else brentq(lambda y: _observed(c, y) - z, least, z, xtol=1e-12)
    g = 0.5 * (y - np.sqrt(y**2 + 4 * c))
    overlaps = np.sqrt(np.maximum(1 - g**2 / c, LEAST_OVERLAP**2))
    return Reading(unit * y / float(overlaps.prod()), tuple(float(q) for q in overlaps), bool(edge))


def read_symmetric(energies: Sequence[float], value: float) -> Reading:
    """The same of a symmetric fit; all energies are that of the mean gradient."""
    order, noise = len(energies), float(energies[0])
    rest = value**2 - 4 * noise * (order - 1)
    edge = rest <= 0 or value <= 0
    y = math.sqrt(noise * (order - 1)) if edge else (value + math.sqrt(rest)) / 2
    q = math.sqrt(max(1 - noise / y**2, LEAST_OVERLAP**2)) if y > 0 else 1.0
    return Reading(y * q ** (2 - order), (q,) * order, edge)


def noise_reach(energies: Sequence[float], law: Law) -> float:
    """About the Z that noise alone reaches: where the reading of a fit has its edge."""
    if law is read_symmetric:
        return 2 * math.sqrt(float(energies[0]) * (len(energies) - 1))
    free = np.asarray(energies, dtype=float)
    n = float(free.sum())
    return math.sqrt(n) * _observed(free / n, _edge(free / n)) if n > 0 else 0.0


def symmetry_rejected(
    dims: Sequence[int], unrestricted: float, symmetric: float, sigma: float, likely: bool = False
) -> bool:
    """Whether letting the vectors differ adds more to Z² than noise of level ``sigma`` would.

    Only of symmetric fits that are ``likely`` may a strength be read off, as is needed for weak signals.
    """
    added = (unrestricted - symmetric) * (unrestricted + symmetric)
    order, free = len(dims), dims[0] - 1
    expected = sigma**2 * (order - 1) * free
    reading = read_symmetric([sigma**2 * free / order] * order, symmetric)
    if likely and not reading.edge:
        expected = max(expected, _length([sigma**2 * free] * order, reading.strength) ** 2 - symmetric**2)
    quantile = float(chdtri((order - 1) * free, 1 - SAME)) / ((order - 1) * free)
    return added > expected * quantile + 1e-9 * unrestricted**2


def _length(energies: Sequence[float], strength: float) -> float:
    """The Z that is read as a strength; where noise reaches as far, what that reaches."""
    least = noise_reach(energies, read) * (1 + 1e-9)
    most = strength + sum(energies) / max(strength, 1e-300) + least
    if not read(energies, least).strength < strength < read(energies, most).strength:
        return least
    return float(brentq(lambda z: read(energies, z).strength - strength, least, most))


def _observed(c: Array, y: float) -> float:
    return float(y + 0.5 * np.sum(np.sqrt(y**2 + 4 * c) - y))


def _edge(c: Array) -> float:
    """The y with the least z: below that the fit is one to noise."""

    def slope(y: float) -> float:
        return float(1 + 0.5 * np.sum(y / np.sqrt(y**2 + 4 * c) - 1))

    return 0.0 if slope(0.0) >= 0 else float(brentq(slope, 0.0, 10.0 * len(c)))
