r"""What the first samples tell of the noise, kept in a few matrices: no sample is.

Differences of neighbours have the covariances of the modes (:mod:`tpca.noise.pairs`), kept in two halves apart, pairs
of even and of odd number, so that what both halves agree on can be told from what is chance in either.

Whether neighbours are alike is read off the gradients of a few random rank-one queries, r·Σd numbers a sample, which
:mod:`tpca.noise.serial` keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.noise.pairs import AT_ONCE, ModeCovariances, PairSums
from tpca.noise.serial import Contrasts
from tpca.noise.whitening import Whitening
from tpca.tensors import Accumulator, Batch, DenseBatch, Query
from tpca.tensors.blocks import Array, Partition
from tpca.tensors.contraction import outer
from tpca.tensors.namespaces import fused, namespace, permuted, to_device, to_host

QUERIES = 8  # random rank-one queries
IN_FLIGHT = 4  # samples whose gradients are held at a time, at least
ONE = np.ones((1, 1))  # the outer product of no vectors


class QueryGradients(Accumulator):
    """All gradients of every sample with some rank-one queries: ``rows`` ``(n, r Σd)``; ``vectors[i]`` is (r, d_i)."""

    of_few = True

    def __init__(self, vectors: Sequence[Array]) -> None:
        super().__init__(list(vectors))
        self._parts: list[Array] = []

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Contract every sample."""
        assert self.question is not None
        vectors = self.question[0]
        if isinstance(batch, DenseBatch):
            batch.check()
            step = max(1, AT_ONCE // math.prod(batch.dims))
            for j in range(0, len(batch), step):
                self._parts.append(sample_gradients(batch[j : j + step].samples, vectors))
        else:
            query = Query(Partition.singles([v.shape[1] for v in vectors]), tuple(vectors))
            for j in range(len(batch)):
                sums = {m: np.zeros(v.shape) for m, v in enumerate(vectors)}
                batch[j : j + 1].add_gradients([query], [sums])
                self._parts.append(np.concatenate([g.reshape(1, -1) for g in sums.values()], axis=1))
        self.n += len(batch)

    def merge(self, other: QueryGradients) -> None:
        """Append those of the samples that come next."""
        self._parts += other._parts
        self.n += other.n

    @property
    def rows(self) -> Array:
        """Of all samples, in their order."""
        assert self.question is not None
        return np.concatenate([np.empty((0, sum(v.size for v in self.question[0]))), *self._parts])

    @property
    def nbytes(self) -> int:
        """The gradients."""
        return sum(part.nbytes for part in self._parts)


@kept
class Sketch(PairSums):
    """What is known of the noise after some readings of samples, one after the other.

    With a ``whitening`` it is the noise of whitened data that is looked at.  ``queries`` is how many random rank-one
    queries there are for gradients, ``numbers`` how many of their entries are looked at (all, if ``None``), ``modes``
    says whether covariances are learnt as well, from one slice in ``step``.
    """

    def __init__(
        self,
        dims: Sequence[int],
        rng: np.random.Generator,
        whitening: Whitening | None = None,
        queries: int = QUERIES,
        modes: bool = True,
        step: int = 1,
        numbers: int | None = None,
    ) -> None:
        self.dims, self.whitening, self.modes, self.step = tuple(dims), whitening, modes, step
        self.numbers = numbers
        self.directions = [unit_rows(rng.standard_normal((queries, d))) for d in self.dims]
        if whitening is not None:
            for mode, own in enumerate(self.directions):
                own[0] = whitening.loudest(mode)  # together, what should be as quiet as everything else by now
        self.n = 0
        self.begin_pairs()
        self.contrasts = Contrasts(None if whitening is None else self.directions[0][0].copy())

    def blanks(self) -> tuple[Accumulator, ...]:
        """Accumulators for the next samples."""
        directions = self.directions if self.whitening is None else list(self.whitening.vectors(self.directions))
        gradients = QueryGradients(directions)
        return (gradients, ModeCovariances(self.whitening, self.pairs, self.step)) if self.modes else (gradients,)

    def take(self, gradients: QueryGradients, covariances: ModeCovariances | None = None) -> None:
        """Take what was asked for."""
        self.contrasts.add_all(self._whitened(gradients.rows)[:, : self.numbers])
        self.n += gradients.n
        if covariances is not None:
            self.add_pairs(covariances)

    @property
    def entries(self) -> int:
        """Entries of a pair that are looked at for the covariances, about: one slice in ``step``."""
        return max(1, math.prod(self.dims) // self.step)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = self.gram_bytes + sum(v.nbytes for v in self.directions) + self.contrasts.nbytes
        return own if self.whitening is None else own + self.whitening.nbytes

    def _whitened(self, rows: Array) -> Array:
        """The gradients of whitened data, a row for every sample."""
        if self.whitening is None:
            return rows
        blocks = np.split(rows, np.cumsum([v.size for v in self.directions])[:-1], axis=1)
        pairs = zip(blocks, self.directions, strict=True)
        own = [self.whitening.gradient(b.reshape(-1, *v.shape), i) for i, (b, v) in enumerate(pairs)]
        return np.concatenate([g.reshape(len(rows), -1) for g in own], axis=1)


def unit_rows(rows: Array) -> Array:
    """Random rows, each of length 1."""
    return np.asarray(rows / np.sqrt(np.vecdot(rows, rows))[:, None])


def sample_gradients(samples: Any, vectors: Sequence[Array]) -> Array:
    """All gradients of all samples with rank-one queries, ``(n, r Σd)``: the first mode of all first, then the rest.

    In that order what is long lies along rows, which BLAS is quick at; few columns it is not.
    """
    found = fused(_query_gradients)(samples, [to_device(v, samples) for v in (*vectors, ONE)])
    return np.concatenate([to_host(g) for g in found], axis=1).astype(np.float64, copy=False)


def _query_gradients(samples: Any, vectors: Sequence[Any]) -> list[Any]:
    first, *others, one = vectors
    xp, count, queries = namespace(samples), samples.shape[0], first.shape[0]
    flat = xp.reshape(samples, (count, first.shape[1], -1))
    found = [permuted(xp.matmul(flat, outer(others).T), (0, 2, 1))]
    rest = xp.matmul(first, flat)
    while others:
        first, *others = others
        blocks = xp.reshape(rest, (count, queries, first.shape[1], -1))
        found.append(xp.matmul(blocks, (outer(others) if others else one)[:, :, None])[..., 0])
        rest = xp.matmul(first[:, None, :], blocks)[:, :, 0, ...]
    return [xp.reshape(g, (count, -1)) for g in found]


def matrix_bytes(dims: Sequence[int]) -> int:
    """Bytes of all that is d_i x d_i: what is learnt, W_i and its inverse, and as much again for another W_i."""
    return learning_bytes(dims) + 4 * 8 * sum(d * d for d in dims)


def learning_bytes(dims: Sequence[int]) -> int:
    """Bytes of the covariances while they are learnt: two halves, and those of a round in flight."""
    return 4 * 4 * sum(d * d for d in dims)


def gradient_bytes(dims: Sequence[int], queries: int, samples: int, numbers: int | None = None) -> int:
    """Bytes of the directions and of what is kept of their gradients over ``samples``: of ``numbers`` of them."""
    # Directions, whitened, too, and samples; a sum a level.
    double, single = 2 + IN_FLIGHT, max(1, samples).bit_length() + 2
    total = queries * sum(dims)
    return 8 * double * total + 4 * single * (total if numbers is None else min(numbers, total))
