r"""The unfolding of the mean, and its singular vectors.

**Unfolding** (:class:`Unfolding`).  With the modes in two groups A | B of D_A ≤ D_B entries, as even as possible, the
mean of N samples is a matrix

.. math:: M = \lambda\, a b^\top + \bar E, \qquad a = \bigotimes_{n \in A} v_n, \quad b = \bigotimes_{n \in B} v_n .

Its leading singular vectors u, w are reshaped to their modes and replaced by their best rank-one approximations.
``method="svd"`` holds M and finds (u, w) by Lanczos iteration.  ``method="power"`` holds only u and w
(d^{⌈k̄/2⌉} floats at equal dims) and reads the data again for each half step ``u <- unit(M w)``, ``w <- unit(M^T u)``.
For D_A = D_B = D and c = λ√N / (σ√D), :math:`\langle u, a\rangle^2 \to 1 - c^{-2}` for c > 1 and 0 below (the threshold
of Baik, Ben Arous and Péché for a square matrix); for D_A ≠ D_B the threshold is at c² = λ²N / (σ²√(D_A D_B)) = 1.

Symbols: ``partition`` is A | B.

Reference: A. Montanari, E. Richard, *A statistical model for tensor PCA*, NIPS 2014 (Mat_q(T), q = ⌊k/2⌋).
Different on purpose: vectors may differ from mode to mode and so may dims; both singular vectors are used, for each
knows its own modes; every unfolding is balanced (``Partition.halves``).

State: the mean, a copy of it where A | B is not in mode order, and Lanczos vectors; by passes some copies of u and w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.base import AllSamples, Baseline
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.rank_one import DENSE_ROWS, LANCZOS, rank_one, split_blocks, top_pairs
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit

MAX_PASSES = 200
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
