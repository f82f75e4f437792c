r"""Methods on the mean: its unfolding, alternating least squares, approximate message passing, power iteration.

**Unfolding** (:class:`Unfolding`).  With the modes in two groups A | B of D_A ≤ D_B entries, as even as possible, the
mean of N samples is a matrix

.. math:: M = \lambda\, a b^\top + \bar E, \qquad a = \bigotimes_{n \in A} v_n, \quad b = \bigotimes_{n \in B} v_n .

Its leading singular vectors u, w are reshaped to their modes and replaced by their best rank-one approximations.
``method="svd"`` holds M and finds (u, w) by Lanczos iteration.  ``method="power"`` holds only u and w
(d^{⌈k̄/2⌉} floats at equal dims) and reads the data again for each half step ``u <- unit(M w)``, ``w <- unit(M^T u)``.
For D_A = D_B = D and c = λ√N / (σ√D), :math:`\langle u, a\rangle^2 \to 1 - c^{-2}` for c > 1 and 0 below (the threshold
of Baik, Ben Arous and Péché for a square matrix); for D_A ≠ D_B the threshold is at c² = λ²N / (σ²√(D_A D_B)) = 1.

``partition`` is A | B.  Different on purpose: vectors may differ from mode to mode and so may dims; both singular
vectors are used, for each knows its own modes; every unfolding is balanced (``Partition.halves``).

State: the mean, a copy of it where A | B is not in mode order, and Lanczos vectors; by passes some copies of u and w.

**ALS** for one component, which is higher-order orthogonal iteration for rank one.  The best rank-one approximation of
the mean maximises :math:`\langle \bar T, u_1 \otimes \dots \otimes u_{\bar k}\rangle` over unit vectors.  One sweep
sets every mode to its best value given the others:

.. math:: u_n \leftarrow \mathrm{unit}\big(\bar T \text{ contracted with all } u_i, i \ne n\big),
          \qquad n = 1, \dots, \bar k .

The maximiser's overlaps q_n tend to the largest fixed point of the state evolution below, as long as
β = λ√N / (σ√Σd) is large enough for it to be the signal's.

**AMP** with a vector of its own for every mode.  On the mean of N samples, in units where its noise has variance 1
(divide by s = σ/√N):

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

(exact for large dims and a start that does not depend on the noise; tests hold runs to it).

**Power iteration** from random starts; the best by its value wins:

.. math:: u_n^{t+1} = \mathrm{unit}\big(\bar T \text{ contracted with all } u_i^t, i \ne n\big)
          \quad\text{for all modes at once}, \qquad
          R^t = \langle \bar T, u_1^t \otimes \dots \otimes u_{\bar k}^t\rangle .

From a random start the overlaps are about d^{-1/2} each, so that the signal wins over the noise of a contraction only
if λ√N / σ exceeds about d^{(k̄-1)/2}: far more than a spectral start needs (Y. Wu, K. Zhou, *Sharp analysis of power
iteration for tensor PCA*, JMLR 2024).

Symbols: of AMP ``vectors`` is x^t, ``previous`` x^{t-1}, ``lengths`` the norms of h; ``replicas[n]`` holds u_n of all
starts of the power iteration as rows.

References: L. De Lathauwer, B. De Moor, J. Vandewalle, *On the best rank-1 and rank-(R1, …, RN) approximation*, SIAM J.
Matrix Anal. Appl. 2000, the higher-order power method; R. Tang, J. Chhor, O. Klopp, A. Zhang, *Revisit CP tensor
decomposition: statistical optimality and fast convergence*, 2025, spectral start; A. Montanari, E. Richard, *A
statistical model for tensor PCA*, NIPS 2014 (unfolding Mat_q(T), q = ⌊k/2⌋, and symmetric AMP); J. Kadmon, S. Ganguli,
*Statistical mechanics of low-rank tensor decomposition*, NeurIPS 2018 (asymmetric); M. Seddik, M. Guillaud,
R. Couillet, *When random tensors meet random matrices*, 2022 (alignment); A. Anandkumar, R. Ge, D. Hsu, S. Kakade,
M. Telgarsky, *Tensor decompositions for learning latent variable models*, JMLR 2014, Algorithm 1 (random restarts);
J. Huang, D. Huang, Q. Yang, G. Cheng, *Power iteration for tensor PCA*, JMLR 2022 (asymmetric).
Different on purpose: the spectral start is the balanced unfolding rather than the leading vector of each mode's own
unfolding: it needs λ²N ≳ √∏d instead of about ∏d / d_n at orders beyond 3.  The prior of AMP is the sphere, so the
denoiser is a rescaling; s is not given but estimated from what the current x leaves of the mean,
s² = (‖T̄‖² − R²)/∏d.  Of two power iterations that alternate (simultaneous updates may), the better is kept.

State: the mean, the vectors (four sets of AMP, and of each start of the power iteration), and for the spectral start
what that holds; with ``method="passes"`` no mean, and a pass over the data for every iteration.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.base import AllSamples, Baseline, check_dims
from tpca.engines import open_engine
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.rank_one import (
    DENSE_ROWS,
    LANCZOS,
    along,
    alternate,
    rank_one,
    split_blocks,
    top_pairs,
    units,
)
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit

MAX_PASSES = 200
Split = Callable[[Array], list[Array]]
SWEEPS = 500  # most of ALS
ITERATIONS = 100  # most of the power iteration
MOVE_TOL = 1e-7  # change of a unit vector at which AMP stops
STILL = 1e-14  # squared change of a unit vector, up to sign, at which a start has converged; rounding leaves 1e-16


@dataclass(kw_only=True, eq=False)
class Unfolding(Baseline):
    """Leading singular vectors of the balanced unfolding of the mean.

    Parameters
    ----------
    method
        ``"svd"`` holds the mean; ``"power"`` holds two vectors and reads the data again and again, until a step moves
        u by less than ``tol``.
    """

    method: str = "svd"
    tol: float = 1e-6

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        rng = generator(self.random_state, "unfolding")
        if self.method == "svd":
            samples = AllSamples(source, self.max_samples)
            return samples.estimate(spectral_vectors(samples, rng, rank_one))
        samples = AllSamples(source, self.max_samples, hold=False)
        partition = Partition.halves(samples.dims)
        blocks = [unit(rng.standard_normal(shape)) for shape in partition.shapes]
        moved, history = np.inf, []
        while moved > self.tol and samples.passes + 1 < MAX_PASSES:  # one pass is left for the strength
            for m in (0, 1):
                (answer,) = samples.ask(Query(partition, tuple(w[None] for w in blocks), gradients_of=(m,)))
                new = unit(answer.gradients[m][0])
                samples.note(*blocks, working=answer.nbytes + 2 * new.nbytes)
                moved = float(np.linalg.norm(new - blocks[m]))
                blocks[m] = new
            history.append({"passes": samples.passes, "moved": moved})
        return samples.estimate(split_blocks(partition.groups, (blocks[0], blocks[1])), history=history)


def unfold(tensor: Array, groups: Sequence[Sequence[int]]) -> Array:
    """The tensor as a matrix with the modes of the first group along its rows and those of the second along columns."""
    rows = math.prod(tensor.shape[n] for n in groups[0])
    return tensor.transpose([n for group in groups for n in group]).reshape(rows, -1)


def spectral_vectors(samples: AllSamples, rng: np.random.Generator, split: Split) -> list[Array]:
    """Leading singular vectors of the held mean's balanced unfolding, split into one vector per mode."""
    partition = Partition.halves(samples.dims)
    flat = unfold(samples.mean, partition.groups)
    _, (left,), (right,) = top_pairs(flat, 1, rng)
    copied = 0 if np.shares_memory(flat, samples.mean) else flat.nbytes
    rows = min(partition.sizes)
    held = 3 * rows if rows <= DENSE_ROWS else 2 * LANCZOS + 8  # vectors: all of a Gram matrix, or what ARPACK keeps
    samples.note(working=copied + 8 * (held * rows + sum(partition.sizes)))
    blocks = (left.reshape(partition.shapes[0]), right.reshape(partition.shapes[1]))
    return split_blocks(partition.groups, blocks, split)


