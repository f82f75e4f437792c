"""Numbers of the theory: sample complexities, errors, the Cramér–Rao limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpca.model import gauge
from tpca.tensors.blocks import Array, Partition


def adaptive_samples(dims: int | Sequence[int], gauges: Array) -> float:
    """max_m D_m γ_m⁴ ∏ γ^{-2}: λ²N between the extremes, logs and constants left out (Corollary cor-equal-dim).

    ``dims`` are those of all modes, or one d for all of them (even order), in which case this is d² max γ⁴ ∏ γ^{-2}.
    At odd order it is what the printed schedule takes: the vector block's turn has the max, d^{k̄-1}.
    """
    if isinstance(dims, int):
        dims = (dims,) * (2 * len(gauges))
    sizes = np.array(Partition.pairs(tuple(dims)).sizes, dtype=np.float64)
    return float(np.max(sizes * gauges**4) * np.prod(gauges**-2.0))


def least_samples(dims: Sequence[int], correlations: Sequence[float] | Array, c0: float = 1.0) -> float:
    """λ²N of Corollary cor-equal-dim: the smaller of the form of the correlations and that of none (Case II).

    ``correlations`` has one number for every block.
    """
    none = [0.0] * len(Partition.pairs(tuple(dims)))
    return min(adaptive_samples(tuple(dims), gauge(dims, inside, c0)) for inside in (correlations, none))


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


def limit_threshold(order: int) -> float:
    """√((k̄−1)^{k̄−1}/(k̄ (k̄−2)^{k̄−2})), 2/√3 at order 3: the least β = λ√N/√(k̄d) of a best fit at the signal.

    Every contraction with unit vectors of overlap q leaves the signal ρ = λ√N q^{k̄−1} in noise of d entries, so that
    q² = ρ²/(ρ² + d): u^{k̄−2}(1 − u) = 1/(k̄β²) with u = q², which has a solution from there on.  Seddik, Guillaud and
    Couillet (2022) for random tensors; the same as the fixed point of the state evolution.
    """
    return math.sqrt((order - 1) ** (order - 1) / (order * (order - 2) ** (order - 2)))
