r"""Alternating least squares for one component, which is higher-order orthogonal iteration for rank one.

The best rank-one approximation of the mean maximises
:math:`\langle \bar T, u_1 \otimes \dots \otimes u_{\bar k}\rangle` over unit vectors.  One sweep sets every mode to its
best value given the others:

.. math:: u_n \leftarrow \mathrm{unit}\big(\bar T \text{ contracted with all } u_i, i \ne n\big),
          \qquad n = 1, \dots, \bar k .

``init="spectral"`` starts from the balanced unfolding (:class:`~research.baselines.RecursiveUnfolding`), ``"random"``
runs from ``restarts`` random starts and keeps the one with the largest value, a tuple of vectors is a start of your
own.

The maximiser's overlaps q_n tend to the largest fixed point of the state evolution of :mod:`research.baselines.amp`, as
long as β = λ√N / (σ√Σd) is large enough for it to be the signal's (M. Seddik, M. Guillaud, R. Couillet, *When random
tensors meet random matrices*, 2022).

References: L. De Lathauwer, B. De Moor, J. Vandewalle, *On the best rank-1 and rank-(R1, …, RN) approximation*, SIAM J.
Matrix Anal. Appl. 2000, the higher-order power method; spectral start for CP by ALS: R. Tang, J. Chhor, O. Klopp, A.
Zhang, *Revisit CP tensor decomposition: statistical optimality and fast convergence*, 2025.
Different on purpose: the start is the balanced unfolding rather than the leading vector of each mode's own unfolding:
it needs λ²N ≳ √∏d instead of about ∏d / d_n at orders beyond 3.

State: the mean, the vectors, and for the spectral start what that holds.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.all_samples import AllSamples
from research.baselines.baseline import Baseline, Start, check_start
from research.baselines.unfolding import spectral_vectors, split_recursively
from tpca.errors import SolverError, check_integer
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import check_positive, option
from tpca.solvers.rank_one import along, alternate
from tpca.tensors.blocks import Array, unit


@dataclass(kw_only=True, eq=False)
class ALS(Baseline):
    """Best rank-one approximation of the mean by alternating updates.

    Parameters
    ----------
    init
        ``"spectral"``, ``"random"``, or one start vector per mode.
    restarts
        Random starts; one start of the other kinds is enough, for it is always the same.
    max_iterations, tol
        Most sweeps from a start, and the relative gain of a sweep at which to stop.
    """

    init: Start = option("spectral", check_start)
    restarts: int = option(10, check_integer)
    max_iterations: int = option(500, check_integer)
    tol: float = option(1e-13, check_positive)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        samples = AllSamples(source, self.max_samples)
        rng = generator(self.random_state, "als")
        best: list[Array] = []
        top, history = -math.inf, []
        for _ in range(self.restarts if self.init == "random" else 1):
            vectors, value, sweeps = self._climb(samples, start_vectors(samples, self.init, rng))
            samples.note(*vectors, *best)
            history.append({"sweeps": sweeps, "value": value})
            if value > top:
                best, top = vectors, value
        return samples.recovery(best, top, history)

    def _climb(self, samples: AllSamples, vectors: list[Array]) -> tuple[list[Array], float, int]:
        """Sweep until the value stands still: the vectors, their value, and the sweeps it took."""
        value, before, sweeps = 0.0, -math.inf, 0
        while sweeps < self.max_iterations and value - before > self.tol * value:
            before, sweeps = value, sweeps + 1
            vectors, norm = alternate(functools.partial(along, samples.mean), vectors, 1)
            value = float(norm)
        samples.note(*vectors, working=2 * samples.mean.nbytes // min(samples.dims[0], samples.dims[-1]))
        return vectors, value, sweeps


def start_vectors(samples: AllSamples, init: Start, rng: np.random.Generator) -> list[Array]:
    """Start vectors of the kind that ``init`` names."""
    if init == "spectral":
        return spectral_vectors(samples, rng, split_recursively)
    if init == "random":
        return [unit(rng.standard_normal(d)) for d in samples.dims]
    lengths = tuple(len(v) for v in init)
    if lengths != samples.dims:
        raise SolverError(f"init has vectors of lengths {lengths}, the samples need {samples.dims}; give one per mode.")
    return [np.array(v) for v in init]
