r"""What a fit with all vectors the same proves: a test for a signal, a test of whether they are the same, and errors.

Symbols as in :mod:`tpca.solvers.mean.test`; Z and v are those of the symmetric fit
(:mod:`tpca.solvers.mean.symmetric`), k is the order, d the length of every vector.

**Test.**  Z is a maximum over fewer rank-one tensors than the unrestricted one, so noise reaches less far: the test of
:mod:`tpca.solvers.mean.test` with the maxima of this fit to the contrasts, and with the noise next to v along
:math:`k^{-1/2}\sum_m v\otimes\dots u_m\dots\otimes v,\ u\perp v`, which noise that is symmetric itself has more of.
Two tests at full confidence might err twice as often, and half of 1 − confidence for each would raise the unrestricted
threshold by a third of σ.  But the larger of

.. math:: Z^{unrestricted}_0 - \bar Z^{unrestricted}_j \qquad\text{and}\qquad Z_0 - \bar Z_j - \tfrac12\sigma

is a function of the noise with the same Lipschitz constant as either of them, and obeys the same bound about its own
median.  The margin of σ/2 keeps that median next to the unrestricted one's: in white noise the maxima differ by a
standard deviation of 0.35 to 0.6 σ (2×2 to 10⁴), so that the larger of both is 0 to 0.08 σ more in the mean, while the
bound allows a maximum a standard deviation of σ and it has 0.2 to 0.7 σ.  So the unrestricted test stays as it is, at
full confidence, and the symmetric one pays the margin.

**Symmetric or not.**  If the vectors are the same, letting them differ adds to Z² as much as (k − 1)(d − 1) more
parameters fit of the noise (Wilks 1938):

.. math:: (Z^{unrestricted}_0)^2 - Z_0^2 \sim \sigma^2\chi^2_{(k-1)(d-1)} .

Symmetry is rejected if more than the quantile ``SAME`` of that was added, by an unrestricted fit that is itself proven:
one that is not may have found noise, of which there is more than next to v.  Where nothing is proven, the guess is
symmetric if that is ahead by another margin.

**Errors.**  With n = d − 1 and noise of level σ in every entry, g has noise of variance σ²/k across v: k gradients are
averaged, and v̂ has k times less variance than unrestricted, :math:`\sigma^2/(kN\lambda^2)` in every direction (the
bound of Cramér and Rao: the signal moves √k λ times as far as v).  Beyond first order (Jagannath, Lopatto & Miolane
2020; Goulart, Couillet & Comon 2022), with a = √N λ and q = ⟨v̂, v⟩,

.. math:: Z = y + \frac{k-1}{k}\frac{n\sigma^2}{y}, \qquad q^2 = 1 - \frac{n\sigma^2}{k y^2}, \qquad a = y\,q^{2-k} .
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from tpca.solvers.mean.symmetric import SymmetricFits, symmetric_gradients
from tpca.solvers.mean.test import Local, Null, Reading
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

MARGIN = 0.5  # in units of σ
SAME = 0.95  # so one in twenty of vectors that are the same is taken for different (up to 8 % for weak signals)


@dataclass(frozen=True)
class SymmetricFit:
    """A symmetric fit to the mean, what the very same fit reaches on the contrasts, and the noise next to it."""

    component: RankOne
    null: Null
    local: Local

    @classmethod
    def of(cls, tensors: Array, unrestricted: Null, fits: SymmetricFits) -> SymmetricFit:
        """From the fits to the mean, which is first, and to the contrasts."""
        x = fits.vectors[0]
        vectors = (fits.signs[0] * x, *[x] * (tensors.ndim - 2))  # a negative strength is the sign of one vector
        null = Null(unrestricted.sigma, unrestricted.entries, fits.values[1:])
        return cls(RankOne(float(fits.values[0]), vectors), null, symmetric_local(tensors[1:], x))

    @property
    def value(self) -> float:
        """Z."""
        return self.component.strength

    @property
    def noise(self) -> tuple[float, int]:
        """σ, and on how many entries that rests."""
        return max((self.null.sigma, self.null.entries), self.local.level)

    @property
    def sigma(self) -> float:
        """The level of the noise."""
        return self.noise[0]

    def likelier(self, ahead: float) -> bool:
        """Whether Z is further beyond noise than the unrestricted one, by twice the margin: the better guess."""
        return self.value - self.null.mean > ahead + 2 * MARGIN * self.sigma

    def proven(self, confidence: float) -> bool:
        """Whether noise alone would not reach as far."""
        return self.value > self.null.threshold(self.local, confidence) + MARGIN * self.sigma


def symmetric_local(noise: Array, x: Array) -> Local:
    """The noise of contrasts next to x ⊗ … ⊗ x: where x can move, and along it."""
    if not len(noise):
        return Local(math.nan, 0, math.nan)
    order = noise.ndim - 1
    gradient = symmetric_gradients(noise, np.broadcast_to(x, (len(noise), 1, len(x))))[:, 0]
    along = gradient @ x
    across = order * (float(np.sum(gradient**2)) - float(along @ along))
    entries = len(noise) * len(x)
    return Local(math.sqrt((across + float(along @ along)) / entries), entries, math.sqrt(float(np.mean(along**2))))


def symmetry_rejected(dims: Sequence[int], unrestricted: float, symmetric: float, sigma: float) -> bool:
    """Whether letting the vectors differ adds more to Z² than noise would."""
    added = (unrestricted - symmetric) * (unrestricted + symmetric)
    freedom = (len(dims) - 1) * (dims[0] - 1)
    return added > sigma**2 * float(chdtri(freedom, 1 - SAME)) + 1e-9 * unrestricted**2


def symmetric_reach(value: float, vectors: Sequence[Array], sigma: float) -> float:
    r"""What a symmetric fit can reach at most where the signal is ``value`` times the outer product of ``vectors``.

    Of the signal :math:`\max_x\prod\langle v_i, x\rangle \le (1 + \min|\langle v_i, v_j\rangle|)/2`, of the noise
    :math:`\sigma\sqrt{kd}` in the mean (Sudakov-Fernique), and 4σ.
    """
    alike = min(abs(float(v @ w)) for v, w in itertools.combinations(vectors, 2))
    return value * (1 + alike) / 2 + sigma * (math.sqrt(len(vectors) * len(vectors[0])) + 4)


def read_symmetric(dims: Sequence[int], value: float, sigma: float) -> Reading:
    """Strength and overlaps behind an observed Z = ``value`` of a symmetric fit in noise of level ``sigma``."""
    order, noise = len(dims), sigma**2 * (dims[0] - 1)
    rest = value**2 - 4 * noise * (order - 1) / order
    edge = rest <= 0 or value <= 0
    y = math.sqrt(noise * (order - 1) / order) if edge else (value + math.sqrt(rest)) / 2
    q = math.sqrt(max(1 - noise / (order * y**2), 1e-6)) if y > 0 else 1.0
    return Reading(y * q ** (2 - order), (q,) * order, edge)
