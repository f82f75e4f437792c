"""What the paper's algorithm says of sign and strength, and that neither depends on how samples are handed out."""

import itertools
import math

import numpy as np
import pytest

import naive
from research.simulate import SimulatedRun
from tpca import PaperSolver, SpikedTensor, TensorPCA
from tpca.engines import LocalEngine
from tpca.solvers.paper.run import PaperRun
from tpca.solvers.paper.schedule import PRESETS, Leg, theorem_schedule

PROBLEMS = [((4, 4, 4, 4), 2.0), ((3, 3, 3, 3, 3), 3.0)]


def signed_overlap(truth, vectors):
    return float(np.prod([a @ b for a, b in zip(vectors, truth.vectors, strict=True)]))


# The strength averages T ≥ 100 rewards of standard deviation 1 (error 0.1 or less) of blocks that are λ∏α ≥ 0.9λ when
# they have arrived; where they have not, both numbers are near 0.  So λ/2 is ten standard errors or more, and a wrong
# sign, which has half of all tensors without a rule for it, is off by 2λ.
@pytest.mark.parametrize("estimator", ["power", "ascent"])
@pytest.mark.parametrize(("dims", "strength"), PROBLEMS)
def test_strength_and_sign_belong_to_the_vectors(dims, strength, estimator):
    for seed in range(6):
        truth = SpikedTensor.random(dims, strength, random_state=seed)
        solver = PaperSolver(strength=strength, random_state=seed, estimator=estimator)
        estimate = solver.run(truth.stream(random_state=50 + seed))
        assert estimate.strength >= 0
        assert abs(estimate.strength - strength * signed_overlap(truth, estimate.vectors)) < strength / 2
        assert estimate.history[-1]["reward"] == pytest.approx(estimate.strength)  # λ∏α > 0: nothing was flipped


def test_held_out_score_is_the_strength():
    truth = SpikedTensor.random((4,) * 4, 2.0, random_state=0)
    fresh = next(iter(truth.stream(random_state=99, batch_size=1000)))
    for seed in range(6):
        pca = TensorPCA(solver=PaperSolver(strength=2.0, random_state=seed)).fit(truth.stream(random_state=seed))
        score = pca.score(fresh)  # standard error 1/√1000
        assert abs(score - pca.strengths_[0]) < 1


@pytest.mark.parametrize("dims", [(8,) * 4, (8,) * 5])
def test_simulated_vectors_have_the_sign_of_their_reward(dims):
    for seed in range(6):
        truth = SpikedTensor.random(dims, 3.0, random_state=seed)
        run = SimulatedRun(truth, np.random.default_rng(seed), coarse=0.05)
        run.multi_phase(theorem_schedule(truth, PRESETS["practical"]))
        assert abs(abs(run.mean_reward) - 3.0 * signed_overlap(truth, run.vectors())) < 1.5


def test_rewards_of_a_turn_are_those_of_its_second_half_before_each_step():
    dims, leg = (3, 4, 3, 2, 3), Leg(0.05, 7)
    truth = SpikedTensor.random(dims, 2.0, random_state=2)
    groups, last = naive.paper_groups(dims), 2
    run = PaperRun(LocalEngine(truth.stream(random_state=4)), np.random.default_rng(0))
    run.replicas = tuple(block[3:4] for block in run.replicas)
    blocks, rewards = [block[0] for block in run.replicas], []
    samples = itertools.chain.from_iterable(truth.stream(random_state=4))
    for sample in itertools.islice(samples, leg.steps):
        gradient = naive.einsum_gradient(sample, groups, blocks, last)
        rewards.append(np.sum(gradient * blocks[last]) / np.linalg.norm(blocks[last]))
        blocks[last] = naive.update(blocks[last], gradient, leg.step_size)
    run.sequential_ascent([leg] * len(groups), "I.1")
    assert run.history[0]["reward"] == pytest.approx(np.mean(rewards[3:]), rel=1e-10)


def test_phase_three_gives_the_reward_of_the_end_points_it_keeps():
    # Begun with a tensor of the wrong sign, Phase III keeps that of −R for the block that +R reverses: the reward of
    # what is kept is −λ, though the run with +R ends at +λ.  Standard error 1/√200; λ∏α is off by a few per cent.
    truth = SpikedTensor.random((4,) * 4, 2.0, random_state=1)
    run = PaperRun(LocalEngine(truth.stream(random_state=2)), np.random.default_rng(0))
    first, second = run.partition.outer(truth.vectors)
    run.replicas = (first[None], -second[None])
    run.estimate([Leg(0.05, 200)] * 2)
    kept = [np.vdot(block[0], other) for block, other in zip(run.replicas, (first, second), strict=True)]
    assert math.prod(kept) < -0.5
    assert run.mean_reward == pytest.approx(2.0 * math.prod(kept), abs=0.5)


def assert_same(monkeypatch, strength, samples):
    """Whatever number of entries the engine hands out at once: many steps, some, one."""
    runs = []
    for entries in (2**20, 20_000, 1):
        monkeypatch.setattr("tpca.solvers.paper.run.BATCH_ENTRIES", entries)
        runs.append(PaperSolver(strength=strength, random_state=0).run(samples))
    one, *others = runs
    for other in others:
        assert one.n_samples == other.n_samples
        np.testing.assert_allclose(one.strength, other.strength, rtol=1e-10)  # NaN equals NaN
        for a, b in zip(one.vectors, other.vectors, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
        assert len(one.history) == len(other.history)
        for a, b in zip(one.history, other.history, strict=True):
            assert a | {"reward": 0} == b | {"reward": 0}
            np.testing.assert_allclose(a["reward"], b["reward"], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("dims", "strength"), PROBLEMS)
def test_results_do_not_depend_on_the_buffer(dims, strength, monkeypatch):
    truth = SpikedTensor.random(dims, strength, random_state=0)
    assert_same(monkeypatch, strength, truth.stream(random_state=1))
    if len(dims) == 4:  # nor what a stream that ends early leaves
        samples = next(iter(truth.stream(random_state=1, batch_size=3600)))  # of 3664 that the schedule asks for
        for end in (5, 100, 300, 700, 1300, 2000, 2700, 3500):  # in the search, all phases, first and second halves
            assert_same(monkeypatch, strength, samples[:end])
