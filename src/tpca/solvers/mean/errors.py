r"""How far a fit can be trusted: errors of its vectors and strength from the scatter of the groups around it.

With the groups x', weights w and shares π of :mod:`tpca.solvers.mean.groups` and a fit of unit vectors v and length Z,
group g pulls the strength and vector i by

.. math:: z_g - \pi_gZ, \quad z_g = \langle x'_g, v_1\otimes\dots\otimes v_k\rangle, \qquad
    r_{gi} = (I - v_iv_i^\top)\,(x'_g\cdot_{j\ne i} v_j) ,

and whatever the noise is, as long as groups are independent (a sandwich; one degree of freedom is used up),

.. math:: \mathrm{Var}\,Z = \frac1c\sum w_g^2(z_g - \pi_gZ)^2, \qquad
    \mathrm{Cov}\,\hat v_i = \frac{1}{c\,a^2}\sum w_g^2\, r_{gi}r_{gi}^\top, \qquad
    c = 1 - \sum w_g^2\pi_g(2w_g - \pi_g) .

The traces of the latter, times a², are the energies e_i from which Z is read (:mod:`tpca.solvers.mean.reading`): the
interval of the strength are the readings of Z ± t √Var Z with Student's t of G − 1 degrees of freedom.

*Entries of vectors.*  G groups say little of the variance of a single entry.  Their variances are therefore drawn
towards each other, the more the less they differ beyond chance (Smyth 2004): with s² of entry j, all with G − 1
degrees of freedom, and d_0 and s_0² those of the common distribution that explains their spread, the variance is
:math:`(d_0s_0^2 + (G-1)s_j^2)/(d_0 + G - 1)` with d_0 + G − 1 degrees of freedom, but no more than (G − 1)f in the f
dimensions in which groups scatter.  Where degrees of freedom are few, errors are made larger by Student's t over that
of the normal, so that an entry is within 1.96 of them in 95 % of all cases.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, stdtrit, zeta

from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.reading import Law, Reading, read, read_symmetric
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

USUAL = 0.975  # the quantile at which errors of few degrees of freedom are as good as those of many
STEPS = 50  # of Newton's method at most; a few are needed
MANY = 1e6  # degrees of freedom: as good as infinite


@dataclass(frozen=True)
class Scatter:
    """How the groups scatter around a fit: w_g(z_g − π_g Z) ``(G,)`` and w_g r_gi, ``(G, d_i)`` for every vector.

    Those of a symmetric fit are of the mean gradient of all modes, the same for every vector.
    """

    fit: RankOne
    symmetric: bool
    strengths: Array
    pulls: tuple[Array, ...]
    share: float
    """The share c of a variance that is left in what groups have beyond their mean."""

    @classmethod
    def around(cls, groups: Groups, fit: RankOne, symmetric: bool = False) -> Scatter:
        """The scatter around a fit to the mean."""
        sides = groups.gradients(fit.vectors)
        along = _centred(sides[0] @ fit.vectors[0], groups)
        if symmetric:  # vectors may have opposite signs
            signs = [1.0 if v @ fit.vectors[0] > 0 else -1.0 for v in fit.vectors]
            common = np.mean([s * side for s, side in zip(signs, sides, strict=True)], axis=0)
            sides = [s * common for s in signs]
        across = [side - (side @ v)[:, None] * v for side, v in zip(sides, fit.vectors, strict=True)]
        pulls = tuple(groups.weights[:, None] * _centred(r, groups) for r in across)
        w, shares = groups.weights, groups.shares
        left = 1 - float((w * w * shares) @ (2 * w - shares))
        return cls(fit, symmetric, w * along, pulls, max(left, 1e-300))

    @property
    def law(self) -> Law:
        """How Z is read."""
        return read_symmetric if self.symmetric else read

    @property
    def freedom(self) -> int:
        """Degrees of freedom of a variance: G − 1."""
        return len(self.strengths) - 1

    @functools.cached_property
    def energies(self) -> list[float]:
        """e_i."""
        return [float(np.vdot(pull, pull)) / self.share for pull in self.pulls]

    @property
    def along(self) -> float:
        """Standard error of Z."""
        return math.sqrt(float(self.strengths @ self.strengths) / self.share)

    @property
    def level(self) -> float:
        """σ next to the fit: the root mean square of the noise in all directions that the vectors can move in."""
        if self.symmetric:
            return math.sqrt(len(self.pulls) * self.energies[0] / (self.pulls[0].shape[1] - 1))
        return math.sqrt(sum(self.energies) / max(1, sum(pull.shape[1] - 1 for pull in self.pulls)))

    @functools.cached_property
    def reading(self) -> Reading:
        """The strength, as √N λ, and the overlaps."""
        return self.law(self.energies, self.fit.strength)

    def spreads(self) -> list[Array]:
        """Variances b of every vector, for limits at 1.96 errors: Cov v̂ = P diag(b) P, P the projection across v.

        Their size is that of the reading, beyond first order: v̂ = q v + √(1 − q²) u, u across v.
        """
        each = []
        for vector, pull, q in zip(self.fit.vectors, self.pulls, self.reading.overlaps, strict=True):
            variances, freedom = moderated(pull / math.sqrt(self.share), vector)
            size = float(projected(variances, vector).sum())
            wider = (student(USUAL, freedom) / student(USUAL, math.inf)) ** 2
            each.append(variances * (min(1.0, (1 - q**2) * wider) / size if size > 0 else 0.0))
        return each

    def interval(self, confidence: float) -> tuple[float, float]:
        """Confidence interval of √N λ, from 0 where noise reaches as far as its lower end."""
        half = self.along * student(0.5 + confidence / 2, self.freedom)
        low, high = (self.law(self.energies, self.fit.strength + side * half) for side in (-1, 1))
        return (0.0 if low.edge else low.strength, high.strength)


def _centred(values: Array, groups: Groups) -> Array:
    """What groups have beyond their share in the weighted sum of all."""
    common = groups.weights @ values
    return np.asarray(values - (groups.shares * common if common.ndim == 0 else groups.shares[:, None] * common))


@functools.lru_cache(256)
def student(probability: float, freedom: float) -> float:
    """Quantile of Student's t."""
    return float(stdtrit(min(freedom, MANY), probability))


