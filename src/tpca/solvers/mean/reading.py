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

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import chdtri

SAME = 0.95  # so one in twenty of vectors that are the same is taken for different (up to 8 % for weak signals)
MIN_OVERLAP = 1e-3
STEPS = 100  # of Newton's method at most; next to the edge a few dozen are needed, elsewhere a few


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
    unit = math.sqrt(sum(energies))
    if unit <= 1e-12 * value or unit == 0:
        return Reading(value, (1.0,) * len(energies), value <= 0)
    c, z = tuple(max(e / unit**2, 1e-12) for e in energies), value / unit
    least = _edge(c)
    edge = z <= _observed(c, least)
    y = least if edge else _inverted(c, z)
    overlaps = tuple(
        math.sqrt(max(1 - (0.5 * (y - math.hypot(y, 2 * math.sqrt(e)))) ** 2 / e, MIN_OVERLAP**2)) for e in c
    )
    return Reading(unit * y / math.prod(overlaps), overlaps, edge)


def read_symmetric(energies: Sequence[float], value: float) -> Reading:
    """The same of a symmetric fit; all energies are that of the mean gradient."""
    order, noise = len(energies), float(energies[0])
    rest = value**2 - 4 * noise * (order - 1)
    edge = rest <= 0 or value <= 0
    y = math.sqrt(noise * (order - 1)) if edge else (value + math.sqrt(rest)) / 2
    q = math.sqrt(max(1 - noise / y**2, MIN_OVERLAP**2)) if y > 0 else 1.0
    return Reading(y * q ** (2 - order), (q,) * order, edge)


def noise_reach(energies: Sequence[float], law: Law) -> float:
    """About the Z that noise alone reaches: where the reading of a fit has its edge."""
    if law is read_symmetric:
        return 2 * math.sqrt(float(energies[0]) * (len(energies) - 1))
    n = float(sum(energies))
    c = tuple(e / n for e in energies) if n > 0 else ()
    return math.sqrt(n) * _observed(c, _edge(c)) if n > 0 else 0.0


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


def _observed(c: Sequence[float], y: float) -> float:
    """Z."""
    return y + 0.5 * sum(math.sqrt(y * y + 4 * e) - y for e in c)


@functools.lru_cache(64)  # the same energies are read at both ends of an interval, too
def _edge(c: tuple[float, ...]) -> float:
    """The y with the least z: below that the fit is one to noise.

    By Newton's method: the slope of z is concave, so that steps from the left never go too far.
    """
    y = 0.0
    if len(c) < 3 or min(c) <= 0:
        return y
    for _ in range(STEPS):
        roots = [math.sqrt(y * y + 4 * e) for e in c]
        slope = 1 + 0.5 * sum(y / root - 1 for root in roots)
        step = -slope / (0.5 * sum(4 * e / root**3 for e, root in zip(c, roots, strict=True)))
        y += step
        if step <= 1e-13 * y:
            break
    return y


def _inverted(c: Sequence[float], z: float) -> float:
    """The y, beyond the edge, with this z, by Newton's method: z is convex, no step from the right goes too far."""
    y = z
    for _ in range(STEPS):
        roots = [math.sqrt(y * y + 4 * e) for e in c]
        slope = 1 + 0.5 * sum([y / root - 1 for root in roots])
        step = (y + 0.5 * sum([root - y for root in roots]) - z) / slope if slope > 0 else 0.0
        y -= step
        if step <= 1e-13 * y:
            break
    return y
