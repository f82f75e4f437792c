r"""The paper's schedules: step sizes and durations of every phase and block, and the constants behind its ≍.

The constants are fields of :class:`Constants`.  ``theory``, their defaults, keeps every factor that the paper prints
with its ≍ read as =; the proofs' own constants (8192 c_1, ...) are larger still.  ``practical`` sets to one what only
the proofs need.  Errata are those of docs/paper.md; erratum 6 is the reason for ``target_cap`` and ``search_slack``: at
order 4 the target 2γ^{1-1/(k-1)} is 2, and the c_3 test a coin flip.

The theorem counts samples as (Theorem main-theorem)

.. math:: N = 2^{\bar k}\Big(N_0 + \sum_m T^{(1)}_m + T^{(2)}_m\Big) + 2\sum_m T^{(3)}_m .

K is the number of blocks (k even, k+1 odd), D_m the entries of block m (d d', or d_1 for the vector block of an odd
order): parities differ in nothing else.  Every leg of every schedule is one formula (:func:`_legs`), with the signal s
that the other blocks leave, the alignment LB that a block begins with and the alignment UB that it is to reach:

.. math:: \eta = \frac1c\min\Big\{\frac{s}{UB\,D_m}, \frac{LB}{s+1}\Big\}, \qquad T = \frac{UB}{s\,\eta} .

**Theorem** (main-theorem, main-theorem-odd; it needs the truth, so it is for studies).  Phase I: LB = ζ^{h-1}γ,
UB = ζ^hγ, :math:`s = \lambda^I_{m,h} = \lambda\prod_{i\ne m}\zeta_i^{h-1}\gamma_i/4`, c = c_2.  Phase II: LB = UB = 1,
D_m times k̄, :math:`s = \lambda^{II}_m = \lambda(1-1/\lfloor\bar k/2\rfloor)^{K-m}
\prod_{i<m}\gamma_i^{1-1/(\lfloor\bar k/2\rfloor-1)}` (Eq. block-eff-SNR; errata 1, 8).  Corollary cor-equal-dim takes
the smaller of two: that, or Case II, which counts on no correlation.

**Empirical** (Sections para-setting-empirical and -odd; no truth, only λ ≍ 1).  A reference parameter c_3, an estimate
of :math:`|\prod_m Cor_m|^{1/K}`, decides between two cases:

* Case I, c_3 found: :math:`\tildeγ_m = c_3 D_m^{-1/4}` (vector block: c_3 d_1^{-1/2}, by the convention d_0 = d_1),
  Phase I in two parts: h_1* cycles that lift the common overlap from c_3^K to c_3, then h_2* cycles that lift to
  D_m^{-1/4+1/(4(K-1))}.
* Case II, no c_3: :math:`\tildeγ_m = c_0^{|m|/2} D_m^{-1/2}` with |m| the number of modes of the block (c_0 for a pair,
  c_0^{1/2} for the vector block), h* cycles.

In both c = c_2 h*², and :math:`\lambda^{II}_m = \lambda(1-1/K)^{K-m}\prod_{i<m} D_i^{-e+e/(K-1)}`, e = 1/4 in Case I
and 1/2 in Case II (Eq. empirical-sample-size-caseI/II, empirical-set-size-caseI/II; errata 4, 5, 11, 16).

**Phase III** is the same in all: :math:`\eta^{(3)} = \log^2 T^{(3)}/(\lambda T^{(3)})` for every block.

**Ours, ``idle``: the vector block of an odd order stands still in Phase I**, N ~ d^{k̄-2} instead of d^{k̄-1}.  The
printed schedule gives w_1 a turn in every cycle, whose signal is :math:`\lambda\prod_{m\ge2}\alpha_m \sim \lambda
d^{-(\bar k-1)/2}`: just to keep :math:`\alpha_1 \sim d_1^{-1/2}` it takes :math:`\alpha_1^2 d_1/s^2 \sim d^{\bar
k-1}/\lambda^2` samples.  Contracted with any unit vector w_1, samples of order 2k+1 are samples of order 2k and of
strength :math:`\lambda' = \lambda\langle w_1, v_1\rangle \approx \lambda\sqrt{c_0/d_1}`, with noise as before, so the
even schedule at λ' serves the k pairs, and w_1 moves in Phase II, after them.  Its price: a vector that stands still
has nothing but its start, and where both of its starts are poor the run fails.  At its own N, order 5 without
correlation, 181, 153 and 161 of 200 runs succeed at d = 6, 16 and 64, and all 200 of the printed schedule
(docs/reproduction.md, odd-order).  Up to d = 64 it takes as many samples as the printed one for half of the runs, and
2 to 4 times as many for nine of ten; the factor d wins at larger d.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpca.errors import ScheduleError
from tpca.model import SpikedTensor, gauge, initial_overlap
from tpca.tensors.blocks import Partition


@dataclass(frozen=True)
class Constants:
    """Named constants of the schedules; ``None`` takes the paper's formula."""

    delta: float = 0.1  # failure probability δ
    c0: float | None = None  # overlap of a random start (Eq. c0-definition)
    c2: float | None = None  # 1/c_2 in every step size; c_2 ≍ k log(k d/δ)
    stage_penalty: float = 2.0  # (h*)^p in empirical Phase I step sizes
    signal_loss: float = 4.0  # the 4 of λ^I = λ ∏ ζ^{h-1} γ/4, and of UB in Case II
    block_penalty: float = 1.0  # k^p in Phase II and odd Case I step sizes (k̄^p in the theorem)
    target_cap: float = 0.5  # UB of Phase I is never above this
    duration: float = 1.0  # T = this · (paper's form), Phases I and II
    kappa: float = 0.5  # decay factor κ of the c_3 search
    search_samples: float = 32.0  # N_1 = this · κ^{-2kτ} ∏ d
    search_slack: float = 0.5  # the c_3 test compares with this · κ^{kτ}
    selection: float = 8.0  # N_0 = this · log(2^k̄/δ) / min(λ, 1)²
    estimation: float = 1.0  # T^{(3)} = this · form
    estimation_power: int = 2  # 2: form = (k d d')² log⁴ / λ²; 1: form = d d' / λ², at least 100
    estimation_step: float = 1.0  # η^{(3)} = this · log²T / (λ T)
    idle_vector: bool = False  # odd order: w_1 stands still in Phase I

    def __post_init__(self) -> None:
        for name in ("delta", "kappa", "target_cap", "search_slack"):
            if not 0 < getattr(self, name) < 1:
                raise ScheduleError(f"{name} must lie strictly between 0 and 1, got {getattr(self, name)}.")
        positive = ("signal_loss", "duration", "search_samples", "selection", "estimation", "estimation_step")
        for name in ("c0", "c2", *positive):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ScheduleError(f"{name} must be positive, got {getattr(self, name)}.")
        if self.estimation_power not in (1, 2):
            raise ScheduleError(f"estimation_power must be 1 or 2, got {self.estimation_power}.")

    def start_overlap(self, dims: Sequence[int]) -> float:
        """c_0, given or by Eq. c0-definition."""
        return initial_overlap(dims, self.delta) if self.c0 is None else self.c0

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


