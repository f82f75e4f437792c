r"""The empirical schedule: no truth, only λ ≍ 1 (paper, Sections para-setting-empirical and -odd).

A reference parameter c_3, an estimate of :math:`|\prod_m Cor_m|^{1/K}`, decides between two cases:

* Case I, c_3 found: :math:`\tildeγ_m = c_3 D_m^{-1/4}` (vector block: c_3 d_1^{-1/2}, by the convention d_0 = d_1),
  Phase I in two parts: h_1* cycles that lift the common overlap from c_3^K to c_3, then h_2* cycles that lift to
  D_m^{-1/4+1/(4(K-1))}.
* Case II, no c_3: :math:`\tildeγ_m = c_0^{|m|/2} D_m^{-1/2}` with |m| the number of modes of the block (c_0 for a pair,
  c_0^{1/2} for the vector block), h* cycles.

Step sizes and durations, in both cases (Eq. empirical-sample-size-caseI/II, empirical-set-size-caseI/II):

.. math::
    \eta^{(1)} = \frac{1}{c_2 h^{*2}}\frac{\tilde\lambda^I}{UB \cdot D_m}, \quad
    T^{(1)} = \frac{UB}{\tilde\lambda^I\eta}, \qquad
    \eta^{(2)} = \frac{\tilde\lambda^{II}}{c_2 k D_m}, \quad
    T^{(2)} = \frac1{\tilde\lambda^{II}\eta}.

Here K is the number of blocks (k even, k+1 odd), D_m the entries of block m.  Even and odd order differ only in the
blocks. Errata: the odd Case II prints (d_{2m-1} d_{2m}) where block m owns modes 2m-2 and 2m-1; Case I's second UB is
UB^I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tpca.blocks import Partition
from tpca.schedules.constants import Constants
from tpca.schedules.phases import estimation_legs
from tpca.schedules.plan import Leg, Schedule, check_order


@dataclass(frozen=True)
class SearchStep:
    """One test of the reference-parameter search: is the mean score over ``samples`` at least ``threshold``?"""

    c3: float
    samples: int
    threshold: float


def search_steps(partition: Partition, strength: float, constants: Constants) -> tuple[SearchStep, ...]:
    r"""The tests τ = 0 … T̃ (Algorithm search-c_3-even / -odd).

    Test τ takes :math:`N_1 \gtrsim κ^{-2Kτ}\prod_m d_{short}` samples, with d_1 for the vector block of an odd order,
    and compares the mean score with κ^{Kτ}.  The score has noise variance ∏ d_short (less at odd order), so at
    ``search_samples``
    = 32 the slack threshold lies at least 2.8 standard deviations from zero.  Errata: the loop runs to T̃ (printed
    T̂); the odd
    search uses the odd score.
    """
    check_order(partition.order)
    blocks = len(partition)
    odd = partition.order % 2
    log_dim = math.fsum(math.log(d) for d in partition.dims) / partition.order
    reach = (0.5 - (1.5 if odd else 1.0) / blocks) * log_dim
    last = math.ceil(max(0.0, reach) / math.log(1 / constants.kappa))
    variance = math.prod(shape[0] for shape in partition.shapes)
    steps = []
    for tau in range(last + 1):
        level = constants.kappa ** (blocks * tau)
        samples = math.ceil(constants.search_samples * variance / (level * strength) ** 2)
        steps.append(SearchStep(constants.kappa**tau, samples, constants.search_slack * level * strength))
    return tuple(steps)


def empirical_schedule(
    partition: Partition, strength: float, constants: Constants, c3: float | None, search: int = 0
) -> Schedule:
    """Case I if ``c3`` was found, else Case II."""
    check_order(partition.order)
    case = _Case(partition, strength, constants)
    return Schedule(
        name="empirical, Case II" if c3 is None else f"empirical, Case I (c3 = {c3:.3g})",
        stages=case.second() if c3 is None else case.first(c3),
        ascent=case.ascent(0.5 if c3 is None else 0.25),
        selection=constants.selection_samples(partition.order, strength),
        estimation=estimation_legs(partition, strength, constants),
        search=search,
    )


@dataclass(frozen=True)
class _Case:
    """The numbers both cases share, and their Phase I and II."""

    partition: Partition
    strength: float
    constants: Constants

    @property
    def _steps_back(self) -> int:
        """K − 1, the paper's k − 1 (even) or k (odd)."""
        return len(self.partition) - 1

    def second(self) -> tuple[tuple[Leg, ...], ...]:
        """Phase I of Case II (Eq. esti-block-eff-SNR-caseII)."""
        c0 = self.constants.start_overlap(self.partition.dims)
        loss = self.constants.signal_loss
        gauges = [c0 ** (len(g) / 2) / math.sqrt(s) for g, s in zip(*self._groups_sizes(), strict=True)]
        lifts = [
            len(g) * math.log(2 / math.sqrt(c0)) + math.log(s) / (2 * self._steps_back)
            for g, s in zip(*self._groups_sizes(), strict=True)
        ]
        return self._cycles(gauges, lifts, loss_low=loss, loss_high=loss)

    def first(self, c3: float) -> tuple[tuple[Leg, ...], ...]:
        """Phase I of Case I, both parts (Eq. esti-block-eff-SNR-caseI)."""
        blocks, loss = len(self.partition), self.constants.signal_loss
        gauges = [c3 / self._root(g, s) for g, s in zip(*self._groups_sizes(), strict=True)]
        cycles = math.ceil(math.log(4.0) + self._steps_back * math.log(1 / c3))
        start = []
        for h in range(1, cycles + 1):
            highs = [math.exp(h) * c3 ** (blocks - 1) * g / 4 for g in gauges]
            signals = [self.strength * c3 * self._others(gauges, m) / loss**self._steps_back for m in range(blocks)]
            start.append(self._legs(signals, highs, cycles))
        lifts = [
            math.log(1 / c3) + math.log(self._root(g, s)) / self._steps_back
            for g, s in zip(*self._groups_sizes(), strict=True)
        ]
        return (*start, *self._cycles(gauges, lifts, loss_low=1.0, loss_high=1.0))

    def ascent(self, exponent: float) -> tuple[Leg, ...]:
        """Phase II: λ̃^II_m = λ(1−1/K)^{K−m} ∏_{i<m} D_i^{−e+e/(K−1)} with e = 1/2 (Case II) or 1/4 (Case I)."""
        blocks = len(self.partition)
        groups, sizes = self._groups_sizes()
        reach = [
            min(s ** (-(exponent if len(g) == 2 else 0.5) * (1 - 1 / self._steps_back)), self.constants.target_cap)
            for g, s in zip(groups, sizes, strict=True)
        ]
        legs = []
        penalty = self.constants.step_divisor(self.partition.dims) * blocks**self.constants.block_penalty
        for m, size in enumerate(sizes):
            signal = self.strength * (1 - 1 / blocks) ** (blocks - 1 - m) * math.prod(reach[:m])
            eta = min(signal / size, 1 / (signal + 1)) / penalty
            legs.append(Leg(eta, math.ceil(self.constants.duration / (signal * eta))))
        return tuple(legs)

    def _cycles(
        self, gauges: list[float], lifts: list[float], loss_low: float, loss_high: float
    ) -> tuple[tuple[Leg, ...], ...]:
        """Geometric cycles: alignment γ̃ ζ^{h−1} → γ̃ ζ^h with ζ_m = exp(lift_m/h*), h* = ⌈max lift⌉."""
        cycles = max(1, math.ceil(max(lifts)))
        zetas = [math.exp(lift / cycles) for lift in lifts]
        stages = []
        for h in range(1, cycles + 1):
            cap = self.constants.target_cap
            lows = [min(g * z ** (h - 1), cap) / loss_low for g, z in zip(gauges, zetas, strict=True)]
            highs = [min(g * z**h, cap) / loss_high for g, z in zip(gauges, zetas, strict=True)]
            signals = [self.strength * self._others(lows, m) for m in range(len(gauges))]
            stages.append(self._legs(signals, highs, cycles))
        return tuple(stages)

    def _legs(self, signals: list[float], highs: list[float], cycles: int) -> tuple[Leg, ...]:
        """η = min(λ̃/(UB D), UB λ̃, UB/(λ̃+1)) / (c_2 h*²) and T = UB/(λ̃ η) for every block.

        The last bound is Corollary coro-gen-phase-I's; it only matters for strengths well above one.
        """
        divisor = self.constants.step_divisor(self.partition.dims) * cycles**self.constants.stage_penalty
        legs = []
        for signal, high, size in zip(signals, highs, self.partition.sizes, strict=True):
            high = min(high, self.constants.target_cap)
            eta = min(signal / (high * size), high / (signal + 1)) / divisor
            legs.append(Leg(eta, math.ceil(self.constants.duration * high / (signal * eta))))
        return tuple(legs)

    def _groups_sizes(self) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        return self.partition.groups, self.partition.sizes

    @staticmethod
    def _root(group: tuple[int, ...], size: int) -> float:
        """(d d')^{1/4} of Case I; d_1^{1/2} for the vector block, by d_0 = d_1."""
        return float(size ** (0.25 if len(group) == 2 else 0.5))

    @staticmethod
    def _others(values: list[float], m: int) -> float:
        return math.prod(v for i, v in enumerate(values) if i != m)
