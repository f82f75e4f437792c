r"""The theorem's schedule (Theorem main-theorem and main-theorem-odd).  It needs the truth, so it is for studies only.

.. math::
    \eta^{(1)}_{m,h} = \frac1{c_2}\min\Big\{\frac{\lambda^I_{m,h}}{\zeta_m^h\gamma_m D_m},
                        \frac{\zeta_m^{h-1}\gamma_m}{\lambda^I_{m,h}+1}\Big\}, \quad
    T^{(1)}_{m,h} = \frac{\zeta_m^h\gamma_m}{\eta\lambda^I}, \quad
    \eta^{(2)}_m = \frac1{c_2}\min\Big\{\frac{\lambda^{II}_m}{\bar k D_m}, \frac1{\lambda^{II}_m+1}\Big\}, \quad
    T^{(2)}_m = \frac1{\eta\lambda^{II}}

with D_m the number of entries of block m (d d', or d_1 for the vector block of an odd order), K blocks,
:math:`\lambda^I_{m,h} = \lambda\prod_{i\ne m}\zeta_i^{h-1}\gamma_i/4` and
:math:`\lambda^{II}_m = \lambda(1-1/\lfloor\bar k/2\rfloor)^{K-m}\prod_{i<m}\gamma_i^{1-1/(\lfloor\bar k/2\rfloor-1)}`
(Eq. block-eff-SNR).  Alignments are capped at ``target_cap`` (erratum 6).  Erratum 8: the sketch's T^{(2)} ≍ 1/(λ² D)
reads D/λ². Erratum 1: inside a phase the blocks j > m are new and i < m old, as the loop order says.
"""

from __future__ import annotations

import math

from tpca.model import SpikedTensor
from tpca.model.bounds import block_gauge
from tpca.solvers.paper.schedules.constants import Constants
from tpca.solvers.paper.schedules.phases import estimation_legs
from tpca.solvers.paper.schedules.plan import Leg, Schedule, check_order
from tpca.tensors.blocks import Array, Partition


def theorem_schedule(truth: SpikedTensor, constants: Constants, cycles: int | None = None) -> Schedule:
    """The schedule of the main theorem, even or odd order, from the truth's γ_m.

    ``cycles`` overrides h*, the number of cycles that Phase I is cut into; 1 is Phase I without that partition.
    """
    check_order(truth.order)
    partition = Partition.pairs(truth.dims)
    gauges = block_gauge(truth, constants.start_overlap(truth.dims))
    root = 1 / (truth.order // 2 - 1)
    rises = [math.log(4.0) + root * math.log(1 / g) for g in gauges]
    cycles = math.ceil(max(rises)) if cycles is None else cycles
    zetas = [math.exp(rise / cycles) for rise in rises]
    stages = [_stage(truth, partition, constants, gauges, zetas, h) for h in range(1, cycles + 1)]
    return Schedule(
        name="theorem",
        stages=tuple(stages),
        ascent=_ascent(truth, partition, constants, gauges, root),
        selection=constants.selection_samples(truth.order, truth.strength),
        estimation=estimation_legs(partition, truth.strength, constants, pairs=truth.order),
    )


def _stage(
    truth: SpikedTensor, partition: Partition, constants: Constants, gauges: Array, zetas: list[float], h: int
) -> tuple[Leg, ...]:
    """Cycle h of Phase I, one leg per block."""
    legs = []
    lows = [min(z ** (h - 1) * g, constants.target_cap) for z, g in zip(zetas, gauges, strict=True)]
    highs = [min(z**h * g, constants.target_cap) for z, g in zip(zetas, gauges, strict=True)]
    c2 = constants.step_divisor(truth.order, truth.dims)
    for m, size in enumerate(partition.sizes):
        others = math.prod(low / constants.signal_loss for i, low in enumerate(lows) if i != m)
        signal = truth.strength * others
        eta = min(signal / (highs[m] * size), lows[m] / (signal + 1)) / c2
        legs.append(Leg(eta, math.ceil(constants.duration * highs[m] / (eta * signal))))
    return tuple(legs)


def _ascent(
    truth: SpikedTensor, partition: Partition, constants: Constants, gauges: Array, root: float
) -> tuple[Leg, ...]:
    """Phase II, one leg per block."""
    legs = []
    keep = 1 - 1 / (truth.order // 2)
    c2 = constants.step_divisor(truth.order, truth.dims)
    penalty = truth.order**constants.block_penalty
    for m, size in enumerate(partition.sizes):
        reached = math.prod(min(g ** (1 - root), constants.target_cap) for g in gauges[:m])
        signal = truth.strength * keep ** (len(partition) - 1 - m) * reached
        eta = min(signal / (penalty * size), 1 / (signal + 1)) / c2
        legs.append(Leg(eta, math.ceil(constants.duration / (eta * signal))))
    return tuple(legs)