_PRACTICAL = Constants(c0=1.0, c2=1.0, signal_loss=1.0, stage_penalty=0.0, block_penalty=0.0, estimation=100.0)
_PRACTICAL = replace(_PRACTICAL, estimation_power=1, estimation_step=0.5)
PRESETS = {"theory": Constants(), "practical": _PRACTICAL, "idle": replace(_PRACTICAL, idle_vector=True)}


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


def _legs(
    constants: Constants, sizes: Sequence[float], divisor: float, signals: Sequence[float], lows: Sequence[float],
    highs: Sequence[float], gentle: bool = False,
) -> tuple[Leg, ...]:  # fmt: skip
    """η and T of blocks of D entries, each from its alignment LB to UB; ``gentle``: η is at most UB s, too.

    The bound LB/(s+1) is Corollary coro-gen-phase-I's; in the empirical schedules it matters for strengths well above
    one only.
    """
    legs = []
    for size, signal, low, high in zip(sizes, signals, lows, highs, strict=True):
        bound = high * signal if gentle else math.inf
        eta = min(signal / (high * size), low / (signal + 1), bound) / divisor
        legs.append(Leg(eta, math.ceil(constants.duration * high / (signal * eta))))
    return tuple(legs)


def _ascent(
    partition: Partition, strength: float, constants: Constants, count: int, keep: float, reach: Sequence[float]
) -> tuple[Leg, ...]:
    """Phase II: s = λ · keep^{K−m} ∏_{i<m} reach_i, where ``reach`` is what Phase I has lifted the blocks to.

    ``count`` is the k̄ of the theorem or the k of the empirical sections.
    """
    divisor, penalty = constants.step_divisor(count, partition.dims), float(count**constants.block_penalty)
    blocks, ones = len(partition), [1.0] * len(partition)
    signals = [strength * keep ** (blocks - 1 - m) * math.prod(reach[:m]) for m in range(blocks)]
    return _legs(constants, [penalty * size for size in partition.sizes], divisor, signals, ones, ones)


