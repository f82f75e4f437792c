r"""Approximate message passing for the spiked tensor with a vector of its own for every mode.

On the mean of N samples, in units where its noise has variance 1 (divide by s = σ/√N):

.. math::
    h_n^t &= \bar T \text{ contracted with all } x_i^t, i \ne n, \;-\; b_n^t\, x_n^{t-1}, \qquad
    x_n^{t+1} = h_n^t / \|h_n^t\|, \\
    b_n^t &= \sum_{i \ne n} \frac{d_i}{\|h_i^{t-1}\|} \prod_{j \ne i, n} \langle x_j^t, x_j^{t-1}\rangle,
    \qquad b_n^0 = 0 .

The Onsager term :math:`b_n^t x_n^{t-1}` removes what :math:`x^t` has learnt from the very noise that it is contracted
with, so that h is signal plus fresh-looking Gaussian noise,
:math:`h_n^t \approx \rho_n^t v_n + N(0, I)`, and the overlaps follow the **state evolution**

.. math::
    \rho_n^t = \frac{\lambda\sqrt N}{\sigma} \prod_{i \ne n} q_i^t, \qquad
    q_n^{t+1} = \frac{\rho_n^t}{\sqrt{(\rho_n^t)^2 + d_n}}

(exact for large dims and a start that does not depend on the noise; tests hold runs to it).  Its largest fixed point is
also the asymptotic alignment of the best rank-one approximation.

Symbols: ``vectors`` is x^t, ``previous`` x^{t-1}, ``lengths`` the norms of h.

References: A. Montanari, E. Richard, *A statistical model for tensor PCA*, NIPS 2014 (symmetric);
J. Kadmon, S. Ganguli, *Statistical mechanics of low-rank tensor decomposition*, NeurIPS 2018 (asymmetric); alignment:
M. Seddik, M. Guillaud, R. Couillet, *When random tensors meet random matrices*, 2022.
Different on purpose: the prior is the sphere, so the denoiser is a rescaling; s is not given but estimated from what
the current x leaves of the mean, s² = (‖T̄‖² − R²)/∏d; the default start is spectral.

State: the mean, and four sets of vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.all_samples import AllSamples
from research.baselines.als import start_vectors
from research.baselines.baseline import Baseline, Start, check_order, check_start
from tpca.engines import open_engine
from tpca.errors import check_integer
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import option
from tpca.tensors.blocks import Array, unit

MOVE_TOL = 1e-7  # change of a unit vector at which iterating stops


@dataclass(kw_only=True, eq=False)
class AMP(Baseline):
    """Approximate message passing on the mean.

    Parameters
    ----------
    init
        ``"spectral"`` (balanced unfolding), ``"random"``, or one start vector per mode.
    max_iterations
        Most iterations; it ends earlier when the vectors stand still.
    """

    init: Start = option("spectral", check_start)
    max_iterations: int = option(100, check_integer)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        engine = open_engine(source)
        check_order("AMP", engine.dims, 3)
        samples = AllSamples(engine, self.max_samples)
        vectors = start_vectors(samples, self.init, generator(self.random_state, "amp"))
        energy = float(np.linalg.norm(samples.mean)) ** 2
        previous: list[Array] = [np.zeros(d) for d in samples.dims]
        lengths, history = [math.inf] * len(vectors), []
        for iteration in range(self.max_iterations):
            answer = samples.ask_vectors(vectors)
            reward = float(answer.rewards[0])
            variance = max(energy - reward**2, 0.0) / samples.mean.size
            fields = [
                answer.gradients[n][0] - variance * onsager(n, vectors, previous, lengths) * previous[n]
                for n in range(len(vectors))
            ]
            samples.note(*vectors, *previous, *fields, working=answer.nbytes)
            previous, vectors = vectors, [unit(h) for h in fields]
            lengths = [float(np.linalg.norm(h)) for h in fields]
            moved = max(min(_distance(a, b), _distance(a, -b)) for a, b in zip(vectors, previous, strict=True))
            history.append({"iteration": iteration, "value": reward, "moved": moved})
            if moved < MOVE_TOL:
                break
        return samples.recovery(vectors, history=history)


def onsager(mode: int, vectors: list[Array], previous: list[Array], lengths: list[float]) -> float:
    """b_n of the file's top in units of the data: lengths are those of h before noise is scaled to 1."""
    inner = [float(a @ b) for a, b in zip(vectors, previous, strict=True)]
    others = [i for i in range(len(vectors)) if i != mode]
    return sum(len(vectors[i]) / lengths[i] * math.prod(inner[j] for j in others if j != i) for i in others)


def _distance(a: Array, b: Array) -> float:
    return float(np.linalg.norm(a - b))