def split_recursively(block: Array) -> list[Array]:
    """One unit vector per mode of ``block``, by unfolding it again and again: the start of ALS and AMP."""
    if block.ndim == 1:
        return [unit(block)]
    partition = Partition.halves(block.shape)
    _, *sides = top_pairs(unfold(block, partition.groups))
    parts = [side.reshape(shape) for side, shape in zip(sides, partition.shapes, strict=True)]
    return split_blocks(partition.groups, parts, split_recursively)


@dataclass(kw_only=True, eq=False)
class ALS(Baseline):
    """Best rank-one approximation of the mean by alternating updates.

    Parameters
    ----------
    init
        One start vector per mode; the balanced unfolding's by default.
    tol
        The relative gain of a sweep at which to stop.
    """

    init: Sequence[Array] | None = None
    tol: float = 1e-13

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        samples = AllSamples(source, self.max_samples)
        vectors = _start(samples, self.init, generator(self.random_state, "als"))
        value, before, sweeps = 0.0, -math.inf, 0
        while sweeps < SWEEPS and value - before > self.tol * value:
            before, sweeps = value, sweeps + 1
            vectors, norm = alternate(functools.partial(along, samples.mean), vectors, 1)
            value = float(norm)
        samples.note(*vectors, working=2 * samples.mean.nbytes // min(samples.dims[0], samples.dims[-1]))
        return samples.estimate(vectors, value, [{"sweeps": sweeps, "value": value}])


@dataclass(kw_only=True, eq=False)
class AMP(Baseline):
    """Approximate message passing on the mean.

    Parameters
    ----------
    init
        One start vector per mode; the balanced unfolding's by default.
    max_iterations
        Most iterations; it ends earlier when the vectors stand still.
    """

    init: Sequence[Array] | None = None
    max_iterations: int = 100

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        engine = open_engine(source)
        check_dims("AMP", engine.dims, 3)
        samples = AllSamples(engine, self.max_samples)
        vectors = _start(samples, self.init, generator(self.random_state, "amp"))
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
            pairs = list(zip(vectors, previous, strict=True))
            moved = max(float(min(np.linalg.norm(a - b), np.linalg.norm(a + b))) for a, b in pairs)
            history.append({"iteration": iteration, "value": reward, "moved": moved})
            if moved < MOVE_TOL:
                break
        return samples.estimate(vectors, history=history)


def onsager(mode: int, vectors: list[Array], previous: list[Array], lengths: list[float]) -> float:
    """b_n of the file's top in units of the data: lengths are those of h before noise is scaled to 1."""
    inner = [float(a @ b) for a, b in zip(vectors, previous, strict=True)]
    others = [i for i in range(len(vectors)) if i != mode]
    return sum(len(vectors[i]) / lengths[i] * math.prod(inner[j] for j in others if j != i) for i in others)


def _start(samples: AllSamples, init: Sequence[Array] | None, rng: np.random.Generator) -> list[Array]:
    """The given vectors, or those of the balanced unfolding."""
    if init is None:
        return spectral_vectors(samples, rng, split_recursively)
    return [unit(np.array(v, dtype=np.float64)) for v in init]


@dataclass(kw_only=True, eq=False)
class PowerIteration(Baseline):
    """Tensor power iteration on the mean, all modes at once, from random starts.

    Parameters
    ----------
    restarts
        Random starts, all run at once.
    """

    restarts: int = 10

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        samples = AllSamples(source, self.max_samples)
        rng = generator(self.random_state, "power iteration")
        replicas = [units(rng.standard_normal((self.restarts, d))) for d in samples.dims]
        best = [block.copy() for block in replicas]
        values, history = np.zeros(self.restarts), []
        for iteration in range(ITERATIONS):
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
            if moved < STILL:
                break
        winner = int(np.argmax(np.abs(values)))
        return samples.estimate([block[winner].copy() for block in best], float(values[winner]), history)
