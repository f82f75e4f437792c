r"""Tensor power iteration from random starts; the best by its value wins.

.. math:: u_n^{t+1} = \mathrm{unit}\big(\bar T \text{ contracted with all } u_i^t, i \ne n\big)
          \quad\text{for all modes at once}, \qquad
          R^t = \langle \bar T, u_1^t \otimes \dots \otimes u_{\bar k}^t\rangle .

From a random start the overlaps are about d^{-1/2} each, so that the signal wins over the noise of a contraction only
if λ√N / σ exceeds about d^{(k̄-1)/2}: far more than a spectral start needs (Y. Wu, K. Zhou, *Sharp analysis of power
iteration for tensor PCA*, JMLR 2024).

Symbols: ``replicas[n]`` holds u_n of all ``restarts`` starts as rows.

References: A. Anandkumar, R. Ge, D. Hsu, S. Kakade, M. Telgarsky, *Tensor decompositions for learning latent variable
models*, JMLR 2014, Algorithm 1 (random restarts); J. Huang, D. Huang, Q. Yang, G. Cheng, *Power iteration for tensor
PCA*, JMLR 2022 (asymmetric).
Different on purpose: of two iterations that alternate (simultaneous updates may), the better is kept, since vectors and
value of the best iteration of each start are what is returned.

State: the mean and four sets of vectors per start; with ``method="passes"`` no mean, and a pass over the data for every
iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.all_samples import AllSamples
from research.baselines.baseline import Baseline, one_of
from tpca.errors import check_integer
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import option
from tpca.solvers.rank_one import units
from tpca.tensors import Query

MOVE_TOL = 1e-14  # squared change of a unit vector, up to sign, at which a start has converged; rounding leaves 1e-16


@dataclass(kw_only=True, eq=False)
class PowerIteration(Baseline):
    """Tensor power iteration on the mean, all modes at once, from random starts.

    Parameters
    ----------
    restarts
        Random starts, all run at once.
    max_iterations
        Most iterations; it ends earlier when all starts stand still.
    method
        ``"mean"`` holds the mean, ``"passes"`` reads a re-readable source once per iteration instead.
    """

    restarts: int = option(10, check_integer)
    max_iterations: int = option(100, check_integer)
    method: str = option("mean", one_of("mean", "passes"))

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        samples = AllSamples(source, self.max_samples, hold=self.method == "mean")
        rng = generator(self.random_state, "power iteration")
        replicas = [units(rng.standard_normal((self.restarts, d))) for d in samples.dims]
        best = [block.copy() for block in replicas]
        values, history = np.zeros(self.restarts), []
        for iteration in range(self.max_iterations):
            (answer,) = samples.ask(Query(samples.singles, tuple(replicas)))
            samples.note(*replicas, *best, working=2 * answer.nbytes)
            better = np.abs(answer.rewards) > np.abs(values)
            values = np.where(better, answer.rewards, values)
            for kept, block in zip(best, replicas, strict=True):
                kept[better] = block[better]
            moved = 0.0
            for n, block in enumerate(replicas):
                replicas[n] = units(answer.gradients[n])
                moved = max(moved, float(np.max(2 - 2 * np.abs(np.einsum("ri,ri->r", block, replicas[n])))))
            history.append({"iteration": iteration, "value": float(np.abs(values).max()), "moved": moved})
            if moved < MOVE_TOL:
                break
        winner = int(np.argmax(np.abs(values)))
        return samples.recovery([block[winner].copy() for block in best], float(values[winner]), history)
