r"""What single samples show: some that were kept, whose digests are the smallest, and the loudest of all.

Of a sample T with columns z = (a, y), the nuisances leave :math:`R = T - Aa`, and the regression
:math:`U = R - \kappa D` (:mod:`tpca.inference.regression`).  From R comes the whitening of tests, from U advice on
tails and skewness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.inference.regression import Regression
from tpca.solvers.least_squares.sums import KeptSample, SampleSums
from tpca.tensors.blocks import Array

TINY = 1e-300


def without_nuisances(sample: KeptSample, regression: Regression) -> Array:
    """R (E,), zeros where nothing was observed."""
    residual = sample.values - sample.columns @ regression.background
    if sample.seen is not None:
        residual *= sample.seen
    return np.asarray(residual)


def without_effects(sample: KeptSample, regression: Regression) -> Array:
    """U (E,), zeros where nothing was observed."""
    regressors = np.einsum("c,qce->qe", sample.columns, regression.residual_map)
    effects = np.einsum("qe,qe->e", regressors, regression.estimate.reshape(len(regressors), -1))
    if sample.seen is not None:
        effects = effects * sample.seen
    return np.asarray(without_nuisances(sample, regression) - effects)


def rows_for_whitening(samples: Sequence[KeptSample], regression: Regression) -> NDArray[Any]:
    r"""R of all samples, each of length one, (n, \*dims)."""
    rows = np.empty((len(samples), math.prod(regression.dims)), np.float32)
    for row, sample in zip(rows, samples, strict=True):
        residual = without_nuisances(sample, regression)
        row[...] = residual / max(float(np.linalg.norm(residual)), TINY)
    return rows.reshape(len(samples), *regression.dims)


@dataclass(frozen=True)
class SampleLook:
    """What samples say of the noise, for advice.

    ``kurtosis`` of all entries together is 3 for normal noise of one size; ``skewness`` is the median over entries.
    The loudest sample has the share ``loudest`` of all noise energy; ``copies`` samples are exact copies of others.
    """

    kurtosis: float
    skewness: float
    loudest: float
    copies: int
    noise_energy: float


def look_at_samples(sums: SampleSums, regression: Regression, noise_energy: float) -> SampleLook:
    """Look at what was kept of all samples, once they have ended."""
    squares: Array = np.zeros(math.prod(regression.dims))
    cubes = np.zeros_like(squares)
    fourth = 0.0
    n_entries = 0
    loudest = 0.0
    for sample in sums.kept_samples():
        residual = without_effects(sample, regression)
        powers = residual * residual
        squares += powers
        cubes += powers * residual
        fourth += float(np.vdot(powers, powers))
        n_entries += len(residual)
        loudest = max(loudest, sample.weight * float(powers.sum()))
    if sums.loudest is not None:
        residual = without_effects(sums.loudest, regression)
        loudest = max(loudest, sums.loudest.weight * float(np.vdot(residual, residual)))
    vary = squares > 0
    skewness = 0.0
    if vary.any():
        skewness = float(np.median(np.abs(cubes[vary]) / squares[vary] ** 1.5)) * math.sqrt(len(sums.kept))
    return SampleLook(
        kurtosis=fourth / max(float(squares.sum()) ** 2, TINY) * n_entries,
        skewness=skewness,
        loudest=loudest / max(noise_energy, TINY),
        copies=sums.smallest_digests.copies(sums.n),
        noise_energy=noise_energy,
    )
