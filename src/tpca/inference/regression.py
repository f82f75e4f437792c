r"""Ordinary least squares in every entry of the samples, from sums of units.

With weights w, nuisances a (a constant among them) and columns of interest y of every sample, together z = (a, y)
(:mod:`tpca.inference.design`), all that is kept of the samples of unit g are the sums

.. math:: M_g = \sum_{i \in g} w_i z_i \otimes T_i, \qquad G_g = \sum_{i \in g} w_i z_i z_i^\top .

Their totals M and G give the regression, and every unit's contribution to it:

.. math::
    \tilde y_i = L z_i, \quad L = (-G_{ya}G_{aa}^+,\ 1), \qquad
    A = M_a G_{aa}^+, \qquad S = L G L^\top, \\
    C_g = \sum_{i \in g} w_i \tilde y_i (T_i - A a_i) = L M_g - A u_g, \quad u_g = G_g L^\top, \qquad
    D = \frac1S \sum_g C_g .

D does not depend on A, since :math:`\tilde y` is orthogonal to the nuisances; a flip of the signs of units does.  For
tests A is therefore fitted with weights :math:`1/\sigma_g^2` of the units, so that a loud class does not shift a quiet
one (:func:`noise_levels`).  What the regression leaves of a unit is :math:`E_g = C_g - S_gD`, with A of all samples.

Of K > 2 labels the K − 1 columns of interest become one more mode, with
:math:`\kappa_i = (S/W)^{-1/2}\tilde y_i`, :math:`W = \sum w_i`, in place of :math:`\tilde y` and W in place of S.

Missing entries: G, L and S entry by entry, contributions scaled by S/S_e so that all count the same.  Where none is
missing the same arrays have one entry in place of those of a sample.

==================================  ===============================================================================
symbol                              here; G units, c columns, q of interest, E entries (e of them, or one, where
                                    none is missing)
==================================  ===============================================================================
:math:`M_g, G_g`                    ``UnitSum.moments`` (c, E), ``UnitSum.gram`` (c, c), ``.entry_grams`` (c, c, E)
:math:`L`                           ``Regression.residual_map`` (q, c, e), ``.overall_map`` (q, c) of all entries
:math:`G_{aa}^+`                    ``Regression.overall_inverse`` (c, c), zeros for the columns of interest
:math:`A`                           ``Regression.background`` (c, E), zeros for the columns of interest
:math:`S, D`                        ``Regression.information``, ``.estimate``
:math:`S/S_e`                       ``Regression.rescaling`` (e,), 0 of entries that were never observed
:math:`C_g, u_g, S_g`               ``Contributions.values`` (G, \*shape), ``.overlaps`` (G, c, q), ``.information``
:math:`E_g`                         :func:`unit_residuals`
==================================  ===============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import SampleError
from tpca.inference.design import DETERMINED, Indices, largest_entry
from tpca.tensors.blocks import Array

PIECE = 2**16
"""Numbers of sums that are copied at a time: a copy of all would double what is held."""
SHRUNK = 0.1
"""Share of the average noise level that every unit's level is drawn towards."""
UNKNOWN = 1e-8
"""Share of the usual information below which an entry counts as never observed."""
SINGLE_PRECISION = 10_000
"""Entries of samples above which contributions are held in single precision."""
COLLINEAR = 1e-12
"""Relative size of a singular value below which nuisances count as collinear."""


@kept
@dataclass
class UnitSum:
    """Sums of the samples of one unit: ``moments`` M (c, E), ``gram`` G (c, c), ``count`` samples.

    ``entry_grams`` (c, c, E) is G entry by entry, where entries may be missing.
    """

    moments: Array
    gram: Array
    count: int
    entry_grams: Array | None = None

    def add(self, other: UnitSum) -> None:
        """Take the samples of another one."""
        self.moments += other.moments
        self.gram += other.gram
        self.count += other.count
        if self.entry_grams is not None and other.entry_grams is not None:
            self.entry_grams += other.entry_grams

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        entry_grams = 0 if self.entry_grams is None else self.entry_grams.nbytes
        return int(self.moments.nbytes + self.gram.nbytes + entry_grams)


