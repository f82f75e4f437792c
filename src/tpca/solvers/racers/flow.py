r"""The block flow: two blocks A | B, r columns, nothing to set.

With the batch mean of B fresh samples seen as a matrix T (D_1 x D_2), every round does

.. math::
    U \mathrel{+}= B\,T\hat V, \qquad V \mathrel{+}= B\,T^\top\hat U, \qquad n \mathrel{+}= B, \qquad
    \hat U = U (U^\top U)^{-1/2}, \quad \hat V = V (V^\top V)^{-1/2} .

The orthonormal columns are fixed before the batch arrives, so :math:`U = s_A v_A p^\top + N(0, n\sigma^2)` and
:math:`V = s_B v_B p^\top + N(0, n\sigma^2)`, entries independent.  A *reading* is the best fit with both
``v_A`` and ``v_B`` of rank one and one weight vector p for both: it maximises :math:`s_A^2 + s_B^2`.

Memory is what buys samples here, so nothing is held twice:

* :math:`\hat U` is never formed: the oracle is asked about U itself, and its answer times
  :math:`(U^\top U)^{-1/2}` (r x r) is what was wanted;
* U, V and the answers are float16, in units that keep both in range.  Rounding adds a noise some 10^-3 times that of
  the samples.  The units need the noise level, which one sample (the *probe*) tells.

===============  ==========================================================================================
symbol           code
===============  ==========================================================================================
U, V             ``_unit[m] * _sums[m]`` for the blocks m = 0, 1; stored as rows, shape ``(r, *block shape)``
U^T U, V^T V     ``_unit[m]**2 * _grams[m]``
sum of B * Û     ``_past`` (narrow block only), see :meth:`FlowRacer._regress`
n, sigma         ``count``, ``sigma``
===============  ==========================================================================================
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.batches import Answer, Query
from tpca.blocks import Array, Partition, unit
from tpca.errors import PartitionError
from tpca.solvers.racers.protocol import Evidence, Proposal

STORE = np.float16
EIGENVECTORS = 3  # of U^T U + V^T V, as starts of readings
FINALISTS = 3  # readings that are carried on after two sweeps
PIECE = 2**11  # entries widened at a time: small beside any state worth having

Stored = NDArray[Any]  # float16 or float32


def state_floats(partition: Partition, columns: int) -> int:
    """Peak state in float64 units: sums, Gram matrices, and the answers in flight (or the reading's working copy)."""
    entries, item = sum(partition.sizes), np.dtype(STORE).itemsize
    narrow = 4 * columns * partition.sizes[0] if _is_narrow(partition) else 0
    held = columns * entries * item + 2 * 4 * columns**2 + narrow
    answers = columns * entries * item
    reading = 3 * 8 * columns**2
    return math.ceil((held + max(answers, reading)) / 8)


def columns_within(partition: Partition, floats: float) -> int:
    """Return the most columns whose state fits into ``floats``; 0 when not even one does."""
    fitting = [r for r in range(1, min(partition.sizes) + 1) if state_floats(partition, r) <= floats]
    return max(fitting, default=0)


def _is_narrow(partition: Partition) -> bool:
    """Whether the first block is so much smaller that what V says about it is worth keeping."""
    return 3 * partition.sizes[0] <= partition.sizes[1]


class FlowRacer:
    """The block flow with ``columns`` columns on a partition into two blocks, the smaller first."""

    name = "flow"

    def __init__(self, partition: Partition, columns: int, rng: np.random.Generator) -> None:
        if len(partition) != 2 or partition.sizes[0] > partition.sizes[1]:
            raise PartitionError(f"the flow needs two blocks, the smaller first, got groups {partition.groups}.")
        if not 1 <= columns <= partition.sizes[0]:
            raise PartitionError(f"the flow needs between 1 and {partition.sizes[0]} columns, got {columns}.")
        self.partition, self.columns = partition, columns
        self.count = 0
        self._rng = rng
        self._squares, self._weight = 0.0, 0
        self._sums: list[Stored] = []
        self._grams: list[Stored] = []
        self._unit, self._level = [0.0, 0.0], 1.0
        self._past: Stored | None = None
        if _is_narrow(partition):
            self._past = np.zeros((columns, partition.sizes[0]), np.float32)
        self._last: tuple[Array, ...] | None = None

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._weight) if self._weight else 1.0

    def queries(self) -> tuple[Query, ...]:
        """Ask about the columns themselves (orthonormalised only when the answer comes); at first one random probe."""
        if self._sums:
            return (Query(self.partition, tuple(self._sums)),)
        probe = tuple(unit(self._rng.standard_normal((1, *shape))) for shape in self.partition.shapes)
        return (Query(self.partition, probe),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """One round of the flow."""
        gradients = [answers[0].gradients[m] for m in (0, 1)]
        if not self._sums:
            self._note_noise(float(sum(np.sum(g**2) for g in gradients)) * n, sum(self.partition.sizes))
            self._start()
            return
        mixes = [_inverse_root(gram) for gram in self._grams]
        if self._past is not None:
            self._keep_past(mixes[0], n)
        for m in (0, 1):
            self._add(m, mixes[1 - m], gradients[m].reshape(self.columns, -1), n)
        self.count += n
        self._grams = [self._gram(m) for m in (0, 1)]

    def restart(self) -> None:
        """Keep the columns as the next question, forget the sums: the next round starts them afresh."""
        self.count = 0
        self._unit = [0.0, 0.0]

    def propose(self) -> Proposal:
        """Return the best of several readings: starts from all unfoldings of U and V and from the last reading."""
        if self.count == 0 or self.sigma == 0:
            vectors = tuple(unit(self._rng.standard_normal(d)) for d in self.partition.dims)
            return Proposal(vectors, 0.0)
        starts = self._starts()
        readings = [self._climb(p, None, 2) for p in starts]
        readings.sort(key=lambda reading: -reading.score)
        finals = [self._climb(self._weights(r.vectors), r.vectors, 8) for r in readings[:FINALISTS]]
        best = max(finals, key=lambda reading: reading.score)
        self._last = best.vectors
        return best

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """U p and V p contracted with the partner vectors inside each block, p read off from ``vectors``."""
        if self.count == 0 or self.sigma == 0:
            return Evidence(tuple(np.zeros(d) for d in self.partition.dims), 1.0)
        p = self._weights(vectors)
        outer: list[Array | None] = list(self.partition.outer(vectors))
        sums: list[Array] = [np.empty(0)] * self.partition.order
        for m, group in enumerate(self.partition.groups):
            inside = [vectors[i] for i in group]
            block = self._block(m, p, outer)
            for place, i in enumerate(group):
                sums[i] = along(block, inside, place)
        return Evidence(tuple(sums), float(self.count))

    def arrays(self) -> dict[str, Stored]:
        """Every array of the state, by name."""
        named = {f"sums_{m}": block for m, block in enumerate(self._sums)}
        named.update({f"gram_{m}": gram for m, gram in enumerate(self._grams)})
        return named if self._past is None else {**named, "past": self._past}

    def _start(self) -> None:
        """Random columns, in units that put both them and the answers about them well inside the range of float16."""
        if self.sigma > 0:
            self._level = (self.sigma * math.sqrt(self.partition.sizes[1])) ** -0.5
        self._sums = [
            (self._level * self._rng.standard_normal((self.columns, *shape), dtype=np.float32)).astype(STORE)
            for shape in self.partition.shapes
        ]
        self._grams = [self._gram(m) for m in (0, 1)]

    def _note_noise(self, squares: float, entries: int) -> None:
        self._squares += squares
        self._weight += entries

    def _add(self, m: int, mix: Stored, gradient: Stored, n: int) -> None:
        """``U += n * T V̂`` in place, a few entries of the block at a time; units follow the size of U."""
        flat, old = self._sums[m].reshape(self.columns, -1), self._unit[m]
        rms = math.sqrt(float(np.trace(self._grams[m])) / flat.size)
        growth = math.sqrt((self.count + n) / self.count) if self.count else 1.0
        new = old * growth * rms if self.count else self.sigma * math.sqrt(n)
        new = new / self._level or 1.0  # a stream of zeros has no scale
        squares = 0.0
        for some in self._pieces(m):
            piece = gradient[:, some].astype(np.float32)
            fresh = mix @ piece if mix.ndim else mix * piece
            squares += float(np.vdot(fresh, fresh))
            flat[:, some] = (old / new) * flat[:, some] + (n / new) * fresh
        self._unit[m] = new
        self._note_noise(n * squares, flat.size)

    def _keep_past(self, mix: Stored, n: int) -> None:
        """``_past`` = mean over all samples of the columns Û they were asked about."""
        assert self._past is not None
        share = n / (self.count + n)
        self._past *= 1 - share
        self._past += share * (mix @ self._sums[0].reshape(self.columns, -1).astype(np.float32))

    def _pieces(self, m: int) -> Iterator[slice]:
        step = max(1, PIECE // self.columns)
        for first in range(0, self.partition.sizes[m], step):
            yield slice(first, first + step)

    def _gram(self, m: int) -> Stored:
        flat = self._sums[m].reshape(self.columns, -1)
        gram: Stored = np.zeros((self.columns, self.columns), np.float32)
        for some in self._pieces(m):
            piece = flat[:, some].astype(np.float32)
            gram += piece @ piece.T
        return gram

    def _times(self, m: int, p: Array) -> Array:
        """``U p`` as a block; like all passes over U it widens a few entries at a time."""
        flat = self._sums[m].reshape(self.columns, -1)
        product = np.concatenate([p.astype(np.float32) @ flat[:, some].astype(np.float32) for some in self._pieces(m)])
        return (self._unit[m] * product.astype(np.float64)).reshape(self.partition.shapes[m])

    def _weigh(self, m: int, block: Array) -> Array:
        """``U^T block``."""
        flat, vector = self._sums[m].reshape(self.columns, -1), block.reshape(-1).astype(np.float32)
        pieces = (flat[:, some].astype(np.float32) @ vector[some] for some in self._pieces(m))
        total: Array = np.sum(list(pieces), axis=0, dtype=np.float64)
        return self._unit[m] * total

    def _weights(self, vectors: Sequence[Array]) -> Array:
        """Return the weight vector p that fits ``vectors``: ``unit(s_A U^T v_A + s_B V^T v_B)``."""
        sides = [self._weigh(m, block) for m, block in enumerate(self.partition.outer(vectors))]
        return unit(sum((float(np.linalg.norm(side)) * side for side in sides), np.zeros(self.columns)))

    def _block(self, m: int, p: Array, blocks: list[Array | None]) -> Array:
        """Return what is known about one block given p and the current outer products: ``s v + N(0, n sigma^2)``."""
        other = blocks[1 - m]
        if self._past is None or other is None:
            return self._times(m, p)
        if m == 0:
            return self._regress(self._times(0, p), other, blocks[0])
        return self._times(1, unit(self._past @ other.reshape(-1)))

    def _regress(self, own: Array, other: Array, mine: Array | None) -> Array:
        """Read the narrow block from V as well as from U: ``V^T v_B = P (lambda v_A) + noise`` with P = n * ``_past``.

        Ridge regression on both, scaled to noise variance n sigma^2 per entry.
        """
        assert self._past is not None
        n, size, noise = self.count, own.size, self.sigma**2 / self.count
        x, y, past = self._weigh(1, other) / n, own.reshape(-1) / n, self._past.astype(np.float64)
        values, axes = np.linalg.eigh(past @ past.T)
        power = max(float(x @ x) - noise * self.columns, noise) * size / float(values.sum())  # strength squared
        ratio = 0.0 if mine is None else max(0.0, float(y @ mine.reshape(-1))) / math.sqrt(power)
        ridge = ratio**2 + noise * size / power
        target = past.T @ x + ratio * y
        inner = axes @ ((axes.T @ (past @ target)) / (values + ridge))
        spread = np.sum((values + ratio**2) / (values + ridge) ** 2) + (size - self.columns) * (ratio / ridge) ** 2
        return ((target - past.T @ inner) / ridge * n / math.sqrt(spread / size)).reshape(own.shape)

    def _climb(self, p: Array, vectors: tuple[Array, ...] | None, sweeps: int) -> Proposal:
        """Alternate between p and the vectors, each the best given the other."""
        found: list[Array] = [np.empty(0)] * self.partition.order if vectors is None else list(vectors)
        blocks: list[Array | None] = [None, None] if vectors is None else list(self.partition.outer(vectors))
        sizes = [0.0, 0.0]
        for _ in range(sweeps):
            for m in (1, 0):
                group = self.partition.groups[m]
                block = self._block(m, p, blocks)
                fit = rank_one(block, None if blocks[m] is None else [found[i] for i in group])
                for i, v in zip(group, fit, strict=True):
                    found[i] = v
                outer = functools.reduce(np.multiply.outer, fit)
                blocks[m], sizes[m] = outer, float(np.vdot(block, outer))
            p = self._weights(found)
        return Proposal(tuple(found), math.hypot(*sizes) / (self.sigma * math.sqrt(self.count)))

    def _starts(self) -> list[Array]:
        """Weight vectors to start from: top eigenvectors of U^T U + V^T V, and singular pairs of other unfoldings."""
        joint = sum((u**2 * g.astype(np.float64) for u, g in zip(self._unit, self._grams, strict=True)), np.zeros(()))
        starts = list(np.linalg.eigh(joint)[1][:, : -1 - EIGENVECTORS : -1].T)
        for m, group in enumerate(self.partition.groups):
            for some in range(1, len(group)):
                for modes in itertools.combinations(range(len(group)), some):
                    side = math.prod(self.partition.shapes[m][i] for i in modes)
                    if side**2 <= self._sums[m].size:
                        starts.append(self._unfolded(m, modes))
        return starts if self._last is None else [*starts, self._weights(self._last)]

    def _unfolded(self, m: int, modes: tuple[int, ...]) -> Array:
        """Return p from the top singular pair of the unfolding ``modes | other modes and columns`` of U (or V)."""
        side = math.prod(self.partition.shapes[m][i] for i in modes)
        gram: Stored = np.zeros((side, side), np.float32)
        for matrix in self._unfoldings(m, modes):
            gram += matrix @ matrix.T
        top = np.linalg.eigh(gram)[1][:, -1]
        rest = np.stack([top @ matrix for matrix in self._unfoldings(m, modes)])
        if len(rest) < rest.shape[1]:
            return np.asarray(np.linalg.eigh(rest @ rest.T)[1][:, -1], dtype=np.float64)
        return unit((rest @ np.linalg.eigh(rest.T @ rest)[1][:, -1]).astype(np.float64))

    def _unfoldings(self, m: int, modes: tuple[int, ...]) -> Iterator[Stored]:
        """Column after column, as a matrix ``modes | other modes``."""
        for column in self._sums[m]:
            front = np.moveaxis(column, modes, range(len(modes))).astype(np.float32)
            yield front.reshape(math.prod(front.shape[: len(modes)]), -1)


def _inverse_root(gram: Stored) -> Stored:
    """``gram^(-1/2)``, tiny eigenvalues floored."""
    values, axes = np.linalg.eigh(gram.astype(np.float64))
    root: Stored = (axes / np.sqrt(np.maximum(values, 1e-9 * values[-1]))) @ axes.T
    return root.astype(np.float32)


def along(block: Array, vectors: Sequence[Array], place: int) -> Array:
    """``block`` contracted with the vectors of all its modes but the one at ``place``."""
    for v in vectors[:place]:
        block = v @ block.reshape(len(v), -1)
    for v in reversed(vectors[place + 1 :]):
        block = block.reshape(-1, len(v)) @ v
    return block.reshape(-1)


def rank_one(block: Array, start: Sequence[Array] | None = None) -> list[Array]:
    """Fit unit vectors whose outer product is next to ``block``: SVD for two modes, alternating from three on."""
    if block.ndim == 1:
        return [unit(block)]
    if block.ndim == 2 and start is None:
        left, _, right = np.linalg.svd(block)
        return [left[:, 0], right[0]]
    vectors = _leading(block) if start is None else list(start)
    for _ in range(4 if start is None else 2):
        for place in range(block.ndim):
            vectors[place] = unit(along(block, vectors, place))
    return vectors


def _leading(block: Array) -> list[Array]:
    """Return the leading singular vector of every unfolding."""
    vectors = []
    for place in range(block.ndim):
        matrix = np.moveaxis(block, place, 0).reshape(block.shape[place], -1)
        vectors.append(np.linalg.eigh(matrix @ matrix.T)[1][:, -1])
    return vectors
