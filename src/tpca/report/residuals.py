r"""What one more pass over the samples tells of the noise, in bounded memory.

Every sample T is contracted with the components found and with a few random directions, rank one and of unit length:
:math:`s = \langle T, u_1\otimes\dots\otimes u_k\rangle`.  If the samples are a fixed signal plus white Gaussian noise,
independent of each other, all these scores are independent normal numbers of one variance σ², with mean 0 (about) on a
random direction and with a mean of about the strength on a component.  Kept of them are moments, means of up to
``BINS`` stretches of the stream, the largest and smallest ``EXTREMES``, and ``KEPT`` samples spread evenly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca.engines import Engine, reward_pieces
from tpca.tensors.blocks import Array, unit

RANDOM = 4  # random directions beside the components
BINS, MIN_BIN, EXTREMES, KEPT = 48, 10, 10, 1000


def directions(components: Sequence[Array], dims: Sequence[int]) -> list[Array]:
    """The components as rows of every mode, and after them the random directions: always the same ones."""
    rng = np.random.default_rng(20)
    drawn = [np.stack([unit(rng.standard_normal(d)) for _ in range(RANDOM)]) for d in dims]
    return [np.concatenate([own, r]) for own, r in zip(components, drawn, strict=True)] if components else drawn


class Residuals:
    """Scores of a stream on C components and ``RANDOM`` random directions, reduced as they come."""

    def __init__(self, components: int) -> None:
        count = components + RANDOM
        self.components = components
        self.n = 0
        self._powers = np.zeros((4, count))  # sums of the first four powers of the deviations from the centre
        self._stride, self._kept, self._places = 1, np.empty((0, count)), np.empty(0, int)
        self._width, self._bins = 1, np.zeros((0, 3, count))  # samples a bin; their number, sum and sum of squares
        self._center = np.zeros(count)
        self._first: Array | None = None
        self._last: Array | None = None
        self._products = np.zeros(count)
        self.extremes: list[list[tuple[float, int]]] = [[] for _ in range(count)]  # score and place, both ends

    def add(self, scores: Array) -> None:
        """Take the scores ``(n, directions)`` of the next samples."""
        if not len(scores):
            return
        self._center = scores.mean(axis=0) if self.n == 0 else self._center  # near the mean: sums do not cancel
        shifted = scores - self._center
        self._powers += [(shifted**p).sum(axis=0) for p in (1, 2, 3, 4)]
        self._add_products(shifted)
        self._keep(scores)
        self._fill(shifted)
        for column, found in enumerate(self.extremes):
            order = np.argsort(scores[:, column])
            ends = np.unique(np.concatenate([order[:EXTREMES], order[-EXTREMES:]]))
            found += [(float(scores[i, column]), self.n + int(i)) for i in ends]
            found.sort()
            del found[EXTREMES:-EXTREMES]
        self.n += len(scores)

    @property
    def mean(self) -> Array:
        """Of every direction."""
        return np.asarray(self._center + self._powers[0] / max(self.n, 1))

    @property
    def _squares(self) -> Array:
        """Sum of squared deviations from the mean."""
        return np.asarray(np.maximum(self._powers[1] - self._powers[0] ** 2 / max(self.n, 1), 0.0))

    @property
    def variance(self) -> Array:
        """Of every direction."""
        return self._squares / max(self.n - 1, 1)

    @property
    def kurtosis(self) -> Array:
        """Fourth moment over squared variance: 3 for normal numbers."""
        first, second, third, fourth = self._powers / max(self.n, 1)
        central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
        square = self._squares / max(self.n, 1)
        return np.asarray(central / np.where(square > 0, square, 1.0) ** 2)

    @property
    def neighbours(self) -> Array:
        """Correlation of a score with the next one."""
        if self.n < 3 or self._first is None or self._last is None:
            return np.zeros(len(self._center))
        off = self._powers[0] / self.n  # of the mean from the centre
        products = self._products - off * (2 * self._powers[0] - self._first - self._last) + (self.n - 1) * off**2
        return np.asarray(products / np.where(self._squares > 0, self._squares, 1.0))

    @property
    def kept(self) -> tuple[Array, Array]:
        """Places and scores of samples spread evenly over the stream."""
        return self._places, self._kept

    def bins(self) -> tuple[Array, Array, Array, Array]:
        """Middle, count, mean and variance of every stretch of the stream; a last one of less than half is left out."""
        while self._width < MIN_BIN and len(self._bins):
            self._widen()
        whole = self._bins[self._bins[:, 0, 0] >= max(2, self._width / 2)]
        counts = whole[:, 0, 0]
        means = whole[:, 1] / np.maximum(counts, 1)[:, None]
        spread = whole[:, 2] - counts[:, None] * means**2
        middles = self._width * np.arange(len(whole)) + counts / 2
        return middles, counts, means + self._center, np.maximum(spread, 0) / np.maximum(counts - 1, 1)[:, None]

    def _add_products(self, shifted: Array) -> None:
        if self._last is None:
            self._first = shifted[0].copy()
        else:
            self._products += self._last * shifted[0]
        self._products += (shifted[1:] * shifted[:-1]).sum(axis=0)
        self._last = shifted[-1].copy()

    def _keep(self, scores: Array) -> None:
        places = np.arange(self.n, self.n + len(scores))
        chosen = places % self._stride == 0
        self._kept = np.concatenate([self._kept, scores[chosen]])
        self._places = np.concatenate([self._places, places[chosen]])
        while len(self._places) > KEPT:
            self._stride *= 2
            chosen = self._places % self._stride == 0
            self._kept, self._places = self._kept[chosen], self._places[chosen]

    def _fill(self, shifted: Array) -> None:
        """Add to the bins; when there are too many, two become one, and each is twice as wide."""
        while self.n + len(shifted) > BINS * self._width:
            self._widen()
        which = np.arange(self.n, self.n + len(shifted)) // self._width
        missing = int(which[-1]) + 1 - len(self._bins)
        self._bins = np.concatenate([self._bins, np.zeros((max(0, missing), *self._bins.shape[1:]))])
        np.add.at(self._bins, which, np.stack([np.ones_like(shifted), shifted, shifted**2], axis=1))

    def _widen(self) -> None:
        padded = np.concatenate([self._bins, np.zeros((len(self._bins) % 2, *self._bins.shape[1:]))])
        self._bins, self._width = padded[::2] + padded[1::2], 2 * self._width


def gather(engine: Engine, components: Sequence[Array], most: int | None) -> Residuals:
    """Reduce the scores of the next ``most`` samples."""
    found = Residuals(len(components[0]) if components else 0)
    for scores in reward_pieces(engine, directions(components, engine.dims), most):
        found.add(scores)
    return found
