r"""Online stochastic gradient ascent in the exact parameterisation: one unit vector per mode, one sample per step.

.. math:: u_n \leftarrow \mathrm{unit}\big(u_n + \eta_t\,(I - u_n u_n^\top)\, g_n\big), \qquad
          g_n = T_t \text{ contracted with all } u_i, i \ne n,

for all modes at once, from random unit vectors.  Overlaps start at d^{-1/2}, so the step must be at most about
λ d^{-k̄/2} and escape takes about d^{k̄-1}/λ² samples: what the exact parameterisation costs.

.. math:: \eta = 2 c\, \lambda \prod_n d_n^{-1/2} \quad (\sigma = 1),

then 2/(λt) (:mod:`tpca.lab.baselines.one_pass`, with D = d_n and a_n = d_n^{-1/2}, where the bound is the same for all
modes).

Symbols: ``strength`` is λ/σ, ``fraction`` c; ``replicas[n]`` holds u_n of all starts as rows.

Reference: G. Ben Arous, R. Gheissari, A. Jagannath, *Online stochastic gradient descent on non-convex losses from
high-dimensional inference*, JMLR 2021, whose δ/N is η here and whose information exponent is k̄ for tensor PCA.
Different on purpose: vectors differ from mode to mode; every start runs twice, once with mode 0 negated, on the same
samples, because a start whose overlaps have a negative product only falls back to zero (the theorem is conditional on
the sign); the step falls at the end; the data's scale is free, with σ estimated from the gradients.

State: 2 · restarts · Σ d_n floats, and as much again for gradients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpca.integers import check_integer
from tpca.lab.baselines.one_pass import OnePass, StepSizes
from tpca.lab.baselines.options import check_positive
from tpca.randomness import generator
from tpca.solvers.options import check_max_samples
from tpca.solvers.race.strategies.scores import NoiseLevel
from tpca.solvers.rank_one import units
from tpca.solvers.recovery import Recovery
from tpca.tensors import Query


class VectorSGD:
    """Online normalised gradient ascent on one vector per mode.

    Parameters
    ----------
    strength
        The λ/σ that the step size is made for.
    step_size
        A constant η of your own, in units of 1/σ, instead.
    fraction
        c: the first step in units of the largest one that lets overlaps grow.
    restarts
        Random starts, all on the same samples; the one with the best rewards is returned.
    batch_size
        Samples per step, of ``batch_size`` times the size: the published method has 1; more is faster.
    max_samples
        Use no more than this many; needed for samples that never end.
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        step_size: float | None = None,
        fraction: float = 0.5,
        restarts: int = 1,
        batch_size: int = 1,
        random_state: int = 0,
        max_samples: int | None = None,
    ) -> None:
        self.strength = check_positive("strength", strength)
        self.step_size = None if step_size is None else check_positive("step_size", step_size)
        self.fraction = check_positive("fraction", fraction)
        self.restarts = check_integer("restarts", restarts)
        self.batch_size = check_integer("batch_size", batch_size)
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from one pass over ``source``."""
        samples = OnePass(source, self.max_samples)
        rng = generator(self.random_state, "vector sgd")
        replicas = [np.repeat(units(rng.standard_normal((self.restarts, d))), 2, axis=0) for d in samples.dims]
        replicas[0][1::2] *= -1
        steps, noise = self.steps(samples.dims), NoiseLevel()
        while (answer := samples.ask(Query(samples.singles, tuple(replicas)), self.batch_size)) is not None:
            noise.absorb(answer, samples.took)
            eta = self.step_size or steps.at(samples.n)
            for n, block in enumerate(replicas):
                tangent = answer.gradients[n] - answer.rewards[:, None] * block
                replicas[n] = units(block + eta * samples.took / noise.sigma * tangent)
        best = int(np.argmax(samples.mean_rewards))
        return samples.recovery([block[best].copy() for block in replicas], float(samples.mean_rewards[best]))

    def steps(self, dims: tuple[int, ...]) -> StepSizes:
        """The step sizes for samples of shape ``dims``: the longest mode's, all equal but for the time they hold."""
        longest = max(dims)
        gain = longest / math.sqrt(math.prod(dims))
        return StepSizes.from_start(self.strength, gain, longest, self.fraction)
