r"""Which strategies run in the race, and how large: a memory budget turned into strategies.

Where the sum of all samples fits (small tensors, order 3) it is kept, and nothing beats it.  The blocks of a two-block
flow need D_1 + D_2 ~ 2 d^{⌈k̄/2⌉} entries per column; where that is affordable the flow is the main strategy.  Where it
is not (order ≥ 5 and memory of a few d²) many small replicas are.  The strategies for structure, *symmetric* and
*symmetric pairs*, cost a few d² and join when they take no more than a small share.  Every strategy has a candidate of
its own, and the candidates share the chance of a false alarm δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import MemoryBudgetError, PartitionError
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.evidence import FLOATS
from tpca.solvers.race.rounds import GRADIENT_SUB_BATCHES, SUB_BATCHES
from tpca.solvers.race.strategies.flow import BlockFlow, columns_within, state_floats
from tpca.solvers.race.strategies.protocol import Strategy
from tpca.solvers.race.strategies.replicas import PairReplicas, pairs_floats
from tpca.solvers.race.strategies.singles import SingleReplicas, singles_floats
from tpca.solvers.race.strategies.symmetric import Symmetric, SymmetricPairs, symmetric_floats, symmetric_pairs_floats
from tpca.solvers.race.strategies.whole import WholeSum, room_within
from tpca.solvers.recovery import Evidence
from tpca.tensors.blocks import Partition

# At order 5 and above a flow with fewer columns than this is no better than small replicas of the same size
# (docs/race.md).
FLOW_COLUMNS = 8
# A strategy for structure joins if it takes no more than this share of the memory.
STRUCTURE_SHARE = 0.1
# Vectors per mode that a candidate holds: itself, its sums, its query and the answer.
CANDIDATE_VECTORS = 5
# Vectors per mode that the refinement holds: itself and what was claimed, its sums, what the search knew, squares for
# errors, the answer; and besides them gradients of every sub-batch, of two at least.
REFINEMENT_VECTORS, MIN_SUB_BATCHES = 6, 2
REWARD_FLOATS = 24 + FLOATS  # of its strength
# Share of the memory that the refinements of several components may take while others are searched for.
REFINEMENTS_SHARE = 0.25


@kept
@dataclass
class Search:
    """A strategy and the candidate that tries its proposals."""

    strategy: Strategy
    candidate: Candidate

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.strategy.name

    @property
    def evidence(self) -> Evidence:
        """What the candidate's claim rests on, or what it lacks."""
        return Evidence("log evidence", self.candidate.log_evidence, self.candidate.needed)


def check_partition(dims: Sequence[int], groups: Sequence[Sequence[int]] | None) -> Partition | None:
    """A partition given by hand: two groups, put in order of size, or more groups of one or two modes each."""
    if groups is None:
        return None
    partition = Partition(tuple(dims), tuple(tuple(group) for group in groups))
    if len(partition) == 2:
        small, large = sorted(range(2), key=lambda m: partition.sizes[m])
        return Partition(partition.dims, (partition.groups[small], partition.groups[large]))
    if len(partition) == 1 or max(map(len, partition.groups)) > 2:
        raise PartitionError(
            f"partition must have two groups of modes, or more of one or two modes each, got {partition.groups}."
        )
    return partition


def strategies_within(
    dims: Sequence[int],
    nbytes: int,
    partition: Partition | None,
    delta: float,
    rng: np.random.Generator,
    symmetric: bool = True,
) -> list[Search]:
    """The strategies that fit into ``nbytes``, the main one first; all of the memory is spent as far as it helps.

    Those for structure only where what is ``symmetric`` in the data is so in what strategies see of them.
    """
    dims = tuple(dims)
    strategies: list[Strategy] = []
    own = candidate_floats(dims)
    left = nbytes / 8 - own
    for strategy, floats in _structure(dims, STRUCTURE_SHARE * nbytes / 8 - own, rng) if symmetric else ():
        strategies.append(strategy)
        left -= floats + own
    strategies.insert(0, _main(dims, partition, left, nbytes, rng))
    if nbytes < 8 * refinement_floats(dims):
        raise _too_small(dims, 0, nbytes)
    # Half of δ for the main strategy, the rest in equal parts.
    others = 0.5 * delta / max(1, len(strategies) - 1)
    shares = [0.5 * delta if len(strategies) > 1 else delta] + [others] * (len(strategies) - 1)
    singles = Partition.singles(dims)
    return [Search(r, Candidate(singles, rng, share)) for r, share in zip(strategies, shares, strict=True)]


