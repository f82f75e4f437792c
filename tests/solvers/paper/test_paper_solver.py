import itertools

import numpy as np
import pytest

import naive
from tpca import PaperSolver, SpikedTensor, open_stream
from tpca.engines import LocalEngine, open_engine
from tpca.errors import SampleError, ScheduleError, SolverError
from tpca.solvers.estimate import StopReason
from tpca.solvers.paper.run import PaperRun, ascent_step, block_vectors, pairings_of, sign_starts, top_vector
from tpca.solvers.paper.schedule import PRESETS, Leg, Schedule
from tpca.solvers.paper.solver import planned_samples
from tpca.tensors.blocks import Partition

ORDERS = [(4, 3, 5, 4), (3, 4, 3, 2, 3), (2, 3, 2, 3, 2, 3)]


@pytest.mark.parametrize("chunk", [2**20, 3000])  # entries the engine hands out at once: one chunk a turn, and many
@pytest.mark.parametrize("dims", ORDERS)
def test_phases_match_the_naive_algorithm_step_by_step(dims, chunk, monkeypatch):
    """Within a turn replica r of n takes every n-th sample, and turns follow each other in the stream."""
    monkeypatch.setattr("tpca.solvers.paper.run.BATCH_ENTRIES", chunk)
    truth, groups = SpikedTensor.random(dims, 2.0, random_state=2), naive.paper_groups(dims)
    count = 2 ** len(dims)

    def ends(start, replica, replicas, legs, **options):
        endless = itertools.chain.from_iterable(truth.stream(random_state=4))
        steps = [(leg.step_size, leg.steps) for leg in legs]
        blocks = [block[0 if replicas == 2 else replica] for block in start]
        return naive.snsga(itertools.islice(endless, replica, None, replicas), groups, blocks, steps, **options)

    def begun():
        return PaperRun(LocalEngine(truth.stream(random_state=4)), np.random.default_rng(0))

    run, legs = begun(), [Leg(0.05 + 0.01 * m, 3 + m) for m in range(len(groups))]
    start = run.replicas
    assert len(start[0]) == count
    run.sequential_ascent(legs, "I.1")
    for r in range(0, count, 5):
        for block, reference in zip(run.replicas, ends(start, r, count, legs), strict=True):
            np.testing.assert_allclose(block[r], reference, rtol=1e-9, atol=1e-12)

    run, legs = begun(), [Leg(0.05, 12)] * len(groups)
    run.replicas = start = tuple(block[:1] for block in run.replicas)
    run.estimate(legs)  # Phase III, from one start with both signs
    both = [ends(start, r, 2, legs, sign=sign, halve=True) for r, sign in enumerate((1.0, -1.0))]
    for m, block in enumerate(run.replicas):
        distances = [np.linalg.norm(end[m] - start[m][0]) for end in both]
        np.testing.assert_allclose(block[0], both[int(np.argmin(distances))][m], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dims", ORDERS)
def test_starts_are_all_sign_combinations(dims):
    partition = Partition.pairs(dims)
    starts = sign_starts(partition, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    drawn = [[rng.standard_normal(d) for d in shape] for shape in partition.shapes]
    randoms = [naive.outer_product([x / np.linalg.norm(x) for x in vectors]) for vectors in drawn]
    expected = naive.sign_starts(partition.shapes, randoms)
    assert len(expected) == 2 ** len(dims) == len(starts[0])
    for r, replica in enumerate(expected):
        for m, block in enumerate(replica):
            np.testing.assert_allclose(starts[m][r], block, atol=1e-12)


def test_selection_keeps_the_start_with_the_largest_mean_reward():
    dims = (3, 3, 3, 3)
    truth = SpikedTensor.random(dims, 3.0, random_state=1)
    run = PaperRun(LocalEngine(truth.stream(random_state=2)), np.random.default_rng(0))
    replicas, groups = run.replicas, naive.paper_groups(dims)
    run.select(20)
    samples = list(itertools.islice(itertools.chain.from_iterable(truth.stream(random_state=2)), 20 * 16))
    scores = np.zeros(16)
    for i, sample in enumerate(samples):
        r = i % 16
        gradient = naive.einsum_gradient(sample, groups, [w[r] for w in replicas], 1)
        scores[r] += np.sum(gradient * replicas[1][r]) / 20
    best = int(np.argmax(scores))
    assert run.history[-1]["start"] == best
    assert run.mean_reward == pytest.approx(scores[best])
    for block, before in zip(run.replicas, replicas, strict=True):
        np.testing.assert_array_equal(block[0], before[best])


def test_the_step_is_gradient_ascent_on_norm_times_reward(rng):
    block, gradient = rng.standard_normal((1, 3, 4)), rng.standard_normal((1, 3, 4))
    numeric = np.zeros((3, 4))
    for i, j in np.ndindex(3, 4):
        shift = np.zeros((3, 4))
        shift[i, j] = 1e-6

        def objective(w):
            return np.linalg.norm(w) * np.sum(w * gradient[0])

        numeric[i, j] = (objective(block[0] + shift) - objective(block[0] - shift)) / 2e-6
    stepped = ascent_step(block, gradient, 0.5)
    np.testing.assert_allclose((stepped - block)[0] / 0.5, numeric, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ascent_step(1e3 * block, gradient, 0.5), 1e3 * stepped, rtol=1e-12)  # of any scale


@pytest.mark.parametrize("method", ["power", "ascent"])
def test_vectors_are_those_of_svd_in_the_users_order_with_the_sign_of_their_block(method, rng):
    matrix = np.outer(np.ones(6), np.arange(8.0)) + rng.standard_normal((6, 8))
    for block, expected in zip((matrix, matrix.T), naive.top_pair(matrix), strict=True):
        assert abs(top_vector(block, method, rng) @ expected) == pytest.approx(1.0, abs=1e-10)
    for dims in [(4, 3, 5, 4), (3, 4, 3, 2, 3), (9, 4, 7, 5, 3)]:
        partition, truth = Partition.pairs(dims), SpikedTensor.random(dims, 1.0, random_state=0)
        vectors = block_vectors(partition, partition.outer(truth.vectors), method, rng)
        np.testing.assert_allclose(truth.overlaps(vectors), 1.0)
        for _ in range(5):
            blocks = tuple(rng.standard_normal(shape) for shape in partition.shapes)
            found = partition.outer(block_vectors(partition, blocks, method, rng))
            assert all(np.vdot(a, b) > 0 for a, b in zip(found, blocks, strict=True))


@pytest.mark.parametrize(
    ("order", "dims"), [(4, (4, 6, 8)), (6, (3, 4)), pytest.param(6, (6,), marks=pytest.mark.slow)]
)
def test_state_is_k_times_two_to_the_order_times_d_squared(order, dims):
    for d in dims:
        truth = SpikedTensor.random((d,) * order, 1.0, random_state=0)
        held = set()
        for steps in (2, 6):
            legs = tuple([Leg(0.01, steps)] * (order // 2))
            schedule = Schedule("tiny", stages=(legs,), ascent=legs, selection=2, estimation=legs)
            estimate = PaperSolver(schedule=schedule).run(truth.stream(random_state=1))
            assert estimate.n_samples == schedule.samples(order)
            held.add(estimate.state_bytes)
        assert held == {8 * (order // 2) * 2**order * d**2}  # float64; constant in N


# The chance of a single failure at order 4 was below 1 in 100 in development; "9 of 10" is the promise.  At order 5 all
# of 200 runs at the schedule's own N succeed (docs/reproduction.md, odd-order), so that a run fails with probability
# 0.015 at most (95 %), and two of ten with 0.01.
@pytest.mark.parametrize(
    ("dims", "strength", "noise"),
    [((d,) * 4, 1.0, noise) for d in (4, 8) for noise in ("gaussian", "rademacher")] + [((6,) * 5, 3.0, "gaussian")],
)
@pytest.mark.slow
def test_the_default_recovers_for_nine_of_ten_seeds(dims, strength, noise):
    good = 0
    for seed in range(10):
        truth = SpikedTensor.random(dims, strength, correlation=0.0, random_state=seed)
        solver = PaperSolver(strength=strength, random_state=seed)
        estimate = solver.run(truth.stream(noise=noise, random_state=100 + seed))
        assert estimate.stop_reason is StopReason.SCHEDULE_DONE
        recovered = bool(truth.overlaps(estimate.vectors).min() >= 0.9)
        good += recovered
        assert not recovered or estimate.advice == ()
    assert good >= 9


@pytest.mark.parametrize(
    ("dims", "strength", "correlation"),
    [((4,) * 6, 2.0, 1.0), ((9, 4, 7, 5), 1.0, 0.0), ((6,) * 5, 3.0, 0.0), ((5,) * 6, 6.0, 0.0)],
    ids=["order 6 paired", "unsorted dims", "order 5", "order 6"],
)
@pytest.mark.slow
def test_other_orders_and_unsorted_dims_recover(dims, strength, correlation):
    truth = SpikedTensor.random(dims, strength, correlation, random_state=11)
    estimate = PaperSolver(strength=strength, random_state=3).run(truth.stream(random_state=12))
    assert truth.overlaps(estimate.vectors).min() >= 0.9
    assert [len(v) for v in estimate.vectors] == list(dims)
    for v in estimate.vectors:
        assert np.linalg.norm(v) == pytest.approx(1.0)


def test_the_default_is_the_printed_schedule_at_odd_order_and_that_of_the_theorem_recovers():
    truth = SpikedTensor.random((3,) * 5, 2.0, random_state=0)
    asked = planned_samples(truth.dims, 2.0)
    idle = planned_samples(truth.dims, 2.0, preset="idle")
    assert PaperSolver(strength=2.0).run(truth.stream()).n_samples in asked.values()
    assert PaperSolver(strength=2.0, preset="idle").run(truth.stream()).n_samples in idle.values()
    assert not set(asked.values()) & set(idle.values())
    truth = SpikedTensor.random((6,) * 4, 1.0, 0.3, random_state=0)
    solver = PaperSolver(schedule="theorem", truth=truth, random_state=1, estimator="ascent")
    assert truth.overlaps(solver.run(truth.stream(random_state=5)).vectors).min() >= 0.9


@pytest.mark.parametrize("noise", [False, True])
def test_a_reward_that_does_not_fit_the_strength_is_said(noise):
    """Of pure noise the mean reward is 0 ± 0.05, and of a climb that has arrived 2 ± 0.1; λ/2 is 1 (10 deviations)."""
    truth = SpikedTensor.random((4,) * 4, 1e-9 if noise else 2.0, random_state=0)
    estimate = PaperSolver(strength=2.0, random_state=0).run(truth.stream(random_state=1))
    assert estimate.stop_reason is StopReason.SCHEDULE_DONE
    assert len(estimate.advice) == noise
    for word in (f"{estimate.strength:.2g}", "strength=2 was given", "random_state"):
        assert all(word in line for line in estimate.advice)


@pytest.mark.parametrize("batches", [1, 40, 220])
def test_a_stream_that_ends_early_gives_what_was_reached(batches):
    truth = SpikedTensor.random((4,) * 4, 1.0, random_state=0)
    samples = next(iter(truth.stream(random_state=1, batch_size=10 * batches)))
    estimate = PaperSolver().run(samples)
    assert estimate.stop_reason is StopReason.STREAM_ENDED_EARLY
    assert "ended before the schedule" in str(estimate.stop_reason)
    assert estimate.n_samples <= 10 * batches
    assert [v.shape for v in estimate.vectors] == [(4,)] * 4


@pytest.mark.parametrize("dim", [3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_what_was_reached_is_the_best_start_and_its_own_strength(dim):
    # Cut right after Phase II, where some of the 64 starts have arrived and others have not (at 3: 31 to 63 of them):
    # four seeds, all must be right.
    for seed in range(4):
        truth = SpikedTensor.random((dim,) * 6, 6.0, random_state=seed)
        whole = PaperSolver(strength=6.0, random_state=seed).run(truth.stream(random_state=seed))
        climbed = next(h["samples"] for h in whole.history if h["phase"] == "selection") - 64
        some = itertools.islice(truth.stream(random_state=seed, batch_size=64), climbed // 64)
        estimate = PaperSolver(strength=6.0, random_state=seed).run(open_stream(some, items="batches"))
        assert estimate.stop_reason is StopReason.STREAM_ENDED_EARLY
        assert truth.overlaps(estimate.vectors).min() > 0.8
        assert estimate.strength > 3.0


def test_bad_input_is_refused():
    truth, other = (SpikedTensor.random((d,) * 4, 1.0, random_state=0) for d in (4, 5))
    samples = next(iter(truth.stream(batch_size=2000))).copy()
    samples[15, 0, 0, 0, 0] = np.nan
    short = Schedule("short", stages=(), ascent=(Leg(0.1, 2),), selection=1, estimation=(Leg(0.1, 2),) * 2)
    for error, options, source, says in [
        (SampleError, {}, samples, "sample 15 contains NaN"),
        (SolverError, {}, open_stream(samples, nan_policy="zero"), "takes no missing entries"),
        (ScheduleError, {}, np.zeros((5, 4, 4, 4)), "RaceSolver"),
        (SolverError, {"schedule": short}, truth.stream(), "needs 2 legs a phase, got 1"),
        (SolverError, {"schedule": "theorem", "truth": other}, truth.stream(), "truth has dims"),
        (SolverError, {"schedule": "guess"}, None, "schedule must be"),
        (SolverError, {"schedule": "theorem"}, None, "needs truth"),
        (SolverError, {"estimator": "svd"}, None, "estimator must be 'power' or 'ascent'"),
        (SolverError, {"pairing": "best"}, None, "pairing must be 'neighbours' or 'search'"),
        (SolverError, {"pairing": "search", "schedule": "theorem", "truth": truth}, None, "part of the empirical"),
    ]:
        with pytest.raises(error, match=says):
            PaperSolver(**options).run(source)


def test_pairing_is_found_on_a_few_samples_and_recovers_in_the_order_of_the_modes():
    """Order 4, v₁ = v₃ and v₂ = v₄: 64·d² samples.

    The score of the right pairing is 1 ± 1/8, those of others 0 ± 1/8, threshold ½: wrong with probability < 1e-4.
    """
    drawn = SpikedTensor.random((8,) * 4, 1.0, random_state=5)
    truth = SpikedTensor(tuple(drawn.vectors[n] for n in (0, 1, 0, 1)), 1.0)
    run = PaperRun(open_engine(truth.stream(random_state=6)), np.random.default_rng(0))
    assert run.search_reference(1.0, PRESETS["practical"], pairings_of(truth.dims)) == 1.0
    assert run.partition.groups == ((0, 2), (1, 3))
    assert run.samples == 64 * 8**2
    assert [block.shape for block in run.replicas] == [(16, 8, 8)] * 2
    drawn = SpikedTensor.random((5, 6), 2.0, random_state=5)
    truth = SpikedTensor(tuple(drawn.vectors[n] for n in (0, 1, 0, 1)), 2.0)
    found = PaperSolver(pairing="search", strength=2.0, random_state=0).run(truth.stream(random_state=7))
    assert truth.overlaps(found.vectors).min() > 0.9
