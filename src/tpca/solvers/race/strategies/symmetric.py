r"""Strategies for structure: vectors that are the same in all modes (*symmetric*), or in pairs (*symmetric pairs*).

**Symmetric.**  Let P run over all ways to pair up the modes (one mode stays single at odd order).  Tracing out all
pairs but one gives, for v ⊗ ... ⊗ v, a d x d matrix of signal λ v v^T (at odd order: all pairs, a vector λ v).  Its
noise has d^q times the variance of a sample's, q = number of pairs traced; different pairings are nearly uncorrelated:

.. math:: M = \sum_{rounds} B \sum_P \mathrm{sym}\,\mathrm{tr}_P(T), \qquad
          A = \sum_{rounds} B \sum_i T(\cdot_i, x, \dots, x) .

``M`` starts the search; its leading eigenvector (of largest absolute eigenvalue: the strength may be negative) or, at
odd order, its direction is the first x.  ``A`` adds the contractions with x itself, of noise 1 instead of d^q, so that
x is improved by samples as soon as it is any good:  ``x <- unit(s_M M(x) / w_M + s_A A / w_A)``, s the signals
``<x, M(x)>`` and ``<x, A>``, w the noise variances.  The proposal is x for every mode, the sign of one flipped for a
negative strength.

**Symmetric pairs.**  Blocks W_m of the paper's pairs are contracted as ``C_m = unit(S(W_m) + 2 I / √d)``, S(W) being W
with squared singular values, so that the identity is never forgotten (padded with zeros when the two modes differ in
length), and ``W_m <- unit(W_m + 1.4 B / (sigma √(D n)) sym(G_m))``.  Two replicas, the second with -I in one block,
serve both signs.

Symbols: T mean of a round, B its samples (``n`` in ``absorb``), n all samples so far (``seen``), D entries of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.strategies.strategy import FADING, Look, NoiseLevel, Stored, all_finite
from tpca.solvers.rank_one import leading, split_blocks
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, check_dims, unit

SWEEPS = 5  # of M and A on x
STEP = 1.4  # in units of the anytime step
PULL = 2.0  # weight of the identity against a unit block
POWER = 2.0  # of singular values


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


def symmetric_floats(dims: tuple[int, ...], asked: int) -> float:
    """State of :class:`Symmetric` in float64 units.

    M, A, x and the eigenvectors of M in float64; the identity that is asked with and the answers in flight in float32.
    """
    order, d = len(dims), dims[0]
    asked = min(asked, math.prod(range(order - 1 + order % 2, 0, -2)))
    trace = d if order % 2 else d * d
    in_flight = asked * (1 if order % 2 else order // 2) * trace / 2
    return 5 * trace + in_flight + d * d / 2 + (2 * order + 5) * d


@kept
class Symmetric:
    """All vectors the same up to sign; ``asked`` pairings are asked per round, in turn."""

    name, size = "symmetric", 1

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator, asked: int) -> None:
        self._dims = check_dims(dims)
        d, self._odd = self._dims[0], len(self._dims) % 2
        every = [Partition(self._dims, groups) for groups in pairings(tuple(range(len(self._dims))))]
        self._partitions = [every[i] for i in rng.permutation(len(every))]
        self._asked = min(asked, len(every))
        self._next = 0
        self._traces: Array = np.zeros(d if self._odd else (d, d))
        self._contractions: Array = np.zeros(d)
        self._x = unit(rng.standard_normal(d))
        self._sign = 1.0
        self._trace_variance = self._variance = 0.0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight: the eigenvectors of M."""
        return 32 * self._traces.size

    def queries(self) -> tuple[Query, ...]:
        """Ask for the traces of the next pairings, and the contractions with x."""
        d = self._dims[0]
        eye: Stored = np.eye(d, dtype=np.float32)[None]
        one: Array = np.ones((1, d), dtype=np.float32)
        chosen = [self._partitions[(self._next + i) % len(self._partitions)] for i in range(self._asked)]
        gradients_of = (0,) if self._odd else None
        traces = [
            Query(
                p,
                tuple(one if len(group) == 1 else eye for group in p.groups),
                gradients_of,
                traced=tuple(m for m, group in enumerate(p.groups) if len(group) == 2),
            )
            for p in chosen
        ]
        return (*traces, Query(Partition.singles(self._dims), tuple(v[None] for v in self._vectors(self._x))))

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add traces and contractions, then improve x."""
        *traces, own = answers
        if not all_finite(answers):
            return
        pairs = (len(self._dims) - 1) // 2  # traced out of each term of M
        for answer in traces:
            for gradient in answer.gradients.values():
                self._traces += n * gradient[0]
                self._trace_variance += n * self._dims[0] ** pairs * (1.0 if self._odd else 0.5)  # sym halves it
        for mode, gradient in own.gradients.items():
            self._contractions += (self._sign if mode == 0 else 1.0) * n * gradient[0]
            self._variance += n
        self._next = (self._next + self._asked) % len(self._partitions)
        self._improve()

    def restart(self) -> None:
        """Keep x, forget the sums."""
        self._traces[...] = 0.0
        self._contractions[...] = 0.0
        self._trace_variance = self._variance = 0.0

    def _improve(self) -> None:
        """Start x from M alone, then let M and A agree on it."""
        if self._odd:
            x, self._sign = unit(self._traces), 1.0
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

    def _vectors(self, x: Array) -> tuple[Array, ...]:
        """Give every mode x; a negative strength is a sign of mode 0."""
        return (self._sign * x, *(x for _ in self._dims[1:]))

    def read(self) -> Look:
        """What it says can be read off directly."""
        return self

    def propose(self) -> tuple[Array, ...]:
        """Propose x for every mode."""
        return self._vectors(self._x)

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """Tell what M and A say about x, with the signs of ``vectors``; its own x serves: the modes are one vector."""
        total, variance = self._toward(self._x)
        return [math.copysign(1.0, float(v @ self._x)) * total for v in vectors], variance

    def arrays(self) -> list[Array]:
        """M, A and x."""
        return [self._traces, self._contractions, self._x]


def symmetric_pairs_floats(dims: tuple[int, ...]) -> float:
    """State of :class:`SymmetricPairs` in float64 units.

    W, C and the answers in flight of two replicas, all float32, and the working copies of one block.
    """
    sizes = Partition.pairs(dims).sizes
    return 3 * sum(sizes) + 6 * max(sizes) + 8


@kept
class SymmetricPairs:
    """Vectors equal inside each pair of the paper's partition, for either sign of the strength."""

    name, size = "symmetric pairs", 2

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator) -> None:
        self._partition = Partition.pairs(check_dims(dims))
        self._blocks: list[Array] = []
        for shape in self._partition.shapes:
            start = unit(rng.standard_normal(shape)) if len(shape) == 1 else np.zeros(shape)
            self._blocks.append(np.stack([start, start]).astype(np.float32))
        self._scores, self._noise = np.zeros(2), NoiseLevel()
        self._keep, self._seen = 1.0, 0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight: one block's singular vectors."""
        return 48 * max(self._partition.sizes)

    def queries(self) -> tuple[Query, ...]:
        """Pull all blocks toward the identity, only the last block of the second replica toward minus the identity."""
        *others, last = self._blocks
        pulled = [w if w.ndim == 2 else _pulled(w, (PULL, PULL)) for w in others]
        return (Query(self._partition, (*pulled, _pulled(last, (PULL, -PULL)))),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One anytime step of every block of both replicas."""
        (answer,) = answers
        if not all_finite(answers):
            return
        self._noise.absorb(answer, n)
        self._seen += n
        for m, size in enumerate(self._partition.sizes):
            step = STEP * n / (self._noise.sigma * math.sqrt(size * self._seen))
            for own, gradient in zip(self._blocks[m], answer.gradients[m], strict=True):
                own[...] = unit(self._keep * own + step * symmetrised(gradient.astype(np.float64)))
        self._keep = 1.0
        self._scores = FADING * self._scores + n * answer.rewards

    def restart(self) -> None:
        """Keep the blocks as the next query; the next round starts them afresh."""
        self._keep, self._seen = 0.0, 0
        self._scores[:] = 0.0

    def read(self) -> Look:
        """What it says can be read off directly."""
        return self

    def propose(self) -> tuple[Array, ...]:
        """Leading singular vectors of the blocks of the replica with the best fading reward."""
        best = int(np.argmax(self._scores))
        return tuple(split_blocks(self._partition.groups, [block[best].astype(np.float64) for block in self._blocks]))

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """Take the blocks of the replica nearest to ``vectors``, contracted with them; scaled to noise of level sigma.

        Blocks and vectors are known up to sign only: the sign of block m is that of its partners' overlaps.
        """
        partition = self._partition
        rays = partition.outer(vectors)
        overlaps = np.array([np.tensordot(w, ray, ray.ndim) for w, ray in zip(self._blocks, rays, strict=True)])
        nearest = int(np.argmax(np.abs(overlaps).prod(axis=0)))
        signs = np.where(overlaps[:, nearest] < 0, -1.0, 1.0)
        sums: list[Array] = [np.zeros(0)] * partition.order
        for m, group in enumerate(partition.groups):
            scale = self._noise.sigma * math.sqrt(partition.sizes[m])
            block = signs.prod() * signs[m] * scale * self._blocks[m][nearest].astype(np.float64)
            both = (block,) if block.ndim == 1 else (block @ vectors[group[1]], vectors[group[0]] @ block)
            for mode, total in zip(group, both, strict=True):
                sums[mode] = total
        return sums, 1.0

    def arrays(self) -> list[Array]:
        """Blocks of both replicas, and scores."""
        return [*self._blocks, self._scores]


def _pulled(blocks: Array, pulls: tuple[float, float]) -> Array:
    """C_m of both replicas."""
    eye = unit(np.eye(*blocks.shape[1:]))
    pulled: Array = np.empty_like(blocks)
    for j, pull in enumerate(pulls):
        pulled[j] = unit(sharpened(blocks[j]) + pull * eye)
    return pulled


def symmetrised(block: Array) -> Array:
    """Return the symmetric part of a square block, any other block as it is."""
    square = block.ndim == 2 and block.shape[0] == block.shape[1]
    return 0.5 * (block + block.T) if square else block


def sharpened(block: Array) -> Array:
    """Raise the singular values of a block of two modes to a power p > 1, at unit norm: U s^p V^T.

    The signal sits in the leading one, so this drops noise.
    """
    left, values, right = np.linalg.svd(block.astype(np.float64), full_matrices=False)
    return unit((left * values**POWER) @ right)
