r"""Every method: what it is for, what it holds, and the form of the samples it needs.

Samples are :math:`N = C \cdot form \cdot \sigma^2/\lambda^2` for success in half of all runs, C from constants.json:

====================================  ========================================================================
mean, ALS, AMP, unfoldings, Oja       √∏d, which is d^{k̄/2}: the threshold of the balanced unfolding
                                      (Oja: times (ln √D)²/4, D entries in a block)
power iteration, vectors by SGD       ∏d / min d, which is d^{k̄-1}: starts overlap by d^{-1/2} (Ben Arous et al. 2021)
paper's matrices                      :func:`tpca.model.bounds.least_samples`: d^{k̄-2} without correlation, d^{k̄/2}
                                      with equal vectors (d^{(k̄+1)/2} at odd order), the smaller of both between
equal vectors (traces, one matrix)    d^{k̄/2} with d² of state
====================================  ========================================================================

State is in floats of 64 bits, as the methods' own files count it; tests hold the formulas to what is measured.

**The race** at a given memory, without building it (:func:`race_size`): its main strategy, its size, and its needs.
The same decisions as :func:`tpca.solvers.race.strategies.choice.strategies_within`, from the same formulas.  In units
of √∏d the race needs

.. math:: C = C_{whole}, \qquad C_{whole} + \frac{b}{r}, \qquad C_{whole} + c_{\bar k}\Big(\frac{d}{R}\Big)^{0.65}

for the sum of all samples, a flow of r columns, and R small replicas: the forms and constants of
:mod:`tpca.solvers.race.limits`, measured for a signal that is proven in 95 % of runs.  What recovers it in half of all
runs is a constant share of that (``race`` in constants.json).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass

from tpca.lab.planning.problem import Problem
from tpca.model.bounds import least_samples
from tpca.solvers.mean.memory import groups_needed, mean_bytes
from tpca.solvers.race import limits
from tpca.solvers.race.strategies.choice import (
    FLOW_COLUMNS,
    STRUCTURE_SHARE,
    candidate_floats,
    least_bytes,
    refinement_floats,
)
from tpca.solvers.race.strategies.flow import state_floats
from tpca.solvers.race.strategies.singles import singles_floats
from tpca.solvers.race.strategies.symmetric import symmetric_floats, symmetric_pairs_floats
from tpca.solvers.race.strategies.whole import room_within, whole_floats
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
    """The corollary's min with c_0 = 1; at odd order with the vector block idle in Phase I."""
    return least_samples(problem.dims, [0.0] * (problem.order % 2) + list(problem.inside_pairs))


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
    symmetric: bool = False
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
        if self.symmetric and not problem.symmetric:
            return "only for equal vectors (--symmetric)"
        return f"needs an even order from {self.least_order}" if self.even and problem.order % 2 else ""

    def measured_as(self, order: int) -> str:
        """The name of its constant: up to order 4 recursive unfolding is unfolding."""
        return "unfolding" if self.name == "recursive-unfolding" and order <= 4 else self.name


METHODS: tuple[Method, ...] = (
    # Its many random starts help at small sizes only; at large ones its spectral start does the work.
    Method("mean", "mean (MeanSolver)", root, lambda p: mean_bytes(p.dims, groups_needed(0.95)) / 8, at_large="als"),
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
    Method("partial-trace", "partial trace", root, _traces, 3, symmetric=True, passes=True),
    Method("homotopy-passes", "homotopy, many passes", root, _homotopy, 3, symmetric=True, passes=True),
    Method("matrix-sgd", "one matrix by SGD", root, lambda p: (p.order / 2 + 6) * p.dims[0] ** 2, 4, symmetric=True,
           even=True, sequential=True),
)  # fmt: skip


@dataclass(frozen=True)
class RaceSize:
    """The main strategy, its columns or replicas, the floats that all take, and whether *symmetric* joins."""

    strategy: str
    count: int
    floats: float
    symmetric: bool

    def form(self, dims: tuple[int, ...]) -> float:
        """C: what the race needs, in units of √∏d."""
        if self.strategy == "whole":
            return limits.WHOLE
        if self.strategy == "flow":
            return limits.WHOLE + limits.PER_COLUMN / self.count
        each = limits.SINGLES.get(len(dims), 30.0 * 2.5 ** (len(dims) - 6))
        return float(limits.WHOLE + each * (max(dims) / self.count) ** limits.SHARE)

    @property
    def text(self) -> str:
        """The strategy in words."""
        return {"whole": "the sum of all samples", "flow": f"{self.count} columns"}.get(
            self.strategy, f"{self.count} small replicas"
        )


def race_size(dims: tuple[int, ...], nbytes: float) -> RaceSize | None:
    """The race within ``nbytes``; ``None`` if not even the smallest fits."""
    if nbytes < 8 * refinement_floats(dims):
        return None
    own = candidate_floats(dims)
    left, most = nbytes / 8 - own, STRUCTURE_SHARE * nbytes / 8 - own
    symmetric = False
    if len(dims) >= 3 and len(set(dims)) == 1:
        fitting = [a for a in range(1, 16) if symmetric_floats(dims, a) <= most]
        if fitting:
            symmetric, left = True, left - symmetric_floats(dims, max(fitting)) - own
    if len(dims) >= 4 and symmetric_pairs_floats(dims) <= most:
        left -= symmetric_pairs_floats(dims) + own
    taken = nbytes / 8 - left
    halves = Partition.halves(dims)
    if (room := room_within(halves, left)) is not None:
        return RaceSize("whole", halves.sizes[0], taken + whole_floats(halves, room), symmetric)
    rows = range(1, min(halves.sizes[0], int(max(left, 0))) + 1)
    columns = bisect.bisect_right(rows, left, key=lambda r: state_floats(halves, r))  # as many as fit
    if columns >= min(FLOW_COLUMNS if len(dims) >= 5 else 1, halves.sizes[0]):
        return RaceSize("flow", columns, taken + state_floats(halves, columns), symmetric)
    if len(dims) >= 5:
        fixed, one = singles_floats(dims, 0), singles_floats(dims, 1)
        count = int((left - fixed) / (one - fixed))
        if count >= 1:
            return RaceSize("singles", count, taken + singles_floats(dims, count), symmetric)
    return None


def least_race_bytes(dims: tuple[int, ...]) -> float:
    """The least memory in which the race runs."""
    return least_bytes(dims, None)
