r"""How the sums of groups depend on each other, where neighbouring samples are alike.

The :math:`x_g = S_g/\sqrt{n_g}` of :mod:`tpca.solvers.mean.groups` are correlated then.  Whether they are is told by
:math:`K_{gh} = \langle x_g, x_h\rangle`, the plateau :math:`p\sqrt{n_gn_h}` being the signal's share, read off groups
that do not touch:

.. math:: r = \frac{\text{mean of } K_{g,g+1} - p\sqrt{n_gn_{g+1}}}{\text{mean of } K_{gg} - p\,n_g} ,

if that is more than two standard errors; or it is known from the samples themselves (:mod:`tpca.noise.serial`).  The
covariance is then that of samples which are alike for a time θ, and of others that are not,

.. math:: R = (1 - a)\,I + a\,A(\theta)/\bar A, \qquad
    A_{gh} = \frac1{\sqrt{n_gn_h}}\sum_{s\in g}\sum_{t\in h}\varphi^{|s - t|}, \quad \varphi = e^{-1/\theta} ,

:math:`\bar A` the mean of its diagonal.  a and θ are those of the largest likelihood of what groups have across
:math:`u = (\sqrt{n_g})_g`, where no signal is left (REML; :math:`Q` an orthonormal basis across u, :math:`\sigma^2` at
its best):

.. math:: \ell = -\frac f2\Bigl(\ln\det Q^\top RQ + (G - 1)\ln\mathrm{tr}\,(Q^\top RQ)^{-1}Q^\top KQ\Bigr) ,

f being the dimensions in which samples scatter, told by the inner products of what is decorrelated by it.  Too
short a time would make false claims and too long a one only costs power: of all θ that are as likely, ℓ no more than ½
below the largest (one standard error), it is the longest one that counts.  A correlation time τ that the samples
themselves have shown limits it to :math:`\theta = 1/\ln\frac{\tau + 1}{\tau - 1}`, unless the groups contradict: ℓ is
more than 2 below the largest there.

The groups are *worth* :math:`G\sum n_gR_{gg}/u^\top Ru` independent ones.  If that is less than ``MIN_WORTH`` (where
the samples themselves had shown nothing: and any R by which it is more is contradicted), all samples together last
about as long as their memory: what changes so slowly cannot be told from a mean, and nothing can be proven.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array

SLIGHT = 0.004  # a correlation of neighbouring groups below this changes nothing
ERRORS = 2.0  # standard errors that it must be away from 0
MIN_GROUPS = 5  # fewer have too few pairs that do not touch to tell a correlation
# θ from a tenth of a group to twice all samples, and a: steps of 14 % and of 2 %, far below their errors
TIMES, SHARES, SHORTEST, LONGEST = 40, 51, 0.1, 2.0
AS_LIKELY, CONTRADICTED = 0.5, 2.0  # of ℓ: one standard error, and two
MIN_WORTH = 2.0
ROUNDING = 1e-6  # share of the energy of groups that is not to be told from rounding in float32


@dataclass(frozen=True)
class Coupling:
    """R of groups of some ``sizes``, and the ``time`` θ over which they are alike, in samples; 0 where they are not."""

    sizes: Array
    matrix: Array
    time: float = 0.0

    @classmethod
    def none(cls, sizes: Array) -> Coupling:
        """Groups that are independent."""
        return cls(sizes, np.eye(len(sizes)))

    @classmethod
    def of(cls, products: Array, sizes: Array, seen: float = 1.0) -> Coupling:
        """What the inner products K of the x tell, of samples with a correlation time τ that was ``seen``.

        1 where they seemed independent, infinite where they are alike for longer than could be told.
        """
        if len(sizes) < MIN_GROUPS or not (seen > 1 or correlation(products, sizes)):
            return cls.none(sizes)
        across = np.linalg.qr(np.column_stack([np.sqrt(sizes), np.eye(len(sizes))[:, 1:]]))[0][:, 1:]
        noise = float(np.trace(across.T @ products @ across))
        return _likely(products, sizes, across, seen) if noise > ROUNDING * np.trace(products) else cls.none(sizes)

    @property
    def worth(self) -> float:
        """Independent groups that they are worth."""
        ray = np.sqrt(self.sizes)
        return len(ray) * float(self.sizes @ np.diag(self.matrix) / (ray @ self.matrix @ ray))

    @property
    def enough(self) -> bool:
        """Whether something can be proven."""
        return self.time == 0 or self.worth >= MIN_WORTH

    def roots(self) -> tuple[Array, Array]:
        """R^(-1/2) and R^(1/2)."""
        if self.time == 0:
            return self.matrix, self.matrix
        values, axes = np.linalg.eigh(self.matrix)
        roots = np.sqrt(values)
        return np.asarray((axes / roots) @ axes.T), np.asarray((axes * roots) @ axes.T)


def correlation(products: Array, sizes: Array) -> float:
    """r, from the inner products of x; 0 where it is small, or not significant."""
    groups = len(sizes)
    if groups < MIN_GROUPS:
        return 0.0
    shares = np.sqrt(sizes[:, None] * sizes) / (sizes.sum() / groups)
    apart = _apart(groups)
    plateau = float((products[apart] / shares[apart]).mean())
    noise = products - plateau * shares
    own, next_, far = noise.diagonal(), noise.diagonal(1), noise[apart]
    level = float(own.sum()) / groups
    if not level > ROUNDING * float(products.trace()) / groups:
        return 0.0
    far -= far.sum() / len(far)
    error = math.sqrt(float(far @ far) / (len(far) - 1) / (groups - 1)) / level
    r = float(next_.sum()) / (groups - 1) / level
    return r if r > max(ERRORS * error, SLIGHT) else 0.0


@functools.cache
def _apart(groups: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pairs of groups that do not touch, each once: K is symmetric."""
    return np.triu_indices(groups, 2)


