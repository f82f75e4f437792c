r"""Are neighbouring samples alike?  By how much more the sum of all scatters than that of independent ones.

Samples that follow each other are added up in bins (:mod:`tpca.solvers.least_squares.sums`).  What the regression
leaves of bin g is :math:`E_g`; of independent samples :math:`\langle E_g, E_h\rangle` is that of fitting alone.

- **Between bins**: the correlation r of neighbouring bins, and the energy of fewer, longer bins over that of the bins
  as they are; the variance of the sum of all is larger by the energy's ratio times 1 + 2r.
- **Along the pattern**: the correlation ρ of the bins' scores with the fitted pattern, which sees a slow direction that
  the whole tensor hides; the variance is larger by (1 + ρ)/(1 − ρ).
- **Inside bins**: the energy of bins of neighbours over that of bins that have nothing to do with the order
  (:func:`excess_of_neighbours`).

Flips and errors are enlarged by the root of the largest of these, the variance inflation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.inference.regression import Regression, fitted_cosines, unit_freedom
from tpca.tensors.blocks import Array

FEWEST_UNITS = 6
"""Fewer independent units prove nothing at 5 %: 2^(6-1) flips have a least p of 1/32."""
SHORTEST_SERIES = 8
"""Bins that are fewer are not added up any further."""
LEAST_INDEPENDENT = 5
"""Units that must be left once their number is divided by the inflation."""
STUCK_CORRELATION = 0.2
STUCK_Z = 2.0
"""Correlation of neighbours and its z, of the two coarsest binnings: beyond these no binning makes bins independent."""
LARGEST_CORRELATION = 0.98
NO_ENERGY = 1e-10
"""Share of the largest energy of a bin that may be rounding."""
FEWEST_COMPARED = 8
"""Bins whose energies are compared with those of others."""


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


@dataclass(frozen=True)
class BinScatter:
    """Inner ``products`` (G, G) of what is left of bins; ``cosines`` (G, G) and ``freedom`` of fitted white noise."""

    products: Array
    cosines: Array
    freedom: float

    @property
    def energies(self) -> Array:
        """The squared length of what is left of every bin."""
        return np.maximum(np.diag(self.products), 0.0)

    @property
    def variance(self) -> float:
        """Energy per degree of freedom."""
        return float(self.energies.sum()) / self.freedom

    def neighbours(self) -> tuple[float, float]:
        """The mean correlation of neighbouring bins beyond that of fitting, and its z."""
        lengths = np.sqrt(self.energies)
        rounding = NO_ENERGY * float(self.energies.max())  # which is all that is left of bins of no weight
        pairs = np.maximum(lengths[:-1] * lengths[1:], rounding + 1e-300)
        cosines = np.diag(self.products, 1) / pairs - np.diag(self.cosines, 1)
        mean = float(cosines.mean())
        error = float(cosines.std(ddof=1)) / math.sqrt(len(cosines))
        return mean, mean / (error + 1e-300)


def scatter_of(products: Array, grams: Array, regression: Regression) -> BinScatter:
    """The scatter of bins with these inner products of what is left of them, and Gram matrices (G, c, c)."""
    freedom = float(unit_freedom(grams, regression).sum())
    return BinScatter(products, fitted_cosines(grams, regression), freedom)


def added_up(scatter: BinScatter, grams: Array, regression: Regression, count: int) -> BinScatter:
    """The scatter of ``count`` longer bins."""
    finer = len(grams)
    membership = np.zeros((count, finer))
    membership[np.arange(finer) * count // finer, np.arange(finer)] = 1.0
    products = membership @ scatter.products @ membership.T
    return scatter_of(products, np.einsum("kg,gcd->kcd", membership, grams), regression)


def dependence_of_bins(
    residuals: Array, grams: Array, regression: Regression, vectors: Sequence[Array]
) -> tuple[Dependence, BinScatter]:
    """How dependent bins in their order are, and how they scatter; ``vectors`` are those of the first component."""
    count = len(residuals)
    flat = residuals.reshape(count, -1)
    scatter = scatter_of(np.asarray(flat @ flat.T, dtype=np.float64), grams, regression)
    if count < FEWEST_UNITS:
        return Dependence(), scatter
    inflations = [1.0]
    r, z = scatter.neighbours()
    correlations = [(r, z)]
    if z > 1:
        inflations.append(1 + 2 * max(r, 0.0))
    coarser_count = count // 2
    while coarser_count >= SHORTEST_SERIES:
        coarser = added_up(scatter, grams, regression, coarser_count)
        coarser_r, coarser_z = coarser.neighbours()
        correlations.append((coarser_r, coarser_z))
        if z > 1:
            ratio = coarser.variance / max(scatter.variance, 1e-300)
            inflations.append(ratio * (1 + 2 * max(coarser_r, 0.0)))
        coarser_count //= 2
    along = correlation_along(residuals, vectors)
    if along * math.sqrt(count) > 2:
        inflations.append((1 + along) / (1 - along))
    inflation = max(inflations)
    stuck = len(correlations) > 1
    for last_r, last_z in correlations[-2:]:
        stuck = stuck and last_r > STUCK_CORRELATION and last_z > STUCK_Z
    testable = count / inflation >= LEAST_INDEPENDENT and not stuck
    return Dependence(inflation, max(r, along), max(z, along * math.sqrt(count)), testable), scatter


def correlation_along(residuals: Array, vectors: Sequence[Array]) -> float:
    """The correlation of neighbouring bins' scores with a pattern, less its bias."""
    scores = residuals
    for vector in reversed(vectors):
        scores = scores @ vector.astype(scores.dtype)
    scores = scores.astype(np.float64)
    scores -= scores.mean()
    count = len(scores)
    correlation = float(scores[:-1] @ scores[1:] / (scores @ scores + 1e-300))
    return min(correlation + (1 + 3 * correlation) / count, LARGEST_CORRELATION)


def excess_of_neighbours(neighbours: BinScatter, energies: Array, freedom: float) -> tuple[float, float]:
    """By how much the variance of a bin of neighbours exceeds that of as many samples at random, and how certainly.

    ``energies`` (B,), with ``freedom``, are those of bins that have nothing to do with the order.  The excess is 1
    where it may be chance.
    """
    total = float(energies.sum())
    if min(len(neighbours.energies), len(energies)) < FEWEST_COMPARED or total <= 0:
        return 1.0, 0.0
    ratio = neighbours.variance / (total / freedom)
    error = ratio * math.hypot(relative_error(neighbours.energies), relative_error(energies))
    if ratio - 1 <= error:
        return 1.0, 0.0
    return ratio, (ratio - 1) / (error + 1e-300)


def relative_error(energies: Array) -> float:
    """The standard error of a mean of energies over that mean."""
    mean = float(energies.mean())
    return float(energies.std(ddof=1)) / (mean + 1e-300) / math.sqrt(len(energies))
