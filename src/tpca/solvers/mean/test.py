r"""What a best rank-one fit proves: a test for a signal, and how far its vectors and strength can be trusted.

**Contrasts.** The samples are added up in G groups of n_g.  With :math:`x_g = \sum_{i\in g} T_i/\sqrt{n_g}` and an
orthogonal matrix Q whose first row is :math:`\sqrt{n_g/N}`, X = Q x is

.. math:: X_0 = \sqrt N\,\bar T = \sqrt N\lambda\, v_1\otimes\dots\otimes v_k + \text{noise}, \qquad
    X_j = \text{noise only}, \quad j = 1 \dots J = G - 1,

all with noise of the same covariance, uncorrelated, and for equal groups every X_j is the sum of all samples with half
of their signs changed (Q is a Hadamard matrix then).  So the X_j show what noise does: its level σ, free of the signal,
and the maximum Z_j that the very same fit reaches without a signal.

**Test.** :math:`Z_0 - \bar Z_j` is a function of the noise with Lipschitz constant :math:`\sqrt{1 + 1/J}`; for white
Gaussian noise isoperimetry (Borell 1975, Sudakov & Tsirelson 1974) bounds its fluctuation about its median, which is at
most about 0, by that of a normal of that standard deviation times σ.  A signal is claimed if

.. math:: Z_0 > \bar Z_j + \sqrt{1 + 1/J}\;\max\bigl(\sigma t_{JD},\ \sigma_v t_{J\sum(d_i - 1) + J},\ s\, t_{J-1}\bigr)

with t the Student quantiles at ``confidence``, σ_v the noise level next to the fitted vectors (noise that is not
white is strongest where the fit ends up) and s the standard deviation of the Z_j (noise of a few wild samples, or
directions; only for J > 1).  For J > 1 it must also hold that :math:`Z_0 > a\,t_J` at the two-sided quantile, a² the
mean square of :math:`\langle X_j, \hat v_1\otimes\dots\otimes\hat v_k\rangle`: noise of random amplitude along one
direction.  The contrasts were chosen over simulated white noise because nothing needs to be assumed of the noise.
With σ alone in the maximum 6 to 8 % of fits to 2×2 correlated noise were claims at confidence 0.95, with all of it 4 %.

**Errors.** For large dims the fit obeys (Seddik, Guillaud & Couillet 2021), with
:math:`c_i = (d_i-1)/n,\ n = \sum(d_i-1),\ z = Z/(\sigma\sqrt n),\ \beta = \lambda\sqrt{N}/(\sigma\sqrt n)`,

.. math::
    g_i = \tfrac12\bigl(y - \sqrt{y^2 + 4c_i}\bigr), \qquad z = y - \sum g_i, \qquad
    q_i^2 = \langle\hat v_i, v_i\rangle^2 = 1 - g_i^2/c_i, \qquad \beta = y/\prod q_i ,

so the observed z gives y, the overlaps and the strength, without the bias of Z (d − 1 in place of their d makes this
right to first order for small dims, too: bias :math:`\sum(d_i-1)\sigma^2/(2\lambda N)`, squared error
:math:`(d_i-1)\sigma^2/(\lambda^2N)`).  The error of Z itself is σ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import hadamard
from scipy.optimize import brentq
from scipy.special import stdtrit

from tpca.tensors.blocks import Array

PLAIN = 1.25


def contrasts(counts: Sequence[int]) -> Array:
    """Q: orthogonal, first row √(n_g/N); for equal groups all entries are ±1/√G.  G must be a power of two."""
    groups = len(counts)
    signs = hadamard(groups) / math.sqrt(groups)
    first = np.sqrt(np.array(counts) / sum(counts))
    turn = first - signs[0]
    length = float(turn @ turn)
    if length < 1e-30:
        return signs
    return np.asarray(signs - 2 / length * np.outer(signs @ turn, turn))  # the reflection that brings row 0 there


@dataclass(frozen=True)
class Local:
    """The noise next to some vectors: its level, on how many entries that rests, and its level along them."""

    sigma: float
    entries: int
    along: float

    @property
    def level(self) -> tuple[float, int]:
        """The level, and on how many entries that rests."""
        return self.sigma, self.entries


@dataclass(frozen=True)
class Null:
    """What the contrasts say about the noise: its level, on how many entries that rests, and the maxima of the fits."""

    sigma: float
    entries: int
    maxima: Array

    @property
    def mean(self) -> float:
        """The mean of the maxima: how far noise reaches; infinite without contrasts."""
        return float(np.mean(self.maxima)) if len(self.maxima) else math.inf

    def threshold(self, local: Local, confidence: float) -> float:
        """The Z that noise alone exceeds in at most ``1 - confidence`` of all fits; infinite without contrasts."""
        count = len(self.maxima)
        if count == 0:
            return math.inf
        level = max(
            self.sigma * _quantile(confidence, self.entries), local.sigma * _quantile(confidence, local.entries)
        )
        least = 0.0
        if count > 1:
            level = max(level, float(np.std(self.maxima, ddof=1)) * _quantile(confidence, count - 1))
            least = local.along * _quantile(0.5 + confidence / 2, count)
        return max(least, self.mean + math.sqrt(1 + 1 / count) * level)


def plain_threshold(dims: Sequence[int], sigma: float, local: Local, contrasts: int, confidence: float) -> float:
    r"""A Z far beyond what noise reaches, without a fit to the contrasts.

    For white noise :math:`E\max Z \le \sigma\sum\sqrt{d_i}` (Sudakov-Fernique: the distance of two rank-one tensors of
    unit vectors is at most that of the vectors together), and Z is beyond that by 4σ once in 30 000 times (Borell).
    ``PLAIN`` times that, σ being at least the level of the noise next to the fit; and, as in :meth:`Null.threshold`,
    beyond noise of random amplitude along it, with a tenth of the chance of an error.
    """
    reach = (sum(map(math.sqrt, dims)) + 4) * max(sigma, local.sigma)
    least = local.along * _quantile(1 - (1 - confidence) / 20, contrasts) if contrasts > 1 else 0.0
    return max(PLAIN * reach, least)


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

    def standard_errors(self, vectors: Sequence[Array]) -> tuple[Array, ...]:
        """Root mean squared error of every entry: v̂ = q v + √(1 − q²) u, u uniform across v."""
        pairs = zip(vectors, self.overlaps, strict=True)
        return tuple(np.sqrt((1 - q**2) * (1 - v**2) / (len(v) - 1) + (1 - q) ** 2 * v**2) for v, q in pairs)


def read(dims: Sequence[int], value: float, sigma: float) -> Reading:
    """Strength and overlaps behind an observed Z = ``value`` in noise of level ``sigma``."""
    free = np.array([d - 1.0 for d in dims])
    unit = sigma * math.sqrt(free.sum())
    if unit <= 1e-12 * value:
        return Reading(value, (1.0,) * len(dims), value <= 0)
    c, z = free / free.sum(), value / unit
    least = _edge(c)
    edge = z <= _observed(c, least)
    y = least if edge else brentq(lambda y: _observed(c, y) - z, least, z, xtol=1e-12)
    g = 0.5 * (y - np.sqrt(y**2 + 4 * c))
    overlaps = np.sqrt(np.maximum(1 - g**2 / c, 1e-6))
    return Reading(unit * y / float(overlaps.prod()), tuple(float(q) for q in overlaps), bool(edge))


Law = Callable[[Sequence[int], float, float], Reading]


def strength_interval(
    dims: Sequence[int], value: float, sigma: float, entries: int, level: float, law: Law = read
) -> tuple[float, float]:
    """Confidence interval of √N λ: the readings of Z ± tσ; from 0 where noise reaches as far as Z − tσ."""
    half = sigma * _quantile(0.5 + level / 2, entries)
    low, high = (law(dims, value + side * half, sigma) for side in (-1, 1))
    return (0.0 if low.edge else low.strength, high.strength)


def strength_limit(rows: int, columns: int, norm: float, sigma: float, entries: int) -> float:
    r"""95 % upper limit of √N λ when nothing was found, from the ``norm`` of an unfolding into rows × columns.

    A fit may miss a signal that is there, so its Z limits nothing; a norm misses nothing.  With a signal it is about
    :math:`\sqrt{(a^2 + \sigma^2D_1)(a^2 + \sigma^2D_2)}/a, a = \sqrt N\lambda`, and no more than 1.64 σ below that in
    95 % of all cases: the limit is the largest a for which what was seen is that likely (Benaych-Georges &
    Nadakuditi 2012; D − 1 in place of D as above).
    """
    seen = norm + sigma * _quantile(0.95, entries)
    # (a² + D1)(a² + D2) = s² a² is a quadratic in a²; seen below the edge √D1 + √D2 counts as that.
    small, large = sigma**2 * (rows - 1), sigma**2 * (columns - 1)
    half = 0.5 * max(0.0, seen**2 - small - large)
    root = math.sqrt(max(0.0, half**2 - small * large))
    return math.sqrt(max(half + root, math.sqrt(small * large)))


def _observed(c: Array, y: float) -> float:
    return float(y + 0.5 * np.sum(np.sqrt(y**2 + 4 * c) - y))


def _edge(c: Array) -> float:
    """The y with the least z: below that the fit is one to noise."""

    def slope(y: float) -> float:
        return float(1 + 0.5 * np.sum(y / np.sqrt(y**2 + 4 * c) - 1))

    return 0.0 if slope(0.0) >= 0 else float(brentq(slope, 0.0, 10.0 * len(c)))


def _quantile(probability: float, freedom: int) -> float:
    return float(stdtrit(max(1, freedom), probability))
