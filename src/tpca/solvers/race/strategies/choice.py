r"""Which strategies run in the race, and how large: a memory budget turned into strategies.

Where the sum of all samples fits (small tensors, order 3) it is kept, and nothing beats it.  The blocks of a two-block
flow need D_1 + D_2 ~ 2 d^{⌈k̄/2⌉} entries per column; where that is affordable the flow is the main strategy.  Where it
is not (order ≥ 5 and memory of a few d²) many small replicas are.  The strategies for structure cost a few d² and join
when they take no more than a small share.  Every strategy has a candidate of its own, and the candidates share the
chance of a false alarm δ.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import MemoryBudgetError, PartitionError
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.evidence import FLOATS
from tpca.solvers.race.probe import probe_floats
from tpca.solvers.race.rounds import GRADIENT_SUB_BATCHES, SUB_BATCHES
from tpca.solvers.race.strategies.flow import BlockFlow, WholeSum, state_floats, whole_floats
from tpca.solvers.race.strategies.singles import SingleReplicas, singles_floats
from tpca.solvers.race.strategies.strategy import Strategy
from tpca.solvers.race.strategies.symmetric import Symmetric, SymmetricPairs, symmetric_floats, symmetric_pairs_floats
from tpca.tensors.blocks import Partition

# At order 5 and above a flow with fewer columns than this is no better than small replicas of the same size
# (docs/race.md).
FLOW_COLUMNS = 8
# A strategy for structure joins if it takes no more than this share of the memory.
STRUCTURE_SHARE = 0.1
MOST_MODES, PAIRINGS = 6, 15  # of *symmetric*: modes, and their pairings; of twelve there are 10 395
# Vectors per mode that a candidate holds: itself, its sums, its query and the answer.
CANDIDATE_VECTORS = 5
# Vectors per mode that the refinement holds: itself, its sums, what the search knew, squares for errors, the answer;
# and besides them gradients of every sub-batch, of two at least.
REFINEMENT_VECTORS, MIN_SUB_BATCHES = 5, 2
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


@dataclass(frozen=True)
class RaceSize:
    """The ``main`` strategy, its columns or replicas; what joins it, ``pairings`` of *symmetric*; floats of all."""

    main: str
    size: int
    pairings: int
    pairs: bool
    floats: float

    @property
    def text(self) -> str:
        """The main strategy in words."""
        known = {"whole": "the sum of all samples", "flow": f"{self.size} columns"}
        return known.get(self.main, f"{self.size} small replicas")


def check_partition(dims: Sequence[int], groups: Sequence[Sequence[int]] | None) -> Partition | None:
    """A partition given by hand: two groups of modes, put in order of size."""
    if groups is None:
        return None
    partition = Partition(tuple(dims), tuple(tuple(group) for group in groups))
    if len(partition) != 2:
        raise PartitionError(f"partition must have two groups of modes, got {partition.groups}.")
    small, large = sorted(range(2), key=lambda m: partition.sizes[m])
    return Partition(partition.dims, (partition.groups[small], partition.groups[large]))


def size_within(
    dims: tuple[int, ...], nbytes: float, partition: Partition | None = None, symmetric: bool = True
) -> RaceSize:
    """What fits into ``nbytes``; all of the memory is spent as far as it helps.

    Strategies for structure only where what is ``symmetric`` in the data is so in what strategies see of them.
    """
    own, most = candidate_floats(dims), STRUCTURE_SHARE * nbytes / 8 - candidate_floats(dims)
    left = nbytes / 8 - own - probe_floats(dims)
    pairings, pairs = 0, symmetric and len(dims) >= 4 and symmetric_pairs_floats(dims) <= most
    if symmetric and 3 <= len(dims) <= MOST_MODES and len(set(dims)) == 1:
        pairings = max((a for a in range(1, PAIRINGS + 1) if symmetric_floats(dims, a) <= most), default=0)
    left -= (symmetric_floats(dims, pairings) + own if pairings else 0) + (symmetric_pairs_floats(dims) + own) * pairs
    taken = nbytes / 8 - left
    blocks, small = partition or Partition.halves(dims), len(dims) >= 5 and partition is None
    rows = range(1, max(0, min(blocks.sizes[0], int(left))) + 1)
    columns = bisect.bisect_right(rows, left, key=lambda r: state_floats(blocks, r))  # as many as fit
    fixed, one = (singles_floats(dims, r) for r in (0, 1))
    replicas = int((left - fixed) / (one - fixed))
    if whole_floats(blocks) <= left:
        main, size, floats = "whole", blocks.sizes[0], whole_floats(blocks)
    elif columns >= min(FLOW_COLUMNS if small else 1, blocks.sizes[0]):
        main, size, floats = "flow", columns, state_floats(blocks, columns)
    elif small and replicas >= 1:
        main, size, floats = "singles", replicas, singles_floats(dims, replicas)
    else:
        main, size, floats = "", 0, one if small else state_floats(blocks, 1)
    if not main or nbytes < 8 * refinement_floats(dims):
        raise MemoryBudgetError(
            f"memory_limit of {int(nbytes)} bytes is too small for samples of shape {dims}; give at least "
            f"{_bytes(dims, floats if not main else 0)} bytes."
        )
    return RaceSize(main, size, pairings, bool(pairs), taken + floats)


def strategies_within(
    dims: Sequence[int],
    nbytes: int,
    partition: Partition | None,
    delta: float,
    rng: np.random.Generator,
    symmetric: bool = True,
) -> list[Search]:
    """The strategies that fit, the main one first: half of δ is its candidate's, the rest is in equal parts."""
    dims = tuple(dims)
    plan = size_within(dims, nbytes, partition, symmetric)
    strategies: list[Strategy] = [Symmetric(dims, rng, plan.pairings)] if plan.pairings else []
    strategies += [SymmetricPairs(dims, rng)] if plan.pairs else []
    blocks = partition or Partition.halves(dims)
    main: Strategy
    if plan.main == "whole":
        main = WholeSum(blocks, rng)
    else:
        main = BlockFlow(blocks, plan.size, rng) if plan.main == "flow" else SingleReplicas(dims, plan.size, rng)
    others = 0.5 * delta / max(1, len(strategies))
    shares = [0.5 * delta if strategies else delta] + [others] * len(strategies)
    singles = Partition.singles(dims)
    pairs = zip([main, *strategies], shares, strict=True)
    return [Search(strategy, Candidate(singles, rng, share)) for strategy, share in pairs]


def least_bytes(dims: Sequence[int]) -> int:
    """The least memory in which some strategy can run."""
    return _bytes(dims, singles_floats(tuple(dims), 1) if len(dims) >= 5 else state_floats(Partition.halves(dims), 1))


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
    """The least memory for a strategy of ``needed`` floats, its candidate and the probe, or later the refinement."""
    search = needed + candidate_floats(dims) + probe_floats(dims) + 1
    return math.ceil(8 * max(search, refinement_floats(dims)))
