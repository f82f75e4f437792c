"""The reduced chain against dense iterations, and against itself.

Two-sample Kolmogorov–Smirnov tests at level 1e-6 each; there are fewer than 50 of them in this file, so all of them
together raise a false alarm with probability below 5e-5.
"""

import functools
import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from amounts import few_or_many
from research.law import LawEngine
from research.simulate import BlockStart, SimulatedRun, advance, simulate_empirical, simulate_online
from tpca.engines import open_engine
from tpca.model import SpikedTensor
from tpca.solvers.paper.run import PaperRun, sign_starts
from tpca.solvers.paper.schedule import PRESETS, Leg, Schedule, theorem_schedule
from tpca.tensors.blocks import Partition

MIN_PVALUE = 1e-6
# dims: order 4, unequal order 5, order 6
SHAPES = [(3, 3, 4, 4), (3, 3, 3, 4, 4), (3, 3, 3, 3, 3, 3)]


def same_law(a, b):
    assert ks_2samp(a, b).pvalue > MIN_PVALUE


def dense_step_loop(block, truth, signal, eta, steps, rng):
    """The published update on a full block, written down once more."""
    w = block.copy()
    for _ in range(steps):
        g = signal * truth + rng.standard_normal(w.shape)
        norm = np.linalg.norm(w)
        w = (1 + eta * np.sum(g * w) / norm) * w + eta * norm * g
    return w / np.linalg.norm(w)


@pytest.mark.parametrize(
    ("size", "eta"),
    [
        *((2, 0.05), (3, -0.3), (4, 0.05), (30, -0.3)),
        *(
            pytest.param(size, eta, marks=pytest.mark.slow)
            for size, eta in ((2, -0.3), (3, 0.05), (4, -0.3), (30, 0.05))
        ),
    ],
)
def test_one_turn_has_the_law_of_the_dense_update(size, eta):
    rng = np.random.default_rng(size)
    truth = np.eye(size)[0]
    start = np.eye(size)[0] * 0.3 + np.eye(size)[1] * math.sqrt(1 - 0.09)
    dense = np.array([dense_step_loop(start, truth, 0.7, eta, 12, rng) for _ in range(3000)])
    begin = np.tile([0.3, math.sqrt(1 - 0.09), 0.0], (3000, 1))
    chain = advance(begin, np.full(3000, 0.7), eta, 12, size, rng)
    same_law(dense[:, 0], chain[:, 0])
    same_law(dense[:, 1], chain[:, 1])
    if size > 2:
        same_law(np.linalg.norm(dense[:, 2:], axis=1), chain[:, 2])


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("dims", SHAPES)
def test_starts_are_those_of_the_solver(dims, spare):
    truth = SpikedTensor.random(dims, 1.0, random_state=3)
    run = SimulatedRun(truth, np.random.default_rng(5), spare=spare)
    replicas = sign_starts(Partition.pairs(dims), np.random.default_rng(5), spare=spare)
    blocks = Partition.pairs(dims).outer(truth.vectors)
    for m, (block, planted) in enumerate(zip(replicas, blocks, strict=True)):
        flat = block.reshape(len(block), -1)
        expected = flat @ planted.reshape(-1) / np.linalg.norm(flat, axis=1)
        np.testing.assert_allclose(run.alignments[m], expected, atol=1e-12)
        built = np.array([run.starts[m].block(signs[m]) for signs in run.signs]).reshape(len(flat), -1)
        np.testing.assert_allclose(built, flat / np.linalg.norm(flat, axis=1, keepdims=True), atol=1e-12)


def short_schedule(count, idle=False):
    """A few large steps in every phase, so that every phase moves a lot; ``idle``: but for block 0 in Phase I."""
    legs = tuple(Leg(0.2 + 0.02 * m, 3 + m) for m in range(count))
    first = (Leg(0.0, 0), *legs[1:]) if idle else legs
    return Schedule("short", (first,), legs, 3, tuple(Leg(0.2, 6) for _ in range(count)))


