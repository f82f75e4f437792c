"""Numbers of the theory: sample complexities, errors, the Cramér–Rao limit.

=====================  ==============================================================================
``adaptive_samples``   d² max γ⁴ ∏ γ^{-2}, even order, of Corollary cor-equal-dim
``least_samples``      its min with the form of no correlation; odd order with an idle vector block
``odd_memory_samples`` Σ N_m S_m of Corollary cor-equal-dim-odd
``sub_gaussian_error`` loss after Phase III, Eq. convergence-eq
``gaussian_error``     loss after Phase III, Corollary main-result-gaussian-ass-even
``cramer_rao``         (d - 1) / (λ² N): squared error of an unbiased estimate of a unit vector
=====================  ==============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpca.model import gauge
from tpca.tensors.blocks import Array, Partition


def adaptive_samples(dims: int | Sequence[int], gauges: Array) -> float:
    """max_m D_m γ_m⁴ ∏ γ^{-2}: λ²N between the extremes, logs and constants left out (Corollary cor-equal-dim).

    ``dims`` are those of all modes, or one d for all of them, in which case this is d² max γ⁴ ∏ γ^{-2}.  Even order.
    """
    if isinstance(dims, int):
        dims = (dims,) * (2 * len(gauges))
    sizes = np.array(Partition.pairs(tuple(dims)).sizes, dtype=np.float64)
    return float(np.max(sizes * gauges**4) * np.prod(gauges**-2.0))


def least_samples(dims: Sequence[int], correlations: Sequence[float] | Array, c0: float = 1.0) -> float:
    """λ²N of Corollary cor-equal-dim: the smaller of the form of the correlations and that of none (Case II).

    At odd order with the vector block idle in Phase I (:mod:`tpca.solvers.paper.schedule`): that of the pairs,
    times d_1/c_0.  ``correlations`` has one number for every block.
    """
    partition = Partition.pairs(tuple(dims))
    if partition.order % 2:
        pairs = [partition.dims[n] for group in partition.groups[1:] for n in group]
        return partition.sizes[0] / c0 * least_samples(pairs, list(correlations)[1:], c0)
    forms = [
        adaptive_samples(tuple(dims), gauge(dims, inside, c0)) for inside in (correlations, [0.0] * len(partition))
    ]
    return min(forms)


def odd_memory_samples(dims: Sequence[int], correlations: Sequence[float] | Array, c0: float = 1.0) -> float:
    """λ²Σ N_m S_m of Corollary cor-equal-dim-odd, the printed schedule: max_m D_m² γ_m⁴ ∏γ^{-2}, or of no correlation.

    With equal dims that is max{d⁴ max_{m≥2} γ_m⁴, d² γ_1⁴} ∏γ^{-2}, at most c_0^{2-k̄} d^k̄ up to constants.
    """
    partition = Partition.pairs(tuple(dims))
    sizes = np.array(partition.sizes, dtype=np.float64)
    forms = []
    for inside in (correlations, [0.0] * len(partition)):
        gauges = gauge(dims, inside, c0)
        forms.append(float(np.max(sizes**2 * gauges**4) * np.prod(gauges**-2.0)))
    return min(forms)


def sub_gaussian_error(order: int, strength: float, steps: float, delta: float) -> float:
    """log(T)√k̄ / (λ√(δT)): the theorem's loss after Phase III, constants left out (Eq. convergence-eq)."""
    return math.log(steps) * math.sqrt(order) / (strength * math.sqrt(delta * steps))


def gaussian_error(order: int, dim: int, strength: float, steps: float, delta: float) -> float:
    """log³(k̄Td/δ)(1 + k̄d²/λ²)√k̄/(√δ T): the loss for Gaussian noise (Corollary main-result-gaussian-ass-even).

    By erratum 18 of docs/paper.md it holds for all noise of Assumption ass-base.  Measured: the vectors' loss is of
    order d log(T)/(λ²T), smaller by d (docs/reproduction.md, accuracy).
    """
    logs = math.log(order * steps * dim / delta) ** 3
    return logs * (1 + order * dim**2 / strength**2) * math.sqrt(order) / (math.sqrt(delta) * steps)


def cramer_rao(dim: int, strength: float, samples: float) -> float:
    """(d − 1)/(λ² N): the least mean squared error of an unbiased estimate of a unit vector in unit noise."""
    return (dim - 1) / (strength**2 * samples)
