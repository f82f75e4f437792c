r"""What the first samples tell of the noise, kept in a few matrices: no sample is.

Neighbours in pairs, :math:`\Delta_j = (T_{2j+1} - T_{2j})/\mathrm{rms}`: whatever all samples have in common, the
signal above all, is gone from them.  Their mode-i Gram matrices

.. math:: C_i = \frac{d_i}{D}\,\frac1n\sum_j \Delta_{j(i)}\Delta_{j(i)}^\top, \qquad \mathrm{tr}\,C_i = d_i,

are the covariances of the modes, in two halves apart (pairs of even and of odd number), so that what both halves agree
on can be told from what is chance in either.

Whether neighbours are alike is read off the gradients of a few random rank-one queries, r·Σd numbers a sample, which
:mod:`tpca.noise.serial` keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.noise.serial import Contrasts
from tpca.noise.whitening import Whitening
from tpca.tensors import Accumulator, Batch, DenseBatch, Query
from tpca.tensors.blocks import Array, Partition, unit

QUERIES = 8  # random rank-one queries


class ModeCovariances(Accumulator):
    """Gram matrices of all modes over differences of neighbours: ``grams[half][i]``, sums over ``counts[half]`` pairs.

    Samples 2j and 2j + 1 of a reading are a pair, however it is cut into batches and groups; a sample whose neighbour
    has not come yet is held until it does.  ``pairs_before`` is the number of pairs of readings before this one: it
    says whose turn it is, of the two halves.  With a ``whitening`` the differences are whitened first.
    """

    of_few = True

    def __init__(self, whitening: Whitening | None = None, pairs_before: int = 0) -> None:
        super().__init__(whitening, pairs_before)
        self.counts = [0, 0]
        self.grams: list[list[Array]] = [[], []]
        self.fourth = 0.0  # sum of the mean fourth powers of the pairs' entries
        self._whitening, self._before = whitening, pairs_before  # merging needs them after the question has gone
        self._first: NDArray[Any] | None = None  # an odd sample whose neighbour is in the part before
        self._last: NDArray[Any] | None = None  # an even one whose neighbour has not come yet
        self._place = 0  # of the latter

    def add(self, batch: Batch, at: int = 0) -> None:
        """Take the pairs of a batch."""
        for j in range(len(batch)):
            self._take(_sample(batch, j), at + j)
        if self._last is not None and self._last.base is not None:
            self._last = self._last.copy()  # of a batch that is not held
        self.n += len(batch)

    def merge(self, other: ModeCovariances) -> None:
        """Take the pairs of the samples that come next, and the one that lies across."""
        for half in (0, 1):
            _add(self.grams[half], other.grams[half])
            self.counts[half] += other.counts[half]
        self.fourth += other.fourth
        if self._last is not None and other._first is not None:
            self._pair(self._last, other._first, self._place // 2)
        self._last, self._place = other._last, other._place
        self.n += other.n

    def finish(self) -> None:
        """A sample without a neighbour is left out."""
        self._first = self._last = None

    @property
    def pairs(self) -> int:
        """Pairs that differ: those of equal samples say nothing."""
        return sum(self.counts)

    @property
    def nbytes(self) -> int:
        """The matrices, and the samples that wait for their neighbours."""
        held = [gram for half in self.grams for gram in half]
        return sum(a.nbytes for a in (*held, self._first, self._last) if a is not None)

    def _take(self, sample: NDArray[Any], place: int) -> None:
        if place % 2 == 0:
            self._last, self._place = sample, place
        elif self._last is not None:
            self._pair(self._last, sample, place // 2)
            self._last = None
        else:
            self._first = sample.copy()

    def _pair(self, even: NDArray[Any], odd: NDArray[Any], number: int) -> None:
        """Add the Gram matrices of one difference."""
        difference = _unit_size(odd, even)
        if difference is None:
            return
        if self._whitening is not None:
            difference = self._whitening.tensor(difference)
            difference /= _rms(difference)
        half = (number + self._before) % 2
        _add(self.grams[half], [_gram(difference, mode) for mode in range(difference.ndim)])
        self.counts[half] += 1
        np.square(difference, out=difference)
        self.fourth += float(np.vdot(difference, difference)) / difference.size


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
        query = Query(Partition.singles([v.shape[1] for v in vectors]), tuple(vectors))
        for j in range(len(batch)):
            sums = {m: np.zeros(v.shape) for m, v in enumerate(vectors)}
            batch[j : j + 1].add_gradients([query], [sums])
            self._parts.append(np.concatenate([g.reshape(-1) for g in sums.values()]))
        self.n += len(batch)

    def merge(self, other: QueryGradients) -> None:
        """Append those of the samples that come next."""
        self._parts += other._parts
        self.n += other.n

    @property
    def rows(self) -> Array:
        """Of all samples, in their order."""
        assert self.question is not None
        return np.stack(self._parts) if self._parts else np.empty((0, sum(v.size for v in self.question[0])))

    @property
    def nbytes(self) -> int:
        """The gradients."""
        return sum(part.nbytes for part in self._parts)


@kept
class Sketch:
    """What is known of the noise after some readings of samples, one after the other.

    With a ``whitening`` it is the noise of whitened data that is looked at.  ``queries`` is how many random rank-one
    queries there are for gradients, ``modes`` says whether covariances are learnt as well.
    """

    def __init__(
        self,
        dims: Sequence[int],
        rng: np.random.Generator,
        whitening: Whitening | None = None,
        queries: int = QUERIES,
        modes: bool = True,
    ) -> None:
        self.dims, self.whitening, self.modes = tuple(dims), whitening, modes
        self.directions = [np.stack([unit(rng.standard_normal(d)) for _ in range(queries)]) for d in self.dims]
        if whitening is not None:
            for mode, own in enumerate(self.directions):
                own[0] = whitening.loudest(mode)  # together, what should be as quiet as everything else by now
        self.n, self.counts = 0, [0, 0]
        self.grams: list[list[Array]] = [[], []]
        self.fourth = 0.0
        self.contrasts = Contrasts(None if whitening is None else self.directions[0][0].copy())

    def blanks(self) -> tuple[Accumulator, ...]:
        """Accumulators for the next samples."""
        directions = self.directions if self.whitening is None else list(self.whitening.vectors(self.directions))
        gradients = QueryGradients(directions)
        return (gradients, ModeCovariances(self.whitening, self.pairs)) if self.modes else (gradients,)

    def take(self, gradients: QueryGradients, covariances: ModeCovariances | None = None) -> None:
        """Take what was asked for."""
        for row in gradients.rows:
            self.contrasts.add(self._whitened(row))
        self.n += gradients.n
        if covariances is None:
            return
        for half in (0, 1):
            _add(self.grams[half], covariances.grams[half])
            self.counts[half] += covariances.counts[half]
        self.fourth += covariances.fourth

    @property
    def pairs(self) -> int:
        """Pairs of neighbours that differ."""
        return sum(self.counts)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = [gram for half in self.grams for gram in half]
        own = sum(array.nbytes for array in (*held, *self.directions)) + self.contrasts.nbytes
        return own if self.whitening is None else own + self.whitening.nbytes

    def _whitened(self, row: Array) -> Array:
        """The gradients of whitened data, one after the other."""
        if self.whitening is None:
            return row
        blocks = np.split(row, np.cumsum([v.size for v in self.directions])[:-1])
        pairs = zip(blocks, self.directions, strict=True)
        own = [self.whitening.gradient(b.reshape(v.shape), i) for i, (b, v) in enumerate(pairs)]
        return np.concatenate([g.reshape(-1) for g in own])


def matrix_bytes(dims: Sequence[int]) -> int:
    """Bytes of all that is d_i x d_i: two halves, W_i and its inverse, and as much again while they are worked out."""
    return 8 * 8 * sum(d * d for d in dims)


def gradient_bytes(dims: Sequence[int], queries: int, samples: int) -> int:
    """Bytes of the directions and of what is kept of their gradients over ``samples`` samples."""
    double, single = 2 + 3, max(1, samples).bit_length() + 2  # directions, whitened, too, and samples; a sum a level
    return (8 * double + 4 * single) * queries * sum(dims)


def _sample(batch: Batch, j: int) -> NDArray[Any]:
    """One sample in full."""
    return np.asarray(batch.samples[j] if isinstance(batch, DenseBatch) else batch[j : j + 1].add_to(None))


def _unit_size(odd: NDArray[Any], even: NDArray[Any]) -> NDArray[Any] | None:
    """A difference of root mean square one; ``None`` where there is none, or it is beyond all floats."""
    kind = np.float32 if odd.dtype == even.dtype == np.float32 else np.float64
    with np.errstate(over="ignore"):
        difference: NDArray[Any] = np.subtract(odd, even, dtype=kind)
    largest = max(float(difference.max()), -float(difference.min()))
    if largest == 0 or not math.isfinite(largest):
        return None
    if not 1e-10 < largest < 1e10:
        difference /= largest  # first: squares would leave the range of floats
    difference /= _rms(difference)
    return difference


def _rms(array: NDArray[Any]) -> float:
    """Root mean square of all entries."""
    return math.sqrt(float(np.vdot(array, array)) / array.size)


def _gram(tensor: NDArray[Any], mode: int) -> Array:
    """Gram matrix of a mode, scaled so that its trace is the mode's length where the mean square is one."""
    blocks = tensor.reshape(math.prod(tensor.shape[:mode]), tensor.shape[mode], -1)
    if blocks.shape[2] == 1:  # the last mode: no copy is made of a transposed matrix
        gram: Array = (blocks[:, :, 0].T @ blocks[:, :, 0]).astype(np.float64)
    else:
        gram = np.zeros((blocks.shape[1],) * 2)
        for block in blocks:
            gram += block @ block.T
    gram /= tensor.size / len(gram)
    return gram


def _add(own: list[Array], others: Sequence[Array]) -> None:
    """Add matrices to sums that may not have begun."""
    if not own:
        own += [matrix.copy() for matrix in others]
        return
    for total, matrix in zip(own, others, strict=bool(others)):
        total += matrix
