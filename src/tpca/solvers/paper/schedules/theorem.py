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

Corollary cor-equal-dim takes the smaller of two: that schedule, or Case II of the empirical section, which counts on no
correlation.  Where few pairs are correlated, max γ⁴ makes the first the larger one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from tpca.model import SpikedTensor
from tpca.model.bounds import block_gauge
from tpca.solvers.paper.schedules.constants import Constants
from tpca.solvers.paper.schedules.empirical import empirical_schedule
from tpca.solvers.paper.schedules.odd import rests, with_idle_vector
from tpca.solvers.paper.schedules.plan import Leg, Schedule, check_order, estimation_legs
from tpca.tensors.blocks import Partition


def theorem_schedule(truth: SpikedTensor, constants: Constants, cycles: int | None = None) -> Schedule:
    """The schedule of the main theorem, even or odd order, or Case II where that takes fewer samples.

    ``cycles`` overrides h*, the number of cycles that Phase I is cut into; 1 is Phase I without that partition, and
    nothing is compared with Case II then.
    """
    check_order(truth.order)
    partition = Partition.pairs(truth.dims)
    if rests(partition, constants):
        vectors = tuple(truth.vectors[n] for group in partition.groups[1:] for n in group)
        return with_idle_vector(
            partition,
            truth.strength,
            constants,
            lambda left: theorem_schedule(SpikedTensor(vectors, left), constants, cycles),
        )
    first = gauged_schedule(truth, constants, cycles)
    if cycles is not None:
        return first
    second = empirical_schedule(partition, truth.strength, constants, c3=None)
    if second.climb() >= first.climb():
        return first
    return replace(first, name="theorem, Case II", stages=second.stages, ascent=second.ascent)


def gauged_schedule(truth: SpikedTensor, constants: Constants, cycles: int | None = None) -> Schedule:
    """The theorem's own schedule from the truth's γ_m."""
    partition = Partition.pairs(truth.dims)
    return Schedule(
        name="theorem",
        stages=tuple(
            _stage(truth, partition, constants, lows, highs) for lows, highs in stage_bounds(truth, constants, cycles)
        ),
        ascent=_ascent(truth, partition, constants),
        selection=constants.selection_samples(truth.order, truth.strength),
        estimation=estimation_legs(partition, truth.strength, constants, pairs=truth.order),
    )


def stage_bounds(
    truth: SpikedTensor, constants: Constants, cycles: int | None = None
) -> list[tuple[list[float], list[float]]]:
    """For every cycle of Phase I the alignments it counts on, ζ^{h−1}γ, and those it lifts to, ζ^hγ, of all blocks."""
    gauges = block_gauge(truth, constants.start_overlap(truth.dims))
    rises = [math.log(4.0) + math.log(1 / g) / (truth.order // 2 - 1) for g in gauges]
    cycles = math.ceil(max(rises)) if cycles is None else cycles
    zetas = [math.exp(rise / cycles) for rise in rises]
    levels = [
        [min(float(z**h * g), constants.target_cap) for z, g in zip(zetas, gauges, strict=True)]
        for h in range(cycles + 1)
    ]
    return list(itertools.pairwise(levels))


def _stage(
    truth: SpikedTensor, partition: Partition, constants: Constants, lows: list[float], highs: list[float]
) -> tuple[Leg, ...]:
    """A cycle of Phase I, one leg per block."""
    legs = []
    c2 = constants.step_divisor(truth.order, truth.dims)
    for m, size in enumerate(partition.sizes):
        others = math.prod(low / constants.signal_loss for i, low in enumerate(lows) if i != m)
        signal = truth.strength * others
        eta = min(signal / (highs[m] * size), lows[m] / (signal + 1)) / c2
        legs.append(Leg(eta, math.ceil(constants.duration * highs[m] / (eta * signal))))
    return tuple(legs)


def _ascent(truth: SpikedTensor, partition: Partition, constants: Constants) -> tuple[Leg, ...]:
    """Phase II, one leg per block."""
    legs = []
    gauges = block_gauge(truth, constants.start_overlap(truth.dims))
    root = 1 / (truth.order // 2 - 1)
    keep = 1 - 1 / (truth.order // 2)
    c2 = constants.step_divisor(truth.order, truth.dims)
    penalty = truth.order**constants.block_penalty
    for m, size in enumerate(partition.sizes):
        reached = math.prod(min(g ** (1 - root), constants.target_cap) for g in gauges[:m])
        signal = truth.strength * keep ** (len(partition) - 1 - m) * reached
        eta = min(signal / (penalty * size), 1 / (signal + 1)) / c2
        legs.append(Leg(eta, math.ceil(constants.duration / (eta * signal))))
    return tuple(legs)
