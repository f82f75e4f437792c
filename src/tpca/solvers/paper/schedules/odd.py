r"""Odd order with the vector block idle in Phase I: N ~ d^{k̄-2} instead of d^{k̄-1}.

The printed schedule gives the vector :math:`w_1` a turn in every cycle.  Its signal is
:math:`\lambda\prod_{m\ge2}\alpha_m \sim \lambda d^{-(\bar k-1)/2}` and a turn that just keeps an alignment
:math:`\alpha_1 \sim d_1^{-1/2}` takes :math:`\alpha_1^2 d_1/s^2 \sim d^{\bar k-1}/\lambda^2` samples.  Nothing needs
it.  Contracted with any unit vector :math:`w_1`, samples of order 2k+1 are samples of order 2k,

.. math:: T(w_1) = \lambda' \, v_2 \otimes \dots \otimes v_{\bar k} + E(w_1), \qquad
          \lambda' = \lambda\langle w_1, v_1\rangle \approx \lambda\sqrt{c_0/d_1},

with noise as before (a contraction with a unit vector keeps Assumption ass-base, and i.i.d. N(0, 1) entries).  So the
even theorem at strength λ' serves the k pairs, in :math:`d^{2k-2}/\lambda'^2 = d^{2k-1}/(c_0\lambda^2)` samples: that
is :math:`d^{\bar k-2}`, and :math:`S\cdot N \sim d^{\bar k}` with the ordinary product.  Correlation inside pairs helps
as it does at order 2k.  In Phase II the pairs come first, as always; then :math:`w_1` meets a signal of order λ and
needs :math:`d_1/\lambda^2` samples.  The c_3 search is that of the pairs at strength λ', too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tpca.solvers.paper.schedules.constants import Constants
from tpca.solvers.paper.schedules.plan import Leg, Schedule, estimation_legs
from tpca.tensors.blocks import Partition

IDLE = Leg(0.0, 0)


def rests(partition: Partition, constants: Constants) -> bool:
    """Whether there is a vector block, the first, that stands still in Phase I."""
    return constants.idle_vector and partition.order % 2 == 1 and len(partition.groups[0]) == 1


def without_vector(partition: Partition) -> Partition:
    """The pairs alone: a partition of the modes of all blocks but the first, in the order of the blocks."""
    modes = [n for group in partition.groups[1:] for n in group]
    place = {n: i for i, n in enumerate(modes)}
    groups = tuple(tuple(place[n] for n in group) for group in partition.groups[1:])
    return Partition(tuple(partition.dims[n] for n in modes), groups)


def vector_strength(partition: Partition, strength: float, constants: Constants) -> float:
    """λ' = λ √(c_0/d_1): what a random w_1 leaves of the strength."""
    return strength * math.sqrt(constants.start_overlap(partition.dims) / partition.sizes[0])


def with_idle_vector(
    partition: Partition, strength: float, constants: Constants, of_pairs: Callable[[float], Schedule]
) -> Schedule:
    """The pairs' schedule at strength λ', ``of_pairs(λ')``, and the vector's turn at the end of Phase II."""
    pairs = of_pairs(vector_strength(partition, strength, constants))
    return replace(
        pairs,
        name=f"{pairs.name}, vector idle in Phase I",
        stages=tuple((IDLE, *legs) for legs in pairs.stages),
        ascent=(_vector_leg(partition, strength, constants), *pairs.ascent),
        selection=constants.selection_samples(partition.order, strength),
        estimation=estimation_legs(partition, strength, constants, pairs=partition.order // 2),
    )


def _vector_leg(partition: Partition, strength: float, constants: Constants) -> Leg:
    """Phase II of w_1, as printed: λ^II_1 = λ(1 − 1/K)^{K−1}, all pairs being there."""
    count, size = len(partition), partition.sizes[0]
    signal = strength * (1 - 1 / count) ** (count - 1)
    penalty = (partition.order // 2) ** constants.block_penalty
    divisor = constants.step_divisor(partition.order // 2, partition.dims)
    eta = min(signal / (penalty * size), 1 / (signal + 1)) / divisor
    return Leg(eta, math.ceil(constants.duration / (signal * eta)))
