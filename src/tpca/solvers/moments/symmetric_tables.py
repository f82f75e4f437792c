"""What whitening is learnt from: means and covariances of a table, or what they do to some columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.solvers.moments.symmetric_sums import OfRows, Part, long_enough
from tpca.streams.whitening import RunningMoments
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch


class RowMeans(OfRows):
    """Sum of the rows, of their squared lengths, and the least and greatest entry of every column."""

    SUMS = ("count", "total", "squares")

    def __init__(self, width: int, part: Part | None = None) -> None:
        super().__init__(width, part=part)
        self.total, self.squares = np.zeros(width), 0.0
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        self.total += rows.sums(np.ones((len(rows), 1)), np.zeros(len(self.total)))[0]
        stored = rows.rows.data if rows.is_sparse else rows.rows
        self.squares += float(np.vdot(stored, stored))
        low, high = rows.rows.min(axis=0), rows.rows.max(axis=0)
        self._widen(*((low.toarray().ravel(), high.toarray().ravel()) if rows.is_sparse else (low, high)))
        self.count += len(rows)

    def merge(self, other: Any) -> None:
        """Add the sums."""
        super().merge(other)
        self._widen(other.low, other.high)

    def _widen(self, low: Array, high: Array) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    @property
    def mean(self) -> Array:
        """The mean row."""
        return np.asarray(self.total / max(self.count, 1))


class WordMeans(OfRows):
    """Mean share of every word over documents of two words and more; ``strange`` entries are no counts."""

    SUMS = ("count", "total", "strange")

    def __init__(self, width: int, part: Part | None = None) -> None:
        super().__init__(width, part=part)
        self.total, self.strange = np.zeros(width), 0

    def take(self, rows: RowsBatch) -> None:
        """Add some documents."""
        stored = rows.rows.data if rows.is_sparse else rows.rows
        self.strange += int(np.count_nonzero((stored < 0) | (stored != np.floor(stored))))
        whole, lengths = long_enough(rows, 2)
        if len(whole):
            self.total += whole.sums(1 / lengths[:, None], np.zeros(len(self.total)))[0]
        self.count += len(whole)

    @property
    def mean(self) -> Array:
        """Mean shares."""
        return np.asarray(self.total / max(self.count, 1))


class Covariances(Accumulator):
    """Mean and scatter of the rows of each of ``parts``, d² numbers each (Chan, Golub and LeVeque 1979)."""

    def __init__(self, width: int, parts: tuple[Part | None, ...]) -> None:
        super().__init__(width, parts)
        self.parts = [Scatter(width) for _ in parts]

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        for part, own in zip(self.question[1], self.parts, strict=True):
            own.take(batch if part is None else part(batch))
        self.n += len(batch)

    def merge(self, other: Covariances) -> None:
        """Take the rows that another has seen."""
        for own, others in zip(self.parts, other.parts, strict=True):
            own.merge(others)
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """All scatters."""
        return sum(part.scatter.nbytes for part in self.parts)


class Scatter(RunningMoments):
    """The same of rows that may be sparse."""

    def take(self, rows: RowsBatch) -> None:
        """Take some rows."""
        if not len(rows):
            return
        means = RowMeans(len(self.mean))
        means.take(rows)
        own = Scatter(len(self.mean))
        own.count, own.mean, own.low, own.high = len(rows), means.mean, means.low, means.high
        own.scatter = rows.scatter(own.mean)
        self.merge(own)

    @property
    def second_moment(self) -> Array:
        """The scatter divided by the number of rows, so that whitened scores of these rows have variance 1."""
        return self.scatter / max(self.count, 1)


class RowImage(OfRows):
    """The second moment about ``centre`` times a ``basis`` ``(c, d)``, as a sum over rows: ``image`` ``(c, d)``."""

    SUMS = ("count", "image")

    def __init__(self, basis: Array, centre: Array, part: Part | None = None) -> None:
        super().__init__(basis, centre, part=part)
        self.image = np.zeros(basis.shape)

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        basis, centre, _ = self.asked
        rows, centre = rows.about(centre)
        self.image += rows.sums(rows.scores(basis, centre), centre)
        self.count += len(rows)


class PairImage(OfRows):
    """The same of pairs of different words: (c cᵀ - diag c) / (ℓ (ℓ - 1)), of documents of two words and more."""

    SUMS = ("count", "image")

    def __init__(self, basis: Array, part: Part | None = None) -> None:
        super().__init__(basis, part=part)
        self.image = np.zeros(basis.shape)

    def take(self, rows: RowsBatch) -> None:
        """Add some documents."""
        whole, lengths = long_enough(rows, 2)
        if len(whole):
            basis, pairs = self.asked[0], (lengths * (lengths - 1))[:, None]
            zero = np.zeros(basis.shape[1])
            sums = whole.sums(np.concatenate([whole.scores(basis, zero) / pairs, 1 / pairs], axis=1), zero)
            self.image += sums[:-1] - basis * sums[-1]
        self.count += len(whole)


class Slices(OfRows):
    """Σ f z zᵀ ``(q, q)`` and Σ |z|² z of whitened rows z, with f = |z|², or ⟨v, z⟩ for a ``direction`` v."""

    SUMS = ("count", "matrix", "trace")

    def __init__(self, weights: Array, centre: Array, direction: Array | None, part: Part | None = None) -> None:
        super().__init__(weights, centre, direction, part=part)
        self.matrix, self.trace = np.zeros((len(weights),) * 2), np.zeros(len(weights))

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        weights, centre, direction, _ = self.asked
        z = rows.scores(weights, centre)
        lengths = np.sum(z**2, axis=1)
        factors = lengths if direction is None else z @ direction
        self.matrix += (z * factors[:, None]).T @ z
        self.trace += lengths @ z
        self.count += len(rows)


class RowScores(Accumulator):
    """Scores ``(n, c)`` of all rows with ``weights`` ``(c, d)``; of counts, those of the ``shares`` of their words."""

    def __init__(self, weights: Array, centre: Array, shares: bool) -> None:
        super().__init__(weights, centre, shares)
        self._parts: list[Array] = []

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        assert self.question is not None
        weights, centre, shares = self.question
        scores = batch.scores(weights, centre)
        if shares:
            scores = scores / np.maximum(np.asarray(batch.rows.sum(axis=1)).reshape(-1, 1), 1)
        self._parts.append(scores)
        self.n += len(batch)

    def merge(self, other: RowScores) -> None:
        """Append those of the rows that come next."""
        self._parts += other._parts
        self.n += other.n

    @property
    def scores(self) -> Array:
        """Of all rows, in their order."""
        assert self.question is not None
        return np.concatenate([np.empty((0, len(self.question[0]))), *self._parts])

    @property
    def nbytes(self) -> int:
        """The scores."""
        return sum(part.nbytes for part in self._parts)
