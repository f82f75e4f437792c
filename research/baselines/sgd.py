r"""Online gradient ascent, one sample per step: on one vector per mode, and on one matrix for all pairs of modes.

**Vectors**, the exact parameterisation:

.. math:: u_n \leftarrow \mathrm{unit}\big(u_n + \eta_t\,(I - u_n u_n^\top)\, g_n\big), \qquad
          g_n = T_t \text{ contracted with all } u_i, i \ne n,

for all modes at once, from random unit vectors.  Overlaps start at d^{-1/2}, so the step must be at most about
λ d^{-k̄/2} and escape takes about d^{k̄-1}/λ² samples: what the exact parameterisation costs.

.. math:: \eta = 2 c\, \lambda \prod_n d_n^{-1/2} \quad (\sigma = 1),

then 2/(λt) (:mod:`research.baselines.one_pass`, with D = d_n and a_n = d_n^{-1/2}, where the bound is the same for all
modes).

**A matrix** W for all pairs of modes of the symmetric model, even order, over-parameterised:

.. math::
    R_t(W) = \langle W^{\otimes \bar k/2}, T_t\rangle, \qquad
    W \leftarrow \mathrm{unit}\big(W + \eta_t (R_t W + G_t)\big), \qquad
    G_t = \frac{2}{\bar k} \sum_m \mathrm{sym}\,\nabla_m R_t ,

from :math:`W_0 = I/\sqrt d`; ∇_m R is the sample contracted with W in all pairs but m.  The identity has overlap
:math:`d^{-1/2}` with every v vᵀ, known to point the right way, so that d^{k̄/2}/λ² samples (up to logarithms) are
enough where vectors need d^{k̄-1}.  At the end v̂ is the leading eigenvector of W.

Step sizes are those of :mod:`research.baselines.one_pass` with D = d² and a = d^{-1/2}: η = 2cλ d^{-(k̄/2-2)/2 - 2}.

Symbols: ``strength`` is λ/σ, ``fraction`` c; ``replicas[n]`` holds u_n of all starts as rows, ``block`` W (as the one
row of a replica array).

References: G. Ben Arous, R. Gheissari, A. Jagannath, *Online stochastic gradient descent on non-convex losses from
high-dimensional inference*, JMLR 2021, whose δ/N is η here and whose information exponent is k̄ for tensor PCA; Ding et
al., *Near-optimal tensor PCA via normalized stochastic gradient ascent with overparameterization*, 2025 (NSGA, even k).
Different on purpose: the step falls like 1/t at the end; the data's scale is free, with σ estimated from the gradients.
Vectors differ from mode to mode; every start runs twice, once with mode 0 negated, on the same samples, because a start
whose overlaps have a negative product only falls back to zero (the theorem is conditional on the sign).  Gradients of W
are symmetrised and averaged over the pairs, for noise need not be symmetric; the strength must be positive, as in their
model.

State: 2 · restarts · Σ d_n floats, and as much again for gradients; or W, the k̄/2 gradients of a step, and working
copies of W: O(d²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.baseline import Baseline, check_symmetric
from research.baselines.one_pass import OnePass, StepSizes
from tpca.errors import ModelError, check_integer
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import check_positive, option
from tpca.solvers.paper.step import ascent_step, normalise
from tpca.solvers.race.strategies.strategy import NoiseLevel
from tpca.solvers.race.strategies.symmetric import symmetrised
from tpca.solvers.rank_one import leading, units
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit


@dataclass(kw_only=True, eq=False)
class Online(Baseline):
    """Options of both.

    Parameters
    ----------
    strength
        The λ/σ that the step size is made for.
    step_size
        A constant η of your own, in units of 1/σ, instead.
    fraction
        c: the first step in units of the largest one that lets overlaps grow.
    batch_size
        Samples per step, of ``batch_size`` times the size: the published methods have 1; more is faster.
    """

    strength: float = option(1.0, check_positive)
    step_size: float | None = option(None, check_positive)
    fraction: float = option(0.5, check_positive)
    batch_size: int = option(1, check_integer)


@dataclass(kw_only=True, eq=False)
class VectorSGD(Online):
    """Online normalised gradient ascent on one vector per mode; options as :class:`Online`, and

    Parameters
    ----------
    restarts
        Random starts, all on the same samples; the one with the best rewards is returned.
    """

    restarts: int = option(1, check_integer)

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


@dataclass(kw_only=True, eq=False)
class SymmetricMatrixSGD(Online):
    """Online normalised gradient ascent on one matrix, shared by all pairs of modes; options as :class:`Online`."""

    def run(self, source: Any) -> Recovery:
        """Recover the vector of all modes from one pass over ``source``."""
        samples = OnePass(source, self.max_samples)
        steps, noise = self.steps(samples.dims), NoiseLevel()
        pairs = Partition.pairs(samples.dims)
        block: Array = unit(np.eye(samples.dims[0]))[None]
        while (answer := samples.ask(Query(pairs, (block,) * len(pairs)), self.batch_size)) is not None:
            noise.absorb(answer, samples.took)
            gradient = symmetrised(sum(g[0] for g in answer.gradients.values()) / len(pairs))
            eta = (self.step_size or steps.at(samples.n)) * samples.took / noise.sigma
            samples.note(block, working=answer.nbytes + 5 * block.nbytes)
            block = normalise(ascent_step(block, gradient[None], eta))
        _, (vector,) = leading(block[0])
        return samples.recovery([vector] * len(samples.dims), float(samples.mean_rewards[0]))

    def steps(self, dims: tuple[int, ...]) -> StepSizes:
        """The step sizes for samples of shape ``dims``, all equal and of even number."""
        check_symmetric("SymmetricMatrixSGD", dims, 4)
        if len(dims) % 2:
            raise ModelError(
                f"SymmetricMatrixSGD needs an even order, got {len(dims)} (dims {dims}); use Homotopy or RaceSolver."
            )
        d, blocks = dims[0], len(dims) // 2
        return StepSizes.from_start(self.strength, d ** (-(blocks - 2) / 2), d * d, self.fraction)