@functools.cache
def phases(dims, runs, idle=False):
    """|α| after Phase I, after Phase II and the selection, after Phase III: of the solver, and of the chain.

    An array (runs, phases, blocks) each.  With ``idle`` two random vectors for block 0, and the start with the second.
    """
    truth, partition = SpikedTensor.random(dims, 2.0, correlation=0.6, random_state=1), Partition.pairs(dims)
    schedule, planted = short_schedule(len(partition), idle), partition.outer(truth.vectors)

    def follow(run, aligned, *names):
        run.sequential_ascent(schedule.stages[0], *names)
        found = [aligned(-1 if idle else 0)]
        run.sequential_ascent(schedule.ascent, *names)
        run.select(schedule.selection)
        found.append(aligned(0))
        run.estimate(schedule.estimation)
        return [*found, aligned(0)]

    def dense(seed):
        source = open_engine(truth.stream(random_state=seed)) if idle else LawEngine(truth, random_state=seed)
        run = PaperRun(source, np.random.default_rng([7, seed]), spare=idle)
        return follow(
            run, lambda n: [abs(np.vdot(w[n], b)) for w, b in zip(run.replicas, planted, strict=True)], "climb"
        )

    def chain(seed):
        run = SimulatedRun(truth, np.random.default_rng([8, seed]), spare=idle)
        return follow(run, lambda n: np.abs(run.alignments[:, n]))

    return np.array([dense(seed) for seed in range(runs)]), np.array([chain(seed) for seed in range(1000)])


@pytest.mark.parametrize("phase", [0, 1, 2], ids=["Phase I", "selection", "Phase III"])
@pytest.mark.parametrize("dims", SHAPES)
@few_or_many(20, 60)
@pytest.mark.slow
def test_phases_have_the_law_of_the_solver(dims, phase, runs):
    """Alignments of all blocks after Phase I, after the selection, after Phase III, orders 4, 5 and 6."""
    dense, chain = (each[:, phase] for each in phases(dims, 2 * runs if len(dims) == 4 else runs))
    for m in range(len(Partition.pairs(dims))):
        same_law(dense[:, m], chain[:, m])


@few_or_many(30, 200)
@pytest.mark.slow
def test_an_idle_vector_block_has_the_law_of_the_solver(runs):
    """Order 5 with w₁ idle in Phase I and two random vectors for it: real samples against the chain, every phase."""
    truth = SpikedTensor.random(SHAPES[1], 2.0, random_state=1)
    run = PaperRun(LawEngine(truth), np.random.default_rng(1), spare=True)
    begin = run.replicas[0].copy()
    run.sequential_ascent(short_schedule(3, idle=True).stages[0], "I")
    np.testing.assert_array_equal(run.replicas[0], begin)
    dense, chain = phases(SHAPES[1], runs, idle=True)
    for phase in range(3):
        for m in range(3):
            same_law(dense[:, phase, m], chain[:, phase, m])


@few_or_many(50, 150)
@pytest.mark.slow
def test_final_blocks_and_vectors_have_the_law_of_the_solver(runs):
    dims = (3, 3, 4, 4)
    truth = SpikedTensor.random(dims, 2.0, correlation=0.6, random_state=1)
    schedule = short_schedule(2)
    direction = np.random.default_rng(2).standard_normal((4, 4))

    def dense(seed):
        run = PaperRun(LawEngine(truth, random_state=seed), np.random.default_rng([7, seed]))
        run.multi_phase(schedule)
        return abs(np.sum(direction * run.replicas[1][0]))

    def simulated(seed):
        run = SimulatedRun(truth, np.random.default_rng([8, seed]))
        run.multi_phase(schedule)
        blocks = run.blocks()
        np.testing.assert_allclose([np.linalg.norm(b) for b in blocks], 1.0)
        planted = run.partition.outer(truth.vectors)
        np.testing.assert_allclose([np.sum(b * p) for b, p in zip(blocks, planted, strict=True)], run.alignments[:, 0])
        return abs(np.sum(direction * blocks[1]))

    same_law([dense(seed) for seed in range(runs)], [simulated(seed) for seed in range(10 * runs)])


