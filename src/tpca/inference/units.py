r"""Units of samples: their sums, and what each contributes to the least-squares estimate.

With weights w, columns of interest y and nuisances a of every sample (:mod:`tpca.inference.design`), and z = (a, y),

.. math::
    M_g = \sum_{i \in g} w_i z_i \otimes T_i, \qquad G_g = \sum_{i \in g} w_i z_i z_i^\top

are sums: one pass, in any order, on any engine.  From their totals

.. math::
    \tilde y_i = y_i - G_{ya}G_{aa}^+a_i = Lz_i, \quad A = M_a G_{aa}^+, \quad S = LGL^\top = \sum w_i \tilde y_i^2

and unit g contributes :math:`C_g = \sum_{i\in g} w_i\tilde y_i(T_i - Aa_i) = LM_g - A u_g`, :math:`u_g = G_gL^\top`.
The estimate is :math:`D = \sum_g C_g/S`: ordinary least squares, exactly, whatever A is, since ỹ is orthogonal to a.
For the test A is fitted with weights :math:`\omega_g = 1/\sigma^2_g`, so that a loud class does not shift a quiet one;
:math:`\sigma_g^2 = (e_g + 0.1\bar e)/1.1` with :math:`e_g` the energy per degree of freedom that is left of unit g.
Of K > 2 labels the K − 1 columns of interest become one more mode, with
:math:`\kappa_i = (S/W)^{-1/2}\tilde y_i`, :math:`W = \sum w_i`, in place of ỹ and W in place of S.

Missing entries: G, L and S entry by entry, contributions scaled by S/S_e so that all count the same.  Where none is
missing the same arrays have one entry in place of those of a sample.

Neighbouring bins may be dependent.  :func:`dependence` says by how much the variance of their sum exceeds that of
independent ones (variance inflation, VIF): flips and errors are enlarged by its root.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import SampleError
from tpca.inference.design import DETERMINED, Design, Indices
from tpca.tensors.accumulators import Accumulator, plus
from tpca.tensors.blocks import Array

MAX_UNITS = 32
"""Bins of neighbours: enough flips for any p in use, few enough to hold."""
MIN_UNITS = 6
"""Fewer independent units prove nothing at 5 %: 2^(6-1) flips have a least p of 1/32."""
PIECE = 2**16  # numbers of sums that are copied at a time
SHRUNK = 0.1  # of the noise level of units towards their average
UNKNOWN = 1e-8  # share of the usual information below which an entry counts as never observed
LEAST_INDEPENDENT = 5  # units left after inflation
STUCK = (0.2, 2.0)  # correlation of neighbours, and its z, at both 16 and 8 bins: no binning makes them independent


@dataclass(frozen=True)
class Units:
    """The unit of the sample at every place: ``count`` bins for every ``length`` neighbours.

    Or the group that was given; groups are dealt into ``count`` units where there are more of them than that.
    """

    count: int
    length: int = 1

    def of(self, places: Indices, groups: Indices | None) -> Indices:
        """Units of the samples at ``places``."""
        return places * self.count // self.length if groups is None else groups[places] % self.count


@kept
class UnitSum:
    """Sums of one unit: ``moments`` M (c, *dims), ``gram`` G (c, c), ``n`` samples.

    ``grams`` is G entry by entry, (c, c, *dims), or of one entry as long as none is missing.
    """

    def __init__(self, moments: Any, gram: Array, n: int, grams: Any = None) -> None:
        self.moments, self.gram, self.n = moments, gram, n
        self.grams = gram.reshape(*gram.shape, *[1] * (moments.ndim - 1)) if grams is None else grams

    def plus(self, other: UnitSum) -> UnitSum:
        """Both, in the memory of the first."""
        self.moments += other.moments
        self.gram, self.grams, self.n = self.gram + other.gram, self.grams + other.grams, self.n + other.n
        return self

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.moments.nbytes + self.grams.nbytes)


class UnitSums(Accumulator):
    """Sums of every unit that samples belong to: ``units``, by number."""

    SUMS = ("units",)

    def __init__(self, design: Design, units: Units) -> None:
        super().__init__(design, units)
        self.units: dict[int, UnitSum] = {}

    def add(self, batch: Any, at: int) -> None:  # noqa: ARG002
        """Add the samples of a batch, unit by unit."""
        design, units = self.question
        places = batch.places
        z, w = design.rows(places)
        unit = units.of(places, design.groups)
        if (np.diff(unit) < 0).any() and hasattr(batch, "taken"):
            order = np.argsort(unit, kind="stable")
            batch, z, w, unit = batch.taken(order), z[order], w[order], unit[order]
        edges = [0, *(np.flatnonzero(np.diff(unit)) + 1), len(unit)] if len(unit) else []
        for start, stop in itertools.pairwise(edges):
            some, zs = batch[start:stop], z[start:stop]
            weighted = zs * w[start:stop, None]
            moments, grams = some.weighted_sums(weighted), None
            if (observed := some.observed_sums) is not None:
                c = zs.shape[1]
                each = (weighted[:, :, None] * zs[:, None, :]).reshape(len(zs), c * c)
                grams = observed(each).reshape(c, c, *moments.shape[1:])
            plus(self.units, {int(unit[start]): UnitSum(moments, weighted.T @ zs, stop - start, grams)})
        self.n += len(batch)


class Contributions:
    """What every unit contributes to one question, from sums of units.

    ``C`` (G, *shape) are the contributions, for the test; ``D`` (*shape) the estimate; ``shape`` is that of a sample,
    after the K − 1 contrasts of more than two labels (``stacked``).  ``S`` is the information Σwỹ², ``rescaling`` S/S_e
    of every entry, 0 of those never ``observed``.  ``background`` is A, with zeros for the columns of interest.
    """

    def __init__(self, sums: dict[int, UnitSum], interest: Indices, dims: Sequence[int], stacked: bool = False) -> None:
        units = [sums[number] for number in sorted(sums)]
        overall = np.stack([unit.gram for unit in units])[..., None]
        entrywise = any(unit.grams.size > unit.gram.size for unit in units)
        self.dims, self.stacked, self.rank = tuple(dims), stacked, overall.shape[1]
        self.shape = (len(interest), *self.dims) if stacked else self.dims
        nuisances = np.delete(np.arange(self.rank), interest)
        counts = np.array([unit.n for unit in units])
        self.n = int(counts.sum())

        def pieces() -> Iterator[tuple[slice, Array, Array]]:
            """M (g, c, E) and G (g, c, c, E) of a few units at a time: a copy of all would double what is held."""
            step = max(1, PIECE // units[0].moments.size)
            for start in range(0, len(units), step):
                some, G = slice(start, start + step), overall[start : start + step]
                M = np.stack([unit.moments.reshape(self.rank, -1) for unit in units[some]])
                if entrywise:
                    each = (np.broadcast_to(one.grams, (*one.gram.shape, *self.dims)) for one in units[some])
                    G = np.stack([one.reshape(self.rank, self.rank, -1) for one in each])
                yield some, M, G

        whole = overall.sum(axis=0)
        self._whole, self._plain_inverse = _residual_map(whole, nuisances, interest)
        S, weight = np.einsum("qce,cde,rde->qr", self._whole, whole, self._whole), float(whole[0, 0, 0])
        if np.linalg.eigvalsh(S)[0] <= DETERMINED * np.einsum("qqe->", whole[interest][:, interest]):
            raise SampleError(
                "y is constant in the samples that were used, or the nuisances and other columns determine it; give "
                "samples with values that differ."
            )
        # κ = K ỹ in place of ỹ: 1 for one column of interest, (S/W)^(-1/2) for several
        self.K = _inverse_root(S / weight) if stacked else np.eye(1)
        self.S = weight if stacked else float(S[0, 0])
        self._whole = self._map = np.einsum("ij,jce->ice", self.K, self._whole)
        self._overall = self._informed(overall, self._whole)[..., 0]
        self.information = np.einsum("gii->g", self._overall) / len(interest)  # S_g of every unit

        total, gram = _added((M.sum(axis=0), G.sum(axis=0, dtype=np.float64)) for _, M, G in pieces())
        inverse = self._plain_inverse
        if entrywise:
            self._map, inverse = _residual_map(gram, nuisances, interest)
        S_e = np.einsum("qce,cde,qde->e", self._map, gram, self._map) / len(interest)
        known = S_e > UNKNOWN * np.max(S_e)
        self.rescaling = np.divide(self.S, S_e, out=np.zeros_like(S_e), where=known)
        self.observed = np.broadcast_to(known, total.shape[1:]).reshape(self.dims)
        self.rates = (gram[0, 0] / weight).reshape(self.dims) if entrywise else None  # share observed, by weight
        # samples in which an entry was observed, on average
        self.n_observed = self.n * min(1.0, float(S_e[known].mean()) / self.S)
        self.background = A = np.einsum("cde,de->ce", inverse, total)
        D = self._contributed(total[None], gram[None], A)[0] / self.S
        self.D = D.reshape(self.shape)

        # for the test: nuisances fitted with the noise levels of units
        level = np.ones(len(units))
        if len(nuisances):
            left = (
                M[:, 0] - np.einsum("ce,gce->ge", A, G[:, 0]) - np.einsum("qe,gqe->ge", D, self._shared(G)[:, 0])
                for _, M, G in pieces()
            )
            level = _noise_levels(np.concatenate([np.sum(rest**2, axis=1) for rest in left]), overall[..., 0], counts)
            M, G = _added(
                (np.einsum("g,gce->ce", 1 / level[some], M), np.einsum("g,gcde->cde", 1 / level[some], G))
                for some, M, G in pieces()
            )
            A = np.einsum("cde,de->ce", _inverse(G, nuisances), M)
        self._shift = A - self.background
        self._inverse = _inverse(np.einsum("g,gcde->cde", 1 / level, overall), nuisances)[..., 0]
        self._noise = float(np.sum(self.information * level))
        self._u = np.einsum("gcde,qde->gcq", overall, self._whole)
        C = np.empty((len(units), len(interest), total.shape[1]))
        self._informations = np.empty((len(units), *self._overall.shape[1:], len(S_e)))
        for some, M, G in pieces():
            C[some] = self._contributed(M, G, A)
            self._informations[some] = self._informed(G, self._map) * self.rescaling
        self.C = C.reshape(len(units), *self.shape)

    def __len__(self) -> int:
        return len(self.C)

    def _shared(self, grams: Array) -> Array:
        """Σw zκᵀ of units, (G, c, q, E)."""
        return np.asarray(np.einsum("gcde,qde->gcqe", grams, self._map))

    def _contributed(self, M: Array, grams: Array, A: Array) -> Array:
        """C (G, q, E)."""
        C = np.einsum("qce,gce->gqe", self._map, M)
        C -= np.einsum("ce,gcqe->gqe", A, self._shared(grams))
        return np.asarray(C * self.rescaling)

    @staticmethod
    def _informed(grams: Array, map_: Array) -> Array:
        """Σ w κκᵀ of units, (G, q, q, E): how much of the estimate is in each, column by column."""
        return np.asarray(np.einsum("qce,gcde,rde->gqre", map_, grams, map_))

    def kappa(self, z: Array) -> Array:
        """κ (n, q, E) of samples with columns z."""
        return np.asarray(np.einsum("nc,qce->nqe", z, self._map))

    def scales(self, signs: Array, enlarged: float = 1.0) -> Array:
        r"""√f of every row of signs: :math:`f(s) = \sum\tilde y^2\sigma^2 - u(s)^\top(\sum\omega aa^\top)^+u(s)`.

        What estimating the nuisances has taken out of a flip (Hemerik, Goeman & Finos 2020; De Santis et al. 2022).
        Flips are ``enlarged`` where units are dependent; the first row, the data, is not.
        """
        us = np.tensordot(signs, self._u, 1)
        lost = np.einsum("bcq,cd,bdq->b", us, self._inverse, us) / us.shape[2]
        scale = np.sqrt(np.maximum(self._noise - lost, 1e-9 * self._noise))
        scale[1:] /= enlarged
        return np.asarray(scale)

    def left_over(self, bins: Indices | None = None) -> tuple[Array, Array, float]:
        """What is left of units without the estimate, the cosines that fitting alone gives, and degrees of freedom.

        C_g − S_g D by ordinary least squares: the background of the test holds a part of the effect where labels that
        differ in noise are sorted, which would look like dependent neighbours.  (Where entries are missing, the way
        back from one to the other takes those of a unit as missing at random.)
        """
        C = self.C.reshape(len(self), len(self.K), -1)
        u, information, overall, each = self._u, self.information, self._overall, self._informations
        if bins is not None:
            C, u, information, overall, each = (_summed(x, bins) for x in (C, u, information, overall, each))
        E = np.einsum("gqre,re->gqe", each, self.D.reshape(C.shape[1:]))
        np.subtract(C, E, out=E)
        for left, own in zip(E, u, strict=True):
            left += own.T @ self._shift
        fitted = -np.einsum("gij,hji->gh", overall, overall) / self.S
        fitted -= np.einsum("gcq,cd,hdq->gh", u, self._plain_inverse[..., 0], u)
        fitted /= len(self.K)
        free = np.maximum(information + np.diag(fitted), 1e-12 * self.S)
        return E.reshape(len(E), -1), fitted / np.sqrt(np.outer(free, free)), float(free.sum())


def _residual_map(gram: Array, nuisances: Indices, interest: Indices) -> tuple[Array, Array]:
    """L (q, c, E) with ỹ = Lz, and G_aa⁺ (c, c, E), from G (c, c, E)."""
    inverse = _inverse(gram, nuisances)
    own = np.eye(len(gram))[interest][..., None]
    return own - np.einsum("qde,dce->qce", gram[interest], inverse), inverse


def _inverse(gram: Array, nuisances: Indices) -> Array:
    """G_aa⁺, with zeros for the columns of interest, of G (c, c, E)."""
    out = np.zeros_like(gram)
    if len(nuisances):
        some = np.ix_(nuisances, nuisances)
        size = np.sqrt(np.einsum("ppe->pe", gram[some]))  # columns of one scale: only collinear ones are dropped
        size = np.where(size > 0, size, 1.0)
        pairs = size[:, None] * size[None, :]
        inverses = np.linalg.pinv(np.moveaxis(gram[some] / pairs, -1, 0), rcond=1e-12, hermitian=True)
        out[some] = np.moveaxis(inverses, 0, -1) / pairs
    return out


def _inverse_root(matrix: Array) -> Array:
    """The inverse root of a positive matrix."""
    values, axes = np.linalg.eigh(matrix)
    return np.asarray((axes * values**-0.5) @ axes.T)


def _noise_levels(energy: Array, grams: Array, counts: Array) -> Array:
    """σ² of every unit relative to the average: energy per degree of freedom, shrunk towards that."""
    leverage = np.einsum("cd,gdc->g", np.linalg.pinv(grams.sum(axis=0), hermitian=True), grams)
    weight = grams[:, 0, 0]
    freedom = np.maximum(weight * (1 - leverage / np.maximum(counts, 1)), 1e-6 * weight.mean())
    average = energy.sum() / freedom.sum()
    if average <= 0:
        return np.ones(len(energy))
    return np.asarray((energy / freedom / average + SHRUNK) / (1 + SHRUNK))


def by_pieces(function: Callable[[Array], Array], rows: Array) -> Array:
    """A function of tensors (n, *dims) that gives as many of that shape, of a few at a time: its copies stay small."""
    out = np.empty_like(rows)
    step = max(1, PIECE // max(1, rows[0].size))
    for start in range(0, len(rows), step):
        out[start : start + step] = function(rows[start : start + step])
    return out


def _added(pairs: Iterable[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The sums of the first and of the second of all pairs, which are made one after the other."""
    return functools.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), pairs)


