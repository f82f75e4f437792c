r"""What both configurations share: Phase III, :math:`\eta^{(3)} = \log^2 T^{(3)}/(\lambda T^{(3)})` for every block."""

from __future__ import annotations

import math

from tpca.solvers.paper.schedules.constants import Constants
from tpca.solvers.paper.schedules.plan import Leg
from tpca.tensors.blocks import Partition


def estimation_legs(partition: Partition, strength: float, constants: Constants, pairs: int) -> tuple[Leg, ...]:
    """The same T^{(3)} and η^{(3)} for every block, set by the largest (Eq. hyper-para-T-even and -eta-even).

    ``pairs`` is the k̄ of the theorem or the k of the empirical sections.
    """
    steps = constants.estimation_steps(pairs, max(partition.sizes), max(partition.dims), strength)
    step_size = constants.estimation_step * math.log(steps) ** 2 / (strength * steps)
    return tuple(Leg(step_size, steps) for _ in partition.groups)
