r"""The block flow: two blocks A | B, r columns, nothing to set.

With the batch mean of B fresh samples seen as a matrix T (D_1 x D_2), every round does

.. math::
    U \mathrel{+}= B\,T\hat V, \qquad V \mathrel{+}= B\,T^\top\hat U, \qquad n \mathrel{+}= B, \qquad
    \hat U = U (U^\top U)^{-1/2}, \quad \hat V = V (V^\top V)^{-1/2} .

The orthonormal columns are fixed before the batch arrives, so :math:`U = s_A v_A p^\top + N(0, n\sigma^2)` and
:math:`V = s_B v_B p^\top + N(0, n\sigma^2)`, entries independent.  A *proposal* is the best fit with both
``v_A`` and ``v_B`` of rank one and one weight vector p for both: it maximises :math:`s_A^2 + s_B^2`.  It is the end
of a climb that alternates between weights p and vectors, each the best given the other; all climbs go in step.  They
start from top eigenvectors of U^T U + V^T V, from the last proposal, and from unfoldings of the columns: without these
the flow needs half as many samples again at order 5, a tenth more at order 4.

Memory is what buys samples here, so nothing is held twice:

* :math:`\hat U` is never formed: gradients are asked for at U itself, and times :math:`(U^\top U)^{-1/2}` (r x r) they
  are those that were wanted;
* U, V and the answers are float16: U = ``unit`` · ``store``.  Rounding is relative, 2^-11 a round, and adds a noise
  some 10^-3 times that of the samples.  The race hands out data in units of about the noise level; ``unit`` follows the
  size of U and keeps the store near D_2^{-1/4}, so that answers are near D_2^{1/4}, well inside the range of float16;
* nothing is widened whole while answers are in flight: passes over the store take a few thousand entries at a time.  A
  proposal has the memory of the answers, which are gone by then: half of it for columns in single precision, as many at
  a time as fit, half for climbs, as many at a time as fit.

===============  ==========================================================================================
symbol           code
===============  ==========================================================================================
U, V             ``sums[m]`` for the blocks m = 0, 1: :class:`Columns`
U^T U, V^T V     ``sums[m].unit**2 * sums[m].gram``
n                ``count``
===============  ==========================================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.candidate import Look, Stored
from tpca.solvers.rank_one import all_eigenvectors, along, lengths, rank_ones, top_eigenvectors, units
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, narrowed, unit, widen, widened

SQUARES = 24  # bytes for every entry of a Gram matrix while answers are in flight
EIGENVECTORS = 3  # of U^T U + V^T V, or of an unfolding, as starts of proposals
FINALISTS = 3  # climbs that are carried on after the first sweeps; the best of them goes on at the next look
FIRST, LAST = 2, 4  # sweeps of all, and of those
GAIN_TOL = 2e-3  # climbs that gain no more than this share in a sweep are on top
SQUARE = 14  # bytes per entry of a symmetric matrix in single precision and what its top eigenvector takes to find


@kept
class Columns:
    """r columns over the entries of a block, stored as rows: shape ``(r, *block shape)``."""

    def __init__(self, count: int, shape: tuple[int, ...], level: float, rng: np.random.Generator) -> None:
        self.level, self.unit = level, 0.0
        self.store: Stored = (level * rng.standard_normal((count, *shape), dtype=np.float32)).astype(np.float16)
        self.gram: Stored = np.zeros((count, count), np.float32)
        for some in self._pieces():
            piece = widened(self.flat[:, some])
            self.gram += piece @ piece.T

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

    def add(self, mix: Stored, gradient: Stored, n: int, anew: bool) -> None:
        """``U += n * mix @ gradient`` in place (``anew``: instead of what is stored, which was only a direction).

        A gradient of zeros changes nothing, nor does one that left the range of float16.
        """
        gradient, pieces = gradient.reshape(len(self.store), -1), self._pieces()
        wide, mixed = (np.empty(len(self.store) * pieces[0].stop, np.float32) for _ in range(2))

        def fresh(some: slice) -> Stored:
            """Some entries of ``mix @ gradient``."""
            part = gradient[:, some]
            first, second = (buffer[: part.size].reshape(part.shape) for buffer in (wide, mixed))
            widen(part, first)
            np.matmul(mix, first, out=second)
            return second

        squares, old = 0.0, 0.0 if anew else self.unit
        for some in pieces:  # once for the size of the sum, which says what the unit must be
            if not np.isfinite(gradient[:, some]).all():
                return
            part = fresh(some)
            squares += float(np.vdot(part, part))
        kept_squares = old**2 * float(np.trace(self.gram))
        new = math.sqrt((kept_squares + n**2 * squares) / self.store.size) / self.level
        if squares == 0.0 or not math.isfinite(new):
            return
        gram: Stored = np.zeros_like(self.gram)
        for some in pieces:
            part = fresh(some)
            part *= n / new
            if old:
                before = wide[: part.size].reshape(part.shape)
                widen(self.flat[:, some], before)
                before *= old / new
                part += before
            gram += part @ part.T
            narrowed(part, self.flat[:, some])
        self.unit, self.gram = new, gram

    def _pieces(self) -> list[slice]:
        """Entries of all columns that are widened at a time, to be held three times: see :func:`working_bytes`."""
        rows, entries = self.flat.shape
        room = (SQUARES - 12) * rows**2 + 16 * (_piece(self.store.size) + entries)
        step = int(min(entries, max(1, room // (12 * rows))))
        return [slice(first, min(first + step, entries)) for first in range(0, entries, step)]


def working_bytes(partition: Partition, columns: int) -> int:
    """Most bytes of temporary copies while the answers are in flight.

    Square matrices in double precision; when these are gone but for three in single, pieces of the columns in their
    place (:meth:`Columns._pieces`).
    """
    return SQUARES * columns**2 + 16 * max(_piece(columns * max(partition.sizes)), columns) + 16 * max(partition.sizes)


def _piece(entries: int) -> int:
    """Entries of a store that are widened at a time in any case: a sixteenth, and no more than a few thousand."""
    return min(2**12, max(64, entries // 16))


def state_floats(partition: Partition, columns: int) -> int:
    """Peak state in float64 units: sums, Gram matrices, answers in flight, temporary copies."""
    entries = sum(partition.sizes)
    held, answers = columns * entries * 2 + 2 * 4 * columns**2, columns * (entries * 2 + 8)
    return math.ceil((held + answers + working_bytes(partition, columns)) / 8)


@kept
class BlockFlow:
    """The block flow with ``columns`` columns on a partition into two blocks, the smaller first."""

    name = "flow"

    def __init__(self, partition: Partition, columns: int, rng: np.random.Generator) -> None:
        self.partition, self.size, self.count = partition, columns, 0
        level = partition.sizes[1] ** -0.25
        self.sums = [Columns(columns, shape, level, rng) for shape in partition.shapes]
        self.last: tuple[Array, ...] | None = None  # proposal

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return working_bytes(self.partition, self.size)

    @property
    def room(self) -> int:
        """Bytes that a proposal may use: the answers and the copies they needed are gone by then."""
        return sum(columns.store.nbytes for columns in self.sums) + self.working_bytes

    def queries(self) -> tuple[Query, ...]:
        """Ask about the columns themselves; they are orthonormalised only when the answer comes."""
        return (Query(self.partition, tuple(columns.store for columns in self.sums)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One round of the flow."""
        mixes = [columns.inverse_root() for columns in self.sums]
        for m in (0, 1):
            self.sums[m].add(mixes[1 - m], answers[0].gradients[m], n, self.count == 0)
        self.count += n

    def restart(self) -> None:
        """Keep the columns as the next query, forget the sums: the next round starts them afresh."""
        self.count = 0

    def read(self) -> Look | None:
        """A look at what the samples so far say."""
        return FlowLook(self) if self.count and all(columns.unit for columns in self.sums) else None

    def arrays(self) -> list[Stored]:
        """Every array of the state."""
        return [array for columns in self.sums for array in (columns.store, columns.gram)]