@dataclass(frozen=True)
class Regression:
    r"""What the totals of all units say; symbols in the table above.

    ``contrasts`` K turns :math:`\tilde y` into :math:`\kappa`; it is 1 of one column of interest.  ``shape`` is that
    of a sample, behind the q contrasts of labels that are ``stacked``.  ``observed`` entries were seen at all,
    ``rates`` says in which share of the weight; None where none is missing.  An entry was seen in ``n_observed`` of the
    n samples on average.
    """

    dims: tuple[int, ...]
    stacked: bool
    n: int
    columns: int
    interest: Indices
    contrasts: Array
    overall_map: Array
    overall_inverse: Array
    residual_map: Array
    background: Array
    information: float
    rescaling: Array
    estimate: Array
    observed: Array
    rates: Array | None
    n_observed: float
    fitted_energy: float
    """The sum of squares that fitting all columns takes out of the samples, over all entries."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the estimate, and of every contribution."""
        if self.stacked:
            return (len(self.interest), *self.dims)
        return self.dims

    @property
    def nuisances(self) -> Indices:
        """All columns but those of interest."""
        return np.delete(np.arange(self.columns), self.interest)


def regress(units: Sequence[UnitSum], interest: Indices, dims: Sequence[int], stacked: bool = False) -> Regression:
    """Least squares of all units together; refuses columns of interest that the others determine."""
    gram = np.sum([unit.gram for unit in units], axis=0)
    columns = len(gram)
    weight = float(gram[0, 0])
    nuisances = np.delete(np.arange(columns), interest)
    overall_map, overall_inverse = residual_map(gram[..., None], nuisances, interest)
    information = np.einsum("qce,cde,rde->qr", overall_map, gram[..., None], overall_map)
    refuse_determined(information, gram, interest)
    contrasts = np.eye(1)
    scale = float(information[0, 0])
    if stacked:
        contrasts = inverse_root(information / weight)
        scale = weight
    overall_map = np.einsum("ij,jce->ice", contrasts, overall_map)

    moments = total_moments(units)
    entry_gram = gram[..., None]
    entry_map = overall_map
    entry_inverse = overall_inverse
    rates = None
    if units[0].entry_grams is not None:
        entry_gram = total_entry_gram(units)
        entry_map, entry_inverse = residual_map(entry_gram, nuisances, interest)
        rates = (entry_gram[0, 0] / weight).reshape(tuple(dims))
    entry_information = np.einsum("qce,cde,qde->e", entry_map, entry_gram, entry_map) / len(interest)
    is_known = entry_information > UNKNOWN * np.max(entry_information)
    rescaling = np.divide(scale, entry_information, out=np.zeros_like(entry_information), where=is_known)
    observed = np.broadcast_to(is_known, moments.shape[1:]).reshape(tuple(dims))
    n = sum(unit.count for unit in units)

    background = np.einsum("cde,de->ce", entry_inverse, moments)
    overlap = np.einsum("cde,qde->cqe", entry_gram, entry_map)
    total = np.einsum("qce,ce->qe", entry_map, moments) - np.einsum("ce,cqe->qe", background, overlap)
    estimate = total * rescaling / scale  # (q, E)
    fitted_energy = float(np.vdot(background, moments))
    fitted_energy += float(np.sum(estimate**2 * np.where(is_known, entry_information, 0.0)))
    return Regression(
        dims=tuple(dims),
        stacked=stacked,
        n=n,
        columns=columns,
        interest=interest,
        contrasts=contrasts,
        overall_map=overall_map[..., 0],
        overall_inverse=overall_inverse[..., 0],
        residual_map=entry_map,
        background=background,
        information=scale,
        rescaling=rescaling,
        estimate=estimate.reshape((len(interest), *dims) if stacked else tuple(dims)),
        observed=observed,
        rates=rates,
        n_observed=n * min(1.0, float(entry_information[is_known].mean()) / scale),
        fitted_energy=fitted_energy,
    )


