import math

import numpy as np
import pytest
from scipy import integrate, stats

from tpca import SpikedTensor
from tpca.engines import LawEngine
from tpca.solvers.race.candidate import Candidate, log_evidence
from tpca.solvers.race.refine import refinement_from
from tpca.solvers.race.strategies.protocol import Evidence, Proposal
from tpca.tensors import Gradients
from tpca.tensors.blocks import Partition


def test_evidence_is_the_half_normal_mixture():
    score, seen, first = 7.0, 30.0, 4.0

    def likelihood_ratio(signal):
        # Samples N(signal, 1): ratio exp(signal * S - signal² V / 2), signal half-normal with variance 1/first.
        return 2 * stats.norm.pdf(signal, scale=first**-0.5) * math.exp(signal * score - 0.5 * signal**2 * seen)

    mixture, _ = integrate.quad(likelihood_ratio, 0, 10)
    assert log_evidence(score, seen, first) == pytest.approx(math.log(mixture), rel=1e-9)
    assert log_evidence(0.0, 0.0, 0.0) == 0.0


def test_evidence_has_mean_one_without_a_signal():
    # A test martingale: E exp(log E) = 1 whatever the rounds.  The mean over 20000 runs of a variable with a heavy
    # tail is
    # below 1.5 except with probability 1/1.5 by Markov only, so the mean of min(E, 20) is used: <= 1, variance <= 20.
    rng = np.random.default_rng(0)
    rounds = [1, 2, 3, 5, 8]
    noise = rng.standard_normal((20_000, len(rounds))) * np.sqrt(rounds)
    scores = noise.sum(axis=1)
    capped = [min(math.exp(log_evidence(s, sum(rounds), rounds[0])), 20.0) for s in scores]
    assert np.mean(capped) < 1 + 5 * math.sqrt(20 / 20_000)


class FixedStrategy:
    """Proposes what it is told and knows nothing."""

    name, working_bytes = "fixed", 0

    def __init__(self, vectors):
        self.vectors = vectors

    def propose(self):
        return Proposal(self.vectors, 1.0)

    def evidence(self, vectors):
        return Evidence(tuple(np.zeros(len(v)) for v in vectors), 1.0)


def tried(truth, vectors, rounds=60, delta=0.05):
    candidate = Candidate(Partition.singles(truth.dims), np.random.default_rng(0), delta)
    engine, strategy = LawEngine(truth, random_state=1), FixedStrategy(vectors)
    candidate.consider(strategy)
    for _ in range(rounds):
        candidate.absorb(engine.reduce(Gradients(candidate.queries()), 2).answers, 2)
    return candidate


def test_the_truth_on_trial_is_found_and_its_opposite_is_not():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    right = tried(truth, truth.vectors)
    assert right.found
    assert right.strength == pytest.approx(1.0, abs=0.5)  # 120 samples: standard error 0.09
    opposite = tried(truth, (-truth.vectors[0], *truth.vectors[1:]))
    assert not opposite.found
    assert opposite.log_evidence < 0


def test_a_candidate_with_evidence_stays_and_one_without_steps_down():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    other = SpikedTensor.random((6, 5, 4), 1.0, random_state=99)
    proven = tried(truth, truth.vectors)
    attempt = proven.attempt
    proven.consider(FixedStrategy(other.vectors))
    assert proven.attempt == attempt
    assert truth.overlaps(proven.vectors).min() > 0.8
    failing = tried(truth, (-truth.vectors[0], *truth.vectors[1:]))
    failing.consider(FixedStrategy(other.vectors))
    assert failing.attempt == attempt + 1
    assert failing.seen == 0
    np.testing.assert_allclose(other.overlaps(failing.vectors), 1.0)


def test_every_change_of_candidate_raises_the_bar():
    candidate = tried(
        SpikedTensor.random((6, 5, 4), 1.0, random_state=0), SpikedTensor.random((6, 5, 4), 1.0, random_state=0).vectors
    )
    candidate.first, candidate.seen = 1.0, 99.0
    candidate.score = 10 * math.sqrt(2 * (5.0 + 0.5 * math.log(100) - math.log(2)))  # log evidence 5
    assert candidate.log_evidence == pytest.approx(5.0, abs=0.01)
    for attempt, bar in [(1, 3.7), (2, 4.8), (3, 5.5)]:  # ln(k(k+1)/0.05)
        candidate.attempt = attempt
        assert candidate.found == (bar < 5.0)


def test_a_badly_known_noise_level_proves_nothing():
    # 2 x 2 samples: two entries a round behind the noise level; 29 rounds are not enough, however large the rewards.
    truth = SpikedTensor.random((2, 2), 5.0, random_state=0)
    assert tried(truth, truth.vectors, rounds=29).seen == 0
    assert tried(truth, truth.vectors, rounds=60).found


def test_the_noise_level_is_learnt_from_the_candidates_own_answers():
    candidate = Candidate(Partition.singles((20, 20, 20)), np.random.default_rng(0))
    engine = LawEngine(None, dims=(20, 20, 20), random_state=3, scale=7.0)
    for _ in range(100):
        candidate.absorb(engine.reduce(Gradients(candidate.queries()), 3).answers, 3)
    # 100 rounds of 57 entries: relative standard error sqrt(1/(2*5700)) = 0.0094; six of them.
    assert candidate.sigma == pytest.approx(7.0, rel=0.057)


def test_the_refinement_starts_from_the_candidates_own_information():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    candidate = tried(truth, truth.vectors)
    refinement = refinement_from(candidate)
    for v, w in zip(refinement.vectors, candidate.vectors, strict=True):
        np.testing.assert_allclose(v, w)
    # 120 samples at strength one: error of the longest mode about sqrt(5/120) = 0.2
    assert 0.1 < refinement.error() < 0.4
