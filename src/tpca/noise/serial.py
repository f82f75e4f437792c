r"""Whether neighbouring samples are alike, and over how many: Haar contrasts, a few vectors however long the stream.

Of vectors y_t that stand for the samples, :math:`S` and :math:`S'` being the sums of two neighbouring runs of
:math:`b = 2^j` of them, the mean energy of contrasts

.. math:: E_j = \mathrm{mean}\,\Bigl\|\frac{S' - S}{\sqrt{2b}}\Bigr\|^2

is the same at all levels j where samples are independent; whatever all samples have in common, the signal, is gone.
Where neighbours are alike for a while, :math:`E_j = \tau c_0 - 3\kappa/b` once b is longer than that, with c_0 the
variance of a sample, and with that the correlation time

.. math::
    P_J = 2E_J - E_{J-1}, \qquad c_0 = \sum_{j\le J} 2^{-j-1}E_j + 2^{-J-1}P_J, \qquad \tau = P_J/c_0 ,

b samples that follow each other are worth b/τ.  What counts is the largest τ of all levels at which it is above one
beyond chance: neighbours may be independent and longer runs not, as where samples come in sessions.

How sure that is: the energy of one contrast is a sum of squares in :math:`f = (\mathrm{tr}\,\Sigma)^2/\mathrm{tr}\,
\Sigma^2` dimensions, told by the inner products of neighbouring contrasts, whose variance is tr Σ².  With n_j contrasts
at level j the relative error of τ is :math:`\sqrt{(2/f)(4/n_J + 1/n_{J-1})}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.tensors.blocks import Array

DEPENDENT = 1.15  # correlation times below this change no conclusion
SIGNIFICANT = 3.0  # standard errors above one that a correlation time must be to count
SPAN = 4.0  # samples, in correlation times, that an estimate must rest on
# Samples in a block, in correlation times: at 1 a few runs in thirty claimed a signal in dependent noise, at 2 none did
# beyond the level (record of development: φ = 0.5, 0.9, 0.97 and moving averages of 10).
BLOCK_TIMES = 2.0


@kept
@dataclass(frozen=True)
class Dependence:
    """A correlation time τ in samples with its relative standard error, and the samples it was read off."""

    time: float
    error: float
    samples: int

    @property
    def present(self) -> bool:
        """Whether neighbours are alike, beyond chance and by enough to matter."""
        return self.time > max(DEPENDENT, 1 + SIGNIFICANT * self.error)

    @property
    def settled(self) -> bool:
        """Whether there were samples enough for a time as long as this."""
        return not self.present or self.samples >= SPAN * self.time

    @property
    def block(self) -> int:
        """Samples in a block, so that blocks are as good as independent."""
        return math.ceil(BLOCK_TIMES * self.time) if self.present else 1


@kept
class Contrasts:
    """Energies of contrasts at all levels, of vectors that come one after the other.

    With a ``direction``, a unit vector, also that of contrasts along it, of the first entries of the vectors.
    """

    def __init__(self, direction: Array | None = None) -> None:
        self.n, self.direction, self._along = 0, direction, 0.0
        self.energies: list[float] = []
        self.counts: list[int] = []
        self._waiting: list[NDArray[np.float32] | None] = []  # at level j, a sum of 2^j that waits for its neighbour
        self._before: NDArray[np.float32] | None = None  # the contrast before, at level 0
        self._products, self._squares, self._pairs = 0.0, 0.0, 0
        self._origin: Array | None = None  # the first vector, which is subtracted from all
        self._exponent: int | None = None  # of two, that all are then divided by: that of the first that is not zero

    def add(self, vector: Array) -> None:
        """Take the next vector."""
        self.add_all(vector[None])

    def add_all(self, vectors: Array) -> None:
        """Take the next vectors ``(n, p)``; those that are beyond all floats are passed over."""
        if not len(vectors):
            return
        if self._origin is None:
            self._origin = vectors[0].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            moved = vectors - self._origin  # what all have in common would only cost precision
            if self._exponent is None and moved.any():
                first = moved[np.argmax(moved.any(axis=1))]
                self._exponent = int(np.frexp(np.abs(first).max())[1])
            sums = np.ldexp(moved, -(self._exponent or 0)).astype(np.float32)
        if not np.isfinite(sums).all():
            sums = sums[np.isfinite(sums).all(axis=1)]
        self.n += len(sums)
        level = 0
        while len(sums):
            if level == len(self._waiting):
                self._new_level()
            before = self._waiting[level]
            if before is not None:
                sums = np.concatenate([before[None], sums])
            self._waiting[level] = sums[-1].copy() if len(sums) % 2 else None
            even, odd = sums[: len(sums) // 2 * 2 : 2], sums[1::2]
            if len(odd):
                self._note(level, (odd - even) / np.float32(math.sqrt(2 ** (level + 1))))
            sums = even + odd
            level += 1

    def dependence(self) -> Dependence:
        """The correlation time as far as it can be told; 1 where there are too few samples to tell anything."""
        energies = [e / c for e, c in zip(self.energies, self.counts, strict=True) if c]
        found = [self._at(level, energies) for level in range(1, len(energies))]
        present = [one for one in found if one.present]
        if present:
            return max(present, key=lambda one: one.time)
        return found[0] if found else Dependence(1.0, math.inf, self.n)

    @property
    def freedom(self) -> float:
        """f: dimensions that the energy of one contrast is a sum of squares in; at least 1."""
        if self._pairs < 2 or not self._squares:
            return 1.0
        energy = self.energies[0] / self.counts[0]
        variance = self._squares / self._pairs - (self._products / self._pairs) ** 2
        return max(1.0, energy**2 / variance) if variance > 0 else 1.0

    @property
    def loudness(self) -> float:
        """Energy of contrasts of one sample with the next along the direction, over what is usual; NaN if unknown."""
        if self.direction is None or self._before is None or not self.energies[0]:
            return math.nan
        return self._along / (self.energies[0] / self._before.size)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in (*self._waiting, self._before, self._origin) if array is not None)

    def _at(self, level: int, energies: list[float]) -> Dependence:
        """τ at one level."""
        plateau = 2 * energies[level] - energies[level - 1]
        variance = sum(e / 2 ** (j + 1) for j, e in enumerate(energies[: level + 1])) + plateau / 2 ** (level + 1)
        if not variance > 0:
            return Dependence(1.0, math.inf, self.n)
        spread = 4 / self.counts[level] + 1 / self.counts[level - 1]
        return Dependence(plateau / variance, math.sqrt(2 / self.freedom * spread), self.n)

    def _new_level(self) -> None:
        self._waiting.append(None)
        self.energies.append(0.0)
        self.counts.append(0)

    def _note(self, level: int, contrasts: NDArray[np.float32]) -> None:
        """Note the next contrasts ``(n, p)`` of a level."""
        wide = contrasts.astype(np.float64)
        self.energies[level] += float(np.vdot(wide, wide))
        self.counts[level] += len(wide)
        if level == 0:
            if self.direction is not None:
                self._along += float(np.sum((wide[:, : len(self.direction)] @ self.direction) ** 2))
            chain = wide if self._before is None else np.concatenate([self._before[None].astype(np.float64), wide])
            products = np.vecdot(chain[:-1], chain[1:])
            self._products += float(products.sum())
            self._squares += float(products @ products)
            self._pairs += len(products)
            self._before = contrasts[-1].copy()
