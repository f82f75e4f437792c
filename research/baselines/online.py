r"""Online methods: one pass, sample by sample.

**Vectors** (:class:`VectorSGD`), the exact parameterisation:

.. math:: u_n \leftarrow \mathrm{unit}\big(u_n + \eta_t\,(I - u_n u_n^\top)\, g_n\big), \qquad
          g_n = T_t \text{ contracted with all } u_i, i \ne n,

for all modes at once, from random unit vectors.  Overlaps start at d^{-1/2}, so the step must be at most about
λ d^{-k̄/2} and escape takes about d^{k̄-1}/λ² samples: what the exact parameterisation costs.  Step sizes are those of
:mod:`research.baselines.base` with D = d_n and a_n = d_n^{-1/2}, where the bound is the same for all modes.

**A matrix** (:class:`SymmetricMatrixSGD`) W for all pairs of modes of the symmetric model, even order,
over-parameterised:

.. math::
    R_t(W) = \langle W^{\otimes \bar k/2}, T_t\rangle, \qquad
    W \leftarrow \mathrm{unit}\big(W + \eta_t (R_t W + G_t)\big), \qquad
    G_t = \frac{2}{\bar k} \sum_m \mathrm{sym}\,\nabla_m R_t ,

from :math:`W_0 = I/\sqrt d`; ∇_m R is the sample contracted with W in all pairs but m.  The identity has overlap
:math:`d^{-1/2}` with every v vᵀ, known to point the right way, so that d^{k̄/2}/λ² samples (up to logarithms) are
enough where vectors need d^{k̄-1}.  At the end v̂ is the leading eigenvector of W.  Step sizes: D = d², a = d^{-1/2}.

Symbols: ``strength`` is λ/σ; ``replicas[n]`` holds u_n of both signs as rows, ``block`` W.

References: G. Ben Arous, R. Gheissari, A. Jagannath, *Online stochastic gradient descent on non-convex losses from
high-dimensional inference*, JMLR 2021, whose δ/N is η here and whose information exponent is k̄ for tensor PCA; Ding et
al., *Near-optimal tensor PCA via normalized stochastic gradient ascent with overparameterization*, 2025 (NSGA, even k).
Different on purpose: the step of SGD falls like 1/t at the end; the data's scale is free, with σ estimated from the
gradients.  Vectors differ from mode to mode; the start runs twice, once with mode 0 negated, on the same samples,
because a start whose overlaps have a negative product only falls back to zero (the theorem is conditional on the sign).
Gradients of W are symmetrised and averaged over the pairs, for noise need not be symmetric; the strength must be
positive, as in their model.

State: 4 Σ d_n floats, with gradients; W, the k̄/2 gradients of a step, and working copies of W: O(d²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.base import Baseline, OnePass, StepSizes, check_dims
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.paper.run import ascent_step, normalise
from tpca.solvers.rank_one import leading, units
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit


@dataclass(kw_only=True, eq=False)
class VectorSGD(Baseline):
    """Online normalised gradient ascent on one vector per mode.

    Parameters
    ----------
    strength
        The λ/σ that the step size is made for.
    step_size
        A constant η of your own, in units of 1/σ, instead.
    batch_size
        Samples per step, of ``batch_size`` times the size: the published method has 1; more is faster.
    """

    strength: float = 1.0
    step_size: float | None = None
    batch_size: int = 1

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from one pass over ``source``."""
        samples = OnePass(source, self.max_samples)
        rng = generator(self.random_state, "vector sgd")
        replicas = [np.repeat(units(rng.standard_normal((1, d))), 2, axis=0) for d in samples.dims]
        replicas[0][1] *= -1
        longest = max(samples.dims)
        steps = StepSizes.from_start(self.strength, longest / math.sqrt(math.prod(samples.dims)), longest)
        while (answer := samples.ask(Query(samples.singles, tuple(replicas)), self.batch_size)) is not None:
            eta = self.step_size or steps.at(samples.n)
            for n, block in enumerate(replicas):
                tangent = answer.gradients[n] - answer.rewards[:, None] * block
                replicas[n] = units(block + eta * samples.took / samples.sigma * tangent)
        best = int(np.argmax(samples.mean_rewards))
        return samples.estimate([block[best].copy() for block in replicas], float(samples.mean_rewards[best]))


@dataclass(kw_only=True, eq=False)
class SymmetricMatrixSGD(Baseline):
    """Online normalised gradient ascent on one matrix, shared by all pairs of modes.

    Parameters
    ----------
    strength, batch_size
        As in :class:`VectorSGD`.
    """

    strength: float = 1.0
    batch_size: int = 1

    def run(self, source: Any) -> Estimate:
        """Recover the vector of all modes from one pass over ``source``."""
        samples = OnePass(source, self.max_samples)
        check_dims("SymmetricMatrixSGD", samples.dims, 4, equal=True, even=True)
        pairs, d = Partition.pairs(samples.dims), samples.dims[0]
        steps = StepSizes.from_start(self.strength, d ** (-(len(pairs) - 2) / 2), d * d)
        block: Array = unit(np.eye(d))[None]
        while (answer := samples.ask(Query(pairs, (block,) * len(pairs)), self.batch_size)) is not None:
            gradient = sum(g[0] for g in answer.gradients.values()) / len(pairs)
            gradient = 0.5 * (gradient + gradient.T)
            samples.note(block, working=answer.nbytes + 5 * block.nbytes)
            eta = steps.at(samples.n) * samples.took / samples.sigma
            block = normalise(ascent_step(block, gradient[None], eta))
        _, (vector,) = leading(block[0])
        return samples.estimate([vector] * len(samples.dims), float(samples.mean_rewards[0]))
