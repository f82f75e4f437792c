r"""How much of the mean of the samples the components explain, noise taken out.

The samples are cut into K stretches with means :math:`M_i = M + E_i`.  Noise of different stretches is independent, so
that products of two of them estimate squared lengths without it, whatever its covariance:

.. math::
    q = \operatorname{mean}_{i \ne j} \langle M_i, M_j\rangle \approx \lVert M\rVert^2, \qquad
    r = \operatorname{mean}_{i \ne j} \langle M_i - F, M_j - F\rangle \approx \lVert M - F\rVert^2, \qquad
    \text{share} = 1 - r/q,

with F the sum of the components.  The error is that of a jackknife over the stretches.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tpca.engines import Engine
from tpca.results import StoredResult
from tpca.tensors import TensorSum
from tpca.tensors.blocks import Array
from tpca.wording import number, percent

STRETCHES = 8
MAX_ENTRIES = 2**21  # of a sample: eight means of them are 134 MB
MAX_READ = 2**28  # entries of all samples, which are read once more
UNCERTAIN = 0.15  # standard error above which no share is told


@dataclass(frozen=True)
class Share:
    """What part of the squared length of the mean is explained, and its standard error."""

    value: float
    error: float

    @property
    def told(self) -> str:
        """In words."""
        if not self.error < UNCERTAIN:
            return "How much of the mean of the samples is of rank one they do not tell: the noise in it is too large."
        part = percent(round(min(max(self.value, 0.0), 1.0), 2))
        return (
            f"About {part} (± {number(100 * self.error, 1)} %) of the squared length of the mean, noise taken out, is "
            "explained by what was found; the rest is of another form, or too weak to be proven."
        )


def share_of(stored: StoredResult, samples: Engine) -> Share | None:
    """The share, from one more pass; ``None`` where samples are too large, too many, too few, or incomplete."""
    n, entries = stored.summary["n_samples"], math.prod(samples.dims)
    usable = samples.rereadable and samples.whole and not samples.partial and n >= 2 * STRETCHES
    if not (stored.vectors and usable) or entries > MAX_ENTRIES or n * entries > MAX_READ:
        return None
    samples.rewind()
    means = np.empty((STRETCHES, entries))
    for stretch in range(STRETCHES):
        part = samples.reduce(TensorSum(), n // STRETCHES)
        if part.total is None:
            return None
        means[stretch] = part.total.ravel() / part.n
    return explained(means, _fitted(stored))


def explained(means: Array, fitted: Array) -> Share:
    """The share of the means ``(K, D)`` of stretches that ``fitted`` ``(D,)`` explains."""
    left = means - fitted
    whole, rest = means @ means.T, left @ left.T
    value = _share(whole, rest)
    each = [np.delete(np.arange(len(means)), i) for i in range(len(means))]
    without = np.array([_share(whole[np.ix_(kept, kept)], rest[np.ix_(kept, kept)]) for kept in each])
    spread = float(np.sum((without - without.mean()) ** 2))
    return Share(value, math.sqrt((len(means) - 1) / len(means) * spread))


def _share(whole: Array, rest: Array) -> float:
    q, r = (float(products.sum() - np.trace(products)) for products in (whole, rest))
    return 1 - r / q if q > 0 else math.nan


def _fitted(stored: StoredResult) -> Array:
    """The sum of all components."""
    strengths = [c["strength"] or 0.0 for c in stored.summary["components"]]
    rays = [functools.reduce(np.multiply.outer, vectors) for vectors in zip(*stored.vectors, strict=True)]
    return np.asarray(np.sum([s * ray.ravel() for s, ray in zip(strengths, rays, strict=True)], axis=0))
