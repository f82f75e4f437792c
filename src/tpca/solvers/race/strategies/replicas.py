r"""Pairs, small replicas for the d² regime whose blocks are those of the paper: one or two modes each.

When d^{k̄/2} floats do not fit, search with many small replicas on the same samples, all blocks updated at once.  A
replica holds unit blocks ``W_m`` (D entries) and takes the anytime step 1/√(D n):
``W_m <- unit(W_m + B G_m / (sigma √(D n)))``.  A fading sum of rewards is kept, ``score <- 0.9 score + B R``; the
replica with the best score is read.  At equal state singles (:mod:`tpca.solvers.race.strategies.singles`) do better.

Symbols: B samples of a round (``n`` in ``absorb``), G_m the mean gradient of block m, n all samples so far (``seen``),
sigma the noise level, estimated from gradient energies (E‖G‖² = D sigma²/B), so that the scale of the data is free.
"""

from __future__ import annotations

import math

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.strategies.protocol import Evidence, Look, Proposal
from tpca.solvers.race.strategies.scores import NoiseLevel, Scores, all_finite
from tpca.solvers.rank_one import split_blocks
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit


def pairs_floats(partition: Partition, replicas: int) -> float:
    """State of :class:`PairReplicas` in units of float64: blocks and answers (float32), scores, working copies."""
    sizes = partition.sizes
    return replicas * (sum(sizes) + 2) + 6 * max(sizes)


class BlockReplicas:
    """What strategies with blocks of one or two modes share: anytime steps 1/√(D n), scores, proposals by SVD."""

    name = "blocks"
    step = 1.0

    def __init__(self, partition: Partition, blocks: list[Array]) -> None:
        self._partition, self._blocks = partition, blocks
        self.replicas = len(blocks[0])
        self._scores = Scores(self.replicas)
        self._noise = NoiseLevel()
        self._keep, self._seen = 1.0, 0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight: one block's singular vectors."""
        return 48 * max(self._partition.sizes)

    def queries(self) -> tuple[Query, ...]:
        """All replicas, gradients of all blocks."""
        return (Query(self._partition, tuple(self._blocks)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One anytime step of every block of every replica."""
        (answer,) = answers
        if not all_finite(answers):
            return
        self._noise.absorb(answer, n)
        self._seen += n
        for m, size in enumerate(self._partition.sizes):
            step = self.step * n / (self._noise.sigma * math.sqrt(size * self._seen))
            for own, gradient in zip(self._blocks[m], answer.gradients[m], strict=True):
                own[...] = unit(self._keep * own + step * self._direction(gradient.astype(np.float64)))
        self._keep = 1.0
        self._scores.absorb(answer.rewards, n)

    def restart(self) -> None:
        """Keep the blocks as the next query; the next round starts them afresh."""
        self._keep, self._seen = 0.0, 0
        self._scores.restart()

    def read(self) -> Look:
        """What it says can be read off directly."""
        return self

    def propose(self) -> Proposal:
        """Leading singular vectors of the blocks of the replica with the best fading reward."""
        best = self._scores.best()
        return Proposal(read(self._partition, self._blocks, best), self._scores.z(best, self._noise.sigma))

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """Take the blocks of the replica nearest to ``vectors``, contracted with them."""
        return blocks_evidence(self._partition, self._blocks, vectors, self._noise.sigma)

    def arrays(self) -> dict[str, Array]:
        """Blocks of all replicas, and scores."""
        return {**{f"blocks_{m}": w for m, w in enumerate(self._blocks)}, "scores": self._scores.sums}

    def _direction(self, gradient: Array) -> Array:
        """The direction of a step, from the gradient of a block."""
        return gradient


@kept
class PairReplicas(BlockReplicas):
    """Replicas with random rank-one starts; the first starts from the identity."""

    name = "pairs"

    def __init__(self, partition: Partition, replicas: int, rng: np.random.Generator) -> None:
        blocks: list[Array] = []
        for shape in partition.shapes:
            block: Array = np.empty((replicas, *shape), dtype=np.float32)
            for j in range(replicas):
                block[j] = unit(np.eye(*shape)) if j == 0 and len(shape) == 2 else _rank_one(shape, rng)
            blocks.append(block)
        super().__init__(partition, blocks)


def read(partition: Partition, blocks: list[Array], replica: int) -> tuple[Array, ...]:
    """Return unit vectors, in mode order: the best rank-one fits of one replica's blocks of one or two modes."""
    return tuple(split_blocks(partition.groups, [block[replica].astype(np.float64) for block in blocks]))


def blocks_evidence(partition: Partition, blocks: list[Array], vectors: tuple[Array, ...], sigma: float) -> Evidence:
    """Evidence of unit blocks of one or two modes, their noise of variance 1/D per entry scaled to sigma².

    Blocks and vectors are known up to sign only: the sign of block m is that of its partners' overlaps.
    """
    rays = partition.outer(vectors)
    overlaps = np.array([np.tensordot(w, ray, ray.ndim) for w, ray in zip(blocks, rays, strict=True)])
    nearest = int(np.argmax(np.abs(overlaps).prod(axis=0)))
    signs = np.where(overlaps[:, nearest] < 0, -1.0, 1.0)
    sums: list[Array] = [np.zeros(0)] * partition.order
    for m, group in enumerate(partition.groups):
        scale = sigma * math.sqrt(partition.sizes[m])
        block = signs.prod() * signs[m] * scale * blocks[m][nearest].astype(np.float64)
        both = (block,) if block.ndim == 1 else (block @ vectors[group[1]], vectors[group[0]] @ block)
        for mode, total in zip(group, both, strict=True):
            sums[mode] = total
    return Evidence(tuple(sums), 1.0)


def _rank_one(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    block: Array = unit(rng.standard_normal(shape[0]))
    return block if len(shape) == 1 else np.multiply.outer(block, unit(rng.standard_normal(shape[1])))
