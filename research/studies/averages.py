"""The mean of N samples as a source of its own: what methods that see nothing but the mean are run on.

Most published methods touch the data only through contractions of the mean of all samples.  To such a method the
mean, computed or drawn once, *is* the data: it may be read as often as it likes and says how many samples it stands
for.  Studies use it to run many methods on the very same samples at the cost of one pass.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from research.baselines import BASELINES
from tpca.engines import LocalEngine
from tpca.engines.base import A
from tpca.errors import StreamError
from tpca.labels import Labels
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.tensors import Gradients, TensorSum
from tpca.tensors.blocks import Array

# Baselines that see nothing but the mean, by the name under which studies run them, with their options.
MEAN_ONLY: dict[str, tuple[str, dict[str, Any]]] = {
    "als": ("ALS", {}), "amp": ("AMP", {}), "unfolding": ("Unfolding", {}),
    "recursive-unfolding": ("RecursiveUnfolding", {}), "power-iteration": ("PowerIteration", {}),
    "tensorly": ("TensorLyParafac", {}), "pyttb": ("PyttbCpAls", {}), "partial-trace": ("PartialTrace", {}),
    "unfolding-passes": ("Unfolding", {"method": "power", "tol": 0.01}), "homotopy": ("Homotopy", {}),
    "power-passes": ("PowerIteration", {"method": "passes"}), "homotopy-passes": ("Homotopy", {"method": "passes"}),
}  # fmt: skip


def installed(name: str) -> bool:
    """Whether the package that a method belongs to is there."""
    return name not in ("tensorly", "pyttb") or find_spec(name) is not None


def run_on_mean(name: str, average: AverageEngine, seed: int) -> Recovery:
    """A baseline on the mean of samples."""
    baseline, options = MEAN_ONLY[name]
    recovery: Recovery = BASELINES[baseline](random_state=seed, **options).run(average)
    return recovery


class AverageEngine:
    """Gives all N samples at once, in any number of passes; anything less than a pass is refused."""

    labels: Labels | None = None
    like = stops_within = None

    def __init__(self, mean: Array, n: int, identity: str = "mean") -> None:
        self._mean = mean
        self._n = n
        self._read = False
        self.identity = f"{identity} of {n} samples"
        self.length = n
        self.buffer_bytes = self.n_skipped = 0
        self.rereadable, self.whole, self.endless, self.constant = True, True, False, False
        self.partial = False

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._mean.shape

    def rewind(self) -> None:
        """Start another pass."""
        self._read = False

    def keep(self) -> None:
        """Nothing is read that could change."""

    check_unchanged = keep

    def position(self) -> dict[str, Any]:
        """At the start of a pass or at its end."""
        return {"read": self._read}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from there."""
        self._read = bool(position["read"])

    def reduce(self, blank: A, n: int | None = None) -> A:
        """All samples at once; single ones are gone."""
        part = blank.fresh()
        if self._read:
            return part
        if n is not None and n < self._n:
            raise StreamError(f"a mean of {self._n} samples cannot answer for {n} of them; use the samples.")
        if not isinstance(part, TensorSum | Gradients):
            raise StreamError(f"a mean of {self._n} samples has no single ones left; use the samples.")
        self._read = True
        part.add_mean(self._mean.copy(), self._n)  # methods may work in what they are given
        part.finish()
        return part


def drawn_average(truth: SpikedTensor, n: int, seed: int) -> AverageEngine:
    """The mean of n Gaussian samples from its exact law: λ v₁ ⊗ … + N(0, 1/n)."""
    mean: Array = generator(seed, "average").standard_normal(truth.dims)
    mean /= math.sqrt(n)
    mean += truth.signal()
    average = AverageEngine(mean, n, f"law {truth.dims} seed {seed}")
    average.buffer_bytes = mean.nbytes
    return average


def averaged(source: Any, n: int) -> AverageEngine:
    """The mean of the first n samples of a source, never holding more than one batch and the sum."""
    engine = LocalEngine(source)
    part = engine.reduce(TensorSum(), n)
    average = AverageEngine(np.asarray(part.total, dtype=np.float64) / part.n, part.n)
    average.buffer_bytes = engine.buffer_bytes
    return average
