import math

import pytest

from tpca import SpikedTensor
from tpca.errors import ScheduleError
from tpca.model import gauge, initial_overlap
from tpca.solvers.paper.schedule import (
    PRESETS,
    Constants,
    Leg,
    Schedule,
    empirical_schedule,
    gauged_schedule,
    preset_constants,
    search_steps,
    theorem_schedule,
)
from tpca.tensors.blocks import Partition

THEORY, PRACTICAL, IDLE = PRESETS["theory"], PRESETS["practical"], PRESETS["idle"]


def test_samples_are_counted_as_the_theorem_counts_them():
    leg = Leg(0.1, 10)
    schedule = Schedule("s", stages=((leg, leg), (leg, leg)), ascent=(leg, leg), selection=7, estimation=(leg, leg))
    assert schedule.samples(4) == 2**4 * (7 + 20 + 20 + 20) + 2 * 20


def leg_by_hand(signal, size, low, high, divisor):
    """η = min{s/(UB D), LB/(s+1)}/c and T = UB/(s η), as the top of the schedules' file has them."""
    eta = min(signal / (high * size), low / (signal + 1)) / divisor
    return pytest.approx(eta), pytest.approx(high / (eta * signal), rel=1e-6, abs=1)


def others(values, m):
    return math.prod(values[:m] + values[m + 1 :])


@pytest.mark.parametrize(("order", "dim", "correlation"), [(6, 5, 0.2), (5, 40, 0.0)])
def test_theorem_schedule_by_hand(order, dim, correlation):
    truth = SpikedTensor.random((dim,) * order, 1.0, correlation=correlation, random_state=0)
    schedule, odd, pairs = gauged_schedule(truth, THEORY), order % 2, order // 2
    assert schedule == theorem_schedule(truth, THEORY)
    c0, c2 = initial_overlap(truth.dims, 0.1), order * math.log(order * dim / 0.1)
    gammas = [math.sqrt(c0 / dim)] * odd + [correlation / math.sqrt(dim) + c0 / dim] * pairs
    assert gauge(truth.dims, truth.correlations(), c0) == pytest.approx(gammas)
    sizes, rises = [dim] * odd + [dim**2] * pairs, [math.log(4) + math.log(1 / g) / (pairs - 1) for g in gammas]
    cycles = math.ceil(max(rises))
    assert len(schedule.stages) == cycles
    for h, stage in enumerate(schedule.stages):
        low, high = (
            [min(math.exp(rise * step / cycles) * g, 0.5) for rise, g in zip(rises, gammas, strict=True)]
            for step in (h, h + 1)
        )  # no alignment above target_cap
        for m, leg in enumerate(stage):
            signal = others([one / 4 for one in low], m)
            assert (leg.step_size, leg.steps) == leg_by_hand(signal, sizes[m], low[m], high[m], c2)
    reach = [min(g ** (1 - 1 / (pairs - 1)), 0.5) for g in gammas]
    for m, leg in enumerate(schedule.ascent):
        signal = (1 - 1 / pairs) ** (len(sizes) - 1 - m) * math.prod(reach[:m])
        assert (leg.step_size, leg.steps) == leg_by_hand(signal, order * sizes[m], 1, 1, c2)


@pytest.mark.parametrize(("order", "dim"), [(6, 6), (5, 40), (5, 50), (4, 128)])
@pytest.mark.parametrize("constants", [THEORY, PRACTICAL])
def test_case_two_by_hand(order, dim, constants):
    """Erratum 11: UB of the vector block of an odd order is divided by 2, not 4."""
    schedule = empirical_schedule(Partition.pairs((dim,) * order), 1.0, constants, c3=None)
    theory, odd, pairs = constants is THEORY, order % 2, order // 2
    c0, loss = (initial_overlap((dim,) * order, 0.1), 4) if theory else (1.0, 1)
    modes = [1] * odd + [2] * pairs  # of every block
    sizes, last = [dim**n for n in modes], len(modes) - 1
    gammas = [(c0 / dim) ** (n / 2) for n in modes]
    rises = [n / 2 * math.log(4 / c0) + n * math.log(dim) / (2 * last) for n in modes]
    cycles = math.ceil(max(rises))
    c2 = pairs * math.log(pairs * dim / 0.1) * cycles**2 if theory else 1
    assert len(schedule.stages) == cycles
    for h, stage in enumerate(schedule.stages):
        before, after = (
            [math.exp(rise * step / cycles) * g for rise, g in zip(rises, gammas, strict=True)] for step in (h, h + 1)
        )
        for m, leg in enumerate(stage):
            low, high = (min(each[m] / loss ** (modes[m] / 2), 0.5) for each in (before, after))
            signal = others([min(one / loss, 0.5) for one in before], m)
            assert (leg.step_size, leg.steps) == leg_by_hand(signal, sizes[m], low, high, c2)
    if theory and order > 4:  # the last stage ends where Phase II begins
        assert high == pytest.approx(min(sizes[-1] ** (-0.5 + 0.5 / last), 0.5))
    if theory and order == 4:  # only there LB/(s+1) is the smaller bound on some step
        assert any(leg.step_size < 0.999 / (leg.steps * leg.step_size * dim**2) / c2 for leg in schedule.stages[0])
    for m, leg in enumerate(schedule.ascent):
        reach = [min(size ** (-0.5 + 0.5 / last), 0.5) for size in sizes[:m]]
        signal = (1 - 1 / len(modes)) ** (last - m) * math.prod(reach)
        own = leg_by_hand(signal, sizes[m] * (pairs if theory else 1), 1, 1, c2 / cycles**2 if theory else 1)
        assert (leg.step_size, leg.steps) == own


