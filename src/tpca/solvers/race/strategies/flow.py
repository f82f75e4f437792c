r"""The block flow: two blocks A | B, r columns, nothing to set.

With the batch mean of B fresh samples seen as a matrix T (D_1 x D_2), every round does

.. math::
    U \mathrel{+}= B\,T\hat V, \qquad V \mathrel{+}= B\,T^\top\hat U, \qquad n \mathrel{+}= B, \qquad
    \hat U = U (U^\top U)^{-1/2}, \quad \hat V = V (V^\top V)^{-1/2} .

The orthonormal columns are fixed before the batch arrives, so :math:`U = s_A v_A p^\top + N(0, n\sigma^2)` and
:math:`V = s_B v_B p^\top + N(0, n\sigma^2)`, entries independent.  A *proposal* is the best fit with both
``v_A`` and ``v_B`` of rank one and one weight vector p for both: it maximises :math:`s_A^2 + s_B^2`.  It is the end
of a climb that alternates between weights p and vectors, each the best given the other; all climbs go in step.

Memory is what buys samples here, so nothing is held twice:

* :math:`\hat U` is never formed: gradients are asked for at U itself, and times :math:`(U^\top U)^{-1/2}` (r x r) they
  are those that were wanted;
* U, V and the answers are float16: U = ``unit`` · ``store``.  Rounding is relative, 2^-11 a round, and adds a noise
  some 10^-3 times that of the samples.  The race hands out data in units of about the noise level; ``unit`` follows the
  size of U and keeps the store near D_2^{-1/4}, so that answers are near D_2^{1/4}, well inside the range of float16;
* nothing is widened whole while answers are in flight: passes over the store take a few thousand entries at a time.  A
  proposal has the memory of the answers, which are gone by then: half of it for columns in single precision, as many at
  a time as fit, half for climbs, as many at a time as fit.

**The narrow block** (order 3) is read from V as well as from U: :math:`V^\top v_B = P(\lambda v_A) + \text{noise}` with
P = n times the mean of Û over all samples (``past``); ridge regression on both, scaled to noise variance nσ² per entry.
It takes 16 % fewer samples (24³).  With :math:`\overline U\,\overline U^\top = Q\Lambda Q^\top` every solution costs
two small products:

.. math:: (\overline U^\top\overline U + \rho)^{-1} t
    = \bigl(t - \overline U^\top Q(\Lambda + \rho)^{-1}Q^\top\overline U t\bigr)/\rho .

**The whole**: when memory holds one sample, the sum of all samples is the best thing to keep.  It is the flow with
r = D_1 columns and :math:`\hat U = I`: :math:`V = \sum B\,T^\top` is all the data there is, U adds nothing to it, and a
proposal is the best rank-one fit of the mean sample; the weight vector p *is* the outer product ``v_A``.

===============  ==========================================================================================
symbol           code
===============  ==========================================================================================
U, V             ``sums[m]`` for the blocks m = 0, 1: :class:`Columns`
U^T U, V^T V     ``sums[m].unit**2 * sums[m].gram``
mean of Û        ``past`` over all samples (narrow block only)
n, sigma         ``count``, ``sigma``
===============  ==========================================================================================
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.solvers.race.strategies.strategy import Look, Stored
from tpca.solvers.rank_one import all_eigenvectors, along, lengths, rank_ones, top_eigenvectors, units
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, narrowed, unit, widen, widened

STORE = np.float16
SQUARES, WHOLE_SQUARES = 24, 16  # bytes for every entry of a Gram matrix while answers are in flight
# Above this many rows the sum of all samples is too slow to fit (an eigenproblem of that size at every look).
WHOLE_ROWS = 256
EIGENVECTORS = 3  # of U^T U + V^T V, as starts of proposals
FINALISTS = 3  # climbs that are carried on after the first sweeps; the best of them goes on at the next look
SWEEPS = (2, 4)
GAIN_TOL = 2e-3  # a climb that gains no more than this share in a sweep is on top
IN_TURN = 2**15  # entries of samples of which one unfolding a look is tried, in turn: of larger ones samples cost more
SQUARE = 14  # bytes per entry of a symmetric matrix in single precision and what its top eigenvector takes to find


@kept
class Columns:
    """r columns over the entries of a block, stored as rows: shape ``(r, *block shape)``."""

    def __init__(
        self, count: int, shape: tuple[int, ...], level: float, rng: np.random.Generator | None, squares: int = SQUARES
    ) -> None:
        self.level, self.unit, self.squares = level, 0.0, squares
        if rng is None:
            self.store: Stored = np.zeros((count, *shape), STORE)
        else:
            self.store = (level * rng.standard_normal((count, *shape), dtype=np.float32)).astype(STORE)
        self.gram: Stored = np.zeros((count, count), np.float32)
        for some in self._pieces():
            piece = widened(self.flat[:, some])
            self.gram += piece @ piece.T

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

    def add(self, mix: Stored | float, gradient: Stored, n: int, anew: bool) -> float:
        """``U += n * mix @ gradient`` in place (``anew``: instead of what is stored, which was only a direction).

        Returns the squared norm of ``mix @ gradient``, which says what the unit must be; a gradient of zeros changes
        nothing, nor does one that left the range of float16.
        """
        gradient = gradient.reshape(len(self.store), -1)
        old = 0.0 if anew else self.unit
        first, second = (np.empty(len(self) * self._step, np.float32) for _ in range(2))
        squares = 0.0
        for some in self._pieces():
            if not np.isfinite(gradient[:, some]).all():
                return 0.0
            fresh = _mixed(mix, gradient[:, some], first, second)
            squares += float(np.vdot(fresh, fresh))
        kept_squares = old**2 * float(np.trace(self.gram))
        new = math.sqrt((kept_squares + n**2 * squares) / self.store.size) / self.level
        if squares == 0.0 or not math.isfinite(new):
            return 0.0
        gram: Stored = np.zeros_like(self.gram)
        for some in self._pieces():
            fresh = _mixed(mix, gradient[:, some], first, second)
            fresh *= n / new
            if old:
                before = first[: fresh.size].reshape(fresh.shape)
                widen(self.flat[:, some], before)
                before *= old / new
                fresh += before
            gram += fresh @ fresh.T
            narrowed(fresh, self.flat[:, some])
        self.unit, self.gram = new, gram
        return squares

    @property
    def _step(self) -> int:
        """Entries of all columns that are widened at a time, to be held three times: see :func:`working_bytes`."""
        rows, entries = self.flat.shape
        room = (self.squares - 12) * rows**2 + 16 * (_piece(self.store.size) + entries)
        return int(min(entries, max(1, room // (12 * rows))))

    def _pieces(self) -> Iterator[slice]:
        for first in range(0, self.flat.shape[1], self._step):
            yield slice(first, first + self._step)


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


def working_bytes(partition: Partition, columns: int, squares: int = SQUARES) -> int:
    """Most bytes of temporary copies while the answers are in flight.

    Square matrices in double precision; when these are gone but for three in single, pieces of the columns in their
    place (:attr:`Columns._step`).  Who needs no inverse roots can do with fewer ``squares``, of more than 12 bytes.
    """
    return squares * columns**2 + 16 * max(_piece(columns * max(partition.sizes)), columns) + 16 * max(partition.sizes)


def _piece(entries: int) -> int:
    """Entries of a store that are widened at a time in any case: a sixteenth, and no more than a few thousand."""
    return min(2**12, max(64, entries // 16))


def state_floats(partition: Partition, columns: int) -> int:
    """Peak state in float64 units: sums, Gram matrices, answers in flight, temporary copies."""
    entries, item = sum(partition.sizes), np.dtype(STORE).itemsize
    narrow = 8 * columns * partition.sizes[0] if _is_narrow(partition) else 0
    held = columns * entries * item + 2 * 4 * columns**2 + narrow
    answers = columns * (entries * item + 8)
    return math.ceil((held + answers + working_bytes(partition, columns)) / 8)


def whole_floats(partition: Partition) -> float:
    """The same of the sum of all samples; infinite where it has too many rows."""
    rows, entries = partition.sizes
    stored = rows * entries * np.dtype(STORE).itemsize
    needed = 2 * stored + 4 * rows**2 + 48 * rows + working_bytes(partition, rows, WHOLE_SQUARES)
    return math.ceil(needed / 8) if rows <= WHOLE_ROWS else math.inf


def _is_narrow(partition: Partition) -> bool:
    """Whether the first block is so much smaller that what V says about it is worth keeping."""
    return 3 * partition.sizes[0] <= partition.sizes[1]


@kept
class BlockFlow:
    """The block flow with ``columns`` columns on a partition into two blocks, the smaller first."""

    name = "flow"

    def __init__(self, partition: Partition, columns: int, rng: np.random.Generator) -> None:
        self.partition, self.size = partition, columns
        self.count = 0
        self.sums = self._columns(rng)
        self._squares, self._entries = 0.0, 0
        self.past: Stored | None = None
        if _is_narrow(partition):
            self.past = np.zeros((columns, partition.sizes[0]), np.float32)
        self.last: tuple[Array, ...] | None = None  # proposal
        self.looks = 0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return working_bytes(self.partition, self.size)

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
        if self.past is not None:  # the mean over all samples of the columns Û they were asked about
            share = n / (self.count + n)
            self.past *= 1 - share
            self.past += share * (mixes[0] @ self.sums[0].flat.astype(np.float32))
        for m in (0, 1):
            self._squares += n * self.sums[m].add(mixes[1 - m], gradients[m], n, self.count == 0)
            self._entries += gradients[m].size
        self.count += n

    def restart(self) -> None:
        """Keep the columns as the next query, forget the sums: the next round starts them afresh."""
        self.count = 0

    def read(self) -> Look | None:
        """A look at what the samples so far say."""
        return FlowLook(self) if self.count and all(columns.unit for columns in self.sums) else None

    def arrays(self) -> list[Stored]:
        """Every array of the state."""
        own = [array for columns in self.sums for array in (columns.store, columns.gram)]
        return own if self.past is None else [*own, self.past]

    def _columns(self, rng: np.random.Generator) -> list[Columns]:
        """Random columns for both blocks."""
        level = self.partition.sizes[1] ** -0.25
        return [Columns(self.size, shape, level, rng) for shape in self.partition.shapes]


@kept
class WholeSum(BlockFlow):
    """The sum of all samples, in float16."""

    name = "whole"

    def __init__(self, partition: Partition, rng: np.random.Generator) -> None:
        super().__init__(partition, partition.sizes[0], rng)
        self.past = None

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return working_bytes(self.partition, self.size, WHOLE_SQUARES)

    def queries(self) -> tuple[Query, ...]:
        """One replica per entry of block A; the other block is not used, and neither takes memory."""
        rows = self.size
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
        self._squares += n * columns.add(1 / columns.level, gradient, n, self.count == 0)
        self._entries += gradient.size
        self.count += n

    def read(self) -> Look | None:
        """A look at the sum."""
        return WholeLook(self) if self.count and self.sums[0].unit else None

    def _columns(self, rng: np.random.Generator) -> list[Columns]:  # noqa: ARG002
        return [Columns(self.size, self.partition.shapes[1], 1.0, None, WHOLE_SQUARES)]


class Wide:
    """Columns times ``scale`` in single precision: all, or as many at a time as ``room`` bytes hold, one at least."""

    def __init__(self, columns: Columns, scale: float, room: int) -> None:
        self._flat, self._scale, self._shape = columns.flat, np.float32(scale), columns.store.shape[1:]
        count, entries = self._flat.shape
        self._copy = np.empty((max(1, min(count, room // (4 * entries))), entries), np.float32)
        self.whole = len(self._copy) == count
        if self.whole:
            widen(self._flat, self._copy)

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return self._copy.nbytes

    def times(self, p: Stored) -> Stored:
        """``U p`` as a row, for every p of a stack."""
        product: Stored = np.zeros((len(p), self._flat.shape[1]), np.float32)
        for some, piece in self._pieces():
            product += p[:, some] @ piece
        product *= self._scale
        return product

    def weigh(self, blocks: Stored) -> Stored:
        """``Uᵀ block`` for every block, a row, of a stack."""
        total: Stored = np.concatenate([blocks @ piece.T for _, piece in self._pieces()], axis=1)
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
        """All columns, as many at a time as the copy holds."""
        for first in range(0, len(self._flat), len(self._copy)):
            some = slice(first, min(first + len(self._copy), len(self._flat)))
            piece = self._copy[: some.stop - first]
            if not self.whole:
                widen(self._flat[some], piece)
            yield some, piece


class Climbs:
    """Weights ``p`` (c, r), and what was found with them: ``vectors`` (c, d_i) by mode, once there are any.

    ``sides[m]`` is what the columns of block m say of the weights, for the vectors as they are: worked out once.
    """

    def __init__(self, partition: Partition, p: Stored | None, vectors: Sequence[Stored] | None = None) -> None:
        self.partition = partition
        self.vectors: list[Stored] = [np.empty((0, 0))] * partition.order if vectors is None else list(vectors)
        self.known = [vectors is not None] * 2
        count = len(self.vectors[0]) if p is None else len(p)
        self._signals = np.zeros((2, count))
        self.sides: list[Stored | None] = [None, None]
        self.p: Stored = np.empty((0, 0)) if p is None else p  # none: to be set before it is used

    def __len__(self) -> int:
        return self._signals.shape[1]

    def __getitem__(self, some: NDArray[np.intp] | slice) -> Climbs:
        """Some of the climbs."""
        twin = Climbs(self.partition, self.p[some], [v[some] for v in self.vectors] if self.known[0] else None)
        twin.known, twin._signals = list(self.known), self._signals[:, some]
        return twin

    @classmethod
    def together(cls, parts: Sequence[Climbs]) -> Climbs:
        """All of several stacks that are equally far."""
        if len(parts) == 1:
            return parts[0]
        vectors = [np.concatenate(mode) for mode in zip(*(part.vectors for part in parts), strict=True)]
        whole = cls(parts[0].partition, np.concatenate([part.p for part in parts]), vectors)
        whole._signals = np.concatenate([part._signals for part in parts], axis=1)
        return whole

    @property
    def signals(self) -> Stored:
        """√(s_A² + s_B²) of each, which climbs."""
        return np.asarray(np.hypot(*self._signals))

    def settled(self, before: Stored, tolerance: float) -> bool:
        """Whether every climb is on top, or too far below the highest to come up to it in two more such sweeps."""
        now = self.signals
        highest = float(now.max())
        pairs = zip(now.tolist(), before.tolist(), strict=True)
        return all(s < (1 + tolerance) * b or 0 < s**3 < b**2 * highest for s, b in pairs)

    def block(self, m: int) -> Stored:
        """The outer products of the vectors of block m, as rows."""
        first, *others = (self.vectors[i] for i in self.partition.groups[m])
        for v in others:
            first = (first[:, :, None] * v[:, None, :]).reshape(len(v), -1)
        return first

    def fit(self, m: int, known: Stored) -> None:
        """The vectors of block m from what is known about it, s v + noise."""
        group = self.partition.groups[m]
        start = [self.vectors[i] for i in group] if self.known[m] else None
        fitted, self._signals[m] = rank_ones(known.reshape(len(self), *self.partition.shapes[m]), start)
        for i, v in zip(group, fitted, strict=True):
            self.vectors[i] = v
        self.known[m], self.sides[m] = True, None


class FlowLook:
    """One look at a flow that has seen samples."""

    def __init__(self, flow: BlockFlow) -> None:
        self.flow, self.partition = flow, flow.partition
        self._largest = max(columns.unit for columns in flow.sums)
        self._first_fit, self._later_fits = climb_bytes(flow.partition, flow.size)
        self._room = flow.room // 2
        self._wide: list[Wide] = []
        room = self._room
        for m, columns in enumerate(flow.sums):  # the smaller first: each gets what the others need not have
            later = sum(c.store.nbytes for c in flow.sums[m + 1 :])
            self._wide.append(Wide(columns, columns.unit / self._largest, max(room // 2, room - 2 * later)))
            room -= self._wide[-1].nbytes

    def propose(self) -> tuple[Array, ...]:
        """Return the best of several proposals: starts from unfoldings of U and V and from the last proposal."""
        climbs = self._climb(Climbs(self.partition, self._starts()), SWEEPS[0], self._first_fit)
        finals = self._climb(climbs[np.argsort(-climbs.signals)[:FINALISTS]], SWEEPS[1], self._later_fits)
        best = int(np.argmax(finals.signals))
        self.flow.last = tuple(units(v[best].astype(np.float64)) for v in finals.vectors)
        return self.flow.last

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """U p and V p contracted with the partner vectors inside each block, p read off from ``vectors``."""
        climb = Climbs(self.partition, None, [v[None].astype(np.float32) for v in vectors])
        climb.p = self._weights(climb)
        sums: list[Array] = [np.empty(0)] * self.partition.order
        for m, group in enumerate(self.partition.groups):
            block = self._largest * self._block(m, climb)[0].astype(np.float64)
            inside = [vectors[i] for i in group]
            for place, i in enumerate(group):
                sums[i] = along(block, inside, place)
        return sums, float(self.flow.count)

    def _side(self, m: int, climbs: Climbs) -> Stored:
        """U^T v_A, or V^T v_B."""
        if (side := climbs.sides[m]) is None:
            side = climbs.sides[m] = self._wide[m].weigh(climbs.block(m))
        return side

    def _weights(self, climbs: Climbs) -> Stored:
        """Return the weights p (c, r) that fit the vectors: ``unit(s_A U^T v_A + s_B V^T v_B)``."""
        first, second = self._side(0, climbs), self._side(1, climbs)
        return units(lengths(first)[:, None] * first + lengths(second)[:, None] * second)

    def _block(self, m: int, climbs: Climbs) -> Stored:
        """Return what is known about one block given p and the other block, as rows: ``s v + N(0, n sigma^2)``."""
        past = self.flow.past
        if past is None or not climbs.known[1 - m]:
            return self._wide[m].times(climbs.p)
        if m == 1:
            return self._wide[1].times(units(climbs.block(0) @ past.T))
        mine = climbs.block(0) if climbs.known[0] else None
        return self._regress(self._wide[0].times(climbs.p), self._side(1, climbs), mine)

    @functools.cached_property
    def _past_axes(self) -> tuple[Array, Array, Array]:
        """The past columns, Λ, and Q^T times the past columns."""
        assert self.flow.past is not None
        past = self.flow.past.astype(np.float64)
        values, axes = all_eigenvectors(past @ past.T)
        return past, values, axes.T @ past

    def _regress(self, own: Stored, side: Stored, mine: Stored | None) -> Stored:
        """The narrow block of every climb from both sides: see the top of this file."""
        past, values, turned = self._past_axes
        n, size, factor = self.flow.count, own.shape[1], self._largest / self.flow.count
        noise = self.flow.sigma**2 / n
        x, y = factor * side.astype(np.float64), factor * own.astype(np.float64)
        power = np.maximum(np.einsum("ci,ci->c", x, x) - noise * len(past), noise) * size / float(values.sum())
        ratio = np.zeros(len(own))
        if mine is not None:
            ratio = np.maximum(0.0, np.einsum("ci,ci->c", y, mine)) / np.sqrt(power)
        ridge = (ratio**2 + noise * size / power)[:, None]
        target = x @ past + ratio[:, None] * y
        spread = np.sum((values + ratio[:, None] ** 2) / (values + ridge) ** 2, axis=1)
        spread += (size - len(past)) * (ratio / ridge[:, 0]) ** 2
        better = target - ((target @ turned.T) / (values + ridge)) @ turned
        better /= ridge * factor * np.sqrt(spread / size)[:, None]
        return np.asarray(better, np.float32)

    def _climb(self, climbs: Climbs, sweeps: int, each: int) -> Climbs:
        """Some sweeps of every climb, of ``each`` so many bytes: as many at a time as there is room for."""
        parts, together = [climbs], max(1, min(len(climbs), self._room // each))
        if len(climbs) > together:
            parts = [climbs[first : first + together] for first in range(0, len(climbs), together)]
        for some in parts:
            for _ in range(sweeps):
                before = some.signals
                for m in (1, 0):
                    some.fit(m, self._block(m, some))
                if some.settled(before, GAIN_TOL):
                    break
                some.p = self._weights(some)
        return Climbs.together(parts)

    def _starts(self) -> Stored:
        """Weights to start from: top eigenvectors of U^T U + V^T V, of unfoldings, and the last proposal."""
        starts = list(top_eigenvectors(self._joint_gram(), EIGENVECTORS))
        unfoldings = list(self._unfoldings())
        if unfoldings and math.prod(self.partition.dims) <= IN_TURN:
            unfoldings = [unfoldings[self.flow.looks % len(unfoldings)]]
        for m, modes, square in unfoldings:
            starts.append(self._wide[m].top_weights(modes, self._room - square))
        self.flow.looks += 1
        if self.flow.last is not None:
            last = Climbs(self.partition, None, [v[None].astype(np.float32) for v in self.flow.last])
            starts.append(self._weights(last)[0])
        return np.stack(starts)

    def _joint_gram(self) -> Stored:
        """U^T U + V^T V."""
        grams = [np.float32((c.unit / self._largest) ** 2) * c.gram for c in self.flow.sums]
        return functools.reduce(np.add, grams)

    def _unfoldings(self) -> Iterator[tuple[int, tuple[int, ...], int]]:
        """A block, some of its modes, and the bytes of a matrix over them and one over the rest: all that fit."""
        sums = self.flow.sums
        for m, (columns, group) in enumerate(zip(sums, self.partition.groups[-len(sums) :], strict=True)):
            for some in range(1, len(group)):
                for modes in itertools.combinations(range(len(group)), some):
                    side = math.prod(columns.store.shape[1 + i] for i in modes)
                    needed = SQUARE * side**2 + 8 * columns.store.size // side
                    if needed <= self._room:
                        yield m, modes, needed


class WholeLook(FlowLook):
    """One look at the sum of all samples; the weights of a climb are the outer product of its vectors of block A."""

    def _weights(self, climbs: Climbs) -> Stored:
        return climbs.block(0)

    def _block(self, m: int, climbs: Climbs) -> Stored:
        (wide,) = self._wide
        if m == 0 and climbs.known[1]:
            return wide.weigh(climbs.block(1))
        return wide.times(climbs.p)


def climb_bytes(partition: Partition, columns: int) -> tuple[int, int]:
    """Bytes of a climb, when the vectors of a block are fitted for the first time and later.

    What is known of the block, and its outer product or a copy in another order; at first two Gram matrices of its
    shorter sides; and weights and vectors.
    """
    first, later = 0, 8 * max(partition.sizes)
    for shape, size in zip(partition.shapes, partition.sizes, strict=True):
        sides = [min(d, size // d) for d in shape[1:]]
        first = max(first, (8 if len(shape) != 2 else 4) * size + 8 * max(sides, default=0) ** 2)
    vectors = 16 * columns + 8 * sum(partition.dims)
    return max(first, later) + vectors, later + vectors
