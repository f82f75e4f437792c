r"""What a schedule is: step sizes and durations for every phase and block, as plain numbers.

The theorem counts samples as (Theorem main-theorem)

.. math:: N = 2^{\bar k}\Big(N_0 + \sum_m T^{(1)}_m + T^{(2)}_m\Big) + 2\sum_m T^{(3)}_m .

Phase III is the same in both configurations: :math:`\eta^{(3)} = \log^2 T^{(3)}/(\lambda T^{(3)})` for every block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tpca.errors import ScheduleError
from tpca.solvers.paper.schedules.constants import Constants
from tpca.tensors.blocks import Partition


@dataclass(frozen=True)
class Leg:
    """One block's run inside a phase: step size η and number of steps T."""

    step_size: float
    steps: int


@dataclass(frozen=True)
class Schedule:
    """All phases; every inner tuple has one leg per block, block m = 1 first (blocks *run* from the last to the first).

    ``stages`` are the h* cycles of Phase I, ``ascent`` is Phase II, ``selection`` is N_0, ``estimation`` Phase III.
    ``search`` counts the samples already spent on finding c_3.
    """

    name: str
    stages: tuple[tuple[Leg, ...], ...]
    ascent: tuple[Leg, ...]
    selection: int
    estimation: tuple[Leg, ...]
    search: int = 0

    def climb(self) -> int:
        """Samples of one start in Phases I and II."""
        return sum(leg.steps for stage in (*self.stages, self.ascent) for leg in stage)

    def samples(self, order: int) -> int:
        """N as the theorem counts it, plus the samples of the c_3 search."""
        finish = sum(leg.steps for leg in self.estimation)
        starts: int = 2**order
        return self.search + starts * (self.selection + self.climb()) + 2 * finish


def decay_length(steps: int) -> int:
    """T̂ = ⌊T / log T⌋: SNSGA2 halves its step size every so many steps."""
    return max(1, int(steps / math.log(steps))) if steps > 1 else 1


def check_order(order: int) -> None:
    """The theorems hold from order 4 on; below, 1/(k−1) and 1/(⌈k̄/2⌉−2) are not defined."""
    if order < 4:
        raise ScheduleError(
            f"the paper's schedules need order >= 4, got order {order}: its exponents 1/(k-1) are undefined below. "
            "Use tpca.RaceSolver, which handles any order >= 2."
        )


def estimation_legs(partition: Partition, strength: float, constants: Constants, pairs: int) -> tuple[Leg, ...]:
    """The same T^{(3)} and η^{(3)} for every block, set by the largest (Eq. hyper-para-T-even and -eta-even).

    ``pairs`` is the k̄ of the theorem or the k of the empirical sections.
    """
    steps = constants.estimation_steps(pairs, max(partition.sizes), max(partition.dims), strength)
    step_size = constants.estimation_step * math.log(steps) ** 2 / (strength * steps)
    return tuple(Leg(step_size, steps) for _ in partition.groups)
