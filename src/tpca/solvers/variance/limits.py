"""What a fit of variation can work with: memory, shapes, numbers of samples, sizes of entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tpca.engines import Data
from tpca.errors import MemoryBudgetError, SampleError, SolverError
from tpca.solvers.memory import default_memory
from tpca.solvers.race.rounds import sub_batch_edges
from tpca.solvers.variance.accumulator import Variances
from tpca.solvers.variance.evidence import most_won
from tpca.wording import amount, count

REPLICAS = 30  # starts, where there is memory for them
SUB_BATCHES, MIN_SIZE = 16, 4  # of a reading, each with moments of the candidate; samples of one, if there are as many
SQUARES = 20  # that every factor of the level of noise is the mean of, at least
FEW = 4  # where only sums over all are wanted: the mean of each costs one degree of freedom
STEPS, HALVES, REFINING = 7, 4, 4  # most readings of the same samples for steps; steps on halves of them; refinements
FIRST = 64  # samples of the first look of a single pass
EVERY = 4  # first steps in which all replicas stay
AUTO_PASSES, MIN_PASSES = 12, 4  # for every component
BETS = 4000  # bytes that evidence takes
USUAL = 64 * 10**6  # bytes that starts may take, where nothing is said about memory
# Samples' squares, and squares of these, are worked with: of entries within these bounds none leaves the range.
SMALLEST, LARGEST = 1e-140, 1e140


@dataclass(frozen=True)
class Plan:
    """Whether covariances of the modes are learnt, and those within slices, for starts; how many replicas there are.

    ``pairs``: whether the covariances of their gradients are.
    """

    grams: bool
    slices: bool
    replicas: int
    pairs: bool


def needs(dims: Sequence[int], components: int) -> tuple[int, int, int, int]:
    """Bytes that a fit takes in any case, and of a replica, covariances of the modes, and those within slices.

    A replica has vectors, sums, and the moments in flight of two queries; a candidate, and every component found,
    moments of all sub-batches.
    """
    each = 8 * sum(dims)
    grams = 4 * 8 * sum(d * d for d in dims)
    slices = 2 * 8 * sum(d * d * dims[(i + 1) % len(dims)] for i, d in enumerate(dims))
    return BETS + (2 * SUB_BATCHES + 16) * each * components, 8 * each, grams, slices


def default_budget(dims: Sequence[int], components: int) -> int:
    """That of the race, or all that starts can use, if it is no more than ``USUAL``."""
    fixed, replica, grams, slices = needs(dims, components)
    pairs = 2 * 8 * (REPLICAS + 1) * sum(d * d for d in dims)
    return max(default_memory(dims), min(fixed + REPLICAS * replica + grams + slices + pairs, USUAL))


def plan_within(dims: Sequence[int], budget: int, components: int) -> Plan:
    """What fits into ``budget`` bytes."""
    fixed, replica, grams, slices = needs(dims, components)
    left = budget - fixed - replica
    if left < 0:
        raise MemoryBudgetError(
            f"{count(components, 'component')} of variation need {amount(fixed + replica)} of state, and memory_limit "
            f"is {amount(budget)}; give as much, or fewer n_components."
        )
    with_grams, with_slices = grams <= left, grams + slices <= left
    left -= grams * with_grams + slices * with_slices
    replicas = int(min(REPLICAS, 1 + left // replica))
    pairs = 2 * 8 * (replicas + 1) * sum(d * d for d in dims)
    return Plan(with_grams, with_slices, replicas, pairs <= left - (replicas - 1) * replica)


@dataclass(frozen=True)
class Steps:
    """How many steps all replicas take, are on halves of the samples, in turn, are there at all, and refine."""

    every: int
    halves: int
    all: int
    refining: int


def edges_within(n: int, judged: bool, dims: Sequence[int]) -> tuple[int, ...]:
    """Edges of the sub-batches of ``n`` samples, many where something is ``judged`` by how they scatter.

    Then what noise gives along a pattern rests on at least ``SQUARES`` squares in every factor of V_0.
    """
    off = max(1, math.prod(dims) // max(dims) - 1)  # entries with the pattern's vector in one mode, but itself
    size = max(MIN_SIZE, 1 + math.ceil(SQUARES / off) if judged else 0)
    return (*sub_batch_edges(n, 1, max(1, min(SUB_BATCHES if judged else FEW, n // size))), n)


def least_samples(dims: tuple[int, ...], confidence: float, stored: bool) -> int:
    """The fewest samples whose tests can prove something, if every sub-batch wins the most that there is to win."""
    needed, n = -math.log(1 - confidence), 2
    while most_won(_sub_batches(n, dims, stored)) < needed and (stored or n < FIRST + FIRST // 2):
        n += 1
    return n


def _sub_batches(n: int, dims: tuple[int, ...], stored: bool) -> list[int]:
    """How many sub-batches there are in every test of n samples."""
    if stored:
        return [len(edges_within(m, True, dims)) - 1 for m in (n // 2 - n // 4, n - n // 2)]
    edges = edges_within(FIRST // 2, True, dims)  # of the first round after the look, which may be cut short
    return [sum(edge < n - FIRST for edge in edges[:-1])]


def steps_within(max_passes: int | str) -> Steps:
    """What passes leave room for: a look, another, a test, and all steps take three quarters of a pass each.

    None where there are too few: one pass is then what there is.
    """
    passes = AUTO_PASSES if max_passes == "auto" else int(max_passes)
    if passes < MIN_PASSES:
        return Steps(0, 0, 0, 0)
    refining = min(REFINING, passes // 3)
    whole = max(1, min(STEPS, int((passes - refining) / 0.75) - 3))
    halves = min(HALVES, 2 * max(0, whole - 3))
    steps = halves + whole - halves // 2
    return Steps(min(EVERY, (steps + 1) // 2), halves, steps, refining)


def check_data(data: Data, max_samples: int | None, max_passes: int | str) -> None:
    """Refuse samples whose variation cannot be told from noise, or cannot be read."""
    if not data.whole:
        raise SolverError(
            "target='variance' needs samples that come whole, and these are sparse, in slabs, or products of views; "
            "give dense samples."
        )
    if data.endless and max_samples is None:
        raise SolverError("target='variance' reads to the end of the samples, and these have none; give max_samples.")
    if max_passes != "auto" and int(max_passes) > 1 and not data.rereadable:
        raise SolverError(
            f"max_passes={max_passes} needs samples that can be read again; leave it out, or give an array or a file."
        )


def refuse_beyond_squares(part: Variances) -> None:
    """Refuse samples whose squares leave the range of floats."""
    if part.moments is None or part.moments.total == 0:
        return
    if not SMALLEST < part.moments.total < LARGEST:
        size = math.sqrt(part.moments.total) if math.isfinite(part.moments.total) else math.inf
        raise SampleError(
            f"samples vary by about {size:.0e}, and their variances are worked with, which leave the range of floats; "
            "multiply all samples by some power of ten."
        )
