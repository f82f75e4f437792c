r"""The constants that the paper hides behind ≍ and ≳, by name.

============================  =====================================================  ==============  =========
field                         where it stands                                        theory          practical
============================  =====================================================  ==============  =========
``delta``                     failure probability δ                                  0.1             0.1
``c0``                        overlap of a random start (Eq. c0-definition)          from δ          1
``c2``                        1/c_2 in every step size; c_2 ≍ k log(k d/δ)            from δ          1
``stage_penalty``             (h*)^p in empirical Phase I step sizes                 2               0
``signal_loss``               the 4 of λ^I = λ ∏ ζ^{h-1} γ/4, and of UB in Case II   4               1
``block_penalty``             k^p in Phase II and odd Case I step sizes (k̄^p, theorem) 1              0
``target_cap``                UB of Phase I never above this                         1/2             1/2
``duration``                  T = duration · (paper's form), Phases I and II         1               1
``kappa``                     decay factor κ of the c_3 search                       1/2             1/2
``search_samples``            N_1 = this · κ^{-2kτ} ∏ d                              32              32
``search_slack``              the c_3 test compares with slack · κ^{kτ}              1/2             1/2
``selection``                 N_0 = this · log(2^k̄/δ) / min(λ, 1)²                   8               8
``estimation``                T^{(3)} = this · form                                  1               100
``estimation_power``          2: form = (k d d')² log⁴ / λ²; 1: form = d d' / λ², ≥ 100  2            1
``estimation_step``           η^{(3)} = this · log²T / (λ T)                         1               1/2
``idle_vector``               odd order: w_1 stands still in Phase I                 no              yes
============================  =====================================================  ==============  =========

``theory`` keeps every factor that the paper prints with its ≍ read as =; the proofs' own constants (8192 c_1, ...) are
larger still.  ``practical`` sets to one what only the proofs need and leaves the vector block of an odd order idle in
Phase I (:mod:`~tpca.solvers.paper.schedule`); ``printed`` has the same constants and the printed Phase I.
Erratum 6 of docs/paper.md is the reason for ``target_cap`` and ``search_slack``: at order 4 the target 2γ^{1-1/(k-1)}
is 2, and the c_3 test a coin flip.

What a schedule is: step sizes and durations for every phase and block, as plain numbers.

The theorem counts samples as (Theorem main-theorem)

.. math:: N = 2^{\bar k}\Big(N_0 + \sum_m T^{(1)}_m + T^{(2)}_m\Big) + 2\sum_m T^{(3)}_m .

Phase III is the same in both configurations: :math:`\eta^{(3)} = \log^2 T^{(3)}/(\lambda T^{(3)})` for every block.

Odd order with the vector block idle in Phase I: N ~ d^{k̄-2} instead of d^{k̄-1}.

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

The theorem's schedule (Theorem main-theorem and main-theorem-odd).  It needs the truth, so it is for studies only.

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

The empirical schedule: no truth, only λ ≍ 1 (paper, Sections para-setting-empirical and -odd).

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

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tpca.errors import ScheduleError
from tpca.model import SpikedTensor, block_gauge, initial_overlap
from tpca.tensors.blocks import Partition


@dataclass(frozen=True)
class Constants:
    """Named constants of the schedules; ``None`` takes the paper's formula."""

    delta: float = 0.1
    c0: float | None = None
    c2: float | None = None
    stage_penalty: float = 2.0
    signal_loss: float = 4.0
    block_penalty: float = 1.0
    target_cap: float = 0.5
    duration: float = 1.0
    kappa: float = 0.5
    search_samples: float = 32.0
    search_slack: float = 0.5
    selection: float = 8.0
    estimation: float = 1.0
    estimation_power: int = 2
    estimation_step: float = 1.0
    idle_vector: bool = False

    def start_overlap(self, dims: Sequence[int]) -> float:
        """c_0, given or by Eq. c0-definition."""
        return initial_overlap(dims, self.delta) if self.c0 is None else self.c0

    def __post_init__(self) -> None:
        for name in ("delta", "kappa", "target_cap", "search_slack"):
            if not 0 < getattr(self, name) < 1:
                raise ScheduleError(f"{name} must lie strictly between 0 and 1, got {getattr(self, name)}.")
        positive = ("signal_loss", "duration", "search_samples", "selection", "estimation", "estimation_step")
        for name in (*positive, *(n for n in ("c0", "c2") if getattr(self, n) is not None)):
            if not getattr(self, name) > 0:
                raise ScheduleError(f"{name} must be positive, got {getattr(self, name)}.")
        if self.estimation_power not in (1, 2):
            raise ScheduleError(f"estimation_power must be 1 or 2, got {self.estimation_power}.")

    def step_divisor(self, count: int, dims: Sequence[int]) -> float:
        """c_2, given or count · log(count · d_max / δ): count is k̄ in the theorem, k in the empirical sections."""
        return count * math.log(count * max(dims) / self.delta) if self.c2 is None else self.c2

    def selection_samples(self, order: int, strength: float) -> int:
        """N_0 = selection · log(2^k̄/δ)/λ².  Erratum 9: N_0 ≳ 1 is too few to tell 2^k̄ starts apart."""
        return max(1, math.ceil(self.selection * math.log(2**order / self.delta) / min(strength, 1.0) ** 2))

    def estimation_steps(self, count: int, size: int, dim: int, strength: float) -> int:
        """T^{(3)} for a largest block of ``size`` entries and a longest mode ``dim``; ``count`` as in ``step_divisor``.

        ``theory``: the fixed point of T ≥ max(count, (count · d d')²/λ²) log⁴(count · d T/δ) (Eq. hyper-para-T-even,
        empirical-sample-size-caseI/II).  Erratum 7: at orders 4 and 5 that d⁴ exceeds everything else; ``practical``
        asks for d d'/λ², what the Gaussian rate needs, and at least 100 steps.
        """
        if self.estimation_power == 1:
            return max(100, math.ceil(self.estimation * size / strength**2))
        floor = self.estimation * max(count, (count * size) ** 2 / strength**2)
        steps = floor
        for _ in range(50):
            steps = floor * math.log(count * dim * max(steps, 2.0) / self.delta) ** 4
        return math.ceil(steps)


PRESETS = {
    "theory": Constants(),
    "practical": Constants(
        c0=1.0,
        c2=1.0,
        stage_penalty=0.0,
        signal_loss=1.0,
        block_penalty=0.0,
        estimation=100.0,
        estimation_power=1,
        estimation_step=0.5,
        idle_vector=True,
    ),
}
PRESETS["printed"] = replace(PRESETS["practical"], idle_vector=False)


def preset_constants(preset: str | Constants) -> Constants:
    """Constants by the name of a preset, or as they are."""
    if isinstance(preset, Constants):
        return preset
    if preset not in PRESETS:
        raise ScheduleError(f"preset must be one of {', '.join(PRESETS)} or a Constants, got {preset!r}.")
    return PRESETS[preset]


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
