"""A plan: which samples make a derived one, and with which weights; see :mod:`tpca.streams.contrasts`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca.streams.partial import entry_contrast, entry_grams
from tpca.tensors.blocks import Array

UNEVEN = 0.2  # of its share, that a block must know of every contrast of labels if it is to stand for itself
NOTHING = 1e-12  # share of its sum of squares that a block's contrast must have: less is rounding


@dataclass(frozen=True, eq=False)
class Plan:
    """Which samples make a derived one, and with which weights.

    Place p of the plan is sample ``order[p]`` (``None``: p itself); block b is at places ``starts[b]`` to ``stops[b]``.
    ``weights`` (n, r) by place.  ``shares`` are S_b/c, one on average.
    """

    order: NDArray[np.intp] | None
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    weights: Array
    shares: Array
    scale: float
    """c: the noise of a derived sample has the variance σ²/c."""
    efficiency: float
    idle: int = 0
    """Blocks in which y does not vary: they say nothing and are left out."""
    window: int = 0
    """Samples among which blocks were dealt, or over which they reach; 0 where neighbours stay together."""
    basis: Array | None = None
    """Of more than two labels: amplitudes (K,) from the vector (K - 1,) of the first mode."""
    lonely: str = ""
    """A label that cannot be compared with the others in these blocks; then they are of no use."""
    even: bool = False
    """Of more than two labels: whether every block has what it says of them by itself, times its share."""
    design: tuple[Array, Array, Array] | None = None
    """y (n, r), what is taken out of it, and weights of samples, by place: for blocks of which samples are missing."""

    def __len__(self) -> int:
        return len(self.starts)

    def without(self, block: int, kept: NDArray[np.bool_]) -> Array | None:
        """Weights of a block of which only some samples are ``kept``; ``None`` if they have no contrast.

        As much of the signal is expected in it as before, so that what is lost at random does no harm on average.
        """
        places = np.arange(self.starts[block], self.stops[block])[kept]
        if self.design is None:  # the mean
            left = float(self.weights[places].sum())
            own: Array = self.weights[places]
            return own * (self.shares[block] / left) if left > 0 else None
        if not len(places):
            return None
        y, extra, s = (column[places][None] for column in self.design)
        w = residual_weights(y, extra, s)[0]
        energy = float(np.sum(w * y[0]))
        if energy <= NOTHING * self.scale:
            return None
        if self.basis is not None:
            share = float(self.shares[block]) if self.even else None
            return label_weights(w, y[0], self.basis, self.scale, share)
        rescaled: Array = w * (self.shares[block] / energy)
        return rescaled

    def partly(self, block: int, samples: Array, observed: NDArray[np.bool_]) -> tuple[Array, Array]:
        """A derived sample ``(r, entries)`` of samples with missing entries, which are 0, and its exposure.

        That is S_b/c of every entry by itself (:mod:`tpca.streams.partial`).
        """
        places = slice(int(self.starts[block]), int(self.stops[block]))
        if self.design is None:  # the mean
            weights = self.weights[places]
            return weights.T @ samples, (weights.T @ observed)[0]
        y, extra, s = (column[places] for column in self.design)
        asked = y if self.basis is None else y @ self.basis
        columns = np.column_stack([np.ones(len(y)), extra, asked])
        sums, grams = (s[:, None] * columns).T @ samples, entry_grams(columns, s, observed)
        taken = range(1 + extra.shape[1])
        found = [entry_contrast(sums, grams, own, taken) for own in range(len(taken), columns.shape[1])]
        derived, energies = (np.stack(each) / self.scale for each in zip(*found, strict=True))
        return derived, np.mean(energies, axis=0)

    def spreads(self, amplitudes: Array) -> Array:
        """Standard deviations over the samples of the amplitudes ``(C, K)`` of their labels."""
        assert self.design is not None
        y, _, s = self.design
        each = y @ amplitudes.T
        around: Array = each - np.average(each, axis=0, weights=s)
        return np.sqrt(np.average(around**2, axis=0, weights=s))

    def samples_of(self, blocks: int) -> int:
        """Samples in the first so many blocks."""
        return int((self.stops - self.starts)[:blocks].sum())


def label_weights(w: Array, y: Array, basis: Array, scale: float, share: float | None) -> Array | None:
    """Weights (m, r) of a block of labels, from the residual weights w and indicators y (m, K), with B = ``basis``.

    With a ``share`` s, s WB(B^T Y^T W B)^{-1}: s times the least-squares coefficients of this block alone, so that s
    times the same signal is in every block; ``None`` if they cannot be told.  Without, WB/c: all blocks together are
    least squares.
    """
    contrasts: Array = w @ basis
    if share is None:
        return contrasts / scale
    gram = basis.T @ y.T @ contrasts / scale
    if np.linalg.eigvalsh(gram)[0] <= UNEVEN * share:
        return None
    solved: Array = np.asarray(np.linalg.solve(gram, contrasts.T).T * (share / scale), dtype=np.float64)
    return solved


def residual_weights(y: Array, extra: Array, s: Array) -> Array:
    """Weights (blocks, m, r): s (y - what a constant and ``extra`` explain of y), block by block; s (blocks, m)."""
    root = np.sqrt(s)[..., None]
    centred, others = (
        x - np.sum(s[..., None] * x, axis=1, keepdims=True) / s.sum(axis=1)[:, None, None] for x in (y, extra)
    )
    if others.shape[2]:
        others = root * others
        centred = centred - (others @ (np.linalg.pinv(others, rcond=1e-10) @ (root * centred))) / root
    weights: Array = s[..., None] * centred
    exact: Array = weights - s[..., None] * (weights.sum(axis=1, keepdims=True) / s.sum(axis=1)[:, None, None])
    return exact  # their sum is zero but for rounding of its own
