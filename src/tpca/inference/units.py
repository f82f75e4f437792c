r"""Units of samples: their sums, and what each contributes to the least-squares estimate.

With weights w, columns of interest y and nuisances a of every sample (:mod:`tpca.inference.design`), and z = (a, y),

.. math::
    M_{z,g} = \sum_{i \in g} w_i z_i \otimes T_i, \qquad G_g = \sum_{i \in g} w_i z_i z_i^\top

are sums: one pass, in any order, on any engine.  From their totals

.. math::
    b = G_{aa}^+ G_{ay}, \quad \tilde y_i = y_i - b^\top a_i, \quad A = M_a G_{aa}^+, \quad S = \sum w_i \tilde y_i^2

and unit g contributes :math:`C_g = \sum_{i\in g} w_i\tilde y_i(T_i - Aa_i)
= M_{y,g} - b^\top M_{a,g} - A(G_{ay,g} - G_{aa,g}b)`.  The estimate is :math:`D = \sum_g C_g/S`: ordinary least
squares, exactly, whatever A is, since ỹ is orthogonal to a.  For the test A is fitted with weights
:math:`\omega_g = 1/\sigma^2_g`, so that a loud class does not shift a quiet one;
:math:`\sigma_g^2 = (e_g + 0.1\bar e)/1.1` with :math:`e_g` the energy per degree of freedom that is left of unit g.
Of K > 2 labels the K − 1 columns of interest become one more mode, with
:math:`\kappa_i = (S/W)^{-1/2}\tilde y_i`, :math:`W = \sum w_i`, in place of ỹ and W in place of S.

Missing entries: G, b and S entry by entry, contributions scaled by S/S_e so that all count the same.

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
from tpca.inference.design import Design, Indices, Units
from tpca.tensors.accumulators import Accumulator
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


@kept
class UnitSum:
    """Sums of one unit: ``moments`` M (c, *dims), ``gram`` G (c, c), ``weight`` Σw, ``n`` samples.

    Where entries are missing, ``grams`` is G (c, c, *dims) entry by entry.
    """

    def __init__(self, moments: Any, gram: Array, weight: float, n: int, grams: Any = None) -> None:
        self.moments, self.gram, self.weight, self.n, self.grams = moments, gram, weight, n, grams

    def plus(self, other: UnitSum) -> UnitSum:
        """Both, in the memory of the first."""
        self.moments += other.moments
        if other.grams is not None or self.grams is not None:
            self.grams = self.entrywise() + other.entrywise()
        self.gram = self.gram + other.gram
        self.weight, self.n = self.weight + other.weight, self.n + other.n
        return self

    def entrywise(self) -> Array:
        """G of every entry."""
        if self.grams is not None:
            return np.asarray(self.grams)
        dims = self.moments.shape[1:]
        return np.broadcast_to(self.gram.reshape(*self.gram.shape, *[1] * len(dims)), (*self.gram.shape, *dims))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.moments.nbytes + (0 if self.grams is None else self.grams.nbytes))


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
        edges = [0, *(np.flatnonzero(np.diff(unit)) + 1), len(unit)]
        for start, stop in itertools.pairwise(edges):
            if start == stop:
                continue
            some, zs, ws = batch[start:stop], z[start:stop], w[start:stop]
            moments, grams = some.weighted_sums(zs * ws[:, None]), None
            if (observed := some.observed_sums) is not None:
                c = zs.shape[1]
                each = (zs[:, :, None] * zs[:, None, :] * ws[:, None, None]).reshape(len(zs), c * c)
                grams = observed(each).reshape(c, c, *moments.shape[1:])
            one = UnitSum(moments, (zs * ws[:, None]).T @ zs, float(ws.sum()), stop - start, grams)
            merge_units(self.units, {int(unit[start]): one})
        self.n += len(batch)


def merge_units(own: dict[int, UnitSum], others: dict[int, UnitSum]) -> None:
    """Add sums to others, unit by unit."""
    for number, unit in others.items():
        own[number] = own[number].plus(unit) if number in own else unit


def halved(units: dict[int, UnitSum]) -> dict[int, UnitSum]:
    """Bins of twice as many neighbours."""
    merged: dict[int, UnitSum] = {}
    for number in sorted(units):
        merge_units(merged, {number // 2: units[number]})
    return merged


class Contributions:
    """What every unit contributes to one question, from sums of units.

    ``C`` (G, *shape) are the contributions, for the test; ``D`` (*shape) the estimate; ``shape`` is that of a sample,
    after the K − 1 contrasts of more than two labels.  ``S`` is the information Σwỹ², of unit g ``information[g]``.
    """

    def __init__(
        self,
        sums: dict[int, UnitSum],
        nuisances: Indices,
        interest: Indices,
        dims: Sequence[int],
        stacked: bool = False,
    ) -> None:
        units = [sums[number] for number in sorted(sums)]
        entrywise = any(unit.grams is not None for unit in units)
        self.dims, self.stacked = tuple(dims), stacked
        self.n = sum(unit.n for unit in units)
        self.weight = sum(unit.weight for unit in units)
        overall = np.stack([unit.gram for unit in units])[..., None]

        def pieces() -> Iterator[tuple[slice, Array, Array]]:
            """M (g, c, E) and G (g, c, c, E) of a few units at a time: a copy of all would double what is held."""
            step = max(1, PIECE // units[0].moments.size)
            for start in range(0, len(units), step):
                some = slice(start, start + step)
                M = np.stack([unit.moments.reshape(len(unit.gram), -1) for unit in units[some]])
                each = [unit.entrywise().reshape(*unit.gram.shape, -1) for unit in units[some] if entrywise]
                yield some, M, np.stack(each) if entrywise else overall[some]

        total, gram = _added((M.sum(axis=0), G.sum(axis=0, dtype=np.float64)) for _, M, G in pieces())
        fit = self._fit = _Fit(gram, nuisances, interest)
        self._whole = _Fit(overall.sum(axis=0), nuisances, interest) if entrywise else fit
        q, S = len(interest), self._whole.S[..., 0]

        # κ = K ỹ in place of ỹ: 1 for one column of interest, (S/W)^(-1/2) for several
        self.K = _root(S / self.weight, -0.5) if stacked else np.eye(q)
        self.S = float(self.weight) if stacked else float(S[0, 0])
        # Σ w κκᵀ of every unit, (G, q, q): how much of the estimate is in it, column by column
        self._informations = np.einsum("ij,gjke,lk->gil", self.K, self._whole.left(overall, y=True), self.K)
        self.information = np.einsum("gii->g", self._informations) / q
        self.background = A = fit.background(total)
        own = fit.solve(fit.contributions(total[None], gram[None], A)[0])  # coefficients of the columns of interest
        D = np.einsum("ij,je->ie", _root(S / self.weight, 0.5), own) if stacked else own
        self.D = D.reshape(self.shape)

        # for the test: nuisances fitted with the noise levels of units
        level = np.ones(len(units))
        self._shift: Array | None = None  # (p, E), of the background of the test from that of the estimate
        if len(nuisances):
            energy = np.concatenate([self._energy(M, G, own) for _, M, G in pieces()])
            level = self._levels(energy, overall, np.array([unit.n for unit in units]))
            A = fit.background(
                *_added(
                    (np.einsum("g,gce->ce", 1 / level[some], M), np.einsum("g,gcde->cde", 1 / level[some], G))
                    for some, M, G in pieces()
                )
            )
            self._shift = A - self.background
        C = np.empty((len(units), q, total.shape[1]))
        self.observed: Array | None = None
        self.entry_information: Array | None = None  # S_g of every entry, where entries are missing
        self.n_observed = float(self.n)  # samples in which an entry was observed, on average
        if entrywise:
            self.observed, self.entry_information = fit.known.reshape(self.dims), np.empty((len(C), C.shape[2]))
            self.n_observed *= min(1.0, float(np.mean(fit.S[0, 0][fit.known])) / self.S)
        for some, M, G in pieces():
            C[some] = fit.contributions(M, G, A)
            if stacked:
                C[some] = np.einsum("ij,gje->gie", self.K, C[some])
            if self.entry_information is not None:
                C[some] *= self.rescaling
                self.entry_information[some] = fit.left(G, y=True)[:, 0, 0] * self.rescaling
        self.C = C.reshape(len(units), *self.shape)
        u = np.einsum("ij,gpje->gpi", self.K, self._whole.left(overall, y=False))  # Σ a ỹ of units, (G, p, q)
        self._u = u.reshape(len(u), -1)
        weighted = np.einsum("g,gcde->cde", 1 / level, overall)[..., 0]
        self._inverse = np.linalg.pinv(weighted[np.ix_(nuisances, nuisances)], hermitian=True)
        plain = overall.sum(axis=0)[..., 0][np.ix_(nuisances, nuisances)]
        self._plain_inverse, self._q = np.linalg.pinv(plain, hermitian=True), q
        self._noise = float(np.sum(self.information * level))

    def __len__(self) -> int:
        return len(self.C)

    @property
    def rank(self) -> int:
        """Columns that were fitted."""
        return len(self._fit.nuisances) + len(self._fit.interest)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the estimate."""
        return (self.K.shape[0], *self.dims) if self.stacked else self.dims

    def scales(self, signs: Array, enlarged: float = 1.0) -> Array:
        r"""√f of every row of signs: :math:`f(s) = \sum\tilde y^2\sigma^2 - u(s)^\top(\sum\omega aa^\top)^+u(s)`.

        What estimating the nuisances has taken out of a flip (Hemerik, Goeman & Finos 2020; De Santis et al. 2022).
        Flips are ``enlarged`` where units are dependent; the first row, the data, is not.
        """
        us = (signs @ self._u).reshape(len(signs), -1, self._q)
        lost = np.einsum("bpi,pr,bri->b", us, self._inverse, us) / self._q
        scale = np.sqrt(np.maximum(self._noise - lost, 1e-9 * self._noise))
        scale[1:] /= enlarged
        return np.asarray(scale)

    def coefficients(self, z: Array, entries: bool = False) -> tuple[Array, Array]:
        """Nuisances a (n, p) and κ (n, q) of samples with columns z; with ``entries`` κ (n, q, E), of every entry."""
        fit = self._fit if entries else self._whole
        a, y = z[:, fit.nuisances], z[:, fit.interest]
        left = y[:, :, None] - np.einsum("np,pqe->nqe", a, fit.b)
        kappa = np.einsum("ij,nje->nie", self.K, left)
        return a, kappa if entries else kappa[..., 0]

    @property
    def rescaling(self) -> Array | float:
        """S/S_e of every entry: what contributions are scaled by where entries are missing."""
        S = self._fit.S[0, 0]
        return 1.0 if self.observed is None else np.divide(self.S, S, out=np.zeros_like(S), where=self._fit.known)

    def _explained(self, D: Array, own: Array, entry_information: Array | None) -> Array:
        """What an estimate D (*shape) puts into units, (G, entries of C): S_g D, a matrix S_g for each of K labels."""
        if entry_information is not None:
            return np.asarray(entry_information * D.ravel())
        return np.asarray(np.einsum("gij,je->gie", own, D.reshape(own.shape[1], -1)).reshape(len(own), -1))

    def without_estimate(self) -> Array:
        """C_g − S_g D over S: what unit g contributes to the error of the estimate."""
        left = self._explained(self.D, self._informations, self.entry_information)
        np.subtract(self.C.reshape(left.shape), left, out=left)
        left /= self.S
        return left.reshape(self.C.shape)

    def left_over(self, bins: Indices | None = None) -> tuple[Array, Array, float]:
        """What is left of units without the estimate, the cosines that fitting alone gives, and degrees of freedom.

        Left by ordinary least squares: the background of the test holds a part of the effect where labels that differ
        in noise are sorted, which would look like dependent neighbours.  (Where entries are missing, the way back
        from one to the other takes those of a unit as missing at random.)
        """
        C, u, information, own = self.C.reshape(len(self), -1), self._u, self.information, self._informations
        entry_information = self.entry_information
        if bins is not None:
            C, u, information, own = (_summed(x, bins) for x in (C, u, information, own))
            entry_information = None if entry_information is None else _summed(entry_information, bins)
        E = self._explained(C.sum(axis=0) / self.S, own, entry_information)
        np.subtract(C, E, out=E)
        fitted = -np.einsum("gij,hji->gh", own, own) / (self._q * self.S)
        if self._shift is not None:
            pairs = u.reshape(len(u), len(self._shift), -1)
            for left, pair in zip(E, pairs, strict=True):
                left += (pair.T @ self._shift).ravel()
            fitted = fitted - np.einsum("gpi,pr,hri->gh", pairs, self._plain_inverse, pairs) / self._q
        free = np.maximum(information + np.diag(fitted), 1e-12 * self.S)
        return E, fitted / np.sqrt(np.outer(free, free)), float(free.sum())

    def _energy(self, M: Array, grams: Array, own: Array) -> Array:
        """What is left of the plain sums of units without nuisances and effect, squared; the first nuisance is 1."""
        n = self._fit.nuisances
        rest = M[:, n[0]] - np.einsum("pe,gpe->ge", self.background, grams[:, n, n[0]])
        rest -= np.einsum("qe,gqe->ge", own, self._fit.left(grams, y=False)[:, 0])
        return np.asarray(np.sum(rest**2, axis=1))

    def _levels(self, energy: Array, overall: Array, counts: Array) -> Array:
        """σ² of every unit relative to the average: energy per degree of freedom, shrunk towards that."""
        columns = np.concatenate([self._fit.nuisances, self._fit.interest])
        inverse = np.linalg.pinv(overall.sum(axis=0)[..., 0][np.ix_(columns, columns)], hermitian=True)
        leverage = np.einsum("cd,gdc->g", inverse, overall[..., 0][:, columns][:, :, columns])
        weight = overall[:, columns[0], columns[0], 0]
        freedom = np.maximum(weight * (1 - leverage / np.maximum(counts, 1)), 1e-6 * weight.mean())
        average = energy.sum() / freedom.sum()
        if average <= 0:
            return np.ones(len(energy))
        return np.asarray((energy / freedom / average + SHRUNK) / (1 + SHRUNK))


