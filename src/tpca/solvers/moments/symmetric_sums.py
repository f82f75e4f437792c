r"""What passes over the rows of one table add up: powers of scores, and rows times powers of scores.

With scores :math:`y = \langle w, x-\mu\rangle` of a row x, kept in K sub-batches of rows, so that their scatter gives
errors:

.. math::
    S_p = \sum y^p, \qquad A_p = \sum y^p (x-\mu), \quad p = 1 \dots k-1 .

They are all that gradients of moments and cumulants of order k need (:mod:`~tpca.solvers.moments.symmetric_models`).
Of documents given as counts c of words, of length ℓ, all triples of three *different* words count (Anandkumar, Ge, Hsu,
Kakade and Telgarsky 2014, Section 3.1): contracted with w twice, with the product of vectors taken entry by entry,

.. math::
    \frac{(s^2-\langle c,w^2\rangle)\,c - 2s\,(w\,c) + 2\,w^2 c}{\ell(\ell-1)(\ell-2)}, \qquad s = \langle c,w\rangle .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.streams.places import mixed
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch

MAX_POWER = 6  # of scores: the variance of a third moment
RUN = 16  # neighbouring rows that belong to the same sub-batch


@dataclass(frozen=True)
class Part:
    """The rows held out to judge by (``held``), or those to learn from: by chance, and always the same.

    A row's part follows from its place and the seed alone, however rows are cut into batches.
    """

    share: float
    random_state: int
    held: bool

    def __call__(self, batch: RowsBatch) -> RowsBatch:
        """The rows of a batch that belong to the part."""
        aside = _chances(batch.places, self.random_state) < self.share
        return batch.chosen(aside if self.held else ~aside)


def _chances(places: NDArray[np.int64], seed: int) -> Array:
    """A number in [0, 1) for every place."""
    with np.errstate(over="ignore"):
        numbers = places.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0xD1B54A32D192ED03)
        return mixed((numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


class OfRows(Accumulator):
    """Sums over the rows of a part, or of all; ``count`` is how many there were.  ``SUMS`` names what is added up."""

    SUMS: tuple[str, ...] = ("count",)

    def __init__(self, *question: Any, part: Part | None) -> None:
        super().__init__(*question, part)
        self.count: Any = 0

    @property
    def asked(self) -> tuple[Any, ...]:
        """The question: what it was made with, the part last."""
        assert self.question is not None
        return self.question

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch that belong to the part."""
        part = self.asked[-1]
        rows = batch if part is None else part(batch)
        if len(rows):
            self.take(rows)
        self.n += len(batch)

    def take(self, rows: RowsBatch) -> None:
        """Add some rows, at least one."""
        raise NotImplementedError

    def merge(self, other: OfRows) -> None:
        """Add the sums."""
        for name in self.SUMS:
            vars(self)[name] = vars(self)[name] + vars(other)[name]
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """The sums."""
        return sum(int(np.asarray(vars(self)[name]).nbytes) for name in self.SUMS)


class PowerSums(OfRows):
    """S_p ``(K, 7, L)``, A_p ``(K, k - 1, L, d)`` and the sum of x - μ ``(K, d)`` for L ``weights`` ``(L, d)``."""

    SUMS = ("count", "powers", "products", "shift")

    def __init__(self, weights: Array, centre: Array, order: int, blocks: int = 1, part: Part | None = None) -> None:
        super().__init__(weights, centre, order, blocks, part=part)
        count, d = weights.shape
        self.powers = np.zeros((blocks, MAX_POWER + 1, count))
        self.products = np.zeros((blocks, order - 1, count, d))
        self.shift = np.zeros((blocks, d))

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        weights, centre, order, blocks, _ = self.asked
        rows, centre = rows.about(centre)
        for number, some in _by_block(rows, blocks):
            count = len(weights)
            factors = np.ones((len(some), 1 + (order - 1) * count))
            first = some.scores(weights, centre)
            second = first * first
            third = second * first
            for p, power in zip(range(order - 1), (first, second, third), strict=False):
                factors[:, 1 + p * count : 1 + (p + 1) * count] = power
            self.powers[number] += _power_sums(first, second, third)
            sums = some.sums(factors, centre)  # the first of them with factors 1
            self.shift[number] += sums[0]
            self.products[number] += sums[1:].reshape(self.products.shape[1:])
        self.count += len(rows)


class TopicSums(OfRows):
    """Triples of different words with two of them contracted, ``(K, L, d)``, and documents in each sub-batch.

    Also sums of h and h² ``(2, L)``, the test's statistic of every document: pairs of different words, contracted with
    w less its mean ``offset`` ``(L,)``.  Documents of less than three words say nothing.
    """

    SUMS = ("count", "products", "documents", "pairs")

    def __init__(self, weights: Array, offset: Array, blocks: int = 1, part: Part | None = None) -> None:
        super().__init__(weights, offset, blocks, part=part)
        self.products, self.documents = np.zeros((blocks, *weights.shape)), np.zeros(blocks)
        self.pairs = np.zeros((2, len(weights)))

    def take(self, rows: RowsBatch) -> None:
        """Add some documents."""
        w, offset, blocks, _ = self.asked
        whole, lengths = long_enough(rows, 3)
        zero = np.zeros(w.shape[1])
        for number, some in _by_block(whole, blocks):
            length = lengths[_block_of(whole, blocks) == number]
            triples = (length * (length - 1) * (length - 2))[:, None]
            s, square = some.scores(w, zero), some.scores(w**2, zero)
            columns = [(s**2 - square) / triples, s / triples, 1 / triples]
            sums = some.sums(np.concatenate(columns, axis=1), zero)
            first, second = np.split(sums[:-1], 2)
            self.products[number] += first - 2 * w * second + 2 * w**2 * sums[-1]
            self.documents[number] += len(some)
            self.pairs += _pairs(s, square, length, offset)
        self.count += len(whole)


def _power_sums(first: Array, second: Array, third: Array) -> Array:
    """Sums of the powers 0 to 6 of scores, from the scores, their squares and their cubes."""
    pairs = ((second, second), (second, third), (third, third))
    higher = [np.einsum("jl,jl->l", one, other) for one, other in pairs]
    return np.stack(
        [np.full(first.shape[1], float(len(first))), *(p.sum(axis=0) for p in (first, second, third)), *higher]
    )


def _pairs(s: Array, square: Array, length: Array, offset: Array) -> Array:
    """Sums of h and h² over some documents."""
    total = length[:, None]
    own = (s - total * offset) ** 2 - (square - 2 * offset * s + total * offset**2)
    h = own / (total * (total - 1))
    return np.stack([h.sum(axis=0), (h**2).sum(axis=0)])


def long_enough(rows: RowsBatch, least: int) -> tuple[RowsBatch, Array]:
    """Documents of at least so many words, and how many they have."""
    lengths = np.asarray(rows.rows.sum(axis=1), dtype=np.float64).ravel()
    return rows.chosen(lengths >= least), lengths[lengths >= least]


def _block_of(rows: RowsBatch, blocks: int) -> NDArray[np.int64]:
    """The sub-batch of every row."""
    return np.asarray((rows.places // RUN) % blocks)


def _by_block(rows: RowsBatch, blocks: int) -> list[tuple[int, RowsBatch]]:
    """The rows of every sub-batch that has some."""
    if blocks == 1:
        return [(0, rows)] if len(rows) else []
    own = _block_of(rows, blocks)
    return [(int(number), rows.chosen(own == number)) for number in np.unique(own)]
