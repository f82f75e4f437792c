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

from tpca.solvers.paper.schedules.constants import Constants
from tpca.solvers.paper.schedules.odd import rests, vector_strength, with_idle_vector, without_vector
from tpca.solvers.paper.schedules.plan import Leg, Schedule, check_order, estimation_legs
from tpca.tensors.blocks import Partition


@dataclass(frozen=True)
class SearchStep:
    """One test of the reference-parameter search: is the mean score over ``samples`` at least ``threshold``?"""

    c3: float
    samples: int
    threshold: float


def search_steps(partition: Partition, strength: float, constants: Constants) -> tuple[SearchStep, ...]:
    r"""The tests τ = 0 … T̃ (Algorithm search-c_3-even / -odd).

    Test τ takes :math:`N_1 \gtrsim κ^{-2Kτ}\prod_m d_{short}/λ^2` samples (d_1 for the vector block of an odd order)
    and compares the mean score with κ^{Kτ} λ; the paper has λ ≍ 1.  The score's noise variance is at most ∏ d_short,
    so at
    ``search_samples`` = 32 the slack threshold lies at least 2.8 standard deviations from zero: without any correlation
    a test passes with probability 0.5 %.  Errata: the loop runs to T̃ (printed T̂); the odd search uses the odd score.
    """
    check_order(partition.order)
    if rests(partition, constants):
        return search_steps(without_vector(partition), vector_strength(partition, strength, constants), constants)
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
    if rests(partition, constants):
        pairs = without_vector(partition)
        return with_idle_vector(
            partition, strength, constants, lambda left: empirical_schedule(pairs, left, constants, c3, search)
        )
    case = _Case(partition, strength, constants)
    return Schedule(
        name="empirical, Case II" if c3 is None else f"empirical, Case I (c3 = {c3:.3g})",
        stages=case.stages_two() if c3 is None else case.stages_one(c3),
        ascent=case.ascent(0.5 if c3 is None else 0.25),
        selection=constants.selection_samples(partition.order, strength),
        estimation=estimation_legs(partition, strength, constants, pairs=partition.order // 2),
        search=search,
    )


@dataclass(frozen=True)
class _Case:
    """The numbers both cases share, and their Phases I and II; ``rank`` is K − 1: the paper's k − 1, or k if odd."""

    partition: Partition
    strength: float
    constants: Constants

    @property
    def rank(self) -> int:
        return len(self.partition) - 1

    @property
    def divisor(self) -> float:
        """c_2, in the empirical sections k log(k d/δ)."""
        return self.constants.step_divisor(self.partition.order // 2, self.partition.dims)

    @property
    def pairs_penalty(self) -> float:
        """The factor k, the number of pairs, in Phase II step sizes and at odd order in those of Case I."""
        return float((self.partition.order // 2) ** self.constants.block_penalty)

    def stages_two(self) -> tuple[tuple[Leg, ...], ...]:
        """Phase I of Case II (Eq. esti-block-eff-SNR-caseII): λ̃ = λ ∏ ζ^{h−1}γ̃/4, UB = γ̃ζ^h/4.

        Erratum: for the vector block of an odd order the proofs need UB = γ̃ζ^h/2, as its ζ says (printed 4).
        """
        c0, loss = self.constants.start_overlap(self.partition.dims), self.constants.signal_loss
        counts, sizes = [len(g) for g in self.partition.groups], self.partition.sizes
        gauges = [c0 ** (c / 2) / math.sqrt(s) for c, s in zip(counts, sizes, strict=True)]
        lifts = [
            c * math.log(2 / math.sqrt(c0)) + math.log(s) / (2 * self.rank) for c, s in zip(counts, sizes, strict=True)
        ]
        return self._cycles(gauges, lifts, loss, [loss ** (c / 2) for c in counts])

    def stages_one(self, c3: float) -> tuple[tuple[Leg, ...], ...]:
        """Phase I of Case I, both parts (Eq. esti-block-eff-SNR-caseI)."""
        blocks, loss, roots = len(self.partition), self.constants.signal_loss, self._roots()
        gauges = [c3 / root for root in roots]
        cycles = math.ceil(math.log(4.0) + self.rank * math.log(1 / c3))
        signals = [self.strength * c3 * _others(gauges, m) / loss**self.rank for m in range(blocks)]
        penalty = self.pairs_penalty if self.partition.order % 2 else 1.0
        start = []
        for h in range(1, cycles + 1):
            highs = self._capped([math.exp(h) * c3**self.rank * g / 4 for g in gauges])
            etas = [
                min(signal / (high * size), high * signal)
                for signal, high, size in zip(signals, highs, self.partition.sizes, strict=True)
            ]
            start.append(self._legs(signals, highs, [high / math.e for high in highs], etas, cycles, penalty))
        lifts = [math.log(1 / c3) + math.log(root) / self.rank for root in roots]
        return (*start, *self._cycles(gauges, lifts, 1.0, [1.0] * blocks, penalty))

    def ascent(self, exponent: float) -> tuple[Leg, ...]:
        """Phase II: λ̃^II_m = λ(1−1/K)^{K−m} ∏_{i<m} D_i^{−e+e/(K−1)} with e = 1/2 (Case II) or 1/4 (Case I).

        What Phase I reaches is capped like its targets (erratum 6).
        """
        blocks = len(self.partition)
        exponents = [exponent if len(g) == 2 else 0.5 for g in self.partition.groups]
        reach = self._capped(
            [s ** (-e * (1 - 1 / self.rank)) for e, s in zip(exponents, self.partition.sizes, strict=True)]
        )
        legs = []
        for m, size in enumerate(self.partition.sizes):
            signal = self.strength * (1 - 1 / blocks) ** (blocks - 1 - m) * math.prod(reach[:m])
            eta = min(signal / (self.pairs_penalty * size), 1 / (signal + 1)) / self.divisor
            legs.append(Leg(eta, math.ceil(self.constants.duration / (signal * eta))))
        return tuple(legs)

    def _cycles(
        self, gauges: list[float], lifts: list[float], loss: float, goals: list[float], penalty: float = 1.0
    ) -> tuple[tuple[Leg, ...], ...]:
        """Geometric cycles with ζ_m = exp(lift_m/h*), h* = ⌈max lift⌉.

        Cycle h counts on alignments γ̃ζ^{h−1}/``loss`` of the other blocks and lifts its own to γ̃ζ^h/``goals[m]``.
        """
        cycles = max(1, math.ceil(max(lifts)))
        zetas = [math.exp(lift / cycles) for lift in lifts]
        stages = []
        for h in range(1, cycles + 1):
            before = [g * z ** (h - 1) for g, z in zip(gauges, zetas, strict=True)]
            after = [g * z**h for g, z in zip(gauges, zetas, strict=True)]
            expected = self._capped([b / loss for b in before])
            signals = [self.strength * _others(expected, m) for m in range(len(gauges))]
            highs = self._capped([a / goal for a, goal in zip(after, goals, strict=True)])
            lows = self._capped([b / goal for b, goal in zip(before, goals, strict=True)])
            sizes = self.partition.sizes
            etas = [signal / (high * size) for signal, high, size in zip(signals, highs, sizes, strict=True)]
            stages.append(self._legs(signals, highs, lows, etas, cycles, penalty))
        return tuple(stages)

    def _legs(
        self,
        signals: list[float],
        highs: list[float],
        lows: list[float],
        etas: list[float],
        cycles: int,
        penalty: float,
    ) -> tuple[Leg, ...]:
        """η = min(given, LB/(λ̃+1)) / (c_2 h*²) and T = UB/(λ̃ η) for every block.

        The second bound is Corollary coro-gen-phase-I's; it only matters for strengths well above one.
        """
        divisor = self.divisor * penalty * cycles**self.constants.stage_penalty
        legs = []
        for signal, high, low, given in zip(signals, highs, lows, etas, strict=True):
            eta = min(given, low / (signal + 1)) / divisor
            legs.append(Leg(eta, math.ceil(self.constants.duration * high / (signal * eta))))
        return tuple(legs)

    def _capped(self, alignments: list[float]) -> list[float]:
        """No alignment above ``target_cap``: at order 4 the formulas pass one (erratum 6)."""
        return [min(a, self.constants.target_cap) for a in alignments]

    def _roots(self) -> list[float]:
        """(d d')^{1/4} of Case I; d_1^{1/2} for the vector block, by d_0 = d_1."""
        sizes = zip(self.partition.groups, self.partition.sizes, strict=True)
        return [float(s ** (0.25 if len(g) == 2 else 0.5)) for g, s in sizes]


def _others(values: list[float], m: int) -> float:
    return math.prod(v for i, v in enumerate(values) if i != m)
