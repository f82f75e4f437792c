r"""Groups of samples at their end: sums that are alike and independent under noise, and what the mean is of them.

With :math:`S_g` the sum of the n_g samples of group g, :math:`x_g = S_g/\sqrt{n_g}` is
:math:`\sqrt{n_g}\lambda\, v_1\otimes\dots\otimes v_k` and noise of one covariance.  Neighbouring groups are correlated
where neighbouring samples are.  From :math:`K_{gh} = \langle x_g, x_h\rangle`, the plateau :math:`p\sqrt{n_gn_h}` being
the signal's share, told by groups that do not touch,

.. math:: r = \frac{\text{mean of } K_{g,g+1} - p\sqrt{n_gn_{g+1}}}{\text{mean of } K_{gg} - p\,n_g} .

If r is more than two standard errors, the groups are decorrelated: :math:`x' = R^{-1/2}x` with the tridiagonal R of
(1, r).  What is fitted is the mean of all samples in any case, with :math:`u = R^{1/2}(\sqrt{n_g})_g` and w = u/‖u‖

.. math:: X = \sum_g w_gx'_g = \frac{N}{\|u\|}\,\bar T, \qquad E\,x'_g = \pi_g\,E\,X, \quad
    \pi = \frac{\|u\|}{N}R^{-1/2}(\sqrt{n_g})_g ,

which is :math:`\sqrt N\bar T` and π = w where nothing was decorrelated.  A flip of signs is
:math:`\sum_g s_gw_gx'_g`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.climb import gradients
from tpca.solvers.mean.grouping import Array32, Grouping, inner_products
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import outer

SLIGHT = 0.004  # a correlation of neighbouring groups below this changes nothing
ERRORS = 2.0  # standard errors that it must be away from 0
FLOOR = 0.1  # of the eigenvalues of R
MIN_GROUPS = 5  # fewer have too few pairs that do not touch to tell a correlation


@dataclass(frozen=True)
class Groups:
    """Sums of groups ``(G, *dims)`` and what is made of them, in units of ``scale``.

    ``mean`` is X, ``turn`` makes x' of the sums, ``weights`` are w, ``shares`` π, ``length`` is N/‖u‖, ``products`` has
    the inner products of the x', ``dependence`` is r, 0 where nothing was decorrelated.  ``pulls`` are sums whose
    scatter is that of the mean, where entries are missing (:mod:`tpca.solvers.mean.observed`); ``None``: the sums.
    """

    sums: Array32
    mean: Array
    turn: Array
    weights: Array
    shares: Array
    length: float
    products: Array
    dependence: float
    pulls: Array32 | None = None

    @classmethod
    def of(cls, grouping: Grouping, pulls: Array32 | None = None) -> Groups:
        """From the sums of about unit size, which are used up."""
        sizes = np.array(grouping.counts, dtype=float)
        turn, ray = np.diag(1 / np.sqrt(sizes)), np.sqrt(sizes)
        products = turn @ inner_products(grouping.sums) @ turn
        dependence = correlation(products, sizes)
        away, there = _roots(dependence, len(sizes))
        weights = there @ ray
        length = float(sizes.sum() / np.linalg.norm(weights))
        mean = grouping.total
        mean *= length / sizes.sum()
        return cls(
            sums=grouping.sums,
            mean=mean,
            turn=away @ turn,
            weights=weights / np.linalg.norm(weights),
            shares=away @ ray / length,
            length=length,
            products=away @ products @ away,
            dependence=dependence,
            pulls=pulls,
        )

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return self.mean.shape

    @property
    def entries(self) -> int:
        """Entries of a sample."""
        return self.mean.size

    def transformed(self, linear: Callable[[Array32], Array32]) -> Groups:
        """The same of transformed samples; the sums are changed, one after the other."""
        for group in self.sums:
            group[...] = linear(group)
        products = self.turn @ inner_products(self.sums) @ self.turn.T
        return dataclasses.replace(self, mean=linear(self.mean), products=products)

    def mixed(self, coefficients: Array) -> Array32:
        r""":math:`\sum_g c_gx'_g` for every row of ``coefficients``."""
        rows = np.asarray(coefficients @ self.turn, dtype=np.float32)
        return np.asarray(rows @ self.sums.reshape(len(self), -1)).reshape(-1, *self.dims)

    def flipped(self, signs: Array) -> Array32:
        """The mean with the signs of whole groups changed, for every row of ``signs``."""
        return self.mixed(signs * self.weights)

    def gradients(self, vectors: Sequence[Array], mode: int) -> Array:
        """Every x', as it pulls the mean, contracted with all vectors but one: ``(G, d_mode)``."""
        sums = self.sums if self.pulls is None else self.pulls
        each: list[Array32] = [np.broadcast_to(v.astype(np.float32), (len(self), 1, len(v))) for v in vectors]
        return np.asarray(self.turn @ gradients(sums, each, mode)[:, 0].astype(np.float64))

    def along(self, vectors: Sequence[Array]) -> Array:
        """Every x' contracted with some rank-one components: ``(R, G)`` for vectors ``(R, d_i)``."""
        rewards = self.sums.reshape(len(self), -1) @ outer([v[None] for v in vectors])[0].T
        return np.asarray((self.turn @ rewards.astype(np.float64)).T)

    def pulled_level(self) -> float:
        """σ of what the mean leaves of the groups as they pull it."""
        signs = np.ones((1, len(self)))
        if self.pulls is None:
            return self.level(signs)
        products = self.turn @ inner_products(self.pulls) @ self.turn.T
        return dataclasses.replace(self, products=products).level(signs)

    def level(self, signs: Array) -> float:
        """σ, the level of the noise: what a mean, or one of its flips, the largest of them, leaves in the groups.

        It is the same for the samples and for any of their flips, if the same are looked at.
        """
        mixed = signs * self.weights
        energies = np.einsum("sg,gh,sh->s", mixed, self.products, mixed)
        left = float(np.trace(self.products)) - float(energies.max())
        return math.sqrt(max(0.0, left) / max(1, len(self) - 1) / self.entries)


def correlation(products: Array, sizes: Array) -> float:
    """r, from the inner products of x; 0 where it is small, or not significant."""
    groups = len(sizes)
    if groups < MIN_GROUPS:
        return 0.0
    shares = np.sqrt(np.outer(sizes, sizes)) / sizes.mean()
    apart = np.abs(np.subtract.outer(np.arange(groups), np.arange(groups)))
    plateau = float(np.mean(products[apart >= 2] / shares[apart >= 2]))
    noise = products - plateau * shares
    own, next_, far = (noise[np.triu(apart == 0)], noise[np.triu(apart == 1)], noise[np.triu(apart >= 2)])
    level = float(np.mean(own))
    if not level > 1e-6 * float(np.mean(np.diag(products))):
        return 0.0
    r, error = float(np.mean(next_)) / level, float(np.std(far, ddof=1)) / math.sqrt(groups - 1) / level
    return r if r > max(ERRORS * error, SLIGHT) else 0.0


def _roots(r: float, groups: int) -> tuple[Array, Array]:
    """R^(-1/2) and R^(1/2), R tridiagonal with ones and r."""
    if r == 0:
        return np.eye(groups), np.eye(groups)
    values, axes = np.linalg.eigh(np.eye(groups) + r * (np.eye(groups, k=1) + np.eye(groups, k=-1)))
    roots = np.sqrt(np.maximum(values, FLOOR))
    return np.asarray((axes / roots) @ axes.T), np.asarray((axes * roots) @ axes.T)
