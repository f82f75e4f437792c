r"""Who runs in the race, and how large: a memory budget turned into racers.

Where the sum of all samples fits (small tensors, order 3) it is kept, and nothing beats it.  The blocks of a two-block
flow need D_1 + D_2 ~ 2 d^{⌈k̄/2⌉} entries per column; where that is affordable the flow is the main racer.  Where it is
not (order ≥ 5 and memory of a few d²) many small replicas are.  The racers for structure, *equal* and *paired*, cost a
few d² and join when they take no more than a small share.  Every racer has a leader of its own, and the leaders share
the chance of a false alarm δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import MemoryBudgetError, PartitionError
from tpca.solvers.race.candidate import Leader
from tpca.solvers.race.strategies.flow import FlowRacer, columns_within, state_floats
from tpca.solvers.race.strategies.protocol import Racer
from tpca.solvers.race.strategies.replicas import PairsRacer, SinglesRacer, pairs_floats, singles_floats
from tpca.solvers.race.strategies.symmetric import EqualRacer, PairedRacer, equal_floats, paired_floats
from tpca.solvers.race.strategies.whole import WholeRacer, whole_floats
from tpca.tensors.blocks import Partition

# At order 5 and above a flow with fewer columns than this is no better than small replicas of the same size
# (docs/race.md).
FLOW_COLUMNS = 8
# Above this many rows the sum of all samples is too slow to read (an eigenproblem of that size at every look).
WHOLE_ROWS = 256
# A racer for structure joins if it takes no more than this share of the memory.
STRUCTURE_SHARE = 0.1
# Vectors per mode that a leader holds: itself, its sums, its question and its answer; the polish takes the same place
# later.
LEADER_VECTORS = 5


@kept
@dataclass
class Contestant:
    """A racer and the leader that tries its proposals."""

    racer: Racer
    leader: Leader

    @property
    def name(self) -> str:
        """The racer's name."""
        return self.racer.name


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


def line_up(
    dims: Sequence[int], nbytes: int, partition: Partition | None, delta: float, rng: np.random.Generator
) -> list[Contestant]:
    """The racers that fit into ``nbytes``, the main racer first; all of the memory is spent as far as it helps."""
    dims = tuple(dims)
    racers: list[Racer] = []
    left = nbytes / 8 - LEADER_VECTORS * sum(dims)
    own = LEADER_VECTORS * sum(dims)
    for racer, floats in _structure(dims, STRUCTURE_SHARE * nbytes / 8 - own, rng):
        racers.append(racer)
        left -= floats + own
    racers.insert(0, _main(dims, partition, left, nbytes, rng))
    # Half of δ for the main racer, the rest in equal parts.
    others = 0.5 * delta / max(1, len(racers) - 1)
    shares = [0.5 * delta if len(racers) > 1 else delta] + [others] * (len(racers) - 1)
    singles = Partition.singles(dims)
    return [Contestant(r, Leader(singles, rng, share)) for r, share in zip(racers, shares, strict=True)]


def again(contestant: Contestant, delta: float) -> Contestant:
    """The same racer with a new leader at error share ``delta``, for passes over samples that were seen before."""
    old = contestant.leader
    fresh = Leader(old.partition, np.random.default_rng(0), delta)  # its random vectors are replaced before any trial
    fresh.inherit_noise(old)
    return Contestant(contestant.racer, fresh)


def _structure(dims: tuple[int, ...], most: float, rng: np.random.Generator) -> Iterator[tuple[Racer, float]]:
    """The racers for structure that make sense for these dims in at most ``most`` floats each, with their sizes."""
    if len(dims) >= 3 and len(set(dims)) == 1:
        # As many pairings a round as fit; all of them are asked in turn.
        asked = max((a for a in range(1, 16) if equal_floats(dims, a) <= most), default=0)
        if asked:
            yield EqualRacer(dims, rng, asked), equal_floats(dims, asked)
    if len(dims) >= 4 and paired_floats(dims) <= most:
        yield PairedRacer(dims, rng), paired_floats(dims)


def _main(
    dims: tuple[int, ...], partition: Partition | None, floats: float, nbytes: int, rng: np.random.Generator
) -> Racer:
    """The sum of all samples if it fits, else the block flow if enough of its columns fit, else small replicas."""
    if partition is not None and len(partition) > 2:
        return _replicas(partition, floats, nbytes, rng)
    blocks = Partition.halves(dims) if partition is None else partition
    if whole_floats(blocks) <= floats and blocks.sizes[0] <= WHOLE_ROWS:
        return WholeRacer(blocks, rng)
    columns = columns_within(blocks, floats)
    small = len(dims) >= 5 and partition is None
    if columns >= min(FLOW_COLUMNS if small else 1, blocks.sizes[0]):
        return FlowRacer(blocks, columns, rng)
    if small:
        return _replicas(Partition.singles(dims), floats, nbytes, rng)
    raise _too_small(dims, state_floats(blocks, 1), nbytes)


def _replicas(partition: Partition, floats: float, nbytes: int, rng: np.random.Generator) -> Racer:
    """Small replicas, as many as fit: singles if every block is one mode, else pairs."""
    dims, single = partition.dims, len(partition) == partition.order
    fixed, one = (singles_floats(dims, r) if single else pairs_floats(partition, r) for r in (0, 1))
    count = int((floats - fixed) / (one - fixed))
    if count < 1:
        raise _too_small(dims, one, nbytes)
    return SinglesRacer(dims, count, rng) if single else PairsRacer(partition, count, rng)


def _too_small(dims: tuple[int, ...], needed: float, nbytes: int) -> MemoryBudgetError:
    least = math.ceil(8 * (needed + LEADER_VECTORS * sum(dims) + 1))
    return MemoryBudgetError(
        f"memory of {nbytes} bytes is too small for samples of shape {dims}; give at least {least} bytes."
    )
