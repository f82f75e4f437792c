r"""A plan: which samples make a derived one, and with which weights; see :mod:`tpca.streams.contrasts`.

Where entries of samples are missing, every entry has the weights of the samples in which it was observed.  With the
columns Z = (1, nuisances, ..., covariate y) of a block's samples, their weights s, and :math:`\delta_{ie}` one where
entry e of sample i was observed, the sums

.. math:: M_e = \sum_i s_i\delta_{ie}\,z_iT_{ie}, \qquad G_e = \sum_i s_i\delta_{ie}\,z_iz_i^\top

give, with A the columns that are taken out of y, the contrast of entry e and what it has of the covariate,

.. math:: D_e = M_{ye} - G_{yA}G_{AA}^{+}M_{Ae}, \qquad S_e = G_{yy} - G_{yA}G_{AA}^{+}G_{Ay} ,

so that the background cancels in every entry, whatever is missing, and :math:`\sum_bD_{be}/\sum_bS_{be}` over blocks b
is the coefficient of y of least squares over what was observed of entry e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array

UNEVEN = 0.2  # of its share, that a block must know of every contrast of labels if it is to stand for itself
NOTHING = 1e-12  # share of its sum of squares that a block's contrast must have: less is rounding
EXPLAINED = 1e-9  # of the sum of squares of y: what is left of it is rounding
RANK = 1e-10  # of the largest singular value: smaller ones are zero


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

        That is S_b/c of every entry by itself (:mod:`tpca.streams.plan`).
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


def entry_grams(columns: Array, weight: Array, observed: NDArray[np.bool_]) -> Array:
    """G ``(q, q, entries)`` from columns ``(m, q)``, weights ``(m,)`` and which entries ``(m, entries)`` are there."""
    count = columns.shape[1]
    products = (weight[:, None, None] * columns[:, :, None] * columns[:, None, :]).reshape(len(columns), -1)
    return (products.T @ observed.astype(np.float64)).reshape(count, count, -1)


def entry_contrast(sums: Array, grams: Array, own: int, others: Sequence[int]) -> tuple[Array, Array]:
    """D and S of every entry, for the covariate in column ``own``, the columns ``others`` taken out of it."""
    if not len(others):
        return sums[own], grams[own, own]
    rest = list(others)
    beside, inner = grams[own, rest], grams[np.ix_(rest, rest)]
    if len(rest) == 1:
        taken = np.divide(beside, inner[0], out=np.zeros_like(beside), where=inner[0] > 0)
    else:
        inverses = np.linalg.pinv(np.moveaxis(inner, 2, 0), rcond=RANK, hermitian=True)
        taken = np.einsum("ae,eab->be", beside, inverses)
    energy = grams[own, own] - np.einsum("ae,ae->e", taken, beside)
    there = energy > EXPLAINED * grams[own, own]
    contrast = np.where(there, sums[own] - np.einsum("ae,ae->e", taken, sums[rest]), 0.0)
    return contrast, np.where(there, energy, 0.0)
