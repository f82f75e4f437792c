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

TRUTH, OTHER = (SpikedTensor.random((6, 5, 4), 1.0, random_state=seed) for seed in (0, 99))
OPPOSITE = SpikedTensor((-TRUTH.vectors[0], *TRUTH.vectors[1:]), 1.0)


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


def candidate_of(dims, vectors=None):
    return Candidate(FixedStrategy(vectors), dims, np.random.default_rng(0), 0.05)


def consider(candidate, vectors):
    """Look at another proposal."""
    candidate.strategy.vectors = vectors
    candidate.consider()


def tried(vectors):
    candidate, engine = candidate_of(TRUTH.dims, vectors), LawEngine(TRUTH, random_state=1)
    candidate.consider()
    for _ in range(60):
        absorb(candidate, engine, 2)
    return candidate


def test_the_truth_on_trial_is_found_and_stays_and_its_opposite_steps_down():
    right, opposite = tried(TRUTH.vectors), tried(OPPOSITE.vectors)
    assert right.found
    assert right.strength == pytest.approx(1.0, abs=0.5)  # 120 samples: standard error 0.09
    assert not opposite.found
    assert opposite.wealth.log < 0
    refinement = Refinement(right)  # which starts from the candidate's own information
    for v, w in zip(refinement.vectors, right.vectors, strict=True):
        np.testing.assert_allclose(v, w)
    # 120 samples at strength one: error of the longest mode about sqrt(5/120) = 0.2
    assert 0.1 < refinement.error() < 0.4
    attempt = right.attempt
    consider(right, OTHER.vectors)
    assert right.attempt == attempt
    assert TRUTH.overlaps(right.vectors).min() > 0.8
    consider(opposite, OTHER.vectors)
    assert opposite.attempt == attempt + 1
    assert opposite.seen == 0
    np.testing.assert_allclose(OTHER.overlaps(opposite.vectors), 1.0)
    right.wealth.peaks[:] = 5.0
    for attempt, bar in [(1, 3.7), (2, 4.8), (3, 5.5)]:  # every change raises the bar: ln(k(k+1)/0.05)
        right.attempt = attempt
        assert right.found == (bar < 5.0)


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


def test_the_noise_level_is_learnt_from_answers_and_vectors_of_which_nothing_is_known_are_off_by_root_two():
    candidate = candidate_of((20, 20, 20))
    engine = LawEngine(None, dims=(20, 20, 20), random_state=3, scale=7.0)
    for _ in range(100):
        absorb(candidate, engine, 3)
    # 100 rounds of 57 entries: relative standard error sqrt(1/(2*5700)) = 0.0094; six of them.
    assert candidate.sigma == pytest.approx(7.0, rel=0.057)
    for d in range(2, 40):
        candidate = candidate_of((d, d, d))
        candidate.entries = candidate._squares = 50.0
        errors = Refinement(candidate).standard_errors(False)
        np.testing.assert_allclose([np.linalg.norm(e) for e in errors], math.sqrt(2), rtol=1e-9)


def test_a_proof_counts_once_it_was_reached():
    """The samples of a signal, then as many of its opposite: evidence falls below the bar, the proof stays."""
    candidate = tried(TRUTH.vectors)
    proof, vectors = candidate.wealth.proof, candidate.vectors
    assert proof > candidate.needed
    engine = LawEngine(OPPOSITE, random_state=8)
    for _ in range(20):
        absorb(candidate, engine, 6)
    assert candidate.wealth.log < candidate.needed
    assert candidate.wealth.level > 0 or candidate.wealth.proof == proof  # unless rewards have turned round so slowly
    candidate.wealth.level = 0
    assert candidate.found
    consider(candidate, OTHER.vectors)
    assert np.abs(TRUTH.overlaps(vectors)).min() > 0.8
    assert candidate.found
