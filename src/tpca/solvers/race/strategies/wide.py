"""The columns of a flow in single precision, while a look lasts.

As many of them as there is room for are widened once and held; the others are widened a few at a time, whenever all are
asked for.  With room for F of R columns, k pieces of (R - F)/(k - 1) columns make k/(k - 1) · (R - F) columns that are
widened again at every turn: two pieces where columns are short, for a piece costs about as much as widening ``WORTH``
entries, more where they are long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tpca.solvers.eigen import top_eigenvectors
from tpca.solvers.race.strategies.columns import Columns, Stored
from tpca.tensors.blocks import unit, widen

WORTH = 2**15


class Wide:
    """Columns times ``scale``, of which no more than ``room`` bytes are held at a time, or one column."""

    def __init__(self, columns: Columns, scale: float, room: int) -> None:
        self._flat, self._scale, self._shape = columns.flat, np.float32(scale), columns.store.shape[1:]
        count, entries = self._flat.shape
        fit = max(1, min(count, room // (4 * entries)))
        turns = max(1, round(math.sqrt((count - fit) * entries / WORTH)))
        piece = min(fit, -(-(count - fit) // turns))
        self._copy = np.empty((fit, entries), np.float32)
        self._held: int = fit - piece
        widen(self._flat[: self._held], self._copy[: self._held])

    @property
    def whole(self) -> bool:
        """Whether all columns are held."""
        return self._held == len(self._flat)

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return self._copy.nbytes

    def times(self, p: Stored) -> Stored:
        """``U p`` as a row, for every p of a stack."""
        if self.whole:
            product: Stored = np.matmul(p, self._copy)
        else:
            product = np.zeros((len(p), self._flat.shape[1]), np.float32)
            for some, piece in self._pieces():
                product += np.matmul(p[:, some], piece)
        product *= self._scale
        return product

    def weigh(self, blocks: Stored) -> Stored:
        """``Uᵀ block`` for every block, a row, of a stack."""
        if self.whole:
            total: Stored = np.matmul(blocks, self._copy.T)
        else:
            total = np.empty((len(blocks), len(self._flat)), np.float32)
            for some, piece in self._pieces():
                np.matmul(blocks, piece.T, out=total[:, some])
        total *= self._scale
        return total

    def top_weights(self, modes: tuple[int, ...], room: int) -> Stored:
        """P from the top singular pair of the unfolding ``modes | other modes and columns``.

        Columns in another order take no more than ``room`` bytes, or one column.
        """
        side, most = math.prod(self._shape[i] for i in modes), max(1, room // (8 * self._flat.shape[1]))
        gram: Stored = np.zeros((side, side), np.float32)
        for matrix in self._unfoldings(modes, most):
            gram += matrix @ matrix.T
        (top,) = top_eigenvectors(gram, 1)
        del gram
        size = self._flat.shape[1] // side
        rest = np.concatenate([(top @ matrix).reshape(-1, size) for matrix in self._unfoldings(modes, most)])
        if len(rest) < rest.shape[1]:
            return np.asarray(top_eigenvectors(rest @ rest.T, 1)[0])
        return unit(rest @ top_eigenvectors(rest.T @ rest, 1)[0])

    def _unfoldings(self, modes: tuple[int, ...], most: int) -> Iterator[Stored]:
        """Up to ``most`` columns after the other, as a matrix ``modes | columns and other modes``."""
        side = math.prod(self._shape[i] for i in modes)
        order = (*(1 + i for i in modes), 0, *(1 + i for i in range(len(self._shape)) if i not in modes))
        for _, piece in self._pieces():
            for first in range(0, len(piece), most):
                yield piece[first : first + most].reshape(-1, *self._shape).transpose(order).reshape(side, -1)

    def _pieces(self) -> Iterator[tuple[slice, Stored]]:
        """All columns, some at a time."""
        if self._held:
            yield slice(0, self._held), self._copy[: self._held]
        step = len(self._copy) - self._held
        for first in range(self._held, len(self._flat), max(1, step)):
            some = slice(first, min(first + step, len(self._flat)))
            piece = self._copy[self._held : self._held + some.stop - first]
            widen(self._flat[some], piece)
            yield some, piece