@pytest.mark.parametrize("order", [5, 6, 7])
def test_case_one_by_hand(order):
    dim, c3 = 6, 0.5
    partition = Partition.pairs((dim,) * order)
    schedule = empirical_schedule(partition, 1.0, THEORY, c3=c3)
    blocks, pairs, odd = len(partition), order // 2, order % 2
    roots = [dim**0.5] * blocks  # (d d')^{1/4}, and d_1^{1/2} by d_0 = d_1
    sizes = [dim] * odd + [dim**2] * (blocks - odd)
    first = math.ceil(math.log(4) + (blocks - 1) * math.log(2))
    second = math.ceil(math.log(2) + math.log(dim**2) / (4 * (blocks - 1)))
    assert len(schedule.stages) == first + second
    c2 = pairs * math.log(pairs * dim / 0.1) * (pairs if odd else 1)
    for h in range(1, first + 1):
        for m, leg in enumerate(schedule.stages[h - 1]):
            signal = c3**blocks / 4 ** (blocks - 1) / roots[0] ** (blocks - 1)
            high = min(math.exp(h) * c3**blocks / roots[m] / 4, 0.5)
            eta = min(signal / (high * sizes[m]), high * signal) / (c2 * first**2)
            assert leg.step_size == pytest.approx(eta)
    zeta = math.exp((math.log(2) + math.log(dim**2) / (4 * (blocks - 1))) / second)
    for m, leg in enumerate(schedule.stages[first]):
        signal, high = (c3 / roots[0]) ** (blocks - 1), min(c3 * zeta / roots[m], 0.5)
        assert leg.step_size == pytest.approx(signal / (high * sizes[m]) / (c2 * second**2))


def test_idle_vector_is_the_even_schedule_of_the_pairs():
    """Order 5, d = 40: the pairs have order 4 and strength λ√(c₀/d), the vector moves in Phase II alone, after them."""
    partition, pairs, left = Partition.pairs((40,) * 5), Partition.pairs((40,) * 4), 2.0 / math.sqrt(40)
    schedule = empirical_schedule(partition, 2.0, IDLE, c3=None)
    even = empirical_schedule(pairs, left, IDLE, c3=None)
    assert [legs[0] for legs in schedule.stages] == [Leg(0.0, 0)] * len(even.stages)
    assert [legs[1:] for legs in schedule.stages] == list(even.stages)
    assert schedule.ascent[1:] == even.ascent
    signal = 2.0 * (2 / 3) ** 2
    assert schedule.ascent[0].step_size == pytest.approx(min(signal / 40, 1 / (signal + 1)))
    assert schedule.selection == IDLE.selection_samples(5, 2.0)
    assert len(schedule.estimation) == 3
    assert search_steps(partition, 2.0, IDLE) == search_steps(pairs, left, IDLE)
    truth = SpikedTensor.random((40,) * 5, 2.0, correlation=0.3, random_state=0)
    of_pairs = theorem_schedule(SpikedTensor(truth.vectors[1:], left), IDLE)
    assert [legs[1:] for legs in theorem_schedule(truth, IDLE).stages] == list(of_pairs.stages)


@pytest.mark.parametrize(("order", "printed", "idle"), [(5, 4, 3), (7, 6, 5)])
def test_idle_vector_saves_a_factor_d(order, printed, idle):
    """Exponents of the climb between d = 2^10 and 2^14; order 5 has a logarithm, log(2^14)/log(2^10) = 1.4 at most."""

    def exponent(constants):
        few, many = (
            empirical_schedule(Partition.pairs((d,) * order), 1.0, constants, None).climb() for d in (2**10, 2**14)
        )
        return math.log2(many / few) / 4

    assert exponent(IDLE) == pytest.approx(idle, abs=0.13)
    # Case II printed has 1/k for the theorem's 1/(k-1), which makes its Phase II larger than d^(k̄-2) by d^(1/k).
    assert exponent(PRACTICAL) == pytest.approx(printed, abs=0.13)