def _summed(values: Array, bins: Indices) -> Array:
    out = np.zeros((int(bins.max()) + 1, *values.shape[1:]))
    np.add.at(out, bins, values)
    return out


@dataclass(frozen=True)
class Dependence:
    """How dependent neighbouring units are: ``inflation`` of variances, ``correlation`` r of neighbours and its ``z``.

    ``testable``: whether enough of them are independent for any proof.
    """

    inflation: float = 1.0
    correlation: float = 0.0
    z: float = 0.0
    testable: bool = True

    @property
    def enlarged(self) -> float:
        """By what flips and errors are enlarged."""
        return math.sqrt(self.inflation)


def dependence(parts: Contributions, vectors: Sequence[Array]) -> Dependence:
    """Variance inflation of bins in their order; ``vectors`` are those of the fit.

    Energy of 32, 16, 8 bins relative to 32, each with the correlation r of neighbours that is left; and lag one of the
    scores along the fitted pattern, which see a slow direction that the whole tensor hides.
    """
    count = len(parts)
    if count < MIN_UNITS:
        return Dependence()
    inflation, found, k = [1.0], [], count
    while k >= min(8, count):
        E, expected, freedom = parts.left_over(None if k == count else np.arange(count) * k // count)
        size = np.sqrt(np.vecdot(E, E))
        pairs = np.maximum(size[:-1] * size[1:], 1e-300)  # 0 for units of no weight
        near = np.vecdot(E[:-1], E[1:]) / pairs - np.diag(expected, 1)
        r = float(near.mean())
        z = r / (float(near.std(ddof=1)) / math.sqrt(k - 1) + 1e-300)
        found.append((float(np.sum(size**2)) / freedom, r, z))
        if k == count:
            scores = E.reshape(count, *parts.shape)
            for v in reversed(vectors):
                scores = scores @ v
        if found[0][2] > 1:
            inflation.append(found[-1][0] / max(found[0][0], 1e-300) * (1 + 2 * max(r, 0.0)))
        k //= 2
    scores = scores - scores.mean()
    along = float(scores[:-1] @ scores[1:] / (scores @ scores + 1e-300))
    along = min(along + (1 + 3 * along) / count, 0.98)
    if along * math.sqrt(count) > 2:
        inflation.append((1 + along) / (1 - along))
    stuck = len(found) > 1 and all(r > STUCK[0] and z > STUCK[1] for _, r, z in found[-2:])
    enough = count / max(inflation) >= LEAST_INDEPENDENT and not stuck
    _, r, z = found[0]
    return Dependence(max(inflation), max(r, along), max(z, along * math.sqrt(count)), enough)
