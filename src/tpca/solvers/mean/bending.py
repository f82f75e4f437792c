r"""Signals that are not small against the bound b at which entries are clipped (:mod:`tpca.noise.tails`).

An entry with the signal s in symmetric noise of the density f has, clipped, the mean

.. math:: E\,\psi(x + s) = ps\Bigl(1 - \beta\frac{s^2}{b^2} + \dots\Bigr), \qquad p = P(|x| \le b), \qquad
    \beta = -\frac{b^2f'(b)}{3p} ,

β is 0.13 to 0.14 of Student's t with 2.5 and 3 degrees of freedom and bounds of 1 to 1.5 standard deviations.  A signal
λ v_1 ⊗ ... ⊗ v_k is told too small by the share βq, with b of product form, :math:`b = \prod s_i(a_i)`, and

.. math:: q = \frac{\sum s^4/b^2}{\sum s^2} = \lambda^2\prod_i\sum_a\frac{v_i(a)^4}{s_i(a)^2} .

Where it is small that is made good.  Where it is not, it was plain to see from the first clipped samples on: they are
left out, and samples are added up as they are from then on, for there is no need of a gain then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpca.noise import Check
from tpca.solvers.mean.fit import hosvd_fit
from tpca.tensors.blocks import Array

BEND = 0.13  # β
STRONG = 0.1  # q, from which samples are not clipped: 1.3 % of the strength
LARGE = 0.3  # q, from which it is a doubt: where it has not been seen in time, or a bound was asked for
SWEEPS = 25


def squared_share(strength: float, vectors: Sequence[Array], scales: Sequence[Array]) -> float:
    """q, the mean square of a signal over the bound, where it is."""
    return strength**2 * math.prod(float(np.sum(v**4 / s**2)) for v, s in zip(vectors, scales, strict=True))


def too_strong(mean: Array, samples: int, share: float, scales: Sequence[Array]) -> bool:
    """Whether the ``mean`` of clipped samples has a signal, plain to see, that is not small against the bound.

    In units of the bound no clipped entry has a variance beyond one, so that noise reaches no further than Σ√(d/n).
    """
    for mode, scale in enumerate(scales):
        mean = mean / scale.reshape(-1, *[1] * (mean.ndim - 1 - mode))
    fit = hosvd_fit(mean, SWEEPS)
    if not fit.strength > sum(math.sqrt(d / samples) for d in mean.shape):
        return False
    return squared_share(fit.strength / share, fit.vectors, [np.ones(d) for d in mean.shape]) > STRONG


def bent(squared: float) -> Check:
    """The doubt where a signal is as large as the bound."""
    return Check(
        "signal within the bound",
        "bad",
        f"{math.sqrt(squared):.2g} times the bound on entries",
        "the signal is not small against the bound at which entries were clipped, and is told too small; "
        "compare with clip=None",
    )
