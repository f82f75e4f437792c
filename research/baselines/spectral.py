r"""Spectral methods: singular vectors of unfoldings, eigenvectors of partial traces, and what starts from them.

**Unfolding** (:class:`Unfolding`).  With the modes in two groups A | B of D_A ≤ D_B entries, as even as possible, the
mean of N samples is a matrix

.. math:: M = \lambda\, a b^\top + \bar E, \qquad a = \bigotimes_{n \in A} v_n, \quad b = \bigotimes_{n \in B} v_n .

Its leading singular vectors u, w are reshaped to their modes and replaced by their best rank-one approximations.
``method="svd"`` holds M and finds (u, w) by Lanczos iteration.  ``method="power"`` holds only u and w
(d^{⌈k̄/2⌉} floats at equal dims) and reads the data again for each half step ``u <- unit(M w)``, ``w <- unit(M^T u)``.
For D_A = D_B = D and c = λ√N / (σ√D), :math:`\langle u, a\rangle^2 \to 1 - c^{-2}` for c > 1 and 0 below (the threshold
of Baik, Ben Arous and Péché for a square matrix); for D_A ≠ D_B the threshold is at c² = λ²N / (σ²√(D_A D_B)) = 1.

**Recursive unfolding** (:class:`RecursiveUnfolding`) splits u as it splits the mean: u ∈ R^{d_1⋯d_q} is a smaller
tensor, which is unfolded, and so on until q = 1.  Up to order 4 the result is the same.

**Partial trace** (:class:`PartialTrace`), for the symmetric model T̄ = λ v ⊗ … ⊗ v + noise.  Tracing a pair of modes
(summing over equal indices) keeps the signal, since ⟨v, v⟩ = 1.  Even order: all pairs but one are traced,

.. math:: M_{ab} = \sum_{c, e, \dots} \bar T_{a b c c e e \dots} = \lambda v v^\top + \text{noise of norm } d^{\bar k/4}
          \,\sigma/\sqrt N .

Odd order: all pairs are traced, which leaves a vector t = λv + noise, then

.. math:: M = \sum_i t_i\, T_i, \qquad t_i = \mathrm{tr}(T_i), \quad T_i \text{ the } i\text{-th slice (order 3);}

beyond order 3 the slices' other pairs are traced.  Either way v̂ is M's eigenvector of largest absolute eigenvalue, good
for λ²N ≳ d^{k̄/2}σ².

**Homotopy** (:class:`Homotopy`): power iteration from there,

.. math:: x^0 = \begin{cases} \text{leading eigenvector of the partial trace } M & \bar k \text{ even} \\
          \mathrm{unit}(t),\ t \text{ the trace vector} & \bar k \text{ odd} \end{cases}
          \qquad
          x^{t+1} = \mathrm{unit}\Big(s \sum_n \bar T \text{ contracted with } x^t \text{ in all modes but } n\Big) .

The start is the maximiser of the objective smoothed by infinite noise, and the rest follows it back to no smoothing.

Symbols: ``partition`` is A | B; ``eye`` is what traces a pair (a block contracted with the identity), ``lead`` is t;
``sign`` is s, that of M's leading eigenvalue (1 at odd order).

References: A. Montanari, E. Richard, *A statistical model for tensor PCA*, NIPS 2014 (Mat_q(T), q = ⌊k/2⌋; algorithm
"Recursive Unfolding"); S. Hopkins, T. Schramm, J. Shi, D. Steurer, *Fast spectral algorithms from sum-of-squares
proofs*, STOC 2016, Section on tensor PCA (order 3: Σ_i Tr(T_i) T_i); A. Anandkumar, Y. Deng, R. Ge, H. Mobahi,
*Homotopy analysis for tensor PCA*, COLT 2017 (order 3); G. Biroli, C. Cammarota, F. Ricci-Tersenghi, *How to iron out
rough landscapes and get optimal performances*, J. Phys. A 2020 (any order).
Different on purpose: in unfoldings vectors may differ from mode to mode and so may dims; both singular vectors are
used, for each knows its own modes; every unfolding is balanced (``Partition.halves``).  Traces are averaged over all
ways to pair the modes, which is the same as symmetrising the data first: theirs are symmetric, ours need not be.  In
the homotopy every sample serves both the start and the iterations, without the noise that is injected for the proof.

State: the mean, a copy of it where A | B is not in mode order, and Lanczos vectors; by passes some copies of u and w.
Of traces at even order the matrices of all pairings, O(d²), in one pass; at odd order with a second pass over the data,
or, if they can be read only once, the mean.  Without the mean in memory the strength is not known (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.base import AllSamples, Baseline, check_dims
from tpca.engines import open_engine
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.race.strategies.symmetric import pairings
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS, leading, rank_one, split_blocks, top_pairs
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit

MAX_PASSES = 200
MAX_ITERATIONS = 100
MOVE_TOL = 1e-7  # change of x at which the homotopy stops
Split = Callable[[Array], list[Array]]


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


@dataclass(kw_only=True, eq=False)
class RecursiveUnfolding(Baseline):
    """Leading singular vectors of unfoldings of unfoldings of the mean."""

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        samples = AllSamples(source, self.max_samples)
        return samples.estimate(spectral_vectors(samples, generator(self.random_state, "unfolding"), split_recursively))


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
    """One unit vector per mode of ``block``, by unfolding it again and again."""
    if block.ndim == 1:
        return [unit(block)]
    partition = Partition.halves(block.shape)
    _, *sides = top_pairs(unfold(block, partition.groups))
    parts = [side.reshape(shape) for side, shape in zip(sides, partition.shapes, strict=True)]
    return split_blocks(partition.groups, parts, split_recursively)


@dataclass(kw_only=True, eq=False)
class PartialTrace(Baseline):
    """Leading eigenvector of the partial trace of the mean; symmetric model, any order from 3."""

    def run(self, source: Any) -> Estimate:
        """Recover the vector of all modes from all samples of ``source``."""
        engine = open_engine(source)
        check_dims("PartialTrace", engine.dims, 3, equal=True)
        odd = len(engine.dims) % 2
        samples = AllSamples(engine, self.max_samples, hold=bool(odd) and not engine.rereadable)
        lead = unit(trace_vector(samples)) if odd else None
        (value,), (vector,) = leading(trace_matrix(samples, lead))
        sign = math.copysign(1.0, value)
        if lead is not None:  # M is quadratic in the data: the sign is that of t
            vector, sign = math.copysign(1.0, float(vector @ lead)) * vector, 1.0
        vectors = [sign * vector, *[vector] * (len(samples.dims) - 1)]
        return samples.estimate(vectors, None if samples.held else math.nan)


@dataclass(kw_only=True, eq=False)
class Homotopy(Baseline):
    """Power iteration on the mean from its partial trace; symmetric model, any order from 3.

    Parameters
    ----------
    method
        ``"mean"`` holds the mean, ``"passes"`` reads a re-readable source once per iteration instead.
    """

    method: str = "mean"

    def run(self, source: Any) -> Estimate:
        """Recover the vector of all modes from all samples of ``source``."""
        engine = open_engine(source)
        check_dims("Homotopy", engine.dims, 3, equal=True)
        samples = AllSamples(engine, self.max_samples, hold=self.method == "mean")
        if len(samples.dims) % 2:
            x, sign = unit(trace_vector(samples)), 1.0
        else:
            (value,), (x,) = leading(trace_matrix(samples, None))
            sign = math.copysign(1.0, value)
        history = []
        for iteration in range(MAX_ITERATIONS):
            (answer,) = samples.ask(Query(samples.singles, (x[None],) * len(samples.dims)))
            value = sign * float(answer.rewards[0])
            before, x = x, unit(sign * sum(answer.gradients[n][0] for n in range(len(samples.dims))))
            moved = float(np.linalg.norm(x - before))
            history.append({"iteration": iteration, "value": value, "moved": moved})
            if moved < MOVE_TOL:
                break
        return samples.estimate([sign * x, *[x] * (len(samples.dims) - 1)], history=history)


def trace_vector(samples: AllSamples) -> Array:
    """The vector t: all pairs traced, averaged over all pairings; odd order."""
    d = samples.dims[0]
    eye, one = np.eye(d)[None], np.ones((1, d))
    traced = tuple(range(1, (len(samples.dims) + 1) // 2))
    blocks = (one, *[eye] * len(traced))
    answers = samples.ask(*(Query(p, blocks, gradients_of=(0,), traced=traced) for p in _partitions(samples.dims)))
    total: Array = sum((answer.gradients[0][0] for answer in answers), start=np.zeros(d))
    return total / len(answers)


def trace_matrix(samples: AllSamples, lead: Array | None) -> Array:
    """M: one pair left, the single mode of an odd order contracted with ``lead``; averaged over all pairings."""
    d = samples.dims[0]
    eye = np.eye(d)[None]
    single = () if lead is None else (lead[None],)
    wanted = tuple(range(len(single), (len(samples.dims) + 1) // 2))
    blocks = (*single, *[eye] * len(wanted))
    queries = [Query(p, blocks, wanted, traced=wanted) for p in _partitions(samples.dims)]
    matrices = [g[0] for answer in samples.ask(*queries) for g in answer.gradients.values()]
    total: Array = sum(matrices, start=np.zeros((d, d)))
    samples.note(eye, *matrices, working=3 * total.nbytes)  # the sum, its mean, and later the eigenvectors
    return (total + total.T) / (2 * len(matrices))


def _partitions(dims: tuple[int, ...]) -> list[Partition]:
    return [Partition(dims, groups) for groups in pairings(tuple(range(len(dims))))]
