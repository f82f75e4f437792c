"""Every published method: what it is for, what it holds, and how it is run.

State is in floats of 64 bits, as the methods' own files count it; tests hold the formulas to what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import tpca.planning
from research.baselines import BASELINES
from tpca.errors import ModelError
from tpca.inference.design import Design
from tpca.solvers.estimate import Estimate
from tpca.solvers.least_squares.solver import LEAST_BINS, held_bytes
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS
from tpca.tensors.blocks import Partition

RESTARTS = 10  # of the power iteration


@dataclass(frozen=True)
class Problem(tpca.planning.Problem):
    """And what other methods make use of: the correlation inside pairs, and whether all vectors are the same.

    The correlation is one number, or one for every pair, that of the shortest modes first.
    """

    correlation: float | tuple[float, ...] | None = None
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0.0 <= each <= 1.0 for each in self.inside_pairs) or len(self.inside_pairs) != self.order // 2:
            raise ModelError(
                f"correlation must be a number between 0 and 1, or one for each of {self.order // 2} pairs, "
                f"got {self.correlation}."
            )
        if self.symmetric and (self.correlation not in (None, 1.0) or len(set(self.dims)) > 1):
            raise ModelError(f"equal vectors need equal dims and no correlation, got {self.dims}, {self.correlation}.")

    @property
    def inside_pairs(self) -> tuple[float, ...]:
        """Cor of every pair of the paper's blocks; 0 where it is not known."""
        if isinstance(self.correlation, tuple):
            return self.correlation
        return (1.0 if self.symmetric else (self.correlation or 0.0),) * (self.order // 2)

    @property
    def halves(self) -> tuple[int, int]:
        """Entries of the two blocks of the balanced unfolding, the smaller first."""
        small, large = sorted(Partition.halves(self.dims).sizes)
        return small, large


Formula = Callable[[Problem], float]


def held_mean(problem: Problem) -> float:
    """The mean, and a singular pair of its unfolding or the work of a sweep."""
    small, large = problem.halves
    held = 3 * small if small <= DENSE_ROWS else 2 * LANCZOS + 8  # vectors of the shorter side, for a singular pair
    return problem.entries + max(held * small + small + large, 2 * problem.entries / min(problem.dims))


@dataclass(frozen=True)
class Method:
    """A method: the floats that it holds, and the baseline that runs it, if it is one.

    ``sees`` says what the baseline is given: the ``"mean"`` of all samples, or ``"samples"`` in order.  ``step`` is
    where the study of memory begins its ladder of N.
    """

    name: str
    title: str
    state: Formula
    baseline: str = ""
    sees: str = "mean"
    step: int = 0
    least_order: int = 2
    symmetric: bool = False
    """Whether it is for equal vectors only; ``even``: and for even orders."""
    even: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def obstacle(self, problem: Problem) -> str:
        """Why it is not for a problem, or nothing."""
        if problem.order < self.least_order:
            return f"needs order {self.least_order} or more"
        if self.symmetric and not problem.symmetric:
            return "only for equal vectors (--symmetric)"
        if self.even and problem.order % 2:
            return f"needs an even order from {self.least_order}"
        missing = self.name in ("tensorly", "pyttb") and find_spec(self.name) is None
        return "not installed: pip install 'tpca[peers]'" if missing else ""

    def run(self, source: Any, seed: int, **options: Any) -> Estimate:
        """The baseline on a source."""
        estimate: Estimate = BASELINES[self.baseline](random_state=seed, **self.options, **options).run(source)
        return estimate


_EVERY = (
    Method("mean", "least squares", lambda p: held_bytes(p.dims, LEAST_BINS, Design()) / 8, step=-1),
    Method("als", "ALS, spectral start", held_mean, "ALS"),
    Method("amp", "AMP", held_mean, "AMP", least_order=3),
    Method("unfolding", "unfolding", held_mean, "Unfolding", step=1),
    Method("power-iteration", "power iteration",
           lambda p: p.entries + RESTARTS * (3 * sum(p.halves) + 4 * sum(p.dims)), "PowerIteration", step=-5),
    Method("tensorly", "TensorLy parafac", lambda p: 4.5 * p.entries, "TensorLyParafac", step=1),
    Method("pyttb", "pyttb cp_als", lambda p: 3.01 * p.entries, "PyttbCpAls", step=1),
    Method("unfolding-passes", "unfolding, many passes", lambda p: p.halves[0] + 4 * p.halves[1], "Unfolding",
           step=1, options={"method": "power", "tol": 0.01}),
    Method("vector-sgd", "vectors by online SGD", lambda p: 4.0 * sum(p.dims), "VectorSGD", "samples", 2),
    Method("paper", "paper's matrices", lambda p: 2.0**p.order * sum(Partition.pairs(p.dims).sizes),
           step=-4, least_order=4),
    Method("matrix-sgd", "one matrix by SGD", lambda p: (p.order / 2 + 6) * p.dims[0] ** 2, "SymmetricMatrixSGD",
           "samples", least_order=4, symmetric=True, even=True),
)  # fmt: skip
METHODS: dict[str, Method] = {method.name: method for method in _EVERY}
