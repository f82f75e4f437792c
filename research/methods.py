"""Every published method: what it is for, what it holds, and how it is run.

State is in floats of 64 bits, as the methods' own files count it; tests hold the formulas to what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from research.baselines import BASELINES
from tpca.solvers.estimate import Estimate
from tpca.solvers.least_squares.plan import bytes_of_fewest_bins
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS
from tpca.tensors.blocks import Partition

RESTARTS = 10  # of the power iteration
Dims = tuple[int, ...]


def halves(dims: Dims) -> list[int]:
    """Entries of the two blocks of the balanced unfolding, the smaller first."""
    return sorted(Partition.halves(dims).sizes)


def held_mean(dims: Dims) -> float:
    """The mean, and a singular pair of its unfolding or the work of a sweep."""
    (small, large), entries = halves(dims), math.prod(dims)
    held = 3 * small if small <= DENSE_ROWS else 2 * LANCZOS + 8  # vectors of the shorter side, for a singular pair
    return entries + max(held * small + small + large, 2 * entries / min(dims))


@dataclass(frozen=True)
class Method:
    """A method: the floats that it holds, and the baseline that runs it, if it is one.

    ``sees`` says what the baseline is given: the ``"mean"`` of all samples, or ``"samples"`` in order.  ``step`` is
    where the study of memory begins its ladder of N.
    """

    name: str
    title: str
    state: Callable[[Dims], float]
    baseline: str = ""
    sees: str = "mean"
    step: int = 0
    least_order: int = 2
    symmetric: bool = False
    """Whether it is for equal vectors only; ``even``: and for even orders."""
    even: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def obstacle(self, dims: Dims, symmetric: bool = False) -> str:
        """Why it is not for samples of these dims, or nothing; ``symmetric``: all vectors are the same."""
        if len(dims) < self.least_order:
            return f"needs order {self.least_order} or more"
        if self.symmetric and not symmetric:
            return "only for equal vectors (--symmetric)"
        if self.even and len(dims) % 2:
            return f"needs an even order from {self.least_order}"
        missing = self.name in ("tensorly", "pyttb") and find_spec(self.name) is None
        return "not installed: pip install 'tpca[peers]'" if missing else ""

    def run(self, source: Any, seed: int, **options: Any) -> Estimate:
        """The baseline on a source."""
        estimate: Estimate = BASELINES[self.baseline](random_state=seed, **self.options, **options).run(source)
        return estimate


_EVERY = (
    Method("mean", "least squares", lambda d: bytes_of_fewest_bins(d) / 8, step=-1),
    Method("als", "ALS, spectral start", held_mean, "ALS"),
    Method("amp", "AMP", held_mean, "AMP", least_order=3),
    Method("unfolding", "unfolding", held_mean, "Unfolding", step=1),
    Method("power-iteration", "power iteration",
           lambda d: math.prod(d) + RESTARTS * (3 * sum(halves(d)) + 4 * sum(d)), "PowerIteration", step=-5),
    Method("tensorly", "TensorLy parafac", lambda d: 4.5 * math.prod(d), "TensorLyParafac", step=1),
    Method("pyttb", "pyttb cp_als", lambda d: 3.01 * math.prod(d), "PyttbCpAls", step=1),
    Method("unfolding-passes", "unfolding, many passes", lambda d: halves(d)[0] + 4 * halves(d)[1], "Unfolding",
           step=1, options={"method": "power", "tol": 0.01}),
    Method("vector-sgd", "vectors by online SGD", lambda d: 4.0 * sum(d), "VectorSGD", "samples", 2),
    Method("paper", "paper's matrices", lambda d: 2.0 ** len(d) * sum(Partition.pairs(d).sizes),
           step=-4, least_order=4),
    Method("matrix-sgd", "one matrix by SGD", lambda d: (len(d) / 2 + 6) * d[0] ** 2, "SymmetricMatrixSGD",
           "samples", least_order=4, symmetric=True, even=True),
)  # fmt: skip
METHODS: dict[str, Method] = {method.name: method for method in _EVERY}