class Wide:
    """Columns times ``scale`` in single precision: all, or as many at a time as ``room`` bytes hold, one at least."""

    def __init__(self, columns: Columns, scale: float, room: int) -> None:
        self._flat, self._scale, self._shape = columns.flat, np.float32(scale), columns.store.shape[1:]
        count, entries = self._flat.shape
        self._copy = np.empty((max(1, min(count, room // (4 * entries))), entries), np.float32)
        self.whole = len(self._copy) == count
        if self.whole:
            widen(self._flat, self._copy)
        self.nbytes = self._copy.nbytes

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
        entries = self._flat.shape[1]
        side, most = math.prod(self._shape[i] for i in modes), max(1, room // (8 * entries))
        gram: Stored = np.zeros((side, side), np.float32)
        order = (*(1 + i for i in modes), 0, *(1 + i for i in range(len(self._shape)) if i not in modes))

        def unfoldings() -> Iterator[Stored]:
            """Some columns after the other, as a matrix ``modes | columns and other modes``."""
            for _, piece in self._pieces():
                for first in range(0, len(piece), most):
                    yield piece[first : first + most].reshape(-1, *self._shape).transpose(order).reshape(side, -1)

        for matrix in unfoldings():
            gram += matrix @ matrix.T
        (top,) = top_eigenvectors(gram, 1)
        del gram
        rest = np.concatenate([(top @ matrix).reshape(-1, entries // side) for matrix in unfoldings()])
        if len(rest) < rest.shape[1]:
            return np.asarray(top_eigenvectors(rest @ rest.T, 1)[0])
        return unit(rest @ top_eigenvectors(rest.T @ rest, 1)[0])

    def _pieces(self) -> Iterator[tuple[slice, Stored]]:
        """All columns, as many at a time as the copy holds."""
        for first in range(0, len(self._flat), len(self._copy)):
            some = slice(first, min(first + len(self._copy), len(self._flat)))
            piece = self._copy[: some.stop - first]
            if not self.whole:
                widen(self._flat[some], piece)
            yield some, piece


class FlowLook:
    """One look at a flow that has seen samples."""

    def __init__(self, flow: BlockFlow) -> None:
        self.flow, self.partition = flow, flow.partition
        self._largest = max(columns.unit for columns in flow.sums)
        self._room = flow.room // 2
        self._wide: list[Wide] = []
        room = self._room
        for m, columns in enumerate(flow.sums):  # the smaller first: each gets what the others need not have
            later = sum(c.store.nbytes for c in flow.sums[m + 1 :])
            self._wide.append(Wide(columns, columns.unit / self._largest, max(room // 2, room - 2 * later)))
            room -= self._wide[-1].nbytes

    def propose(self) -> tuple[Array, ...]:
        """Return the best of several proposals: starts from unfoldings of U and V and from the last proposal."""
        vectors, signals = self._climb(self._starts(), None, FIRST)
        best = np.argsort(-signals)[:FINALISTS]
        vectors = [v[best] for v in vectors]
        vectors, signals = self._climb(self._weights(vectors), vectors, LAST)
        first = int(np.argmax(signals))
        self.flow.last = tuple(units(v[first].astype(np.float64)) for v in vectors)
        return self.flow.last

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """U p and V p contracted with the partner vectors inside each block, p read off from ``vectors``."""
        p = self._weights([v[None].astype(np.float32) for v in vectors])
        sums: list[Array] = [np.empty(0)] * self.partition.order
        for wide, group in zip(self._wide, self.partition.groups, strict=True):
            block = self._largest * wide.times(p)[0].astype(np.float64)
            for place, i in enumerate(group):
                sums[i] = along(block, [vectors[j] for j in group], place)
        return sums, float(self.flow.count)

    def _weights(self, vectors: Sequence[Stored]) -> Stored:
        """Return the weights p (c, r) that fit vectors (c, d_i): ``unit(s_A U^T v_A + s_B V^T v_B)``."""
        total: Stored = np.zeros((len(vectors[0]), self.flow.size), np.float32)
        for wide, group in zip(self._wide, self.partition.groups, strict=True):
            block, *others = (vectors[i] for i in group)
            for v in others:
                block = (block[:, :, None] * v[:, None, :]).reshape(len(v), -1)
            side = wide.weigh(block)
            total += lengths(side)[:, None] * side
        return units(total)

    def _climb(self, p: Stored, vectors: Sequence[Stored] | None, sweeps: int) -> tuple[list[Stored], Array]:
        """Some sweeps of every climb from weights p (c, r), and vectors (c, d_i) if there are any.

        The vectors, and √(s_A² + s_B²) of each, which climbs.  As many go in step as there is room for.
        """
        together = max(1, self._room // climb_bytes(self.partition, self.flow.size, vectors is None))
        if len(p) > together:
            parts = [slice(first, first + together) for first in range(0, len(p), together)]
            done = [self._climb(p[s], None if vectors is None else [v[s] for v in vectors], sweeps) for s in parts]
            joined = [np.concatenate(mode) for mode in zip(*(found for found, _ in done), strict=True)]
            return joined, np.concatenate([signals for _, signals in done])
        found: list[Stored] = [np.empty(0)] * self.partition.order if vectors is None else list(vectors)
        known, before = vectors is not None, np.zeros(len(p))
        for sweep in range(sweeps):
            squares = np.zeros(len(p))
            for wide, group, shape in zip(self._wide, self.partition.groups, self.partition.shapes, strict=True):
                start = [found[i] for i in group] if known or sweep else None
                fitted, signals = rank_ones(wide.times(p).reshape(len(p), *shape), start)
                squares += signals.astype(np.float64) ** 2
                for i, v in zip(group, fitted, strict=True):
                    found[i] = v
            if (np.sqrt(squares) < (1 + GAIN_TOL) * before).all():
                break
            before = np.sqrt(squares)
            p = self._weights(found) if sweep + 1 < sweeps else p
        return found, np.sqrt(squares)

    def _starts(self) -> Stored:
        """Weights to start from: top eigenvectors of U^T U + V^T V, of unfoldings, and the last proposal."""
        first, second = (np.float32((c.unit / self._largest) ** 2) * c.gram for c in self.flow.sums)
        starts = list(top_eigenvectors(first + second, EIGENVECTORS))
        for wide, columns, group in zip(self._wide, self.flow.sums, self.partition.groups, strict=True):
            sides = range(1, len(group)) if len(group) < 4 else (1,)  # of six modes there are 62 unfoldings in all
            for modes in itertools.chain(*(itertools.combinations(range(len(group)), side) for side in sides)):
                side = math.prod(columns.store.shape[1 + i] for i in modes)
                needed = SQUARE * side**2 + 8 * columns.store.size // side  # a matrix over them and one over the rest
                if needed <= self._room:
                    starts.append(wide.top_weights(modes, self._room - needed))
        if self.flow.last is not None:
            starts.append(self._weights([v[None].astype(np.float32) for v in self.flow.last])[0])
        return np.stack(starts)


def climb_bytes(partition: Partition, columns: int, first: bool) -> int:
    """Bytes of a climb: what is known of a block and its outer product or a copy in another order; weights and vectors.

    When the vectors of a block are fitted for the ``first`` time, also two Gram matrices of its shorter sides.
    """
    largest = 8 * max(partition.sizes)
    for shape, size in zip(partition.shapes, partition.sizes, strict=True):
        sides = [min(d, size // d) for d in shape[1:]]
        largest = max(largest, (8 * size + 8 * max(sides, default=0) ** 2) if first else 0)
    return largest + 16 * columns + 8 * sum(partition.dims)
