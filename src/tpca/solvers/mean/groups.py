r"""Groups of samples at their end: sums that are alike and independent under noise, and what the mean is of them.

With :math:`S_g` the sum of the n_g samples of group g, :math:`x_g = S_g/\sqrt{n_g}` is
:math:`\sqrt{n_g}\lambda\, v_1\otimes\dots\otimes v_k` and noise of one covariance.  Neighbouring groups are correlated
where neighbouring samples are: where that is seen, with a covariance R (:mod:`tpca.solvers.mean.coupling`), they are
decorrelated, :math:`x' = R^{-1/2}x`.  What is fitted is the mean of all samples in any case, with
:math:`u = R^{1/2}(\sqrt{n_g})_g` and w = u/‖u‖

.. math:: X = \sum_g w_gx'_g = \frac{N}{\|u\|}\,\bar T, \qquad E\,x'_g = \pi_g\,E\,X, \quad
    \pi = \frac{\|u\|}{N}R^{-1/2}(\sqrt{n_g})_g ,

which is :math:`\sqrt N\bar T` and π = w where nothing was decorrelated.  A flip of signs is
:math:`\sum_g s_gw_gx'_g`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.climb import ray
from tpca.solvers.mean.contrasts import Coded
from tpca.solvers.mean.coupling import Coupling
from tpca.solvers.mean.grouping import LARGE, Array32, Grouping, Sums, inner_products, total_type
from tpca.solvers.rank_one import along
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import middle, outer
from tpca.threads import share

CANCELLED = 1e-8  # of the energy of all groups: rounding in float32 leaves 1e-14 of it, chance about all
FAR = 20  # groups between 2^-FAR and 2^FAR are taken as they are, others in units of a power of two


@dataclass(frozen=True)
class Groups:
    """Sums of groups ``(G, *dims)``, or what these are combinations of, and what is made of them.

    ``mean`` is X, ``turn`` makes x' of these, ``weights`` are w, ``shares`` π, ``length`` is N/‖u‖, ``products`` has
    the inner products of the x', ``coupling`` is what is known of R, ``unit`` what all but the sums are in units of.
    ``pulls`` are sums whose scatter is that of the mean, where entries are missing
    (:mod:`tpca.solvers.mean.observed`); ``None``: the sums.
    """

    sums: Sums
    mean: Array
    turn: Array
    weights: Array
    shares: Array
    length: float
    products: Array
    coupling: Coupling
    unit: float
    pulls: Array32 | None = None

    @classmethod
    def of(cls, grouping: Grouping, time: float = 1.0, pulls: Array32 | None = None) -> Groups:
        """From the sums, which are used up; ``time`` is the correlation time that samples show."""
        sizes, dims = grouping.sizes, grouping.dims
        mean = np.empty(dims, total_type(dims)) if grouping.total is None else grouping.total
        sums, basis = grouping.rows, grouping.basis
        products = _products(sums, mean if grouping.total is None else None)
        if basis is not None:
            products = basis @ products @ basis.T
        unit = _unit(float(np.trace(products)) / len(sizes) / mean.size)
        turn, ray = np.diag(1 / (unit * np.sqrt(sizes))), np.sqrt(sizes)
        products = turn @ products @ turn
        coupling = Coupling.of(products, sizes, time)
        away, there = coupling.roots()
        weights = there @ ray
        length = float(sizes.sum() / np.linalg.norm(weights))
        factor = length / sizes.sum() / unit
        mean *= factor
        if basis is not None:
            turn = turn @ basis
            turn[:, 0] /= factor  # the first row is the mean
        return cls(
            sums=sums,
            mean=mean,
            turn=away @ turn,
            weights=weights / np.linalg.norm(weights),
            shares=away @ ray / length,
            length=length,
            products=away @ products @ away,
            coupling=coupling,
            unit=unit,
            pulls=pulls,
        )

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def centred(self) -> bool:
        """Whether the groups cancel: their mean is zero to rounding, which chance never does."""
        return len(self) > 1 and float(np.vdot(self.mean, self.mean)) < CANCELLED * float(self.products.trace())

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
        mean, sums = linear(self.mean), self.sums
        if isinstance(sums, Coded):
            sums.contrasts.transform(linear)
            sums = Coded(mean, sums.contrasts)
        else:
            for group in sums:
                group[...] = linear(group)
        products = self.turn @ _products(sums) @ self.turn.T
        return dataclasses.replace(self, mean=mean, sums=sums, products=products)

    def mixed(self, coefficients: Array) -> Array32:
        r""":math:`\sum_g c_gx'_g` for every row of ``coefficients``."""
        rows = np.asarray(coefficients @ self.turn, dtype=np.float32)
        own = self.sums
        mixed = own.mixed(rows) if isinstance(own, Coded) else np.asarray(rows @ own.reshape(len(self), -1))
        return mixed.reshape(-1, *self.dims)

    def flipped(self, signs: Array) -> Array32:
        """The mean with the signs of whole groups changed, for every row of ``signs``."""
        return self.mixed(signs * self.weights)

    def gradients(self, vectors: Sequence[Array]) -> list[Array]:
        """Every x', as it pulls the mean, contracted with all vectors but one: ``(G, d_i)`` for every mode.

        Two full contractions a group, whatever the order (:mod:`tpca.solvers.mean.climb`).
        """
        sums = self.sums if self.pulls is None else self.pulls
        own: list[Array32] = [v.astype(np.float32) for v in vectors]
        cut, found = middle(self.dims), [np.empty((len(self), d), np.float32) for d in self.dims]
        left, right = ray(own[:cut]), ray(own[cut:])
        if isinstance(sums, Coded):
            found = _sides(sums.contracted(left, right), own)
            return [np.asarray(self.turn @ rows.astype(np.float64)) for rows in found]

        def contract(some: slice) -> None:
            matrices = sums[some].reshape(-1, len(left), len(right))
            for part, side in zip(found, _sides((matrices @ right, left @ matrices), own), strict=True):
                part[some] = side

        step = 1 if self.entries > LARGE else len(self)  # large ones one by one, so that one stays in the cache
        share(contract, [slice(g, g + step) for g in range(0, len(self), step)])
        return [np.asarray(self.turn @ rows.astype(np.float64)) for rows in found]

    def along(self, vectors: Sequence[Array]) -> Array:
        """Every x' contracted with some rank-one components: ``(R, G)`` for vectors ``(R, d_i)``."""
        cut = middle(self.dims)
        # In float32, as the sums are: of rows in float64 NumPy would make a copy of all groups in float64.
        left, right = (outer(side).astype(np.float32, copy=False) for side in (vectors[:cut], vectors[cut:]))
        if isinstance(self.sums, Coded):
            rewards = self.sums.along(left, right)
        else:
            rewards = np.vecdot(left @ self.sums.reshape(len(self), left.shape[1], -1), right)
        return np.asarray((self.turn @ rewards.astype(np.float64)).T)

    @property
    def without_pulls(self) -> Groups:
        """The same groups, as they are flipped, whatever is missing."""
        return self if self.pulls is None else dataclasses.replace(self, pulls=None)

    @functools.cached_property
    def own_level(self) -> float:
        """σ of all entries, of what the mean leaves of the groups."""
        return self.level(np.ones((1, len(self))))

    def pulled_level(self) -> float:
        """The same of the groups as they pull the mean."""
        if self.pulls is None:
            return self.own_level
        products = self.turn @ inner_products(self.pulls) @ self.turn.T
        return dataclasses.replace(self, products=products).own_level

    def level(self, signs: Array) -> float:
        """σ, the level of the noise: what a mean, or one of its flips, the largest of them, leaves in the groups.

        It is the same for the samples and for any of their flips, if the same are looked at.
        """
        mixed = signs * self.weights
        energies = np.vecdot(mixed @ self.products, mixed)
        left = float(self.products.trace()) - float(energies.max())
        return math.sqrt(max(0.0, left) / max(1, len(self) - 1) / self.entries)


def _products(sums: Sums, total: Array | None = None) -> Array:
    """The inner products of all sums, or of what these are combinations of."""
    return sums.products() if isinstance(sums, Coded) else inner_products(sums, total)


def _sides(halves: tuple[Array32, Array32], vectors: Sequence[Array32]) -> list[Array32]:
    """Tensors contracted with all vectors but one, ``(T, d_i)`` for every mode, from what halves of them leave."""
    cut, found = middle(tuple(map(len, vectors))), list[Array32]()
    for part, side in zip(halves, (vectors[:cut], vectors[cut:]), strict=True):
        some = [v[None].repeat(len(part), axis=0) for v in side]
        found += [along(part, some, place) for place in range(len(some))]
    return found


def _unit(energy: float) -> float:
    """One, or the power of two next to the root of a mean square that is far from one."""
    exponent = math.frexp(energy)[1] // 2
    return 1.0 if abs(exponent) <= FAR else math.ldexp(1.0, exponent)