def refuse_determined(information: Array, gram: Array, interest: Indices) -> None:
    """Refuse columns of interest that are constant, or that the other columns determine."""
    largest = np.trace(gram[np.ix_(interest, interest)])
    if np.linalg.eigvalsh(information)[0] <= DETERMINED * largest:
        raise SampleError(
            "y is constant in the samples that were used, or the nuisances and other columns determine it; give "
            "samples with values that differ."
        )


def total_moments(units: Sequence[UnitSum]) -> Array:
    """M (c, E), of all samples."""
    total = np.zeros_like(units[0].moments)
    for unit in units:
        total += unit.moments
    return total


def total_entry_gram(units: Sequence[UnitSum]) -> Array:
    """G (c, c, E), entry by entry, of all samples."""
    total: Any = 0.0
    for unit in units:
        total = total + unit.entry_grams
    return np.asarray(total)


def residual_map(gram: Array, nuisances: Indices, interest: Indices) -> tuple[Array, Array]:
    """L (q, c, e) and the inverse of the nuisances' part of G (c, c, e), with zeros for the columns of interest."""
    inverse = inverse_of_nuisances(gram, nuisances)
    unit_rows = np.eye(len(gram))[interest][..., None]
    return unit_rows - np.einsum("qde,dce->qce", gram[interest], inverse), inverse


def inverse_of_nuisances(gram: Array, nuisances: Indices) -> Array:
    """The pseudo-inverse of the nuisances' part of G (c, c, e), whatever the scales of these; elsewhere zeros."""
    inverse = np.zeros_like(gram)
    if not len(nuisances):
        return inverse
    part = np.ix_(nuisances, nuisances)
    scales = np.sqrt(np.einsum("ppe->pe", gram[part]))
    scales = np.where(scales > 0, scales, 1.0)
    products = scales[:, None] * scales[None, :]
    matrices = np.moveaxis(gram[part] / products, -1, 0)
    inverses = np.linalg.pinv(matrices, rcond=COLLINEAR, hermitian=True)
    inverse[part] = np.moveaxis(inverses, 0, -1) / products
    return inverse


def inverse_root(matrix: Array) -> Array:
    """The inverse root of a positive matrix."""
    values, axes = np.linalg.eigh(matrix)
    return np.asarray((axes * values**-0.5) @ axes.T)


# Units --------------------------------------------------------------------------------------------------------------


