r"""Replicas: many small sums of gradients on the same samples, each of which asks along its own direction.

With the modes in blocks m, replica j holds unit arrays :math:`W_{mj}` and the lengths :math:`h_{mj}` of the sums behind
them; a round of n samples adds the gradients of all blocks at once:

.. math::
    H_{mj} = h_{mj} W_{mj} + n\,G_{mj}, \qquad h_{mj} = \|H_{mj}\|, \quad W_{mj} = H_{mj}/h_{mj} .

In noise h grows as the root of all samples so far: these are steps of an anytime size, with nothing to set.  A start
counts as much as the noise of one sample.  The replica with the largest fading sum of rewards is read,
``score <- 0.9 score + n R``.

**Singles**, one vector per mode, for memory of a few d² (orders 5 and 6).  Take-off is a lottery: replica j grows once
:math:`\prod_i\langle W_{ij}, v_i\rangle` exceeds about (d/n)^{k̄/(2k̄-4)}, so what counts is the *number* of replicas.
That is why they beat the paper's pairs of modes at equal state (k̄d against about k̄d²/2 floats each), and why replicas
and answers are kept in 16 bits.

**Climbs**, on samples that are read again.  With sums forgotten before it a pass is one step of tensor power iteration
on the mean of its samples, and the score is the reward on them: it says which replica fits best, and proves nothing.

**Symmetric pairs**, for vectors that are equal inside each of the paper's pairs of modes.  Blocks are asked about as
:math:`C_m = \mathrm{unit}(S(W_m) + 2I/\sqrt d)`, S(W) being W with squared singular values, so that the identity is
never forgotten (padded with zeros when the two modes differ in length), and the symmetric part of the gradient is what
is added.  Two replicas, the second with -I in the last block, serve both signs of the strength.

**Symmetric**: vectors that are the same in all modes, by partial traces.  Let P run over all ways to pair up the modes
(one mode stays single at odd order).  Tracing out all pairs but one gives, for v ⊗ ... ⊗ v, a d x d matrix of signal
λ v v^T (at odd order: all pairs, a vector λ v).  Its noise has d^q times the variance of a sample's, q = number of
pairs traced; different pairings are nearly uncorrelated.  With T the mean of a round of B samples

.. math:: M = \sum_{rounds} B \sum_P \mathrm{sym}\,\mathrm{tr}_P(T), \qquad
          A = \sum_{rounds} B \sum_i T(\cdot_i, x, \dots, x) .

``M`` starts the search; its leading eigenvector (of largest absolute eigenvalue: the strength may be negative) or, at
odd order, its direction is the first x.  ``A`` adds the contractions with x itself, of noise 1 instead of d^q, so that
x is improved by samples as soon as it is any good:  ``x <- unit(s_M M(x) / w_M + s_A A / w_A)``, s the signals
``<x, M(x)>`` and ``<x, A>``, w the noise variances.  The proposal is x for every mode, the sign of one flipped for a
negative strength.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.candidate import AGREE, Stored, Strategy
from tpca.solvers.rank_one import leading, split_blocks
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

FADING = 0.9  # of the sum of rewards that says which replica is read
SLICE = 256  # entries of one block updated at a time: bounds the working copy in 64 bits
PULL = 2.0  # weight of the identity against a unit block
REST = 0.99  # overlap with vectors of the pass before above which they rest
SWEEPS = 5  # of M and A on x
ORDERS = range(3, 7)  # of symmetric tensors: six modes have 15 pairings, twelve 10 395


def all_finite(answers: Sequence[Answer]) -> bool:
    """Whether no gradient left the range of its type: samples so wild that one does are passed over."""
    return all(np.isfinite(g).all() for answer in answers for g in answer.gradients.values())


def singles_floats(dims: Sequence[int], replicas: int) -> float:
    """State of :class:`Singles` in float64 units: vectors and answers, lengths, scores, a slice of sums."""
    each = 2 * 2 * sum(dims) + 4 * len(dims) + 16
    return replicas * each / 8 + 3 * max(SLICE, *dims)


def symmetric_pairs_floats(dims: Sequence[int]) -> float:
    """State of :class:`SymmetricPairs` in float64 units: W, C and answers of two replicas, and copies of one block."""
    sizes = Partition.pairs(dims).sizes
    return 3 * sum(sizes) + 6 * max(sizes) + 2 * len(sizes) + 8


@kept
class Singles(Strategy):
    """``size`` replicas of one vector per mode; the blocks of a ``partition``, in general."""

    name = "singles"

    def __init__(self, partition: Partition, blocks: Sequence[Stored]) -> None:
        self._partition, self.size, self._blocks = partition, len(blocks[0]), list(blocks)
        starts = np.sqrt(np.array(partition.sizes, np.float32))
        self._lengths: Array = np.repeat(starts[:, None], self.size, axis=1)
        self._scores, self._seen = np.zeros(self.size), 0

    @classmethod
    def random(cls, dims: Sequence[int], replicas: int, rng: np.random.Generator) -> Singles:
        """Random starts."""
        starts = (rng.standard_normal((replicas, d)) for d in dims)
        rows = [(v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float16) for v in starts]
        return cls(Partition.singles(dims), rows)

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return 24 * max(SLICE, *self._partition.sizes)

    def queries(self) -> tuple[Query, ...]:
        """All replicas, gradients of all blocks."""
        return (Query(self._partition, tuple(self._blocks)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the gradients to the sums; the directions of the sums are the next replicas."""
        (answer,) = answers
        if not all_finite(answers):
            return
        for m, (blocks, size) in enumerate(zip(self._blocks, self._partition.sizes, strict=True)):
            step = max(1, SLICE // size)
            for first in range(0, self.size, step):
                some = slice(first, first + step)
                sums = self._added(answer.gradients[m][some].astype(np.float64))
                sums *= n
                lengths = self._lengths[m, some].reshape(-1, *[1] * (sums.ndim - 1))
                sums += lengths * blocks[some]
                lengths = np.sqrt(np.einsum("ri,ri->r", *[sums.reshape(len(sums), -1)] * 2))
                self._lengths[m, some] = lengths
                sums /= np.maximum(lengths, np.finfo(np.float32).tiny).reshape(-1, *[1] * (sums.ndim - 1))
                blocks[some] = sums
        self._scores = FADING * self._scores + n * answer.rewards
        self._seen += n

    def _added(self, gradients: Array) -> Array:
        """What is added of the gradients of some replicas."""
        return gradients

    def restart(self) -> None:
        """Keep the directions, forget the sums."""
        self._lengths[:] = 0.0
        self._scores[:] = 0.0
        self._seen = 0

    def propose(self) -> tuple[Array, ...]:
        """Leading singular vectors of the blocks of the replica with the best score."""
        best = int(np.argmax(self._scores))
        return tuple(split_blocks(self._partition.groups, [block[best].astype(np.float64) for block in self._blocks]))

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """Take the sums of the replica nearest to ``vectors``, contracted with them.

        Blocks and vectors are known up to sign only: the sign of block m is that of its partners' overlaps.
        """
        partition = self._partition
        rays = [ray.reshape(-1) for ray in partition.outer(vectors)]
        overlaps = np.array([w.reshape(self.size, -1) @ ray for w, ray in zip(self._blocks, rays, strict=True)])
        nearest = int(np.argmax(np.abs(overlaps).prod(axis=0)))
        signs = np.where(overlaps[:, nearest] < 0, -1.0, 1.0)
        sums: list[Array] = [np.zeros(0)] * partition.order
        for m, group in enumerate(partition.groups):
            block = signs.prod() * signs[m] * self._lengths[m, nearest] * self._blocks[m][nearest].astype(np.float64)
            both = (block,) if block.ndim == 1 else (block @ vectors[group[1]], vectors[group[0]] @ block)
            for mode, total in zip(group, both, strict=True):
                sums[mode] = total
        return sums, float(max(self._seen, 1))

    def arrays(self) -> list[Array]:
        """Blocks of all replicas, the lengths of their sums, and scores."""
        return [*self._blocks, self._lengths, self._scores]


@kept
class Climbs(Singles):
    """Replicas that climb on samples that are read again, a step a pass; a new proposal takes the place of the worst.

    They *rest* when nothing moves any more: every vector of each overlaps with that of the pass before by ``REST``.
    """

    name = "climbs"

    def __init__(self, starts: Sequence[tuple[Array, ...]]) -> None:
        partition = Partition.singles(tuple(len(v) for v in starts[0]))
        super().__init__(partition, [np.stack(mode).astype(np.float32) for mode in zip(*starts, strict=True)])
        self.rest = False

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One step of all, from the mean gradients over all samples of the pass."""
        before = [block.copy() for block in self._blocks]
        super().restart()
        super().absorb(answers, n)
        moved = [np.abs(np.vecdot(a, b)).min() for a, b in zip(before, self._blocks, strict=True)]
        self.rest = bool(min(moved) > REST)

    def challenge(self, vectors: tuple[Array, ...]) -> None:
        """Let a proposal climb in place of the worst, unless it is about the same signal as one of them."""
        inner = [np.abs(block @ v) for block, v in zip(self._blocks, vectors, strict=True)]
        if np.min(inner, axis=0).max() < AGREE:
            worst = int(np.argmin(self._scores))
            for block, v in zip(self._blocks, vectors, strict=True):
                block[worst] = v
            self.rest = False


@kept
class SymmetricPairs(Singles):
    """Vectors equal inside each pair of the paper's partition, for either sign of the strength."""

    name = "symmetric pairs"

    def __init__(self, dims: Sequence[int], rng: np.random.Generator) -> None:
        partition = Partition.pairs(dims)
        starts = [unit(rng.standard_normal(s)) if len(s) == 1 else np.zeros(s) for s in partition.shapes]
        super().__init__(partition, [np.stack([start, start]).astype(np.float32) for start in starts])

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight: one block's singular vectors."""
        return 48 * max(self._partition.sizes)

    def queries(self) -> tuple[Query, ...]:
        """Pull all blocks toward the identity, only the last block of the second replica toward minus the identity."""
        *others, last = self._blocks
        pulled = [w if w.ndim == 2 else _pulled(w, (PULL, PULL)) for w in others]
        return (Query(self._partition, (*pulled, _pulled(last, (PULL, -PULL)))),)

    def _added(self, gradients: Array) -> Array:
        """The symmetric part of square blocks."""
        square = gradients.ndim == 3 and gradients.shape[1] == gradients.shape[2]
        return 0.5 * (gradients + gradients.transpose(0, 2, 1)) if square else gradients


def _pulled(blocks: Stored, pulls: tuple[float, float]) -> Stored:
    """C_m of both replicas."""
    eye, pulled = unit(np.eye(*blocks.shape[1:])), np.empty_like(blocks)
    for j, pull in enumerate(pulls):
        left, values, right = np.linalg.svd(blocks[j].astype(np.float64), full_matrices=False)
        pulled[j] = unit(unit((left * values**2) @ right) + pull * eye)
    return pulled


def pairings(modes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to group ``modes`` into pairs; at odd order one mode, named first, is left single."""
    if len(modes) % 2:
        for single in modes:
            rest = tuple(m for m in modes if m != single)
            yield from (((single,), *groups) for groups in pairings(rest))
    elif not modes:
        yield ()
    else:
        first, *others = modes
        for partner in others:
            rest = tuple(m for m in others if m != partner)
            yield from (((first, partner), *groups) for groups in pairings(rest))


def symmetric_floats(dims: Sequence[int]) -> float:
    """State of :class:`Symmetric` in float64 units; infinite where it has nothing to look for.

    M, A, x and the eigenvectors of M in float64; the identity that is asked with and the answers in flight in float32.
    """
    order, d = len(dims), dims[0]
    if order not in ORDERS or len(set(dims)) > 1:
        return math.inf
    trace, count = (d, 1) if order % 2 else (d * d, order // 2)
    in_flight = math.prod(range(order - 1 + order % 2, 0, -2)) * count * trace / 2
    return 5 * trace + in_flight + d * d / 2 + (2 * order + 5) * d


@kept
class Symmetric(Strategy):
    """All vectors the same up to sign."""

    name, size = "symmetric", 1

    def __init__(self, dims: Sequence[int], rng: np.random.Generator) -> None:
        self._dims, self._odd = tuple(dims), len(dims) % 2
        self._partitions = [Partition(self._dims, groups) for groups in pairings(tuple(range(len(dims))))]
        self._x = unit(rng.standard_normal(dims[0]))
        self._sign = 1.0
        self._traces: Array = np.zeros(dims[0] if self._odd else (dims[0], dims[0]))
        self._contractions: Array = np.zeros(dims[0])
        self._trace_variance = self._variance = 0.0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight: the eigenvectors of M."""
        return 32 * self._traces.size

    def queries(self) -> tuple[Query, ...]:
        """Ask for the traces of all pairings, and the contractions with x."""
        d, gradients_of = self._dims[0], (0,) if self._odd else None
        blocks = {1: np.ones((1, d), np.float32), 2: np.eye(d, dtype=np.float32)[None]}
        asked = []
        for p in self._partitions:
            pairs = tuple(m for m, group in enumerate(p.groups) if len(group) == 2)
            asked.append(Query(p, tuple(blocks[len(group)] for group in p.groups), gradients_of, traced=pairs))
        return (*asked, Query(Partition.singles(self._dims), tuple(v[None] for v in self.propose())))

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add traces and contractions; start x from M alone, then let M and A agree on it."""
        *traces, own = answers
        if not all_finite(answers):
            return
        pairs = (len(self._dims) - 1) // 2  # traced out of each term of M
        for gradient in (gradient for answer in traces for gradient in answer.gradients.values()):
            self._traces += n * gradient[0]
            self._trace_variance += n * self._dims[0] ** pairs * (1.0 if self._odd else 0.5)  # sym halves it
        for mode, gradient in own.gradients.items():
            self._contractions += (self._sign if mode == 0 else 1.0) * n * gradient[0]
            self._variance += n
        if self._odd:
            x = unit(self._traces)
        else:
            (value,), (x,) = leading(self._traces)
            self._sign = math.copysign(1.0, value)
            if x @ self._contractions < 0:  # of x and -x, the one that A was summed with
                x = -x
        for _ in range(SWEEPS):
            x = unit(self._toward(x)[0])
        self._x = x

    def _toward(self, x: Array) -> tuple[Array, float]:
        """M(x) and A in the proportion of signal to noise variance, and the noise variance of their sum."""
        first = self._traces if self._odd else self._sign * 0.5 * (self._traces @ x + self._traces.T @ x)
        second = self._contractions
        a = max(0.0, float(x @ first)) / max(self._trace_variance, 1.0)
        b = max(0.0, float(x @ second)) / max(self._variance, 1.0)
        if a == b == 0.0:
            return x, 1.0
        return a * first + b * second, a * a * self._trace_variance + b * b * self._variance

    def propose(self) -> tuple[Array, ...]:
        """Propose x for every mode; a negative strength is a sign of mode 0."""
        return (self._sign * self._x, *(self._x for _ in self._dims[1:]))

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """Tell what M and A say about x, with the signs of ``vectors``; its own x serves: the modes are one vector."""
        total, variance = self._toward(self._x)
        return [math.copysign(1.0, float(v @ self._x)) * total for v in vectors], variance

    def arrays(self) -> list[Array]:
        """M, A and x."""
        return [self._traces, self._contractions, self._x]
