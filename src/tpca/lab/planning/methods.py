r"""Every method: what it is for, what it holds, and the form of the samples it needs.

Samples are :math:`N = C \cdot form \cdot \sigma^2/\lambda^2` for success in half of all runs, C from constants.json:

====================================  ========================================================================
mean, ALS, AMP, unfoldings, Oja       √∏d, which is d^{k̄/2}: the threshold of the balanced unfolding
                                      (Oja: times (ln √D)²/4, D entries in a block)
power iteration, vectors by SGD       ∏d / min d, which is d^{k̄-1}: starts overlap by d^{-1/2} (Ben Arous et al. 2021)
paper's matrices                      max_m D_m γ_m⁴ ∏ γ^{-2}, γ by :func:`tpca.model.bounds.gauge`: d^{k̄-2}
                                      without correlation, d^{k̄/2} with equal vectors (Corollary cor-equal-dim)
equal vectors (traces, one matrix)    d^{k̄/2} with d² of state
====================================  ========================================================================

State is in floats of 64 bits, as the methods' own files count it; tests hold the formulas to what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpca.lab.planning.problem import Problem
from tpca.model.bounds import gauge
from tpca.solvers.mean.memory import GROUPS, mean_bytes
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS
from tpca.tensors.blocks import Partition

Formula = Callable[[Problem], float]
RESTARTS = 10


def root(problem: Problem) -> float:
    """√∏d."""
    return problem.unit


def vectors(problem: Problem) -> float:
    """∏d / min d."""
    return problem.entries / min(problem.dims)


def matrices(problem: Problem) -> float:
    """max_m D_m γ_m⁴ ∏ γ^{-2} with c_0 = 1."""
    correlation = 1.0 if problem.equal else (problem.correlation or 0.0)
    partition = Partition.pairs(problem.dims)
    inside = [correlation if len(group) == 2 else 0.0 for group in partition.groups]
    gauges, sizes = gauge(problem.dims, inside, 1.0), np.array(partition.sizes, dtype=np.float64)
    return float(np.max(sizes * gauges**4) * np.prod(gauges**-2.0))


def pairings(order: int) -> int:
    """Ways to pair the modes, one left over at odd order: (k̄-1)!! or k̄!!."""
    return math.prod(range(order - 1 if order % 2 == 0 else order, 0, -2))


def held_mean(problem: Problem) -> float:
    """The mean, and a singular pair of its unfolding or the work of a sweep."""
    small, large = problem.halves
    held = 3 * small if small <= DENSE_ROWS else 2 * LANCZOS + 8  # vectors of the shorter side, for a singular pair
    return problem.entries + max(held * small + small + large, 2 * problem.entries / min(problem.dims))


def _starts(problem: Problem) -> float:
    """Four sets of vectors for every start."""
    return 4.0 * RESTARTS * sum(problem.dims)


def _traces(problem: Problem) -> float:
    """A matrix for every pairing and pair; the identity, the sum, its mean and the eigenvectors."""
    return (pairings(problem.order) * (problem.order // 2) + 4) * problem.dims[0] ** 2


def _homotopy(problem: Problem) -> float:
    d, order = problem.dims[0], problem.order
    return _traces(problem) if order % 2 == 0 else d * d + (pairings(order) + 3) * d


@dataclass(frozen=True)
class Method:
    """A method; ``sequential`` ones take one sample a step and cannot share it among workers."""

    name: str
    title: str
    form: Formula
    state: Formula
    least_order: int = 2
    equal: bool = False
    """Whether it is for equal vectors only; ``even``: and for even orders."""
    even: bool = False
    passes: bool = False
    sequential: bool = False
    at_large: str = ""
    """Another method: at sizes beyond those measured this one needs no fewer samples than that one."""

    def obstacle(self, problem: Problem) -> str:
        """Why it is not for a problem, or nothing."""
        if problem.order < self.least_order:
            return f"needs order {self.least_order} or more"
        if self.equal and not problem.equal:
            return "only for equal vectors (--equal)"
        return f"needs an even order from {self.least_order}" if self.even and problem.order % 2 else ""

    def measured_as(self, order: int) -> str:
        """The name of its constant: up to order 4 recursive unfolding is unfolding."""
        return "unfolding" if self.name == "recursive-unfolding" and order <= 4 else self.name


METHODS: tuple[Method, ...] = (
    # Its many random starts help at small sizes only; at large ones its spectral start does the work.
    Method("mean", "mean (MeanSolver)", root, lambda p: mean_bytes(p.dims, GROUPS[-1]) / 8, at_large="als"),
    Method("als", "ALS, spectral start", root, held_mean),
    Method("amp", "AMP", root, held_mean, 3),
    Method("unfolding", "unfolding", root, held_mean),
    Method("recursive-unfolding", "recursive unfolding", root, held_mean),
    Method("power-iteration", "power iteration", vectors,
           lambda p: p.entries + 3 * RESTARTS * sum(p.halves) + _starts(p)),
    Method("tensorly", "TensorLy parafac", root, lambda p: 4.5 * p.entries),
    Method("pyttb", "pyttb cp_als", root, lambda p: 3.01 * p.entries),
    Method("unfolding-passes", "unfolding, many passes", root, lambda p: p.halves[0] + 4 * p.halves[1], passes=True),
    Method("power-passes", "power iteration, many passes", vectors, _starts, passes=True),
    Method("oja", "Oja on the unfolding", lambda p: p.unit * max(1.0, math.log(p.unit) ** 2 / 16),
           lambda p: 3.0 * sum(p.halves)),
    Method("vector-sgd", "vectors by online SGD", vectors, lambda p: 4.0 * sum(p.dims), sequential=True),
    Method("paper", "paper's matrices", matrices, lambda p: 2.0**p.order * sum(Partition.pairs(p.dims).sizes), 4,
           sequential=True),
    Method("partial-trace", "partial trace", root, _traces, 3, equal=True, passes=True),
    Method("homotopy-passes", "homotopy, many passes", root, _homotopy, 3, equal=True, passes=True),
    Method("matrix-sgd", "one matrix by SGD", root, lambda p: (p.order / 2 + 6) * p.dims[0] ** 2, 4, equal=True,
           even=True, sequential=True),
)  # fmt: skip
