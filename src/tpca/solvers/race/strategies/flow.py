r"""The block flow: two blocks A | B, r columns, nothing to set.

With the batch mean of B fresh samples seen as a matrix T (D_1 x D_2), every round does

.. math::
    U \mathrel{+}= B\,T\hat V, \qquad V \mathrel{+}= B\,T^\top\hat U, \qquad n \mathrel{+}= B, \qquad
    \hat U = U (U^\top U)^{-1/2}, \quad \hat V = V (V^\top V)^{-1/2} .

The orthonormal columns are fixed before the batch arrives, so :math:`U = s_A v_A p^\top + N(0, n\sigma^2)` and
:math:`V = s_B v_B p^\top + N(0, n\sigma^2)`, entries independent.  A *proposal* is the best fit with both
``v_A`` and ``v_B`` of rank one and one weight vector p for both: it maximises :math:`s_A^2 + s_B^2`.

Memory is what buys samples here, so nothing is held twice:

* :math:`\hat U` is never formed: gradients are asked for at U itself, and times :math:`(U^\top U)^{-1/2}` (r x r) they
  are those that were wanted;
* U, V and the answers are float16 (:mod:`tpca.solvers.race.strategies.columns`).  The race hands out data in units of
  about the noise level, and columns of size D_2^{-1/4} then have answers of size D_2^{1/4}: both well inside the range.

===============  ==========================================================================================
symbol           code
===============  ==========================================================================================
U, V             ``sums[m]`` for the blocks m = 0, 1: :class:`~tpca.solvers.race.strategies.columns.Columns`
U^T U, V^T V     ``sums[m].unit**2 * sums[m].gram``
mean of Û        ``past`` over all samples (narrow block only), see :mod:`tpca.solvers.race.strategies.look`
n, sigma         ``count``, ``sigma``
===============  ==========================================================================================
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import PartitionError
from tpca.noise import Whitening
from tpca.solvers.race.strategies.columns import STORE, Columns, Stored, working_bytes
from tpca.solvers.race.strategies.look import Blank, FlowLook
from tpca.solvers.race.strategies.protocol import Look
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition


def state_floats(partition: Partition, columns: int) -> int:
    """Peak state in float64 units: sums, Gram matrices, answers in flight, temporary copies."""
    entries, item = sum(partition.sizes), np.dtype(STORE).itemsize
    narrow = 8 * columns * partition.sizes[0] if _is_narrow(partition) else 0
    held = columns * entries * item + 2 * 4 * columns**2 + narrow
    answers = columns * (entries * item + 8)
    return math.ceil((held + answers + working_bytes(partition, columns)) / 8)


def columns_within(partition: Partition, floats: float) -> int:
    """Return the most columns whose state fits into ``floats``; 0 when not even one does."""
    fitting = [r for r in range(1, min(partition.sizes) + 1) if state_floats(partition, r) <= floats]
    return max(fitting, default=0)


def _is_narrow(partition: Partition) -> bool:
    """Whether the first block is so much smaller that what V says about it is worth keeping."""
    return 3 * partition.sizes[0] <= partition.sizes[1]


@kept
class BlockFlow:
    """The block flow with ``columns`` columns on a partition into two blocks, the smaller first."""

    name = "flow"

    def __init__(self, partition: Partition, columns: int, rng: np.random.Generator) -> None:
        if len(partition) != 2 or partition.sizes[0] > partition.sizes[1]:
            raise PartitionError(f"the flow needs two blocks, the smaller first, got groups {partition.groups}.")
        if not 1 <= columns <= partition.sizes[0]:
            raise PartitionError(f"the flow needs between 1 and {partition.sizes[0]} columns, got {columns}.")
        self.partition, self.columns = partition, columns
        self.count = 0
        self.sums = self._columns(rng)
        self._rng = rng
        self._squares, self._entries = 0.0, 0
        self.past: Stored | None = None
        if _is_narrow(partition):
            self.past = np.zeros((columns, partition.sizes[0]), np.float32)
        self.last: tuple[Array, ...] | None = None  # proposal
        self.looks = 0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return working_bytes(self.partition, self.columns)

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries) if self._entries else 1.0

    @property
    def room(self) -> int:
        """Bytes that a proposal may use: the answers and the copies they needed are gone by then."""
        return sum(columns.store.nbytes for columns in self.sums) + self.working_bytes

    def queries(self) -> tuple[Query, ...]:
        """Ask about the columns themselves; they are orthonormalised only when the answer comes."""
        return (Query(self.partition, tuple(columns.store for columns in self.sums)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One round of the flow."""
        gradients = answers[0].gradients
        mixes = [columns.inverse_root() for columns in self.sums]
        if self.past is not None:
            self._keep_past(self.past, mixes[0], n)
        for m in (0, 1):
            squares = self.sums[m].add(mixes[1 - m], gradients[m], n, self.count == 0, self._expected(m, n))
            self._note_noise(n * squares, gradients[m].size)
        self.count += n

    def restart(self) -> None:
        """Keep the columns as the next query, forget the sums: the next round starts them afresh."""
        self.count = 0

    def take_over(self, smaller: BlockFlow) -> None:
        r"""Go on where a flow with fewer columns is.

        The columns that it lacks begin as noise, :math:`N(0, n\sigma^2)`: what is assumed of all holds for them with
        weights p of 0.
        """
        for own, known in zip(self.sums, smaller.sums, strict=True):
            own.take_over(known)
        if self.past is not None and smaller.past is not None:
            self.past[: smaller.columns] = smaller.past
        self.count, self.last, self.looks = smaller.count, smaller.last, smaller.looks
        self._squares, self._entries = smaller._squares, smaller._entries

    def rewhiten(self, before: Whitening, after: Whitening) -> None:
        r"""Go on with data whitened by ``after``, no more by ``before``.

        The sums are carried over: :math:`W'W^{-1}U`, its noise whitened by W' like all that comes.  What they were
        asked about, Û, goes the other way, :math:`W'^{-1}W\hat U`.  Of the noise level nothing is known any more.
        """
        for columns, group in zip(self.sums, self.partition.groups, strict=True):
            columns.turn(functools.partial(_turned, first=before.undone, second=after, modes=group))
        if self.past is not None:
            shaped = self.past.reshape(self.columns, *self.partition.shapes[0])
            asked = _turned(shaped, before, after.undone, self.partition.groups[0])
            self.past = np.ascontiguousarray(asked.reshape(self.past.shape))
        self._squares, self._entries, self.last = 0.0, 0, None

    def read(self) -> Look:
        """A look at what the samples so far say."""
        if self.count == 0 or any(columns.unit == 0 for columns in self.sums):
            return Blank(self.partition.dims, self._rng)
        return FlowLook(self)

    def arrays(self) -> dict[str, Stored]:
        """Every array of the state, by name."""
        named = {f"sums_{m}": columns.store for m, columns in enumerate(self.sums)}
        named.update({f"gram_{m}": columns.gram for m, columns in enumerate(self.sums)})
        return named if self.past is None else {**named, "past": self.past}

    def _columns(self, rng: np.random.Generator) -> list[Columns]:
        """Random columns for both blocks."""
        level = self.partition.sizes[1] ** -0.25
        return [Columns(self.columns, shape, level, rng) for shape in self.partition.shapes]

    def _expected(self, m: int, n: int) -> float:
        """About what noise adds to the squares of block m in a round of ``n`` samples; 0 before anything is known."""
        return self.sigma**2 / n * self.columns * self.partition.sizes[m] if self._entries else 0.0

    def _note_noise(self, squares: float, entries: int) -> None:
        self._squares += squares
        self._entries += entries

    def _keep_past(self, past: Stored, mix: Stored, n: int) -> None:
        """``past`` = mean over all samples of the columns Û they were asked about."""
        share = n / (self.count + n)
        past *= 1 - share
        past += share * (mix @ self.sums[0].flat.astype(np.float32))


def _turned(array: Stored, first: Whitening, second: Whitening, modes: tuple[int, ...]) -> Stored:
    """One whitening after the other, of blocks of these modes."""
    return second.tensor(first.tensor(array, modes), modes)
