import math

import pytest

from tpca import SpikedTensor
from tpca.errors import ScheduleError
from tpca.model import block_gauge, initial_overlap
from tpca.solvers.paper.schedule import (
    PRESETS,
    Constants,
    Leg,
    Schedule,
    empirical_schedule,
    gauged_schedule,
    search_steps,
    theorem_schedule,
)
from tpca.tensors.blocks import Partition

THEORY, PRACTICAL, IDLE = PRESETS["theory"], PRESETS["practical"], PRESETS["idle"]


def test_samples_are_counted_as_the_theorem_counts_them():
    leg = Leg(0.1, 10)
    schedule = Schedule("s", stages=((leg, leg), (leg, leg)), ascent=(leg, leg), selection=7, estimation=(leg, leg))
    assert schedule.samples(4) == 2**4 * (7 + 20 + 20 + 20) + 2 * 20


def test_theorem_schedule_order_six_by_hand():
    truth = SpikedTensor.random((5,) * 6, 1.0, correlation=0.2, random_state=0)
    schedule = theorem_schedule(truth, THEORY)
    c0 = initial_overlap(truth.dims, 0.1)
    gamma = 0.2 / math.sqrt(5) + c0 / 5
    assert block_gauge(truth, c0) == pytest.approx([gamma] * 3)
    rise = math.log(4) + 0.5 * math.log(1 / gamma)
    cycles = math.ceil(rise)
    zeta = math.exp(rise / cycles)
    c2 = 6 * math.log(6 * 5 / 0.1)
    assert len(schedule.stages) == cycles
    for h, stage in enumerate(schedule.stages, start=1):
        low, high = min(zeta ** (h - 1) * gamma, 0.5), min(zeta**h * gamma, 0.5)  # no alignment above target_cap
        signal = (low / 4) ** 2
        eta = min(signal / (high * 25), low / (signal + 1)) / c2
        for leg in stage:
            assert leg.step_size == pytest.approx(eta)
            assert leg.steps == pytest.approx(high / (eta * signal), rel=1e-6)
    for m, leg in enumerate(schedule.ascent):
        signal = (1 - 1 / 3) ** (2 - m) * gamma ** (m / 2)
        assert leg.step_size == pytest.approx(min(signal / (6 * 25), 1 / (signal + 1)) / c2)


def test_case_two_order_six_by_hand():
    schedule = empirical_schedule(Partition.pairs((6,) * 6), 1.0, THEORY, c3=None)
    c0 = initial_overlap((6,) * 6, 0.1)
    rise = math.log(4 / c0) + 0.25 * math.log(36)
    cycles = math.ceil(rise)
    zeta = math.exp(rise / cycles)
    c2 = 3 * math.log(3 * 6 / 0.1)
    assert len(schedule.stages) == cycles
    for h in range(1, cycles + 1):
        signal = c0**2 / 16 * zeta ** (2 * (h - 1)) / 36
        high, low = c0 * zeta**h / 6 / 4, c0 * zeta ** (h - 1) / 6 / 4
        eta = min(signal / (high * 36), low / (signal + 1)) / (c2 * cycles**2)
        for leg in schedule.stages[h - 1]:
            assert leg.step_size == pytest.approx(eta)
            assert leg.steps == pytest.approx(high / (signal * eta), rel=1e-6)
    # The last stage ends where Phase II begins: D^{-1/2 + 1/(2(k-1))} = 36^{-1/4}.
    assert high == pytest.approx(36**-0.25)
    for m, leg in enumerate(schedule.ascent):
        signal = (1 - 1 / 3) ** (2 - m) * 36 ** (-0.25 * m)
        assert leg.step_size == pytest.approx(signal / (3 * 36) / c2)


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


def test_odd_theory_vector_block_reaches_its_target():
    # Erratum: UB of the vector block is divided by 2, not 4, so that its last stage ends at d_1^{-1/2 + 1/(2k)}.
    schedule = empirical_schedule(Partition.pairs((50,) * 5), 1.0, THEORY, c3=None)
    c0 = initial_overlap((50,) * 5, 0.1)
    cycles = len(schedule.stages)
    assert cycles == math.ceil(math.log(4 / c0) + math.log(2500) / 4)
    signal = math.prod([c0 / 50 * math.exp((math.log(4 / c0) + math.log(2500) / 4) * (cycles - 1) / cycles) / 4] * 2)
    last = schedule.stages[-1][0]
    assert last.step_size * last.steps * signal == pytest.approx(50**-0.25, rel=1e-6)


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