class _Fit:
    """b and S of one question from G (c, c, E), E being 1 or the entries of a sample."""

    def __init__(self, gram: Array, nuisances: Indices, interest: Indices) -> None:
        self.nuisances, self.interest = nuisances, interest
        self.gaa = gram[nuisances][:, nuisances]
        self.inverse = _pinv(self.gaa)
        gay = gram[nuisances][:, interest]
        self.b = np.einsum("pre,rqe->pqe", self.inverse, gay)
        self.S = gram[interest][:, interest] - np.einsum("pqe,pre->qre", gay, self.b)
        largest = np.max(self.S[0, 0])
        self.known = self.S[0, 0] > UNKNOWN * largest if len(interest) == 1 else np.ones(self.S.shape[-1], bool)

    def background(self, moments: Array, gram: Array | None = None) -> Array:
        """A (p, E) from sums M (c, E); with G where that is another."""
        n = self.nuisances
        inverse = self.inverse if gram is None else _pinv(gram[n][:, n])
        return np.asarray(np.einsum("pre,re->pe", inverse, moments[n]))

    def left(self, grams: Array, y: bool) -> Array:
        """Of units: Σw ỹỹᵀ (G, q, q, E), or Σw aỹᵀ (G, p, q, E)."""
        n, m, b = self.nuisances, self.interest, self.b
        gaa, gay = grams[:, n][:, :, n], grams[:, n][:, :, m]
        u = gay - np.einsum("gpre,rqe->gpqe", gaa, b)
        if not y:
            return np.asarray(u)
        gyy = grams[:, m][:, :, m]
        return np.asarray(gyy - np.einsum("pqe,gpre->gqre", b, gay) - np.einsum("gpqe,pre->gqre", u, b))

    def contributions(self, M: Array, grams: Array, A: Array) -> Array:
        """C (G, q, E)."""
        n, m = self.nuisances, self.interest
        C = M[:, m]
        if len(n):
            C = C - np.einsum("pqe,gpe->gqe", self.b, M[:, n])
            C = C - np.einsum("pe,gpqe->gqe", A, self.left(grams, y=False))
        return np.asarray(np.where(self.known, C, 0.0) if self.S.shape[-1] > 1 else C)

    def solve(self, total: Array) -> Array:
        """D (q, E) from ΣC (q, E)."""
        if len(self.interest) == 1:
            known = self.known & (self.S[0] > 0)
            return np.asarray(np.divide(total, self.S[0], out=np.zeros_like(total), where=known))
        return np.asarray(np.einsum("qre,re->qe", _pinv(self.S), total))