def test_the_theorem_takes_the_smaller_schedule():
    """One pair of three correlated at d = 256, all 2^6 starts: 2.7e14 by the gauges, 5.6e12 in Case II."""
    truth = SpikedTensor.random((256,) * 6, 1.0, random_state=0, correlation=[1.0, 0.0, 0.0])
    gauged, taken = gauged_schedule(truth, PRACTICAL), theorem_schedule(truth, PRACTICAL)
    second = empirical_schedule(Partition.pairs(truth.dims), 1.0, PRACTICAL, c3=None)
    assert 2**6 * gauged.climb() == pytest.approx(2.7e14, rel=0.02)
    assert 2**6 * taken.climb() == pytest.approx(5.6e12, rel=0.02)
    assert (taken.stages, taken.ascent, taken.name) == (second.stages, second.ascent, "theorem, Case II")
    alike = SpikedTensor.random((256,) * 6, 1.0, random_state=0, correlation=0.5)
    assert theorem_schedule(alike, PRACTICAL) == gauged_schedule(alike, PRACTICAL)


def test_the_printed_step_breaks_the_condition_of_phase_one():
    """Erratum 21: Theorem thm-phase-I-tensor-PCA needs Tη² ≤ LB²/(64 c₁ log), and T and η as printed have 1/(c₂ D).

    LB = γ/4 and γ = c₀/d, so that c₂ would have to grow as 1/c₀²; with identical vectors γ = d^(-1/2) is enough.
    """
    dims, dim = (4096,) * 6, 4096
    c0, c2 = initial_overlap(dims, 0.1), 6 * math.log(6 * dim / 0.1)
    for correlation, holds in ((0.0, False), (1.0, True)):
        truth = SpikedTensor.random(dims, 1.0, correlation=correlation, random_state=0)
        leg = gauged_schedule(truth, THEORY).stages[0][0]
        assert leg.steps * leg.step_size**2 * c2 * dim**2 == pytest.approx(1.0, rel=1e-6)
        low = gauge(truth.dims, truth.correlations(), c0)[0] / 4
        assert (leg.steps * leg.step_size**2 <= low**2 / 64) == holds


def test_search_follows_the_algorithm_and_the_estimation_of_theory_its_fixed_point():
    steps = search_steps(Partition.pairs((16,) * 6), 1.0, PRACTICAL)
    assert len(steps) == math.ceil((0.5 - 1 / 3) * math.log(16) / math.log(2)) + 1
    assert [s.c3 for s in steps] == [0.5**tau for tau in range(len(steps))]
    assert steps[1].samples == 32 * 2**6 * 16**3
    assert steps[1].threshold == pytest.approx(0.5 * 0.5**3)
    assert len(search_steps(Partition.pairs((16,) * 4), 1.0, PRACTICAL)) == 1
    assert len(search_steps(Partition.pairs((16,) * 5), 1.0, PRACTICAL)) == 1
    steps = THEORY.estimation_steps(count=4, size=64, dim=8, strength=1.0)
    assert steps == pytest.approx((4 * 64) ** 2 * math.log(4 * 8 * steps / 0.1) ** 4, rel=1e-6)


@pytest.mark.parametrize("dims", [(5, 5), (5, 5, 5)])
def test_orders_outside_the_theorem_are_refused(dims):
    with pytest.raises(ScheduleError, match=r"need order >= 4, got order .*RaceSolver"):
        empirical_schedule(Partition.pairs(dims), 1.0, PRACTICAL, None)
    with pytest.raises(ScheduleError, match="need order >= 4"):
        theorem_schedule(SpikedTensor.random(dims, 1.0), PRACTICAL)
    with pytest.raises(ScheduleError, match="need order >= 4"):
        search_steps(Partition.pairs(dims), 1.0, PRACTICAL)


def test_unknown_presets_and_impossible_constants_are_refused():
    with pytest.raises(ScheduleError, match="preset must be one of theory, practical"):
        preset_constants("fast")
    assert preset_constants(Constants(delta=0.2)).delta == 0.2
    wrong = [("kappa", 1.0), ("kappa", 2.0), ("delta", 0.0), ("c0", 0.0), ("duration", -1.0), ("estimation_power", 3)]
    for name, value in wrong:
        with pytest.raises(ScheduleError, match=f"{name} must"):
            Constants(**{name: value})