def test_second_bound_on_the_step_binds_at_order_four_in_theory():
    """LB/(λ̃+1) against λ̃/(UB·D), λ = 1: with every factor of the theory preset the former is the smaller one."""
    bound = []
    for dim in (8, 32, 128):
        case = empirical_schedule(Partition.pairs((dim,) * 4), 1.0, THEORY, c3=None)
        c0, cycles = initial_overlap((dim,) * 4, 0.1), len(case.stages)
        zeta = math.exp((math.log(4 / c0) + math.log(dim)) / cycles)
        c2 = 2 * math.log(2 * dim / 0.1) * cycles**2
        for h, legs in enumerate(case.stages, start=1):
            signal = min(c0 / dim * zeta ** (h - 1) / 4, 0.5)
            high = min(c0 / dim * zeta**h / 4, 0.5)
            bound.append(legs[0].step_size < 0.999 * signal / (high * dim**2) / c2)
    assert any(bound)


def test_theorem_schedule_order_five_by_hand():
    truth = SpikedTensor.random((40,) * 5, 1.0, correlation=0.0, random_state=0)
    schedule = theorem_schedule(truth, THEORY)
    c0 = initial_overlap(truth.dims, 0.1)
    gammas = [math.sqrt(c0 / 40), c0 / 40, c0 / 40]
    rises = [math.log(4) + math.log(1 / g) for g in gammas]
    cycles = math.ceil(max(rises))
    zetas = [math.exp(r / cycles) for r in rises]
    c2 = 5 * math.log(5 * 40 / 0.1)
    assert len(schedule.stages) == cycles
    signal = gammas[1] * gammas[2] / 16
    eta = min(signal / (zetas[0] * gammas[0] * 40), gammas[0] / (signal + 1)) / c2
    assert schedule.stages[0][0].step_size == pytest.approx(eta)
    signal = gammas[0] * gammas[2] / 16
    eta = min(signal / (zetas[1] * gammas[1] * 1600), gammas[1] / (signal + 1)) / c2
    assert schedule.stages[0][1].step_size == pytest.approx(eta)


def test_odd_order_vector_block_uses_its_own_gauge():
    schedule = empirical_schedule(Partition.pairs((40,) * 5), 1.0, PRACTICAL, c3=None)
    rises = [math.log(2) + math.log(40) / 4] + [2 * math.log(2) + math.log(1600) / 4] * 2
    cycles = math.ceil(max(rises))
    zeta1, zeta2 = (math.exp(r / cycles) for r in rises[:2])
    assert len(schedule.stages) == cycles
    high, signal = zeta1 / math.sqrt(40), (1 / 40) ** 2
    assert schedule.stages[0][0].step_size == pytest.approx(signal / (high * 40))
    high, signal = zeta2 / 40, (1 / math.sqrt(40)) * (1 / 40)
    assert schedule.stages[0][1].step_size == pytest.approx(signal / (high * 1600))


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
        low = block_gauge(truth, c0)[0] / 4
        assert (leg.steps * leg.step_size**2 <= low**2 / 64) == holds


def test_phase_one_targets_are_capped():
    # Order 4: the paper's target 2 gamma^{1 - 1/(k-1)} is 2; no alignment exceeds 1 (erratum 6).
    schedule = empirical_schedule(Partition.pairs((8,) * 4), 1.0, PRACTICAL, c3=None)
    last = schedule.stages[-1][0]
    reached = last.step_size * last.steps * 0.5  # eta * T * signal with signal = cap
    assert reached == pytest.approx(0.5, rel=0.05)


def test_search_follows_the_algorithm():
    steps = search_steps(Partition.pairs((16,) * 6), 1.0, PRACTICAL)
    assert len(steps) == math.ceil((0.5 - 1 / 3) * math.log(16) / math.log(2)) + 1
    assert [s.c3 for s in steps] == [0.5**tau for tau in range(len(steps))]
    assert steps[1].samples == 32 * 2**6 * 16**3
    assert steps[1].threshold == pytest.approx(0.5 * 0.5**3)
    assert len(search_steps(Partition.pairs((16,) * 4), 1.0, PRACTICAL)) == 1
    assert len(search_steps(Partition.pairs((16,) * 5), 1.0, PRACTICAL)) == 1


def test_theory_estimation_length_is_the_fixed_point():
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


def test_unknown_presets_are_refused():
    from tpca.solvers.paper.schedule import preset_constants

    with pytest.raises(ScheduleError, match="preset must be one of theory, practical"):
        preset_constants("fast")
    assert preset_constants(Constants(delta=0.2)).delta == 0.2


@pytest.mark.parametrize(
    "wrong", [{"kappa": 1.0}, {"kappa": 2.0}, {"delta": 0.0}, {"c0": 0.0}, {"duration": -1.0}, {"estimation_power": 3}]
)
def test_impossible_constants_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ScheduleError, match=f"{name} must"):
        Constants(**wrong)
