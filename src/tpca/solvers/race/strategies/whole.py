r"""The whole: when memory holds one sample, the sum of all samples is the best thing to keep.

The flow with r = D_1 columns and :math:`\hat U = I`: :math:`V = \sum B\,T^\top` is all the data there is, U adds
nothing to it, and a proposal is the best rank-one fit of the mean sample (unfolding, then alternating least squares).
The columns are the entries of block A, so the weight vector p of a proposal *is* the outer product ``v_A``.
"""

from __future__ import annotations

import math

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.strategies.columns import SQUARES, STORE, Columns, Stored, working_bytes
from tpca.solvers.race.strategies.flow import BlockFlow
from tpca.solvers.race.strategies.look import Blank, WholeLook
from tpca.solvers.race.strategies.protocol import Look
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Partition

# Bytes for every entry of a Gram matrix: as many as the flow takes, where there is room for fewer but larger pieces;
# else what is enough, for no inverse root is wanted here.
ROOMY, TIGHT = SQUARES, 16
# Above this many rows the sum of all samples is too slow to fit (an eigenproblem of that size at every look).
WHOLE_ROWS = 256


def whole_floats(partition: Partition, squares: int = ROOMY) -> int:
    """Peak state in float64 units: the sum, its Gram matrix, the answers in flight, temporary copies."""
    rows, entries = partition.sizes
    stored = rows * entries * np.dtype(STORE).itemsize
    return math.ceil((2 * stored + 4 * rows**2 + 48 * rows + working_bytes(partition, rows, squares)) / 8)


def room_within(partition: Partition, floats: float) -> int | None:
    """Bytes for every entry of its Gram matrix with which the sum fits into ``floats``; ``None`` where it does not."""
    if partition.sizes[0] > WHOLE_ROWS:
        return None
    return next((room for room in (ROOMY, TIGHT) if whole_floats(partition, room) <= floats), None)


@kept
class WholeSum(BlockFlow):
    """The sum of all samples, in float16."""

    name = "whole"

    def __init__(self, partition: Partition, rng: np.random.Generator, squares: int = ROOMY) -> None:
        self._each = squares
        super().__init__(partition, partition.sizes[0], rng)
        self.past = None

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return working_bytes(self.partition, self.columns, self._each)

    def queries(self) -> tuple[Query, ...]:
        """One replica per entry of block A; the other block is not used, and neither takes memory."""
        rows = self.columns
        line = np.zeros(2 * rows - 1, STORE)
        line[rows - 1] = self.sums[0].level
        # level * identity, as views of one line
        single = np.lib.stride_tricks.as_strided(line[rows - 1 :], (rows, rows), (-line.itemsize, line.itemsize))
        nothing = np.broadcast_to(np.zeros((), STORE), (rows, *self.partition.shapes[1]))
        return (Query(self.partition, (single.reshape(rows, *self.partition.shapes[0]), nothing), gradients_of=(1,)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the batch."""
        (columns,) = self.sums
        gradient = answers[0].gradients[1]
        squares = columns.add(1 / columns.level, gradient, n, self.count == 0, self._expected(1, n))
        self._note_noise(n * squares, gradient.size)
        self.count += n

    def read(self) -> Look:
        """A look at the sum."""
        if self.count == 0 or self.sums[0].unit == 0:
            return Blank(self.partition.dims, self._rng)
        return WholeLook(self)

    def mean(self) -> Stored:
        """The mean of all samples so far, its modes in the order of the blocks; in single precision."""
        (columns,) = self.sums
        whole = columns.store.reshape(*self.partition.shapes[0], *self.partition.shapes[1]).astype(np.float32)
        whole *= columns.unit / max(1, self.count)
        return whole

    def take_mean(self, mean: Stored, n: int) -> None:
        """Take such a mean of ``n`` samples, as if they had come at once."""
        (columns,) = self.sums
        gradient: Stored = (columns.level * mean).astype(STORE).reshape(columns.store.shape)
        self.absorb((Answer({1: gradient}, np.zeros(0)),), n)

    def _columns(self, rng: np.random.Generator) -> list[Columns]:  # noqa: ARG002
        return [Columns(self.columns, self.partition.shapes[1], 1.0, None, self._each)]
