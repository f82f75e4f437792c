r"""Who runs in the race, and how large: a memory budget turned into racers.

The blocks of a two-block flow need D_1 + D_2 ~ 2 d^{⌈k̄/2⌉} entries per column; where that is affordable the flow is the
main racer.  Where it is not (order ≥ 5 and memory of a few d²) many small replicas are.  The racers for structure, *equal* and
*paired*, cost a few d² and join when they take no more than a small share.  Every racer has a leader of its own, and the leaders
share the chance of a false alarm δ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.blocks import Partition
from tpca.errors import MemoryBudgetError, PartitionError
from tpca.solvers.leader import Leader
from tpca.solvers.racers.flow import FlowRacer, columns_within, state_floats
from tpca.solvers.racers.protocol import Racer
from tpca.solvers.racers.replicas import SinglesRacer, singles_floats
from tpca.solvers.racers.symmetric import EqualRacer, PairedRacer, equal_floats, paired_floats

# A flow with fewer columns than this is beaten by small replicas of the same size (docs/race.md).
FLOW_COLUMNS = 4
# A racer for structure takes at most this share of the memory.
STRUCTURE_SHARE = 0.25
# Vectors per mode that leaders and polish hold: the leader, its sums, its answers; the polish's likewise.
LEADER_VECTORS = 6


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
    """A partition given by hand: two groups of modes, put in order of size."""
    if groups is None:
        return None
    partition = Partition(tuple(dims), tuple(tuple(group) for group in groups))
    if len(partition) != 2:
        raise PartitionError(f"partition must have two groups of modes, got {len(partition)}: {partition.groups}.")
    small, large = sorted(range(2), key=lambda m: partition.sizes[m])
    return Partition(partition.dims, (partition.groups[small], partition.groups[large]))


def line_up(
    dims: Sequence[int], nbytes: int, partition: Partition | None, delta: float, rng: np.random.Generator
) -> list[Contestant]:
    """The racers that fit into ``nbytes``, the main racer first; all of the memory is spent as far as it helps."""
    dims = tuple(dims)
    racers, left = [], nbytes / 8
    for make, floats in _structure(dims):
        if floats <= STRUCTURE_SHARE * nbytes / 8:
            racers.append(make(rng))
            left -= floats + LEADER_VECTORS * sum(dims)
    racers.insert(0, _main(dims, partition, left - LEADER_VECTORS * sum(dims), nbytes, rng))
    # Half of δ for the main racer, the rest in equal parts.
    others = 0.5 * delta / max(1, len(racers) - 1)
    shares = [0.5 * delta if len(racers) > 1 else delta] + [others] * (len(racers) - 1)
    singles = Partition.singles(dims)
    return [Contestant(r, Leader(singles, rng, share)) for r, share in zip(racers, shares, strict=True)]


def _structure(dims: tuple[int, ...]) -> list[tuple[Callable[[np.random.Generator], Racer], float]]:
    """The racers for structure that make sense for these dims, with their sizes in floats."""
    made: list[tuple[Callable[[np.random.Generator], Racer], float]] = []
    if len(dims) >= 3 and len(set(dims)) == 1:
        made.append((lambda rng: EqualRacer(dims, rng), equal_floats(dims)))
    if len(dims) >= 4:
        made.append((lambda rng: PairedRacer(dims, rng), paired_floats(dims)))
    return made


def _main(
    dims: tuple[int, ...], partition: Partition | None, floats: float, nbytes: int, rng: np.random.Generator
) -> Racer:
    """The block flow if its columns fit, small replicas if not."""
    blocks = Partition.halves(dims) if partition is None else partition
    least = min(FLOW_COLUMNS, *blocks.sizes)
    columns = columns_within(blocks, floats)
    if columns >= least:
        return FlowRacer(blocks, columns, rng)
    if len(dims) >= 5 and partition is None:
        per_replica = singles_floats(dims, 2) - singles_floats(dims, 1)
        replicas = int((floats - singles_floats(dims, 0)) / per_replica)
        if replicas >= 1:
            return SinglesRacer(dims, replicas, rng)
        needed = singles_floats(dims, 1)
    else:
        needed = state_floats(blocks, least)
    minimum = int(8 * (needed + LEADER_VECTORS * sum(dims) + 1) / (1 - STRUCTURE_SHARE))
    raise MemoryBudgetError(
        f"memory of {nbytes} bytes is too small for samples of shape {dims}; give at least {minimum} bytes."
    )
