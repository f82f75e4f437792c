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

from tpca.solvers.race.strategies.climb import Climbs
from tpca.solvers.race.strategies.columns import Columns, Stored, Wide, top_eigenvectors
from tpca.solvers.race.strategies.protocol import Evidence, Proposal
from tpca.solvers.rank_one import along, lengths, units
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.strategies.flow import BlockFlow

EIGENVECTORS = 3  # of U^T U + V^T V, as starts of proposals
FINALISTS = 3  # climbs that are carried on after the first sweeps; the best of them goes on at the next look
SWEEPS = (2, 4)
GAIN_TOL = 2e-3  # a climb that gains no more than this share in a sweep is on top
# Bytes per entry of a block in a climb: what is known of it, its fit; at first, Gram matrices.
FIRST_FIT, LATER_FITS = 20, 8
IN_TURN = 2**15  # entries of samples of which one unfolding a look is tried, in turn: of larger ones samples cost more
SQUARE = 14  # bytes per entry of a symmetric matrix in single precision and what its top eigenvector takes to find


class Reading:
    """One look at a flow that has seen samples."""

    def __init__(self, flow: BlockFlow) -> None:
        self.flow, self.partition = flow, flow.partition
        self._largest = max(columns.unit for columns in flow.sums)
        self._wide: list[Wide] = []
        self._together, self._each = 0, 0

    def propose(self) -> Proposal:
        """Return the best of several proposals: starts from unfoldings of U and V and from the last proposal."""
        starts = self._starts()
        self._prepare(len(starts), FIRST_FIT)
        climbs = self._climb(Climbs(self.partition, starts), SWEEPS[0])
        self._prepare(FINALISTS, LATER_FITS)
        finals = self._climb(climbs[np.argsort(-climbs.signals)[:FINALISTS]], SWEEPS[1])
        best = int(np.argmax(finals.signals))
        vectors = self.flow.last = tuple(units(v[best].astype(np.float64)) for v in finals.vectors)
        score = self._largest * float(finals.signals[best]) / (self.flow.sigma * math.sqrt(self.flow.count))
        return Proposal(vectors, score)

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """U p and V p contracted with the partner vectors inside each block, p read off from ``vectors``."""
        self._prepare(FINALISTS, LATER_FITS)
        climb = Climbs(self.partition, None, [v[None].astype(np.float32) for v in vectors])
        climb.p = self._weights(climb)
        sums: list[Array] = [np.empty(0)] * self.partition.order
        for m, group in enumerate(self.partition.groups):
            block = self._largest * self._block(m, climb)[0].astype(np.float64)
            inside = [vectors[i] for i in group]
            for place, i in enumerate(group):
                sums[i] = along(block, inside, place)
        return Evidence(tuple(sums), float(self.flow.count))

    def _prepare(self, climbs: int, each: int) -> None:
        """Share the room between so many climbs, of ``each`` so many bytes an entry, and columns in single precision.

        Of the larger columns at least half is held; the smaller come first, and each gets what the others leave.
        """
        if climbs <= self._together and each == self._each:
            return
        sums, entries = self.flow.sums, each * max(self.partition.sizes)
        half = max(columns.store.nbytes for columns in sums)
        self._together, self._each = max(1, min(climbs, (self.flow.room - half) // entries)), each
        if self._wide and all(wide.whole for wide in self._wide):
            return
        self._wide, room = [], self.flow.room - self._together * entries
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
        values, axes = np.linalg.eigh(past @ past.T)
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

    def _climb(self, climbs: Climbs, sweeps: int) -> Climbs:
        """Some sweeps of every climb, as many climbs at a time as there is room for."""
        parts = [climbs]
        if len(climbs) > self._together:
            parts = [climbs[first : first + self._together] for first in range(0, len(climbs), self._together)]
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
        sums = self.flow.sums
        joint = functools.reduce(np.add, [np.float32((c.unit / self._largest) ** 2) * c.gram for c in sums])
        starts = list(top_eigenvectors(joint, EIGENVECTORS))
        unfoldings = list(self._unfoldings())
        if unfoldings and math.prod(self.partition.dims) <= IN_TURN:
            unfoldings = [unfoldings[self.flow.looks % len(unfoldings)]]
        starts += [columns.top_weights(modes) for columns, modes in unfoldings]
        self.flow.looks += 1
        if self.flow.last is not None:
            self._prepare(len(starts) + 1, FIRST_FIT)
            last = Climbs(self.partition, None, [v[None].astype(np.float32) for v in self.flow.last])
            starts.append(self._weights(last)[0])
        return np.stack(starts)

    def _unfoldings(self) -> Iterator[tuple[Columns, tuple[int, ...]]]:
        """Modes of a block, columns and the other modes on the other side: all for which there is room."""
        sums = self.flow.sums
        for columns, group in zip(sums, self.partition.groups[-len(sums) :], strict=True):
            for some in range(1, len(group)):
                for modes in itertools.combinations(range(len(group)), some):
                    side = math.prod(columns.store.shape[1 + i] for i in modes)
                    if SQUARE * side**2 <= self.flow.room:
                        yield columns, modes


class WholeReading(Reading):
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
