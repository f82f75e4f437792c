r"""Whitening of the rows of one table: never applied to rows that are kept as they are, but to vectors and gradients.

With C = Q Λ Qᵀ the matrix to be whitened (a covariance; a second moment less that of the noise; pairs of words)

.. math::
    z = W (x - \mu), \qquad W = \Lambda^{-1/2} Q^\top, \qquad \langle u, z\rangle = \langle W^\top u, x - \mu\rangle ,

so that scores of whitened rows are scores of the rows as they are, with other weights, and a gradient among z is W
times a gradient among x.  All d directions take d² numbers and one pass.  The q leading ones take (q + 10)·d numbers
and some passes of subspace iteration (Halko, Martinsson and Tropp 2011), whose convergence is told by its Ritz values.

Shrinkage s takes (1 - s) C + s (tr C / d) I in the place of C, for fewer rows than columns or a covariance that is not
of full rank; without it these are refused.

=============  ==================================================================
symbol         code
=============  ==================================================================
μ, W           ``centre``, ``weights`` ``(q, d)``; ``None`` where W = I
Q Λ^(1/2)      ``back`` ``(d, q)``
σ²             ``noise_variance``, what was subtracted of a second moment
=============  ==================================================================

Whitened rows of fewer columns are worked out for every batch, or kept once they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.errors import SampleError
from tpca.solvers.moments.symmetric_tables import RowMeans, Scatter
from tpca.solvers.rank_one import units
from tpca.streams.table_rows import RowsStream
from tpca.streams.vectors import MadeVectors, VectorStream
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch

EXTRA = 10  # columns beside those wanted
MAX_IMAGES = 40
RITZ_TOL = 1e-8  # relative change of the sum of the leading Ritz values at which they are at rest


@dataclass(frozen=True)
class RowWhitening:
    """Whitening of rows in q directions."""

    centre: Array
    weights: Array | None
    back: Array | None
    noise_variance: float = 0.0

    @property
    def q(self) -> int:
        """Directions that are left."""
        return len(self.centre) if self.weights is None else len(self.weights)

    def of_rows(self, vectors: Array) -> Array:
        """Weights on the columns of the table for vectors ``(L, q)`` among the whitened ones."""
        return vectors if self.weights is None else vectors @ self.weights

    def of_white(self, weights: Array) -> Array:
        """Unit vectors ``(L, q)`` whose weights are next to those given."""
        return units(weights if self.back is None else weights @ self.back)

    def gradients(self, gradients: Array) -> Array:
        """Gradients ``(L, d)`` of the table among the whitened columns."""
        return gradients if self.weights is None else gradients @ self.weights.T

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in (self.centre, self.weights, self.back) if array is not None)


def whiten_all(seen: Scatter, shrinkage: float, dtype: np.dtype[Any]) -> RowWhitening:
    """Whitening in all directions, from the whole covariance."""
    d = len(seen.mean)
    _refuse_constant(seen, shrinkage)
    covariance = shrunk(seen.second_moment, shrinkage)
    values, basis = np.linalg.eigh(covariance)
    rank = int(np.count_nonzero(values > d * np.finfo(dtype).eps * values[-1]))
    if rank < d:
        raise _deficient(f"the covariance of {d} columns, from {seen.count} rows,", rank)
    return _whitening(seen.mean, values, basis)


def whiten_leading(
    image: Callable[[Array], Array],
    means: RowMeans | None,
    centre: Array,
    first: Array,
    noise: Callable[[Array], float],
    shrink: float,
) -> RowWhitening:
    """Whitening in the leading directions, as many as ``first`` ones, of a matrix that is known by its products only.

    ``image(basis)`` is that of a basis ``(c, d)``; ``noise(values)`` what is subtracted of the leading eigenvalues.
    """
    q, d = first.shape[0] - EXTRA, len(centre)
    values, basis = leading_directions(image, first, q)
    variance = float(noise(values))
    values = (1 - shrink) * (values - variance)
    if shrink and means is not None:
        trace = means.squares / max(means.count, 1) - float(centre @ centre)
        values = values + shrink * trace / d
    rank = int(np.count_nonzero(values > d * np.finfo(np.float32).eps * max(values[0], 0.0)))
    if rank < q:
        raise _deficient("the matrix to be whitened", rank)
    return _whitening(centre, values, basis.T, variance)


def first_directions(q: int, d: int, rng: np.random.Generator, known: Array | None = None) -> Array:
    """Where subspace iteration begins, ``(q + 10, d)``: what is known of the leading directions, the rest random."""
    random = rng.standard_normal((q + EXTRA, d))
    if known is not None:
        random[: len(known)] = units(known) * np.sqrt(d)
    return random


def leading_directions(image: Callable[[Array], Array], first: Array, q: int) -> tuple[Array, Array]:
    """The q largest eigenvalues of a symmetric matrix and their vectors ``(q, d)``, by subspace iteration."""
    d = first.shape[1]
    basis = np.linalg.qr(first[:d].T)[0].T
    before = np.inf
    for _ in range(MAX_IMAGES):
        found = image(basis)
        small = basis @ found.T
        values, turn = np.linalg.eigh((small + small.T) / 2)
        order = np.argsort(-values)
        leading, ritz = values[order[:q]], turn[:, order[:q]].T @ basis
        if len(basis) == d or abs(leading.sum() - before) <= RITZ_TOL * abs(leading.sum()):
            break
        before = leading.sum()
        basis = np.linalg.qr(found.T)[0].T
    return leading, ritz


def shrunk(covariance: Array, shrinkage: float) -> Array:
    """The covariance, drawn towards a multiple of the identity."""
    d = len(covariance)
    return np.asarray((1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d))


def _whitening(centre: Array, values: Array, basis: Array, noise: float = 0.0) -> RowWhitening:
    roots = np.sqrt(values)
    return RowWhitening(centre, np.ascontiguousarray((basis / roots).T), basis * roots, noise)


def _refuse_constant(seen: Scatter, shrinkage: float) -> None:
    constant = np.flatnonzero(seen.low == seen.high)
    if len(constant) and not shrinkage:
        raise SampleError(
            f"column {constant[0]} is constant, {seen.low[constant[0]]:g} in all of {seen.count} rows, and cannot be "
            "whitened; leave it out, or give whiten_rank or shrinkage."
        )


def _deficient(what: str, rank: int) -> SampleError:
    return SampleError(
        f"{what} has rank {rank}: rows cannot be whitened in so many directions; give whiten_rank={max(rank, 1)} or "
        "less (fewer components of a mixture or of topics), shrinkage, or more rows."
    )


def projected(batch: RowsBatch, whitening: RowWhitening) -> RowsBatch:
    """The whitened rows of a batch."""
    assert whitening.weights is not None
    scores = batch.scores(whitening.weights, whitening.centre)
    return RowsBatch(scores, batch.places, batch.first, batch.dropped)


class ProjectedRows(MadeVectors, RowsStream):
    """The rows of a stream, centred and whitened."""

    def __init__(self, stream: VectorStream, whitening: RowWhitening) -> None:
        super().__init__(stream)
        self.dims, self.dtype, self._whitening = (whitening.q,), np.dtype(np.float64), whitening

    def made(self, batch: RowsBatch) -> RowsBatch:
        """One batch, whitened."""
        return projected(batch, self._whitening)


class HandedRows(RowsStream):
    """What is known of rows that are handed in, in their own order only."""

    def __init__(self, d: int, dtype: np.dtype[Any], count: int) -> None:
        self.dims, self.dtype, self.length = (d,), dtype, count