def _pinv(stack: Array) -> Array:
    """Pseudo-inverses of symmetric matrices (p, p, E)."""
    if not len(stack):
        return stack
    size = np.sqrt(np.einsum("ppe->pe", stack))  # columns of one scale, so that only collinear ones are dropped
    size = np.where(size > 0, size, 1.0)
    pairs = size[:, None] * size[None, :]
    inverses = np.linalg.pinv(np.moveaxis(stack / pairs, -1, 0), rcond=1e-12, hermitian=True)
    return np.asarray(np.moveaxis(inverses, 0, -1) / pairs)


def _root(matrix: Array, power: float) -> Array:
    """A power of a positive matrix."""
    values, axes = np.linalg.eigh(matrix)
    return np.asarray((axes * values**power) @ axes.T)


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
    """How dependent neighbouring units are: ``inflation`` of variances, ``correlation`` r of neighbours.

    ``testable``: whether enough of them are independent for any proof.
    """

    inflation: float = 1.0
    correlation: float = 0.0
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
    inflation, stuck, correlation = [1.0], [], 0.0
    first: tuple[float, float] | None = None
    k = count
    while k >= min(8, count):
        bins = None if k == count else np.arange(count) * k // count
        E, expected, freedom = parts.left_over(bins)
        size = np.sqrt(np.vecdot(E, E))
        pairs = np.maximum(size[:-1] * size[1:], 1e-300)  # 0 for units of no weight
        near = np.vecdot(E[:-1], E[1:]) / pairs - np.diag(expected, 1)
        r = float(near.mean())
        z = r / (float(near.std(ddof=1)) / math.sqrt(k - 1) + 1e-300)
        energy = float(np.sum(size**2)) / freedom
        if first is None:
            first, correlation, scores = (energy, z), r, E.reshape(len(E), *parts.shape)
            for v in reversed(vectors):
                scores = scores @ v
        if first[1] > 1:
            inflation.append(energy / max(first[0], 1e-300) * (1 + 2 * max(r, 0.0)))
        stuck.append(z > STUCK[1] and r > STUCK[0])
        k //= 2
    scores = scores - scores.mean()
    r = float(scores[:-1] @ scores[1:] / (scores @ scores + 1e-300))
    r = min(r + (1 + 3 * r) / count, 0.98)
    if r * math.sqrt(count) > 2:
        inflation.append((1 + r) / (1 - r))
    enough = count / max(inflation) >= LEAST_INDEPENDENT and not (len(stuck) > 1 and all(stuck[-2:]))
    return Dependence(max(inflation), max(correlation, r), enough)