def _signals(strength: float, alignments: Sequence[float]) -> list[float]:
    """What the other blocks leave to each: λ ∏_{i≠m} of their alignments."""
    others = (math.prod(a for i, a in enumerate(alignments) if i != m) for m in range(len(alignments)))
    return [strength * product for product in others]


# ---- odd order with the vector block idle in Phase I


def idle_pairs(partition: Partition, strength: float, constants: Constants) -> tuple[Partition, float] | None:
    """If the vector block, the first, stands still in Phase I: the pairs alone, in the order of the blocks, and λ'.

    λ' = λ √(c_0/d_1) is what a random w_1 leaves of the strength.
    """
    if not constants.idle_vector or partition.order % 2 == 0:
        return None
    modes = [n for group in partition.groups[1:] for n in group]
    groups = tuple(tuple(modes.index(n) for n in group) for group in partition.groups[1:])
    left = strength * math.sqrt(constants.start_overlap(partition.dims) / partition.sizes[0])
    return Partition(tuple(partition.dims[n] for n in modes), groups), left


def with_idle_vector(partition: Partition, strength: float, constants: Constants, pairs: Schedule) -> Schedule:
    """The schedule of the pairs at strength λ', and the vector's turn at the end of Phase II, as printed.

    All pairs are there by then: λ^II_1 = λ(1 − 1/K)^{K−1}.
    """
    count = len(partition)
    vector = _ascent(partition, strength, constants, partition.order // 2, 1 - 1 / count, [1.0] * count)[0]
    return replace(
        pairs,
        name=f"{pairs.name}, vector idle in Phase I",
        stages=tuple((IDLE, *legs) for legs in pairs.stages),
        ascent=(vector, *pairs.ascent),
        selection=constants.selection_samples(partition.order, strength),
        estimation=estimation_legs(partition, strength, constants, pairs=partition.order // 2),
    )


# ---- the theorem


def theorem_schedule(truth: SpikedTensor, constants: Constants, cycles: int | None = None) -> Schedule:
    """The schedule of the main theorem, even or odd order, or Case II where that takes fewer samples.

    ``cycles`` overrides h*, the number of cycles that Phase I is cut into; 1 is Phase I without that partition, and
    nothing is compared with Case II then.
    """
    check_order(truth.order)
    partition = Partition.pairs(truth.dims)
    if (idle := idle_pairs(partition, truth.strength, constants)) is not None:
        vectors = tuple(truth.vectors[n] for group in partition.groups[1:] for n in group)
        pairs = theorem_schedule(SpikedTensor(vectors, idle[1]), constants, cycles)
        return with_idle_vector(partition, truth.strength, constants, pairs)
    first = gauged_schedule(truth, constants, cycles)
    if cycles is not None:
        return first
    second = empirical_schedule(partition, truth.strength, constants, c3=None)
    if second.climb() >= first.climb():
        return first
    return replace(first, name="theorem, Case II", stages=second.stages, ascent=second.ascent)


def gauged_schedule(truth: SpikedTensor, constants: Constants, cycles: int | None = None) -> Schedule:
    """The theorem's own schedule from the truth's γ_m."""
    partition, strength, pairs = Partition.pairs(truth.dims), truth.strength, truth.order // 2
    divisor = constants.step_divisor(truth.order, truth.dims)
    stages = []
    for lows, highs in stage_bounds(truth, constants, cycles):
        signals = _signals(strength, [low / constants.signal_loss for low in lows])
        stages.append(_legs(constants, partition.sizes, divisor, signals, lows, highs))
    gauges = gauge(truth.dims, truth.correlations(), constants.start_overlap(truth.dims))
    reach = [min(float(g ** (1 - 1 / (pairs - 1))), constants.target_cap) for g in gauges]
    return Schedule(
        name="theorem",
        stages=tuple(stages),
        ascent=_ascent(partition, strength, constants, truth.order, 1 - 1 / pairs, reach),
        selection=constants.selection_samples(truth.order, strength),
        estimation=estimation_legs(partition, strength, constants, pairs=truth.order),
    )


def stage_bounds(
    truth: SpikedTensor, constants: Constants, cycles: int | None = None
) -> list[tuple[list[float], list[float]]]:
    """For every cycle of Phase I the alignments it counts on, ζ^{h−1}γ, and those it lifts to, ζ^hγ, of all blocks."""
    gauges = gauge(truth.dims, truth.correlations(), constants.start_overlap(truth.dims))
    rises = [math.log(4.0) + math.log(1 / g) / (truth.order // 2 - 1) for g in gauges]
    cycles = math.ceil(max(rises)) if cycles is None else cycles
    zetas = [math.exp(rise / cycles) for rise in rises]
    levels = [
        [min(float(z**h * g), constants.target_cap) for z, g in zip(zetas, gauges, strict=True)]
        for h in range(cycles + 1)
    ]
    return list(itertools.pairwise(levels))


# ---- without the truth


@dataclass(frozen=True)
class SearchStep:
    """One test of the reference-parameter search: is the mean score over ``samples`` at least ``threshold``?"""

    c3: float
    samples: int
    threshold: float


def search_steps(partition: Partition, strength: float, constants: Constants) -> tuple[SearchStep, ...]:
    r"""The tests τ = 0 … T̃ (Algorithm search-c_3-even / -odd; erratum 5).

    Test τ takes :math:`N_1 \gtrsim κ^{-2Kτ}\prod_m d_{short}/λ^2` samples (d_1 for the vector block of an odd order)
    and compares the mean score with κ^{Kτ} λ; the paper has λ ≍ 1.  The score's noise variance is at most ∏ d_short, so
    at ``search_samples`` = 32 the slack threshold lies at least 2.8 standard deviations from zero: without any
    correlation a test passes with probability 0.5 %.
    """
    check_order(partition.order)
    if (idle := idle_pairs(partition, strength, constants)) is not None:
        return search_steps(*idle, constants)
    blocks = len(partition)
    log_dim = math.fsum(math.log(d) for d in partition.dims) / partition.order
    reach = (0.5 - (1.5 if partition.order % 2 else 1.0) / blocks) * log_dim
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
    """Case I if ``c3`` was found, else Case II.  What Phase I reaches is capped like its targets (erratum 6)."""
    check_order(partition.order)
    if (idle := idle_pairs(partition, strength, constants)) is not None:
        return with_idle_vector(partition, strength, constants, empirical_schedule(*idle, constants, c3, search))
    blocks, rank = len(partition), len(partition) - 1
    exponents = [0.25 if c3 is not None and len(group) == 2 else 0.5 for group in partition.groups]
    sizes = zip(exponents, partition.sizes, strict=True)
    reach = [min(size ** (-e * (1 - 1 / rank)), constants.target_cap) for e, size in sizes]
    return Schedule(
        name="empirical, Case II" if c3 is None else f"empirical, Case I (c3 = {c3:.3g})",
        stages=_phase_one(partition, strength, constants, c3),
        ascent=_ascent(partition, strength, constants, partition.order // 2, 1 - 1 / blocks, reach),
        selection=constants.selection_samples(partition.order, strength),
        estimation=estimation_legs(partition, strength, constants, pairs=partition.order // 2),
        search=search,
    )


def _phase_one(
    partition: Partition, strength: float, constants: Constants, c3: float | None
) -> tuple[tuple[Leg, ...], ...]:
    """Phase I: h* = ⌈max lift⌉ geometric cycles with ζ_m = exp(lift_m/h*); in Case I after a part of its own.

    Cycle h counts on alignments γ̃ζ^{h−1}/``loss`` of the other blocks and lifts its own to γ̃ζ^h/``goals[m]``.

    * Case I (Eq. esti-block-eff-SNR-caseI): loss and goals are 1; at odd order step sizes are divided by k, too.
    * Case II (Eq. esti-block-eff-SNR-caseII): loss and goals are 4, the goal of a vector block 2.  Erratum 11: the
      proofs need the 2 that its ζ has (printed 4).
    """
    loss, cap, rank = constants.signal_loss, constants.target_cap, len(partition) - 1
    divisor = constants.step_divisor(partition.order // 2, partition.dims)
    blocks = [(len(group), size) for group, size in zip(partition.groups, partition.sizes, strict=True)]
    stages = []
    if c3 is None:
        c0 = constants.start_overlap(partition.dims)
        gauges = [c0 ** (count / 2) / math.sqrt(size) for count, size in blocks]
        lifts = [count * math.log(2 / math.sqrt(c0)) + math.log(size) / (2 * rank) for count, size in blocks]
        goals = [loss ** (count / 2) for count, _ in blocks]
    else:
        roots = [float(size ** (0.25 if count == 2 else 0.5)) for count, size in blocks]
        gauges = [c3 / root for root in roots]
        lifts = [math.log(1 / c3) + math.log(root) / rank for root in roots]
        divisor *= float((partition.order // 2) ** constants.block_penalty) if partition.order % 2 else 1.0
        signals = [signal / loss**rank for signal in _signals(strength * c3, gauges)]
        cycles = math.ceil(math.log(4.0) + rank * math.log(1 / c3))
        own = divisor * cycles**constants.stage_penalty
        for h in range(1, cycles + 1):
            highs = [min(math.exp(h) * c3**rank * gauge / 4, cap) for gauge in gauges]
            lows = [high / math.e for high in highs]
            stages.append(_legs(constants, partition.sizes, own, signals, lows, highs, gentle=True))
        loss, goals = 1.0, [1.0] * len(blocks)
    cycles = max(1, math.ceil(max(lifts)))
    zetas = [math.exp(lift / cycles) for lift in lifts]
    divisor *= cycles**constants.stage_penalty
    for h in range(1, cycles + 1):
        before = [gauge * zeta ** (h - 1) for gauge, zeta in zip(gauges, zetas, strict=True)]
        after = [gauge * zeta**h for gauge, zeta in zip(gauges, zetas, strict=True)]
        lows, highs = ([min(a / goal, cap) for a, goal in zip(each, goals, strict=True)] for each in (before, after))
        signals = _signals(strength, [min(alignment / loss, cap) for alignment in before])
        stages.append(_legs(constants, partition.sizes, divisor, signals, lows, highs))
    return tuple(stages)
