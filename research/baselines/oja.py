r"""Oja's rule on the balanced unfolding: streaming power iteration, one pass, two vectors.

Samples are matrices M_t of D_A × D_B entries with signal λ a bᵀ (:mod:`research.baselines.unfolding`).  With unit u, w:

.. math:: u \leftarrow \mathrm{unit}(u + \eta_u M_t w), \qquad w \leftarrow \mathrm{unit}(w + \eta_w M_t^\top u),
          \qquad \eta_u = 1 / \Big\|\sum_{s \le t} M_s w_s\Big\|, \quad \eta_w \text{ likewise.}

That is, u is the direction of the sum of all :math:`M_s w_s`.  While the sum is noise its length is σ√(D_A t), the
largest step under which overlaps can grow; once it is signal its length is λt, Oja's classical 1/t.  So the step needs
neither λ nor σ nor an end.  About D (ln √D)² / 4λ² samples are needed before the first overlap, D = √(D_A D_B).
At the end u and w are split into the vectors of their modes.

Symbols: ``blocks`` is (u, w), ``lengths`` the norms of the sums; a step takes the mean of n samples and counts n-fold.

References: E. Oja, *Simplified neuron model as a principal component analyzer*, J. Math. Biology 1982; I. Mitliagkas,
C. Caramanis, P. Jain, *Memory limited, streaming PCA*, NIPS 2013.  For two sides: the same power iteration on
:math:`\begin{pmatrix} 0 & M \\ M^\top & 0\end{pmatrix}`.
Different on purpose: the step above; a step takes a sixteenth of the samples before it rather than one, which makes no
difference to it but in speed (``batch_size`` fixes a number).

State: D_A + D_B floats, as much again for the gradients in flight and for the new vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.baseline import Baseline
from research.baselines.one_pass import OnePass
from research.baselines.unfolding import split_recursively
from tpca.errors import check_integer
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import check_positive, option
from tpca.solvers.race.strategies.strategy import NoiseLevel
from tpca.solvers.rank_one import split_blocks
from tpca.tensors import Query
from tpca.tensors.blocks import Partition, unit


@dataclass(kw_only=True, eq=False)
class Oja(Baseline):
    """Streaming power iteration on the balanced unfolding.

    Parameters
    ----------
    step_size
        A constant η of your own, in units of 1/σ, instead of the anytime step.
    batch_size
        Samples per step; by default a sixteenth of those before it.
    """

    step_size: float | None = option(None, check_positive)
    batch_size: int | None = option(None, check_integer)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from one pass over ``source``."""
        samples = OnePass(source, self.max_samples)
        rng, noise = generator(self.random_state, "oja"), NoiseLevel()
        partition = Partition.halves(samples.dims)
        blocks = [unit(rng.standard_normal(shape)) for shape in partition.shapes]
        lengths = [0.0, 0.0]
        size = self.batch_size or 1
        while (answer := samples.ask(Query(partition, tuple(w[None] for w in blocks)), size)) is not None:
            noise.absorb(answer, samples.took)
            for m in (0, 1):
                gradient = samples.took * answer.gradients[m][0]
                if self.step_size is not None:
                    blocks[m] = unit(blocks[m] + self.step_size / noise.sigma * gradient)
                    continue
                lengths[m] = lengths[m] or float(np.linalg.norm(gradient))  # a start counts like one sample's noise
                total = lengths[m] * blocks[m] + gradient
                lengths[m], blocks[m] = float(np.linalg.norm(total)), unit(total)
            size = self.batch_size or max(1, samples.n // 16)
        vectors = split_blocks(partition.groups, (blocks[0], blocks[1]), split_recursively)
        return samples.recovery(vectors, float(samples.mean_rewards[0]))
