"""Numbers of the theory: sample complexities, errors, the Cramér–Rao limit, random-matrix limits of the best fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

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
    """√((k̄−1)^{k̄−1}/(k̄ (k̄−2)^{k̄−2})), 2/√3 at order 3: below it :func:`limit_alignment` has no solution.

    Seddik, Guillaud and Couillet (2022) for random tensors; the same as the fixed point of the state evolution.
    """
    return math.sqrt((order - 1) ** (order - 1) / (order * (order - 2) ** (order - 2)))


def limit_alignment(order: int, beta: float) -> float:
    """⟨v̂, v⟩ of the best rank-one fit near the signal as d grows, β = λ√N/√(k̄d): q² = u, u^{k̄−2}(1 − u) = 1/(k̄β²).

    Every contraction with unit vectors leaves the signal ρ = λ√N q^{k̄−1} in noise of d entries: q² = ρ²/(ρ² + d).
    """
    if beta < limit_threshold(order):
        return 0.0
    worst = (order - 2) / (order - 1)  # where the left side is largest
    u = brentq(lambda u: u ** (order - 2) * (1 - u) - 1 / (order * beta**2), worst, 1.0)
    return math.sqrt(u)


def noise_norm(order: int) -> float:
    """√k̄·E₀: best rank-one fit of N(0, 1) noise over √d, from the energy E₀ of the spherical k̄-spin glass.

    E₀ is where the complexity of minima vanishes, ½ log(p−1) − (p−2)/(4(p−1)) u² − I(u) = 0 with
    I(u) = u√(u²−e²)/e² − log(u + √(u²−e²)) + log e, e = 2√((p−1)/p) (Auffinger, Ben Arous and Černý 2013).
    """
    edge = 2 * math.sqrt((order - 1) / order)

    def complexity(u: float) -> float:
        root = math.sqrt(u * u - edge * edge)
        rate = u * root / edge**2 - math.log(u + root) + math.log(edge)
        return 0.5 * math.log(order - 1) - (order - 2) / (4 * (order - 1)) * u * u - rate

    return math.sqrt(order) * float(brentq(complexity, edge, 2 * edge))