def unit_pieces(units: Sequence[UnitSum]) -> Iterator[tuple[slice, Array, Array]]:
    """M (g, c, E) and G (g, c, c, e) of a few units at a time."""
    step = max(1, PIECE // units[0].moments.size)
    for start in range(0, len(units), step):
        piece = units[start : start + step]
        moments = np.stack([unit.moments for unit in piece])
        if piece[0].entry_grams is None:
            grams = np.stack([unit.gram for unit in piece])[..., None]
        else:
            grams = np.stack([np.asarray(unit.entry_grams) for unit in piece])
        yield slice(start, start + len(piece)), moments, grams


def contributed(moments: Array, grams: Array, regression: Regression, background: Array) -> Array:
    """C (g, q, E) of some units, with the nuisances taken out by ``background``."""
    entry_map = regression.residual_map
    overlaps = np.einsum("gcde,qde->gcqe", grams, entry_map)
    values = np.einsum("qce,gce->gqe", entry_map, moments)
    values -= np.einsum("ce,gcqe->gqe", background, overlaps)
    values *= regression.rescaling
    return np.asarray(values)


def unit_information(grams: Array, regression: Regression) -> Array:
    """S_g (g, q, q, e) of some units: how much of the estimate is in each, column by column."""
    entry_map = regression.residual_map
    return np.asarray(np.einsum("qce,gcde,rde->gqre", entry_map, grams, entry_map) * regression.rescaling)


def unit_residuals(units: Sequence[UnitSum], regression: Regression) -> Iterator[tuple[slice, Array]]:
    r"""What the regression leaves of the contributions of some units at a time, (g, \*shape)."""
    estimate = regression.estimate.reshape(len(regression.interest), -1)
    for rows, moments, grams in unit_pieces(units):
        residuals = contributed(moments, grams, regression, regression.background)
        residuals -= np.einsum("gqre,re->gqe", unit_information(grams, regression), estimate)
        yield rows, residuals.reshape(-1, *regression.shape)


def residuals_of_all(units: Sequence[UnitSum], regression: Regression, like: Contributions) -> Array:
    r"""What the regression leaves of all contributions, (G, \*shape), in the precision and size of those."""
    residuals = np.empty_like(like.values)
    for rows, values in unit_residuals(units, regression):
        residuals[rows] = values / like.size
    return residuals


def grams_of(units: Sequence[UnitSum]) -> Array:
    """G (G, c, c) of all units."""
    return np.stack([unit.gram for unit in units])


def unit_freedom(grams: Array, regression: Regression) -> Array:
    """Degrees of freedom (G,) that fitting leaves of units with the Gram matrices (G, c, c), times S/n.

    Of white noise the energy of :math:`E_g` is as many times its variance.
    """
    overlaps, informations = overlaps_of(grams, regression)
    freedom = np.einsum("gqq->g", informations)
    freedom -= np.einsum("gij,gji->g", informations, informations) / regression.information
    freedom -= np.einsum("gcq,cd,gdq->g", overlaps, regression.overall_inverse, overlaps)
    return np.asarray(np.maximum(freedom / len(regression.interest), 1e-12 * regression.information))


def fitted_cosines(grams: Array, regression: Regression) -> Array:
    """The cosines (G, G) that fitting alone gives to what is left of two units, of white noise."""
    overlaps, informations = overlaps_of(grams, regression)
    products = -np.einsum("gij,hji->gh", informations, informations) / regression.information
    products -= np.einsum("gcq,cd,hdq->gh", overlaps, regression.overall_inverse, overlaps)
    freedom = unit_freedom(grams, regression)
    return np.asarray(products / len(regression.interest) / np.sqrt(np.outer(freedom, freedom)))


def overlaps_of(grams: Array, regression: Regression) -> tuple[Array, Array]:
    """u_g (G, c, q) and S_g (G, q, q) of units, over all entries."""
    overlaps = np.einsum("gcd,qd->gcq", grams, regression.overall_map)
    return overlaps, np.einsum("qc,gcr->gqr", regression.overall_map, overlaps)


# For tests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contributions:
    r"""What units contribute to the estimate, with the nuisances taken out for a test; symbols in the table above.

    ``values`` are in single precision where samples are large: reading them takes most of the time of a flip.  They
    were divided then by ``size``, a power of two, so that squares neither overflow nor vanish.  ``noise`` is
    :math:`\sum_g S_g\sigma_g^2`, ``inverse`` :math:`(\sum_g G_{g,aa}/\sigma_g^2)^+`.
    """

    values: Array
    size: float
    overlaps: Array
    noise: float
    inverse: Array

    def __len__(self) -> int:
        return len(self.values)

    def scales(self, signs: Array, enlarged: float = 1.0) -> Array:
        r"""√f of every row of signs: :math:`f(s) = \sum\tilde y^2\sigma^2 - u(s)^\top(\sum\omega aa^\top)^+u(s)`.

        What estimating the nuisances has taken out of a flip (Hemerik, Goeman & Finos 2020; De Santis et al. 2022).
        Flips are ``enlarged`` where units are dependent; the first row, the data, is not.
        """
        overlaps = np.tensordot(signs, self.overlaps, 1)
        lost = np.einsum("bcq,cd,bdq->b", overlaps, self.inverse, overlaps) / overlaps.shape[2]
        scales = np.sqrt(np.maximum(self.noise - lost, 1e-9 * self.noise))
        scales[1:] /= enlarged
        return np.asarray(scales)


def contributions(units: Sequence[UnitSum], regression: Regression) -> Contributions:
    """C of every unit, for tests."""
    grams = grams_of(units)
    background = regression.background
    levels = np.ones(len(units))
    if len(regression.nuisances):
        levels = noise_levels(units, regression)
        background = background_for_tests(units, regression, levels)
    size = 1.0
    dtype: Any = np.float64
    if math.prod(regression.dims) > SINGLE_PRECISION:
        dtype = np.float32
        largest = 0.0
        for _, moments, piece_grams in unit_pieces(units):
            largest = max(largest, largest_entry(contributed(moments, piece_grams, regression, background)))
        if math.isfinite(largest):
            size = math.ldexp(1.0, math.frexp(largest)[1])
    values = np.empty((len(units), *regression.shape), dtype)
    for rows, moments, piece_grams in unit_pieces(units):
        piece = contributed(moments, piece_grams, regression, background) / size
        values[rows] = piece.reshape(-1, *regression.shape)
    overlaps, informations = overlaps_of(grams, regression)
    information = np.einsum("gqq->g", informations) / len(regression.interest)
    weighted_gram = np.einsum("g,gcd->cd", 1 / levels, grams)
    inverse = inverse_of_nuisances(weighted_gram[..., None], regression.nuisances)[..., 0]
    return Contributions(values, size, overlaps, float(np.sum(information * levels)), inverse)


def noise_levels(units: Sequence[UnitSum], regression: Regression) -> Array:
    """Noise variance σ² of every unit relative to the average: energy per degree of freedom, shrunk towards that."""
    energies = np.empty(len(units))
    estimate = regression.estimate.reshape(len(regression.interest), -1)
    constant = 0
    for rows, moments, grams in unit_pieces(units):
        sums = moments[:, constant].copy()
        sums -= np.einsum("ce,gce->ge", regression.background, grams[:, constant])
        regressor_sums = np.einsum("gde,qde->gqe", grams[:, constant], regression.residual_map)
        sums -= np.einsum("qe,gqe->ge", estimate, regressor_sums)
        energies[rows] = np.vecdot(sums, sums)
    grams = grams_of(units)
    counts = np.array([unit.count for unit in units])
    leverages = np.einsum("cd,gdc->g", np.linalg.pinv(grams.sum(axis=0), hermitian=True), grams)
    weights = grams[:, constant, constant]
    freedom = np.maximum(weights * (1 - leverages / np.maximum(counts, 1)), 1e-6 * weights.mean())
    average = energies.sum() / freedom.sum()
    if average <= 0:
        return np.ones(len(units))
    return np.asarray((energies / freedom / average + SHRUNK) / (1 + SHRUNK))


def background_for_tests(units: Sequence[UnitSum], regression: Regression, levels: Array) -> Array:
    """A, fitted with the inverse noise levels of the units as weights."""
    moment: Any = 0.0
    gram: Any = 0.0
    for rows, moments, grams in unit_pieces(units):
        moment = moment + np.einsum("g,gce->ce", 1 / levels[rows], moments)
        gram = gram + np.einsum("g,gcde->cde", 1 / levels[rows], grams)
    return np.asarray(np.einsum("cde,de->ce", inverse_of_nuisances(gram, regression.nuisances), moment))


def residual_energy(squares: Array, regression: Regression) -> float:
    """The sum of squares that fitting all columns leaves of the samples, from their sums of squares (E,)."""
    return max(float(squares.sum()) - regression.fitted_energy, 0.0)


def noise_level(energy: float, regression: Regression, weight: float) -> float:
    """The root of the mean square that the regression leaves of an observed entry; all samples have this ``weight``."""
    share = 1.0
    if regression.rates is not None:
        share = float(regression.rates.mean())
    observed = weight * share * math.prod(regression.dims)
    return math.sqrt(energy / observed)
