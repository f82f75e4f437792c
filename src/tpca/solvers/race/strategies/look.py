r"""A look at the block flow between two rounds: proposals, and what its sums say about given vectors.

All that a look needs more than once is worked out when it begins and dropped with it: the columns in single precision
(as much of them as the memory of the answers, which are gone by now, holds), and the eigenvectors of the past columns.

Units: U and V are both divided by the larger of their two units, so that nothing leaves the range of single precision.

**The narrow block** (order 3) is read from V as well as from U: :math:`V^\top v_B = P(\lambda v_A) + \text{noise}` with
P = n times the mean of Û over all samples (``past``); ridge regression on both, scaled to noise variance nσ² per entry.
With :math:`\overline U\,\overline U^\top = Q\Lambda Q^\top` every solution costs two small products:

.. math:: (\overline U^\top\overline U + \rho)^{-1} t
    = \bigl(t - \overline U^\top Q(\Lambda + \rho)^{-1}Q^\top\overline U t\bigr)/\rho .
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tpca.solvers.eigen import all_eigenvectors, top_eigenvectors
from tpca.solvers.race.strategies.climb import Climbs
from tpca.solvers.race.strategies.columns import Stored
from tpca.solvers.race.strategies.protocol import Evidence, Proposal
from tpca.solvers.race.strategies.wide import Wide
from tpca.solvers.rank_one import along, lengths, units
from tpca.tensors.blocks import Array, Partition

if TYPE_CHECKING:
    from tpca.solvers.race.strategies.flow import BlockFlow

EIGENVECTORS = 3  # of U^T U + V^T V, as starts of proposals
FINALISTS = 3  # climbs that are carried on after the first sweeps; the best of them goes on at the next look
SWEEPS = (2, 4)
GAIN_TOL = 2e-3  # a climb that gains no more than this share in a sweep is on top
ENOUGH = 0.9  # of the columns that there is room for: to hold the others, too, all would be widened anew
IN_TURN = 2**15  # entries of samples of which one unfolding a look is tried, in turn: of larger ones samples cost more
SQUARE = 14  # bytes per entry of a symmetric matrix in single precision and what its top eigenvector takes to find


class FlowLook:
    """One look at a flow that has seen samples."""

    def __init__(self, flow: BlockFlow) -> None:
        self.flow, self.partition = flow, flow.partition
        self._largest = max(columns.unit for columns in flow.sums)
        self._wide: list[Wide] = []
        self._first_fit, self._later_fits = climb_bytes(flow.partition, flow.columns)
        self._room, self._half = flow.room, max(columns.store.nbytes for columns in flow.sums)

    def propose(self) -> Proposal:
        """Return the best of several proposals: starts from unfoldings of U and V and from the last proposal."""
        climbs = self._climb(Climbs(self.partition, self._starts()), SWEEPS[0], self._first_fit)
        finals = self._climb(climbs[np.argsort(-climbs.signals)[:FINALISTS]], SWEEPS[1], self._later_fits)
        best = int(np.argmax(finals.signals))
        vectors = self.flow.last = tuple(units(v[best].astype(np.float64)) for v in finals.vectors)
        score = self._largest * float(finals.signals[best]) / (self.flow.sigma * math.sqrt(self.flow.count))
        return Proposal(vectors, score)

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """U p and V p contracted with the partner vectors inside each block, p read off from ``vectors``."""
        self._prepare(self._together(FINALISTS, self._later_fits) * self._later_fits)
        climb = Climbs(self.partition, None, [v[None].astype(np.float32) for v in vectors])
        climb.p = self._weights(climb)
        sums: list[Array] = [np.empty(0)] * self.partition.order
        for m, group in enumerate(self.partition.groups):
            block = self._largest * self._block(m, climb)[0].astype(np.float64)
            inside = [vectors[i] for i in group]
            for place, i in enumerate(group):
                sums[i] = along(block, inside, place)
        return Evidence(tuple(sums), float(self.flow.count))

    def _together(self, climbs: int, each: int) -> int:
        """How many of so many climbs, of ``each`` so many bytes, there is room for at a time.

        Beside them at least half of the larger columns is held in single precision.
        """
        return max(1, min(climbs, (self._room - self._half) // each))

    def _prepare(self, share: int) -> None:
        """Columns in single precision, in what ``share`` bytes for something else leave.

        The smaller come first, and each gets what the others leave.
        """
        room, held = self._room - share, sum(wide.nbytes for wide in self._wide)
        if held <= room and self._wide and (held >= ENOUGH * room or all(wide.whole for wide in self._wide)):
            return
        self._wide, sums = [], self.flow.sums
        for m, columns in enumerate(sums):
            later = sum(c.store.nbytes for c in sums[m + 1 :])
            self._wide.append(Wide(columns, columns.unit / self._largest, room - later))
            room -= self._wide[-1].nbytes

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
        if past is None or not climbs.knows(1 - m):
            return self._wide[m].times(climbs.p)
        if m == 1:
            return self._wide[1].times(units(climbs.block(0) @ past.T))
        mine = climbs.block(0) if climbs.knows(0) else None
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
        parts, together = [climbs], self._together(len(climbs), each)
        self._prepare(together * each)
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
        count = len(starts) + len(unfoldings) + (self.flow.last is not None)
        share = self._together(count, self._first_fit) * self._first_fit
        for m, modes, square in unfoldings:
            self._prepare(max(share, square))
            starts.append(self._wide[m].top_weights(modes, max(share, square) - square))
        self.flow.looks += 1
        if self.flow.last is not None:
            self._prepare(share)
            last = Climbs(self.partition, None, [v[None].astype(np.float32) for v in self.flow.last])
            starts.append(self._weights(last)[0])
        return np.stack(starts)

    def _joint_gram(self) -> Stored:
        """U^T U + V^T V."""
        grams = [np.float32((c.unit / self._largest) ** 2) * c.gram for c in self.flow.sums]
        return functools.reduce(np.add, grams)

    def _unfoldings(self) -> Iterator[tuple[int, tuple[int, ...], int]]:
        """A block, some of its modes, and the bytes of a square matrix over them: all for which there is room."""
        sums = self.flow.sums
        for m, (columns, group) in enumerate(zip(sums, self.partition.groups[-len(sums) :], strict=True)):
            for some in range(1, len(group)):
                for modes in itertools.combinations(range(len(group)), some):
                    square = SQUARE * math.prod(columns.store.shape[1 + i] for i in modes) ** 2
                    if square <= self._room:
                        yield m, modes, square


class WholeLook(FlowLook):
    """One look at the sum of all samples; the weights of a climb are the outer product of its vectors of block A."""

    def _weights(self, climbs: Climbs) -> Stored:
        return climbs.block(0)

    def _block(self, m: int, climbs: Climbs) -> Stored:
        (wide,) = self._wide
        if m == 0 and climbs.knows(1):
            return wide.weigh(climbs.block(1))
        return wide.times(climbs.p)


class Blank:
    """A look at a flow that has seen no sample yet, or only zeros."""

    def __init__(self, dims: tuple[int, ...], rng: np.random.Generator) -> None:
        self._dims, self._rng = dims, rng

    def propose(self) -> Proposal:
        """Random vectors."""
        return Proposal(tuple(units(self._rng.standard_normal(d)) for d in self._dims), 0.0)

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:  # noqa: ARG002
        """Nothing."""
        return Evidence(tuple(np.zeros(d) for d in self._dims), 1.0)


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