def serial_covariance(sizes: Array, time: float) -> Array:
    """A(θ) of groups that follow each other, over the mean of its diagonal."""
    rate = 1 / time
    phi, short = math.exp(-rate), -math.expm1(-rate)  # φ and 1 − φ
    lengths = -np.expm1(-rate * sizes) / short  # Σ φ^s over a group
    firsts = np.cumsum(sizes) - sizes
    gaps = np.maximum(np.subtract.outer(firsts, firsts + sizes), 0)  # samples between a group and one after it
    below = np.tril(np.outer(lengths, lengths) * np.exp(-rate * (gaps + 1)), -1)
    whole = (below + below.T) / np.sqrt(np.outer(sizes, sizes))
    whole[np.diag_indices_from(whole)] = (1 + phi) / short - 2 * phi * lengths / (sizes * short)
    return np.asarray(whole / np.mean(np.diag(whole)))


def _likely(products: Array, sizes: Array, across: Array, seen: float) -> Coupling:
    """The R of the longest θ that is about as likely as the likeliest, and goes with the τ that was ``seen``."""
    times = np.geomspace(SHORTEST * float(np.mean(sizes)), LONGEST * float(np.sum(sizes)), TIMES)
    limit = 1 / math.log((seen + 1) / (seen - 1)) if 1 < seen < times[-1] else math.inf
    times = np.unique([*times, min(limit, times[-1])])
    each = [_at(time, products, sizes, across) for time in times]
    likelihoods = np.array([likelihood for likelihood, _ in each])
    best = int(np.argmax(likelihoods))
    likelihoods = _dimensions(each[best][1], products, across) / 2 * (likelihoods - likelihoods[best])
    # Where nothing was seen, chance may have made groups alike: that should not be taken for a memory without end.
    allowed = times <= limit if seen > 1 else np.array([coupling.enough for _, coupling in each])
    if np.max(likelihoods[allowed], initial=-math.inf) >= -CONTRADICTED:
        likelihoods = np.where(allowed, likelihoods, -math.inf)
    likely = np.flatnonzero(likelihoods >= np.max(likelihoods) - AS_LIKELY)
    return each[int(likely[-1])][1]


def _at(time: float, products: Array, sizes: Array, across: Array) -> tuple[float, Coupling]:
    """2ℓ/f at one θ with the a that is likeliest, and its R."""
    serial = serial_covariance(sizes, time)
    levels, axes = np.linalg.eigh(across.T @ serial @ across)
    turned = across @ axes
    energies = np.einsum("gj,gh,hj->j", turned, products, turned)
    shares = np.linspace(0, 1, SHARES)[:, None]
    variances = 1 - shares + shares * levels
    likelihoods = -np.sum(np.log(variances), axis=1) - len(levels) * np.log(np.sum(energies / variances, axis=1))
    best = int(np.argmax(likelihoods))
    share = float(shares[best, 0])
    matrix = (1 - share) * np.eye(len(sizes)) + share * serial
    return float(likelihoods[best]), Coupling(sizes, matrix, time)


def _dimensions(coupling: Coupling, products: Array, across: Array) -> float:
    """f: of what decorrelated groups have across the signal, level² over the mean square of inner products."""
    values, axes = np.linalg.eigh(across.T @ coupling.matrix @ across)
    turn = across @ (axes / np.sqrt(values))
    inner = turn.T @ products @ turn
    squares = float(np.mean(inner[np.triu_indices(len(inner), 1)] ** 2))
    return max(1.0, float(np.mean(np.diag(inner))) ** 2 / squares) if squares > 0 else 1.0
