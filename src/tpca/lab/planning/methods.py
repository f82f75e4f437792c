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


def oja_form(problem: Problem) -> float:
    """√∏d (ln √D)²/4."""
    return problem.unit * max(1.0, math.log(problem.unit) ** 2 / 16)


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


def _mean_state(problem: Problem) -> float:
    return mean_bytes(problem.dims, GROUPS[-1]) / 8


def _two_blocks(problem: Problem) -> float:
    small, large = problem.halves
    return small + 4 * large


def _oja_state(problem: Problem) -> float:
    return 3.0 * sum(problem.halves)


def _starts(problem: Problem) -> float:
    return 4.0 * RESTARTS * sum(problem.dims)


def _held_starts(problem: Problem) -> float:
    return problem.entries + 3 * RESTARTS * sum(problem.halves) + _starts(problem)


def _trace_state(problem: Problem) -> float:
    return (pairings(problem.order) * (problem.order // 2) + 4) * problem.dims[0] ** 2


def _homotopy_state(problem: Problem) -> float:
    d, order = problem.dims[0], problem.order
    return _trace_state(problem) if order % 2 == 0 else d * d + (pairings(order) + 3) * d


def _matrix_state(problem: Problem) -> float:
    return (problem.order / 2 + 6) * problem.dims[0] ** 2


def _paper_state(problem: Problem) -> float:
    return 2.0**problem.order * sum(Partition.pairs(problem.dims).sizes)


def _always(problem: Problem) -> str:  # noqa: ARG001
    return ""


def _order_three(problem: Problem) -> str:
    return "" if problem.order >= 3 else "needs order 3 or more"


def _order_four(problem: Problem) -> str:
    return "" if problem.order >= 4 else "the theory starts at order 4"


def _equal(problem: Problem) -> str:
    return _order_three(problem) or ("" if problem.equal else "only for equal vectors (--equal)")


def _equal_even(problem: Problem) -> str:
    return _equal(problem) or ("" if problem.order % 2 == 0 and problem.order >= 4 else "needs an even order from 4")


@dataclass(frozen=True)
class Method:
    """A method; ``sequential`` ones take one sample a step and cannot share it among workers."""

    name: str
    title: str
    form: Formula
    state: Formula
    applies: Callable[[Problem], str] = _always
    passes: bool = False
    sequential: bool = False
    at_large: str = ""
    """Another method: at sizes beyond those measured this one needs no fewer samples than that one."""

    def measured_as(self, order: int) -> str:
        """The name of its constant: up to order 4 recursive unfolding is unfolding."""
        return "unfolding" if self.name == "recursive-unfolding" and order <= 4 else self.name


METHODS: tuple[Method, ...] = (
    # Its many random starts help at small sizes only; at large ones its spectral start does the work.
    Method("mean", "mean (MeanSolver)", root, _mean_state, at_large="als"),
    Method("als", "ALS, spectral start", root, held_mean),
    Method("amp", "AMP", root, held_mean, _order_three),
    Method("unfolding", "unfolding", root, held_mean),
    Method("recursive-unfolding", "recursive unfolding", root, held_mean),
    Method("power-iteration", "power iteration", vectors, _held_starts),
    Method("tensorly", "TensorLy parafac", root, lambda p: 4.5 * p.entries),
    Method("pyttb", "pyttb cp_als", root, lambda p: 3.01 * p.entries),
    Method("unfolding-passes", "unfolding, many passes", root, _two_blocks, passes=True),
    Method("power-passes", "power iteration, many passes", vectors, _starts, passes=True),
    Method("oja", "Oja on the unfolding", oja_form, _oja_state),
    Method("vector-sgd", "vectors by online SGD", vectors, lambda p: 4.0 * sum(p.dims), sequential=True),
    Method("paper", "paper's matrices", matrices, _paper_state, _order_four, sequential=True),
    Method("partial-trace", "partial trace", root, _trace_state, _equal, passes=True),
    Method("homotopy-passes", "homotopy, many passes", root, _homotopy_state, _equal, passes=True),
    Method("matrix-sgd", "one matrix by SGD", root, _matrix_state, _equal_even, sequential=True),
)