def again(search: Search, delta: float) -> Search:
    """The same strategy with a new candidate at error share ``delta``, for passes over samples seen before."""
    old = search.candidate
    fresh = Candidate(
        old.partition, np.random.default_rng(0), delta
    )  # its random vectors are replaced before any trial
    fresh.inherit_noise(old)
    return Search(search.strategy, fresh)


def _structure(dims: tuple[int, ...], most: float, rng: np.random.Generator) -> Iterator[tuple[Strategy, float]]:
    """The strategies for structure that make sense for these dims in at most ``most`` floats each, with their sizes."""
    if len(dims) >= 3 and len(set(dims)) == 1:
        # As many pairings a round as fit; all of them are asked in turn.
        asked = max((a for a in range(1, 16) if symmetric_floats(dims, a) <= most), default=0)
        if asked:
            yield Symmetric(dims, rng, asked), symmetric_floats(dims, asked)
    if len(dims) >= 4 and symmetric_pairs_floats(dims) <= most:
        yield SymmetricPairs(dims, rng), symmetric_pairs_floats(dims)


def least_bytes(dims: Sequence[int], partition: Partition | None) -> int:
    """The least memory in which some strategy can run."""
    if partition is not None and len(partition) > 2:
        single = len(partition) == partition.order
        needed: float = singles_floats(partition.dims, 1) if single else pairs_floats(partition, 1)
    elif len(dims) >= 5 and partition is None:
        needed = singles_floats(tuple(dims), 1)
    else:
        needed = state_floats(Partition.halves(dims) if partition is None else partition, 1)
    return _bytes(dims, needed)


def _main(
    dims: tuple[int, ...], partition: Partition | None, floats: float, nbytes: int, rng: np.random.Generator
) -> Strategy:
    """The sum of all samples if it fits, else the block flow if enough of its columns fit, else small replicas."""
    if partition is not None and len(partition) > 2:
        return _replicas(partition, floats, nbytes, rng)
    blocks = Partition.halves(dims) if partition is None else partition
    if (room := room_within(blocks, floats)) is not None:
        return WholeSum(blocks, rng, room)
    columns = columns_within(blocks, floats)
    small = len(dims) >= 5 and partition is None
    if columns >= min(FLOW_COLUMNS if small else 1, blocks.sizes[0]):
        return BlockFlow(blocks, columns, rng)
    if small:
        return _replicas(Partition.singles(dims), floats, nbytes, rng)
    raise _too_small(dims, state_floats(blocks, 1), nbytes)


def _replicas(partition: Partition, floats: float, nbytes: int, rng: np.random.Generator) -> Strategy:
    """Small replicas, as many as fit: singles if every block is one mode, else pairs."""
    dims, single = partition.dims, len(partition) == partition.order
    fixed, one = (singles_floats(dims, r) if single else pairs_floats(partition, r) for r in (0, 1))
    count = int((floats - fixed) / (one - fixed))
    if count < 1:
        raise _too_small(dims, one, nbytes)
    return SingleReplicas(dims, count, rng) if single else PairReplicas(partition, count, rng)


def candidate_floats(dims: Sequence[int]) -> int:
    """Floats that a candidate holds: vectors, evidence, and rewards by sub-batch with their sizes."""
    return CANDIDATE_VECTORS * sum(dims) + FLOATS + 2 * SUB_BATCHES


def refinement_floats(dims: Sequence[int], sub_batches: int = MIN_SUB_BATCHES) -> int:
    """Floats that the refinement holds."""
    return (REFINEMENT_VECTORS + sub_batches) * sum(dims) + REWARD_FLOATS + 2 * GRADIENT_SUB_BATCHES


def sub_batches_within(dims: Sequence[int], nbytes: float, n_components: int) -> int:
    """Sub-batches whose gradients the refinements of all components can hold: as many as are of use, two at least."""
    each = nbytes / 8 if n_components == 1 else REFINEMENTS_SHARE * nbytes / 8 / n_components
    return int(min(GRADIENT_SUB_BATCHES, max(MIN_SUB_BATCHES, (each - refinement_floats(dims, 0)) // sum(dims))))


def _bytes(dims: Sequence[int], needed: float) -> int:
    """The least memory for a strategy of ``needed`` floats and its candidate, or later the refinement."""
    return math.ceil(8 * max(needed + candidate_floats(dims) + 1, refinement_floats(dims)))


def _too_small(dims: tuple[int, ...], needed: float, nbytes: int) -> MemoryBudgetError:
    least = _bytes(dims, needed)
    return MemoryBudgetError(
        f"memory_limit of {nbytes} bytes is too small for samples of shape {dims}; give at least {least} bytes."
    )
