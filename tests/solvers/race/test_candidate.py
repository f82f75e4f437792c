import math

import numpy as np
import pytest

from research.law import LawEngine
from tpca import SpikedTensor
from tpca.engines import LocalEngine
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.refinement import Refinement
from tpca.solvers.race.rounds import sub_batch_edges
from tpca.tensors import Gradients


class FixedStrategy:
    """Proposes what it is told and knows nothing."""

    name, working_bytes = "fixed", 0

    def __init__(self, vectors):
        self.vectors = vectors

    def read(self):
        return self

    def propose(self):
        return self.vectors

    def evidence(self, vectors):
        return [np.zeros(len(v)) for v in vectors], 1.0


def absorb(candidate, engine, n):
    """A round of ``n`` samples."""
    candidate.absorb(engine.reduce(Gradients(candidate.queries(), 1.0, sub_batch_edges(n)), n).answers, n)


def candidate_of(dims, vectors=None, delta=0.05):
    return Candidate(FixedStrategy(vectors), dims, np.random.default_rng(0), delta)


def consider(candidate, vectors):
    """Look at another proposal."""
    candidate.strategy.vectors = vectors
    candidate.consider()


def tried(truth, vectors, rounds=60, delta=0.05):
    candidate, engine = candidate_of(truth.dims, vectors, delta), LawEngine(truth, random_state=1)
    candidate.consider()
    for _ in range(rounds):
        absorb(candidate, engine, 2)
    return candidate


def test_the_truth_on_trial_is_found_and_its_opposite_is_not():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    right = tried(truth, truth.vectors)
    assert right.found
    assert right.strength == pytest.approx(1.0, abs=0.5)  # 120 samples: standard error 0.09
    opposite = tried(truth, (-truth.vectors[0], *truth.vectors[1:]))
    assert not opposite.found
    assert opposite.wealth.log < 0


def test_a_candidate_with_evidence_stays_and_one_without_steps_down():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    other = SpikedTensor.random((6, 5, 4), 1.0, random_state=99)
    proven = tried(truth, truth.vectors)
    attempt = proven.attempt
    consider(proven, other.vectors)
    assert proven.attempt == attempt
    assert truth.overlaps(proven.vectors).min() > 0.8
    failing = tried(truth, (-truth.vectors[0], *truth.vectors[1:]))
    consider(failing, other.vectors)
    assert failing.attempt == attempt + 1
    assert failing.seen == 0
    np.testing.assert_allclose(other.overlaps(failing.vectors), 1.0)


def test_every_change_of_candidate_raises_the_bar():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    candidate = tried(truth, truth.vectors)
    candidate.wealth.peaks[:] = 5.0
    for attempt, bar in [(1, 3.7), (2, 4.8), (3, 5.5)]:  # ln(k(k+1)/0.05)
        candidate.attempt = attempt
        assert candidate.found == (bar < 5.0)


def test_a_few_sub_batches_prove_nothing():
    # Level 0 needs 12 sub-batches, and the noise level some entries before the first: rounds of two samples.
    truth = SpikedTensor.random((2, 2), 5.0, random_state=0)
    assert not tried(truth, truth.vectors, rounds=6).found
    assert tried(truth, truth.vectors, rounds=30).found


def test_noise_along_the_vectors_that_is_louder_than_elsewhere_is_remembered():
    """Ten times as loud along one entry: 64 samples, so within six standard errors of 10/sqrt(2*63)."""
    rng = np.random.default_rng(0)
    candidate = candidate_of((4, 4))
    consider(candidate, (np.eye(4)[0], np.eye(4)[0]))
    for _ in range(32):
        samples = rng.standard_normal((2, 4, 4))
        samples[:, 0, 0] *= 10
        absorb(candidate, LocalEngine(samples), 2)
    assert candidate.loudest == pytest.approx(10, abs=6 * 10 / math.sqrt(2 * 63))
    assert candidate.sigma < 2
    consider(candidate, (np.eye(4)[1], np.eye(4)[1]))
    assert candidate.loudest > 4


def test_the_noise_level_is_learnt_from_the_candidates_own_answers():
    candidate = candidate_of((20, 20, 20))
    engine = LawEngine(None, dims=(20, 20, 20), random_state=3, scale=7.0)
    for _ in range(100):
        absorb(candidate, engine, 3)
    # 100 rounds of 57 entries: relative standard error sqrt(1/(2*5700)) = 0.0094; six of them.
    assert candidate.sigma == pytest.approx(7.0, rel=0.057)


def test_the_refinement_starts_from_the_candidates_own_information():
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    candidate = tried(truth, truth.vectors)
    refinement = Refinement(candidate)
    for v, w in zip(refinement.vectors, candidate.vectors, strict=True):
        np.testing.assert_allclose(v, w)
    # 120 samples at strength one: error of the longest mode about sqrt(5/120) = 0.2
    assert 0.1 < refinement.error() < 0.4


def test_vectors_of_which_nothing_is_known_have_an_error_of_root_two():
    for d in range(2, 40):
        candidate = candidate_of((d, d, d))
        candidate.entries = candidate._squares = 50.0
        refinement = Refinement(candidate)
        assert all(
            np.linalg.norm(e) == pytest.approx(math.sqrt(2), rel=1e-9) for e in refinement.standard_errors(False)
        )


def test_a_proof_counts_once_it_was_reached():
    """The samples of a signal, then as many of its opposite: evidence falls below the bar, the proof stays."""
    truth = SpikedTensor.random((6, 5, 4), 1.0, random_state=0)
    candidate = tried(truth, truth.vectors)
    proof, vectors = candidate.wealth.proof, candidate.vectors
    assert proof > candidate.needed
    opposite = SpikedTensor((-truth.vectors[0], *truth.vectors[1:]), 1.0)
    engine = LawEngine(opposite, random_state=8)
    for _ in range(20):
        absorb(candidate, engine, 6)
    assert candidate.wealth.log < candidate.needed
    assert candidate.wealth.level > 0 or candidate.wealth.proof == proof  # unless rewards have turned round so slowly
    candidate.wealth.level = 0
    assert candidate.found
    consider(candidate, SpikedTensor.random((6, 5, 4), 1.0, random_state=99).vectors)
    assert np.abs(truth.overlaps(vectors)).min() > 0.8
    assert candidate.found
