r"""The columns of the flow, in a quarter of the memory: U = ``unit`` · ``store``, ``store`` in float16.

Rounding to float16 is relative, 2^-11 a round; with rounds that grow by 6 % about eight of them matter, so that it
adds a noise some 10^-3 times that of the samples.  ``unit`` follows the size of U and keeps the store near ``level``,
inside the range of float16.

Nothing is widened whole while answers are in flight: passes over the store take a few thousand entries at a time.  When
a proposal is made the answers, as large as the store, are gone (:mod:`tpca.solvers.race.strategies.wide`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.solvers.eigen import all_eigenvectors
from tpca.tensors.blocks import Partition, narrowed, widen, widened

STORE = np.float16
SAFE = 2.0**15  # what float16 holds
SQUARES = 24  # bytes for every entry of a Gram matrix while answers are in flight, see working_bytes
TOO_MUCH = 100.0  # times the squares that the largest entry of a gradient speaks for: no guess to go by

Stored = NDArray[Any]  # float16 or float32


def _largest(stored: Stored) -> float:
    """The largest entry in size, infinite or NaN where one is; by its bits, which is quicker in float16."""
    if stored.dtype != STORE:
        return float(np.max(np.abs(stored)))
    return float((stored.view(np.int16) & 0x7FFF).max().view(STORE))


@kept
class Columns:
    """r columns over the entries of a block, stored as rows: shape ``(r, *block shape)``."""

    def __init__(
        self,
        count: int,
        shape: tuple[int, ...],
        level: float,
        rng: np.random.Generator | None,
        squares: int = SQUARES,
    ) -> None:
        self.level, self.unit, self.squares = level, 0.0, squares
        if rng is None:
            self.store: Stored = np.zeros((count, *shape), STORE)
        else:
            self.store = (level * rng.standard_normal((count, *shape), dtype=np.float32)).astype(STORE)
        self.gram: Stored = self._gram()

    def __len__(self) -> int:
        return len(self.store)

    @property
    def flat(self) -> Stored:
        """The store as a matrix, columns as rows."""
        return self.store.reshape(len(self.store), -1)

    def inverse_root(self) -> Stored:
        """(store storeᵀ)^(-1/2), tiny eigenvalues floored: what turns the store into orthonormal columns."""
        values, axes = all_eigenvectors(self.gram)
        axes *= np.maximum(values, max(1e-6 * values[-1], np.finfo(np.float32).tiny)) ** -0.25
        root: Stored = axes @ axes.T
        return root

    def take_over(self, fewer: Columns) -> None:
        """Go on as ``fewer`` columns do; the others stay random, and as large as these are in their unit."""
        self.store[: len(fewer)] = fewer.store
        self.unit, self.gram = fewer.unit, self._gram()

    def turn(self, turned: Callable[[Stored], Stored]) -> None:
        """Every column seen in other coordinates; ``turned`` takes and returns arrays like the store."""
        self.store = turned(self.store)
        self.gram = self._gram()

    def add(self, mix: Stored | float, gradient: Stored, n: int, anew: bool, expected: float = 0.0) -> float:
        """``U += n * mix @ gradient`` in place (``anew``: instead of what is stored, which was only a direction).

        Returns the squared norm of ``mix @ gradient``; a gradient of zeros changes nothing, nor does one that left the
        range of float16.  The unit follows that norm: where a guess is ``expected`` it need not be worked out before.
        """
        gradient = gradient.reshape(len(self.store), -1)
        old = 0.0 if anew else self.unit
        if not 0 < (largest := _largest(gradient)) < math.inf:
            return 0.0
        first, second = (np.empty(len(self) * self._step, np.float32) for _ in range(2))
        new = self._next_unit(old, n**2 * expected)
        usual = largest * (float(np.linalg.norm(mix)) / math.sqrt(len(self)) if isinstance(mix, np.ndarray) else mix)
        if not 0 < expected < TOO_MUCH * usual**2 * self.store.size or not self._fits(old / new, n / new * usual):
            squares = sum(_squares(self._mixed(mix, gradient[:, some], first, second)) for some in self._pieces())
            new = self._next_unit(old, n**2 * squares)
            if squares == 0.0 or not math.isfinite(new):
                return 0.0
        gram: Stored = np.zeros_like(self.gram)
        squares = 0.0
        for some in self._pieces():
            fresh = self._mixed(mix, gradient[:, some], first, second)
            squares += _squares(fresh)
            fresh *= n / new
            if old:
                kept = first[: fresh.size].reshape(fresh.shape)
                widen(self.flat[:, some], kept)
                kept *= old / new
                fresh += kept
            gram += fresh @ fresh.T
            narrowed(fresh, self.flat[:, some])
        self.unit, self.gram = new, gram
        return squares

    def _next_unit(self, old: float, added: float) -> float:
        """The unit in which columns of unit ``old`` with ``added`` squares have entries of size ``level``."""
        return math.sqrt((old**2 * float(np.trace(self.gram)) + added) / self.store.size) / self.level

    def _fits(self, shrink: float, usual: float) -> bool:
        """Whether ``shrink`` times the store plus a product of entries of ``usual`` size surely stays in range.

        No entry of the store is larger than the norm of its column, and none of the product larger than r times the
        size that independent ones would have: columns as they should be are a thousand times below that.
        """
        stored = shrink * math.sqrt(float(np.max(np.diagonal(self.gram))))
        return stored + len(self) * usual < SAFE

    @staticmethod
    def _mixed(mix: Stored | float, gradient: Stored, first: Stored, second: Stored) -> Stored:
        """``mix @ gradient`` of some columns, in ``second``; ``first`` is used on the way."""
        piece, mixed = (buffer[: gradient.size].reshape(gradient.shape) for buffer in (first, second))
        if isinstance(mix, np.ndarray):
            widen(gradient, piece)
            np.matmul(mix, piece, out=mixed)
        else:
            widen(gradient, mixed)
            mixed *= np.float32(mix)
        return mixed

    def _gram(self) -> Stored:
        gram: Stored = np.zeros((len(self.store), len(self.store)), np.float32)
        for some in self._pieces():
            piece = widened(self.flat[:, some])
            gram += piece @ piece.T
        return gram

    @property
    def _step(self) -> int:
        """Entries of all columns that are widened at a time, to be held three times: see :func:`working_bytes`."""
        rows, entries = self.flat.shape
        room = (self.squares - 12) * rows**2 + 16 * (_piece(self.store.size) + entries)
        return int(min(entries, max(1, room // (12 * rows))))

    def _pieces(self) -> Iterator[slice]:
        for first in range(0, self.flat.shape[1], self._step):
            yield slice(first, first + self._step)


def working_bytes(partition: Partition, columns: int, squares: int = SQUARES) -> int:
    """Most bytes of temporary copies while the answers are in flight.

    Square matrices in double precision; when these are gone but for three in single, pieces of the columns in their
    place (:attr:`Columns._step`).  Who needs no inverse roots can do with fewer ``squares``, of more than 12 bytes.
    """
    return squares * columns**2 + 16 * max(_piece(columns * max(partition.sizes)), columns) + 16 * max(partition.sizes)


def _piece(entries: int) -> int:
    """Entries of a store that are widened at a time in any case: a sixteenth, and no more than a few thousand."""
    return min(2**12, max(64, entries // 16))


def _squares(matrix: Stored) -> float:
    """The sum of squares."""
    return float(np.vdot(matrix, matrix))