def moderated(pulls: Array, vector: Array) -> tuple[Array, float]:
    """Variances of noise, and their degrees of freedom, from the pulls ``(G, d)`` of groups across a unit vector.

    Drawn towards each other; across v entry j has the share 1 − v_j² of the noise.
    """
    freedom, variances = len(pulls) - 1, (pulls * pulls).sum(axis=0)
    own = variances / np.maximum(1 - vector * vector, 1e-12)
    common = float(variances.sum()) / max(1, len(own) - 1)
    most = freedom * dimensions(pulls)
    if len(own) < 3 or freedom < 1 or not own.min() > 1e-12 * common:
        return np.full(len(own), common), most
    logs = np.log(own)
    centre = float(logs.sum()) / len(own)
    logs -= centre
    excess, centre = float(logs @ logs) / (len(own) - 1) - _log_variance(freedom), centre + _log_bias(freedom)
    if excess <= 1 / MANY:
        return np.full(len(own), common), most
    prior = 2 * _inverse_trigamma(excess)
    common = math.exp(centre - _log_bias(prior))
    moderate = (prior * common + freedom * own) / (prior + freedom)
    return np.asarray(moderate), max(freedom, min(most, prior + freedom))


@functools.lru_cache(64)
def _log_bias(freedom: float) -> float:
    """By how much the logarithm of a variance is too small on average."""
    return math.log(freedom / 2) - float(digamma(freedom / 2))


@functools.lru_cache(64)
def _log_variance(freedom: float) -> float:
    """The variance of the logarithm of a variance."""
    return float(zeta(2, freedom / 2))


def dimensions(pulls: Array) -> float:
    r"""In how many dimensions groups scatter: :math:`(\mathrm{tr}\,\Sigma)^2/\mathrm{tr}\,\Sigma^2`, from 1 to d − 1.

    With :math:`S` the covariance from ν degrees of freedom, :math:`\mathrm{tr}\,\Sigma^2` is estimated without bias by
    :math:`(\mathrm{tr}\,S^2 - (\mathrm{tr}\,S)^2/\nu)\,\nu^2/((\nu - 1)(\nu + 2))`.
    """
    freedom, most = len(pulls) - 1, max(1, pulls.shape[1] - 1)
    if freedom < 2:
        return 1.0
    products = pulls @ pulls.T
    trace = float(products.trace())
    squares = float(np.vdot(products, products)) - trace**2 / freedom
    squares *= freedom**2 / ((freedom - 1) * (freedom + 2))
    return min(most, max(1.0, trace**2 / squares)) if squares > 0 else float(most)


def _inverse_trigamma(value: float) -> float:
    """The x with ψ′(x) = value, by Newton's method on 1/ψ′, which is next to straight (Smyth 2004); ψ′(x) = ζ(2, x)."""
    x = 0.5 + 1 / value
    for _ in range(STEPS):
        slope = float(zeta(2, x))
        step = slope * (1 - slope / value) / (-2 * float(zeta(3, x)))
        x += step
        if abs(step) <= 1e-10 * x:
            break
    return x


def projected(variances: Array, vector: Array) -> Array:
    """The diagonal of P diag(b) P, P the projection across a unit vector."""
    squares = vector**2
    return np.asarray(np.maximum(variances * (1 - 2 * squares) + squares * float(squares @ variances), 0.0))


def entry_errors(variances: Array, vector: Array) -> Array:
    """Root mean squared errors of the entries of a unit vector, from variances across it, the whole of which is 1 − q².

    Along it the error is 1 − q.
    """
    q = math.sqrt(max(0.0, 1 - float(variances.sum())))
    return np.asarray(np.sqrt(variances + (1 - q) ** 2 * vector**2))
