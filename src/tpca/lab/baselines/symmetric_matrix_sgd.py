r"""Over-parameterised gradient ascent for the symmetric model, even order: one matrix W for all pairs of modes.

.. math::
    R_t(W) = \langle W^{\otimes \bar k/2}, T_t\rangle, \qquad
    W \leftarrow \mathrm{unit}\big(W + \eta_t (R_t W + G_t)\big), \qquad
    G_t = \frac{2}{\bar k} \sum_m \mathrm{sym}\,\nabla_m R_t ,

from :math:`W_0 = I/\sqrt d`; ∇_m R is the sample contracted with W in all pairs but m.  The identity has overlap
:math:`d^{-1/2}` with every v vᵀ, known to point the right way, so that d^{k̄/2}/λ² samples (up to logarithms) are
enough where vectors need d^{k̄-1}.  At the end v̂ is the leading eigenvector of W.

Step sizes are those of :mod:`tpca.lab.baselines.one_pass` with D = d² and a = d^{-1/2}: η = 2cλ d^{-(k̄/2-2)/2 - 2}.

Symbols: ``strength`` is λ/σ, ``fraction`` c, ``block`` W (as the one row of a replica array).

Reference: Ding et al., *Near-optimal tensor PCA via normalized stochastic gradient ascent with
overparameterization*, 2025 (NSGA, even k).
Different on purpose: gradients are symmetrised and averaged over the pairs, for noise need not be symmetric; the
step falls like 1/t at the end instead of in stages; σ is estimated, so that the data's scale is free.  The strength
must be positive, as in their model.

State: W, the k̄/2 gradients of a step, and working copies of W: O(d²).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.errors import ModelError
from tpca.integers import check_integer
from tpca.lab.baselines.one_pass import OnePass, StepSizes
from tpca.lab.baselines.options import check_equal_dims, check_order, check_positive
from tpca.solvers.options import check_max_samples
from tpca.solvers.paper.step import ascent_step, normalise
from tpca.solvers.race.strategies.scores import NoiseLevel
from tpca.solvers.race.strategies.symmetric import symmetrised
from tpca.solvers.rank_one import leading
from tpca.solvers.recovery import Recovery
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit


class SymmetricMatrixSGD:
    """Online normalised gradient ascent on one matrix, shared by all pairs of modes.

    Parameters
    ----------
    strength
        The λ/σ that the step size is made for.
    step_size
        A constant η of your own, in units of 1/σ, instead.
    fraction
        c: the first step in units of the largest one that lets the overlap grow.
    batch_size
        Samples per step, of ``batch_size`` times the size: the published method has 1; more is faster.
    seed
        Not used: the method has nothing random.
    max_samples
        Use no more than this many; needed for samples that never end.
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        step_size: float | None = None,
        fraction: float = 0.5,
        batch_size: int = 1,
        random_state: int = 0,
        max_samples: int | None = None,
    ) -> None:
        self.strength = check_positive("strength", strength)
        self.step_size = None if step_size is None else check_positive("step_size", step_size)
        self.fraction = check_positive("fraction", fraction)
        self.batch_size = check_integer("batch_size", batch_size)
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

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
        check_order("SymmetricMatrixSGD", dims, 4)
        if len(dims) % 2:
            raise ModelError(
                f"SymmetricMatrixSGD needs an even order, got {len(dims)} (dims {dims}); use Homotopy or RaceSolver."
            )
        check_equal_dims("SymmetricMatrixSGD", dims)
        d, blocks = dims[0], len(dims) // 2
        return StepSizes.from_start(self.strength, d ** (-(blocks - 2) / 2), d * d, self.fraction)
