r"""Numbers of the theory: c_0, γ_m, sample complexities, the Cramér–Rao limit.

=====================  ==============================================================================
``initial_overlap``    c_0 (paper, Eq. c0-definition): how well a random start overlaps, at least
``block_gauge``        γ_m (Eq. def-gamma-m, def-gamma-m-odd), with |Cor|: signs are searched
``adaptive_samples``   d² max γ⁴ ∏ γ^{-2}, even order, of Corollary cor-equal-dim
``cramer_rao``         (d - 1) / (λ² N): squared error of an unbiased estimate of a unit vector
=====================  ==============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from tpca.model.spiked import SpikedTensor
from tpca.tensors.blocks import Array, Partition


def initial_overlap(dims: Sequence[int], delta: float) -> float:
    """c_0 = min_n q²/(1 + q/√d_n)², q the (1 + δ/k̄)/2 quantile of Student t with d_n − 1 degrees of freedom."""
    quantiles = [(float(stdtrit(d - 1, (1 + delta / len(dims)) / 2)), d) for d in dims]
    return min(q**2 / (1 + q / math.sqrt(d)) ** 2 for q, d in quantiles)


def block_gauge(truth: SpikedTensor, c0: float) -> Array:
    """γ_m = |Cor| / (d d')^{1/4} + c_0 / (d d')^{1/2}; for the vector block of an odd order c_0^{1/2} / d_1^{1/2}.

    Erratum: the paper's convention d_0 = c_0^{1/2} must read d_0 = c_0 for the γ_1 that its odd proofs use.
    """
    return gauge(truth.dims, truth.correlations(), c0)


def gauge(dims: Sequence[int], correlations: Sequence[float] | Array, c0: float) -> Array:
    """γ_m from the correlation inside every block, without any vectors."""
    partition = Partition.pairs(dims)
    gauges = []
    for group, size, correlation in zip(partition.groups, partition.sizes, correlations, strict=True):
        gauges.append(abs(correlation) / size**0.25 + c0 ** (len(group) / 2) / math.sqrt(size))
    return np.array(gauges)


def adaptive_samples(dim: int, gauges: Array) -> float:
    """d² max γ⁴ ∏ γ^{-2}: λ²N between the extremes, logs and constants left out (Corollary cor-equal-dim)."""
    return float(dim**2 * np.max(gauges) ** 4 * np.prod(gauges**-2.0))


def cramer_rao(dim: int, strength: float, samples: float) -> float:
    """(d − 1)/(λ² N): the least mean squared error of an unbiased estimate of a unit vector in unit noise."""
    return (dim - 1) / (strength**2 * samples)
