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
mean of Û        ``_past`` over all samples (narrow block only), see :meth:`BlockFlow._regress`
n, sigma         ``count``, ``sigma``
===============  ==========================================================================================
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import PartitionError
from tpca.solvers.race.strategies.climb import Climbs, blocks_of
from tpca.solvers.race.strategies.columns import STORE, Columns, Stored, top_eigenvectors, working_bytes
from tpca.solvers.race.strategies.protocol import Evidence, Proposal
from tpca.solvers.rank_one import along, units
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

EIGENVECTORS = 3  # of U^T U + V^T V, as starts of proposals
FINALISTS = 3  # proposals that are carried on after two sweeps
GAIN_TOL = 1e-3  # a climb that gains no more than this share in a sweep is on top
BLOCK = 32  # bytes per entry of a block in a climb: what is known of it, in single and in double precision, its fit
SQUARE = 14  # bytes per entry of a symmetric matrix in single precision and what its top eigenvector takes to find


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
        self._past: Stored | None = None
        if _is_narrow(partition):
            self._past = np.zeros((columns, partition.sizes[0]), np.float32)
        self._last: tuple[Array, ...] | None = None

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight."""
        return working_bytes(self.partition, self.columns)

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries) if self._entries else 1.0

    @property
    def _room(self) -> int:
        """Bytes that a proposal may use: the answers and the copies they needed are gone by then."""
        return sum(columns.store.nbytes for columns in self.sums) + self.working_bytes

    def queries(self) -> tuple[Query, ...]:
        """Ask about the columns themselves; they are orthonormalised only when the answer comes."""
        return (Query(self.partition, tuple(columns.store for columns in self.sums)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One round of the flow."""
        gradients = answers[0].gradients
        mixes = [columns.inverse_root() for columns in self.sums]
        if self._past is not None:
            self._keep_past(self._past, mixes[0], n)
        for m in (0, 1):
            squares = self.sums[m].add(mixes[1 - m], gradients[m], n, anew=self.count == 0)
            self._note_noise(n * squares, gradients[m].size)
        self.count += n

    def restart(self) -> None:
        """Keep the columns as the next query, forget the sums: the next round starts them afresh."""
        self.count = 0

    def propose(self) -> Proposal:
        """Return the best of several proposals: starts from all unfoldings of U and V and from the last proposal."""
        if self._blank:
            vectors = tuple(unit(self._rng.standard_normal(d)) for d in self.partition.dims)
            return Proposal(vectors, 0.0)
        climbs = self._climb(Climbs(self.partition, np.stack(self._starts())), 2)
        finals = self._climb(climbs[np.argsort(-climbs.signals)[:FINALISTS]], 8)
        best = int(np.argmax(finals.signals))
        self._last = tuple(v[best].copy() for v in finals.vectors)
        return Proposal(self._last, float(finals.signals[best]) / (self.sigma * math.sqrt(self.count)))

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """U p and V p contracted with the partner vectors inside each block, p read off from ``vectors``."""
        if self._blank:
            return Evidence(tuple(np.zeros(d) for d in self.partition.dims), 1.0)
        stacked = [v[None] for v in vectors]
        climb = Climbs(self.partition, self._weights(stacked), stacked)
        sums: list[Array] = [np.empty(0)] * self.partition.order
        for m, group in enumerate(self.partition.groups):
            inside = [vectors[i] for i in group]
            (block,) = self._blocks(m, climb)
            for place, i in enumerate(group):
                sums[i] = along(block, inside, place)
        return Evidence(tuple(sums), float(self.count))

    def arrays(self) -> dict[str, Stored]:
        """Every array of the state, by name."""
        named = {f"sums_{m}": columns.store for m, columns in enumerate(self.sums)}
        named.update({f"gram_{m}": columns.gram for m, columns in enumerate(self.sums)})
        return named if self._past is None else {**named, "past": self._past}

    def _columns(self, rng: np.random.Generator) -> list[Columns]:
        """Random columns for both blocks."""
        level = self.partition.sizes[1] ** -0.25
        return [Columns(self.columns, shape, level, rng) for shape in self.partition.shapes]

    @property
    def _blank(self) -> bool:
        """Whether there is nothing to read yet: no sample, or only zeros."""
        return self.count == 0 or any(columns.unit == 0 for columns in self.sums)

    def _note_noise(self, squares: float, entries: int) -> None:
        self._squares += squares
        self._entries += entries

    def _keep_past(self, past: Stored, mix: Stored, n: int) -> None:
        """``_past`` = mean over all samples of the columns Û they were asked about."""
        share = n / (self.count + n)
        past *= 1 - share
        past += share * (mix @ self.sums[0].flat.astype(np.float32))

    def _weights(self, vectors: Sequence[Array]) -> Array:
        """Return the weights p (c, r) that fit the vectors (c, d_i): ``unit(s_A U^T v_A + s_B V^T v_B)``."""
        total = np.zeros((len(vectors[0]), self.columns))
        for m, columns in enumerate(self.sums):
            side = columns.weigh(blocks_of(self.partition, m, vectors))
            total += np.linalg.norm(side, axis=1, keepdims=True) * side
        return units(total)

    def _blocks(self, m: int, climbs: Climbs) -> Array:
        """Return what is known about one block given p and the other block: ``s v + N(0, n sigma^2)``."""
        plain, other, mine = self.sums[m].times(climbs.p), climbs.block(1 - m), climbs.block(m)
        if self._past is None or other is None:
            return plain
        pairs = zip(plain, other, [None] * len(plain) if mine is None else mine, strict=True)
        return np.stack([self._better(m, *pair) for pair in pairs])

    def _better(self, m: int, own: Array, other: Array, mine: Array | None) -> Array:
        """``own`` improved by what the past columns say, once the other block is known."""
        assert self._past is not None
        if m == 0:
            return self._regress(self._past.astype(np.float64), own, other, mine)
        return self.sums[1].times(unit(self._past @ other.reshape(-1)))

    def _regress(self, past: Array, own: Array, other: Array, mine: Array | None) -> Array:
        """Read the narrow block from V as well as from U: ``V^T v_B = P (lambda v_A) + noise`` with P = n * ``past``.

        Ridge regression on both, scaled to noise variance n sigma^2 per entry.
        """
        n, size, noise = self.count, own.size, self.sigma**2 / self.count
        x, y = self.sums[1].weigh(other[None])[0] / n, own.reshape(-1) / n
        values, axes = np.linalg.eigh(past @ past.T)
        power = max(float(x @ x) - noise * self.columns, noise) * size / float(values.sum())  # strength squared
        ratio = 0.0 if mine is None else max(0.0, float(y @ mine.reshape(-1))) / math.sqrt(power)
        ridge = ratio**2 + noise * size / power
        target = past.T @ x + ratio * y
        inner = axes @ ((axes.T @ (past @ target)) / (values + ridge))
        spread = np.sum((values + ratio**2) / (values + ridge) ** 2) + (size - self.columns) * (ratio / ridge) ** 2
        better: Array = (target - past.T @ inner) / ridge * n / math.sqrt(spread / size)
        return better.reshape(own.shape)

    def _climb(self, climbs: Climbs, sweeps: int) -> Climbs:
        """Some sweeps of every climb, as many climbs at a time as there is room for."""
        widened = max(columns.store.nbytes for columns in self.sums)  # half of the columns, in single precision
        together = max(1, (self._room - widened) // (BLOCK * max(self.partition.sizes)))
        parts = [climbs[first : first + together] for first in range(0, len(climbs), together)]
        for some in parts:
            for _ in range(sweeps):
                before = some.signals
                for m in (1, 0):
                    some.fit(m, self._blocks(m, some))
                if np.all(some.signals < (1 + GAIN_TOL) * before):
                    break  # on top
                some.p = self._weights(some.vectors)
        return Climbs.together(parts)

    def _starts(self) -> list[Array]:
        """Weight vectors to start from: top eigenvectors of U^T U + V^T V, and singular pairs of other unfoldings."""
        largest = max(c.unit for c in self.sums)
        joint = functools.reduce(np.add, [np.float32((c.unit / largest) ** 2) * c.gram for c in self.sums])
        starts = [p.astype(np.float64) for p in top_eigenvectors(joint, EIGENVECTORS)]
        for columns, group in zip(self.sums, self.partition.groups[-len(self.sums) :], strict=True):
            for some in range(1, len(group)):
                for modes in itertools.combinations(range(len(group)), some):
                    side = math.prod(columns.store.shape[1 + i] for i in modes)
                    if SQUARE * side**2 <= self._room:
                        starts.append(columns.top_weights(modes))
        return starts if self._last is None else [*starts, *self._weights([v[None] for v in self._last])]