@pytest.mark.parametrize(("order", "dim"), [(4, 16), (6, 8)])
@pytest.mark.slow
def test_coarse_steps_have_the_law_of_single_ones(order, dim):
    """At the coarseness of the studies, on the theorem's own schedule, after Phases I and II."""
    truth = SpikedTensor.random((dim,) * order, 1.0, correlation=0.0, random_state=2)
    constants = PRESETS["practical"]
    schedule = theorem_schedule(truth, constants)
    short = [tuple(Leg(leg.step_size, max(1, leg.steps // 2)) for leg in legs) for legs in schedule.stages]

    def alignments(coarse, seed):
        run = SimulatedRun(truth, np.random.default_rng(seed), coarse=coarse)  # the same starts for both
        run.rng = np.random.default_rng([seed, int(coarse > 0)])
        for legs in short[:2]:
            run.sequential_ascent(legs)
        return np.abs(run.alignments[0])

    single = np.concatenate([alignments(0.0, seed) for seed in range(12)])
    batches = np.concatenate([alignments(0.005, seed) for seed in range(12)])
    same_law(single, batches)


def test_the_search_score_has_the_law_of_the_solver():
    truth = SpikedTensor.random((3, 3, 4, 4), 1.0, correlation=0.9, random_state=4)
    constants = PRESETS["practical"]
    passes = [SimulatedRun(truth, np.random.default_rng(s)).search_reference(1.0, constants)[0] for s in range(400)]
    dense = []
    for seed in range(400):
        run = PaperRun(LawEngine(truth, random_state=seed), np.random.default_rng(seed))
        dense.append(run.search_reference(1.0, constants))
    # Two binomial counts of 400: 5.5 standard deviations of their difference, 1e-7 or less.
    p = [sum(c is not None for c in each) / 400 for each in (passes, dense)]
    assert abs(p[0] - p[1]) < 5.5 * math.sqrt(2 * max(0.01, np.mean(p) * (1 - np.mean(p))) / 400)


@pytest.mark.slow
def test_online_vectors_have_the_law_of_the_dense_update():
    dims, samples = (4, 4, 4), 40
    truth = SpikedTensor.random(dims, 3.0, random_state=1)
    tensor = truth.signal()
    eta = 1 / math.sqrt(max(dims) * samples)

    def dense(rng):
        begin = [v / np.linalg.norm(v) for v in (rng.standard_normal(d) for d in dims)]
        ends = []
        for sign in (1.0, -1.0):
            w = [sign * begin[0], *begin[1:]]
            aligned = np.array([a @ b for a, b in zip(w, truth.vectors, strict=True)])
            for _ in range(samples):
                if np.abs(aligned).min() >= 0.9:
                    break
                t = tensor + rng.standard_normal(dims)
                g = [np.einsum("abc,b,c->a", t, w[1], w[2]), np.einsum("abc,a,c->b", t, w[0], w[2])]
                g.append(np.einsum("abc,a,b->c", t, w[0], w[1]))
                w = [(a + eta * b) / np.linalg.norm(a + eta * b) for a, b in zip(w, g, strict=True)]
                aligned = np.array([a @ b for a, b in zip(w, truth.vectors, strict=True)])
            ends.append(aligned)
        return max(ends, key=np.prod)

    full = np.array([dense(np.random.default_rng([1, s])) for s in range(800)])
    chain = np.array([simulate_online(dims, 3.0, samples, np.random.default_rng([2, s])) for s in range(4000)])
    same_law(np.abs(full[:, 0]), np.abs(chain[:, 0]))
    same_law(full.prod(axis=1), chain.prod(axis=1))


def test_a_long_run_at_a_huge_dimension_stays_finite():
    size = 10**10
    begin = np.array([[1e-5, math.sqrt(1 - 1e-10), 0.0]])
    end = advance(begin, np.array([0.5]), 1e-6, 3_000_000, size, np.random.default_rng(0))
    assert np.isfinite(end).all()
    np.testing.assert_allclose(np.linalg.norm(end), 1.0)
    # The norm of W grows by η²D = 0.01 a step in energy: e^15000 in all, had it not been scaled back.
    assert end[0, 2] > 0.99


def test_whole_algorithm_at_a_size_that_nobody_can_store():
    truth = SpikedTensor.random((300,) * 6, 1.0, correlation=0.0, random_state=1)
    run = SimulatedRun(truth, np.random.default_rng(1), coarse=0.01)
    run.multi_phase(theorem_schedule(truth, PRESETS["practical"]))
    assert run.samples > 1e12
    assert truth.overlaps(run.vectors()).min() > 0.95


def test_samples_are_counted_as_the_theorem_does():
    truth = SpikedTensor.random((8,) * 5, 3.0, random_state=1)
    schedule = theorem_schedule(truth, PRESETS["practical"])
    run = SimulatedRun(truth, np.random.default_rng(0), coarse=0.01)
    run.multi_phase(schedule)
    assert run.samples == schedule.samples(5)
    assert sum(run.block_samples) == run.samples - 2**5 * schedule.selection


def test_empirical_schedule_counts_its_search():
    truth = SpikedTensor.random((8,) * 4, 1.0, correlation=1.0, random_state=1)
    run, schedule = simulate_empirical(truth, PRESETS["practical"], np.random.default_rng(0), coarse=0.01)
    assert schedule.search > 0
    assert run.samples == schedule.samples(4) - 2 * sum(leg.steps for leg in schedule.estimation)


def test_starts_without_one_part():
    truth = SpikedTensor.random((6, 6), 1.0, correlation=0.0, random_state=1)
    rng = np.random.default_rng(0)
    identity = BlockStart.draw(truth.vectors, "identity", rng)
    assert identity.coordinates((1.0,))[0] == pytest.approx(0.0, abs=1e-12)
    random = BlockStart.draw(truth.vectors, "random", rng)
    expected = np.prod([u @ v for u, v in zip(random.random, truth.vectors, strict=True)])
    assert random.coordinates((-1.0,))[0] == pytest.approx(-expected)
