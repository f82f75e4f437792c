"""A search strategy: one way to look for the signal in the shared samples; and the simplest, the sum of all samples.

It proposes vectors; whether they are a signal, only a candidate's trial decides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.solvers.options import held_bytes
from tpca.solvers.rank_one import along, alternate, rank_ones, top_eigenvectors
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

Stored = NDArray[Any]  # float16 or float32
WHOLE_SIDE = 256  # of the shorter sides of unfoldings: larger Gram matrices at every look take longer than reading
WHOLE_MODES = 8
EIGENVECTORS, FINALISTS = 3, 3  # of every unfolding, to climb from; climbs that are carried on
SWEEPS, MOVE_TOL = 6, 1e-4


class Part(Protocol):
    """What takes part in a round: a strategy, a candidate, the refinement.  All of its state is in :meth:`arrays`."""

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight; part of the state."""

    def queries(self) -> tuple[Query, ...]:
        """What to ask about the next samples; fixed before they are seen."""

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Take the mean gradients over the ``n`` samples just seen."""

    def arrays(self) -> list[Array]:
        """Every array of the state."""


class Look(Protocol):
    """What a strategy says between two rounds; it lasts until the next samples come."""

    def propose(self) -> tuple[Array, ...]:
        """The best unit vectors so far, in mode order, signed so that their reward is expected to be positive."""

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """What the samples say of each mode when the others are ``vectors``: sums s_i v_i + N(0, w σ²), and w."""


class Strategy(Part, Protocol):
    """One search strategy; ``size`` are its columns or replicas."""

    name: str
    size: int

    def restart(self) -> None:
        """The next samples were seen before: keep the directions, forget the sums."""

    def read(self) -> Look | None:
        """A look at what the samples so far say; ``None`` where they were nothing but zeros."""


def round_bytes(
    asked: Sequence[tuple[Part, tuple[Query, ...]]], answers: Sequence[Answer], sent: Sequence[Query] = ()
) -> int:
    """State in the middle of a round: arrays of all parts, replicas made for queries, answers, working copies.

    Parts absorb one after the other, so that only the largest working copy counts.  ``sent`` are the queries as they
    were asked, where these are others.
    """
    held = [array for part, _ in asked for array in part.arrays()]
    made = [block for _, queries in asked for query in queries for block in query.replicas]
    made += [block for query in sent for block in query.replicas]
    in_flight = sum(answer.nbytes for answer in answers) + max(part.working_bytes for part, _ in asked)
    return held_bytes([*held, *made]) + in_flight


def all_finite(answers: Sequence[Answer]) -> bool:
    """Whether no gradient left the range of its type: samples so wild that one does are passed over."""
    return all(np.isfinite(g).all() for answer in answers for g in answer.gradients.values())


def whole_floats(dims: Sequence[int]) -> float:
    """State of :class:`WholeSum` in float64 units: the sum, and the answer in flight or a copy to fit vectors to.

    Infinite where fitting would take too long: Gram matrices of a side of every unfolding are formed, and from each
    all other modes are fitted.
    """
    side = max(min(d, math.prod(dims) // d) for d in dims)
    quick = side <= WHOLE_SIDE and len(dims) <= WHOLE_MODES
    return math.prod(dims) + 2 * side**2 + 4 * sum(dims) if quick else math.inf


@kept
class WholeSum:
    """The sum of all samples, in single precision; proposals are best fits of rank one.

    They climb from the unfoldings of the sum, mode by mode, and from the proposal before.
    """

    name, size = "whole", 1
    working_bytes = 0

    def __init__(self, dims: Sequence[int]) -> None:
        self._dims = tuple(dims)
        self._total: Stored = np.zeros(self._dims, np.float32)
        self._last: list[Stored] | None = None
        self._count = 0

    def queries(self) -> tuple[Query, ...]:
        """The gradient of the one block of all modes is the mean sample; its replica is not used."""
        nothing = np.broadcast_to(np.zeros((), np.float32), (1, *self._dims))
        return (Query(Partition(self._dims, (tuple(range(len(self._dims))),)), (nothing,)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the batch, unless it is so wild that squares overflow."""
        fresh = answers[0].gradients[0][0]
        if math.isfinite(np.vdot(fresh, fresh)):
            fresh *= n
            self._total += fresh
            self._count += n

    def restart(self) -> None:
        """All samples were in the sum; those that come again would be counted twice."""
        self._total[...] = 0.0
        self._count = 0

    def read(self) -> Look | None:
        """What it says can be read off directly."""
        return self if self._total.any() else None

    def propose(self) -> tuple[Array, ...]:
        """The best of several climbs: from leading singular vectors of every unfolding, and from the last proposal."""
        starts: list[tuple[float, list[Stored]]] = []
        for m, d in enumerate(self._dims):
            others = self._dims[:m] + self._dims[m + 1 :]
            if d > math.prod(others):
                continue
            matrix = np.moveaxis(self._total, m, 0).reshape(d, -1)
            for v in top_eigenvectors(matrix @ matrix.T, EIGENVECTORS):
                rest, signals = rank_ones((v @ matrix).reshape(1, *others))
                found = [*(w[0] for w in rest[:m]), v, *(w[0] for w in rest[m:])]
                starts = sorted([*starts, (float(signals[0]), found)], key=lambda one: -one[0])[:FINALISTS]
        climbs = [vectors for _, vectors in starts] + ([] if self._last is None else [self._last])
        ends = [alternate(functools.partial(along, self._total), vectors, SWEEPS, MOVE_TOL) for vectors in climbs]
        self._last, _ = max(ends, key=lambda one: float(one[1]))
        return tuple(unit(v.astype(np.float64)) for v in self._last)

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """The sum, contracted with the other vectors."""
        single: list[Stored] = [v.astype(np.float32) for v in vectors]
        return [along(self._total, single, i).astype(np.float64) for i in range(len(vectors))], float(self._count)

    def arrays(self) -> list[Array]:
        """The sum."""
        return [self._total]
