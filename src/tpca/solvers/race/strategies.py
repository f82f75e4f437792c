r"""Which strategies run in the race, and how large: a memory budget turned into strategies.

What each earns is the median of samples until proven, in u = d^{k̄/2} (docs/race.md):

=================  ================================  ===============================================================
strategy           holds                             earns
=================  ================================  ===============================================================
*whole*            the sum of all samples            1.0 u at order 3 (48³); nothing beats it where it fits
*flow*             two blocks of r columns           1.2 u (24⁴), 1.6 u in 40·d³ floats (10⁶)
*singles*          one vector per mode and replica   3.5 u in 50·d² floats (10⁶), where no flow of 8 columns fits
*symmetric*        a sum of partial traces           equal vectors: 0.3 u for 1.2 (24⁴), 0.2 for 1.6 (10⁶)
*symmetric pairs*  the paper's blocks, pulled to I   equal pairs: 0.9 u for 1.2 (24⁴), 0.8 for 1.6 (10⁶)
=================  ================================  ===============================================================

One of the first three is the main strategy; the two for structure join where they take a small share of the memory.
Every strategy has a candidate of its own, and the candidates share the chance of a false alarm δ.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import MemoryBudgetError
from tpca.solvers.race.candidate import MOVE_TOL, Candidate, Look, Stored, Strategy
from tpca.solvers.race.evidence import FLOATS
from tpca.solvers.race.flow import EIGENVECTORS, FINALISTS, BlockFlow, state_floats
from tpca.solvers.race.noise import probe_floats
from tpca.solvers.race.replicas import (
    Singles,
    Symmetric,
    SymmetricPairs,
    singles_floats,
    symmetric_floats,
    symmetric_pairs_floats,
)
from tpca.solvers.race.rounds import GRADIENT_SUB_BATCHES, SUB_BATCHES
from tpca.solvers.rank_one import along, alternate, rank_ones, top_eigenvectors
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

WHOLE_SIDE = 256  # of the shorter sides of unfoldings: larger Gram matrices at every look take longer than reading
WHOLE_MODES = 8
SWEEPS = 6
FLOW_COLUMNS = 8  # at order 5 and above a flow with fewer is no better than small replicas of the same size
STRUCTURE_SHARE = 0.1  # of the memory, that a strategy for structure may take
MIN_SUB_BATCHES = 2  # of which the refinement has gradients, whatever the memory
REFINEMENTS_SHARE = 0.25  # of the memory, for the refinements of several components while others are searched for


@dataclass(frozen=True)
class RaceSize:
    """The ``main`` strategy, its columns or replicas; which of those for structure join it; floats of all."""

    main: str
    size: int
    symmetric: bool
    pairs: bool
    floats: float

    @property
    def text(self) -> str:
        """The main strategy in words."""
        known = {"whole": "the sum of all samples", "flow": f"{self.size} columns"}
        return known.get(self.main, f"{self.size} small replicas")


def size_within(dims: tuple[int, ...], nbytes: float, partition: Partition | None = None) -> RaceSize:
    """What fits into ``nbytes``; all of the memory is spent as far as it helps."""
    own, structured = candidate_floats(dims), (symmetric_floats(dims), symmetric_pairs_floats(dims))
    joins = [floats + own <= STRUCTURE_SHARE * nbytes / 8 for floats in structured]
    joins[1] = joins[1] and len(dims) >= 4
    taken: float = own + probe_floats(dims)
    taken += sum(floats + own for floats, there in zip(structured, joins, strict=True) if there)
    left = nbytes / 8 - taken
    blocks, small = partition or Partition.halves(dims), len(dims) >= 5 and partition is None
    rows = range(1, max(0, min(blocks.sizes[0], int(left))) + 1)
    columns = bisect.bisect_right(rows, left, key=lambda r: state_floats(blocks, r))  # as many as fit
    fixed, one = (singles_floats(dims, r) for r in (0, 1))
    replicas = int((left - fixed) / (one - fixed)) if small else 0
    main, size, floats = "", 0, 0.0
    if whole_floats(dims) <= left:
        main, size, floats = "whole", 1, whole_floats(dims)
    elif columns >= min(FLOW_COLUMNS if small else 1, blocks.sizes[0]):
        main, size, floats = "flow", columns, float(state_floats(blocks, columns))
    elif replicas >= 1:
        main, size, floats = "singles", replicas, singles_floats(dims, replicas)
    if not main or nbytes < 8 * refinement_floats(dims):
        raise MemoryBudgetError(
            f"memory_limit of {int(nbytes)} bytes is too small for samples of shape {dims}; give at least "
            f"{least_bytes(dims, partition)} bytes."
        )
    return RaceSize(main, size, joins[0], joins[1], taken + floats)


def candidates_within(
    dims: Sequence[int],
    nbytes: int,
    partition: Partition | None,
    delta: float,
    rng: np.random.Generator,
) -> list[Candidate]:
    """Candidates of all strategies that fit, the main one first: half of δ is for it, the rest in equal parts."""
    dims = tuple(dims)
    plan = size_within(dims, nbytes, partition)
    others: list[Strategy] = [Symmetric(dims, rng)] if plan.symmetric else []
    others += [SymmetricPairs(dims, rng)] if plan.pairs else []
    main: Strategy
    if plan.main == "whole":
        main = WholeSum(dims)
    elif plan.main == "flow":
        main = BlockFlow(partition or Partition.halves(dims), plan.size, rng)
    else:
        main = Singles.random(dims, plan.size, rng)
    shares = [0.5 * delta if others else delta] + [0.5 * delta / max(1, len(others))] * len(others)
    return [Candidate(one, dims, rng, share) for one, share in zip([main, *others], shares, strict=True)]


def least_bytes(dims: Sequence[int], partition: Partition | None = None) -> int:
    """The least memory in which some strategy, its candidate and the probe can run, and later the refinement."""
    small, blocks = len(dims) >= 5 and partition is None, partition or Partition.halves(dims)
    search = (singles_floats(dims, 1) if small else state_floats(blocks, 1)) + candidate_floats(dims)
    return math.ceil(8 * max(search + probe_floats(dims) + 1, refinement_floats(dims)))


def candidate_floats(dims: Sequence[int]) -> int:
    """Floats that a candidate holds: vectors, evidence, and rewards by sub-batch with their sizes.

    Vectors are itself, its sums, its query and the answer.
    """
    return 5 * sum(dims) + FLOATS + 2 * SUB_BATCHES


def refinement_floats(dims: Sequence[int], sub_batches: int = MIN_SUB_BATCHES) -> int:
    """Floats that the refinement holds: vectors, gradients of every sub-batch, evidence, and the strength.

    Vectors are itself, its sums, what the search knew, squares for errors, the answer.
    """
    return (5 + sub_batches) * sum(dims) + 24 + FLOATS + 2 * GRADIENT_SUB_BATCHES


def sub_batches_within(dims: Sequence[int], nbytes: float, n_components: int) -> int:
    """Sub-batches whose gradients the refinements of all components can hold: as many as are of use, two at least."""
    each = nbytes / 8 if n_components == 1 else REFINEMENTS_SHARE * nbytes / 8 / n_components
    return int(min(GRADIENT_SUB_BATCHES, max(MIN_SUB_BATCHES, (each - refinement_floats(dims, 0)) // sum(dims))))


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
