import numpy as np
import pytest

from tpca import SpikedTensor
from tpca.engines import LocalEngine
from tpca.solvers.race.candidate import Ascent
from tpca.tensors import Gradients
from tpca.tensors.blocks import unit


def randoms(dims, seed):
    rng = np.random.default_rng(seed)
    return tuple(unit(rng.standard_normal(d)) for d in dims)


def elsewhere(truth):
    """Vectors of which the first has nothing in common with the truth."""
    first, *others = truth.vectors
    away = np.eye(len(first))[0]
    return (unit(away - (away @ first) * first), *others)


def passed(ascent, samples, passes):
    """So many passes over the samples."""
    for _ in range(passes):
        part = LocalEngine(samples).reduce(Gradients(ascent.queries(), 1.0), len(samples))
        ascent.absorb(part.answers, len(samples))
    return ascent


@pytest.fixture
def signal():
    """Samples of which all are the signal: random vectors, however far off, climb to it in two steps."""
    truth = SpikedTensor.random((5, 6, 7), 2.0, random_state=0)
    return truth, np.stack([truth.signal()] * 4)


def test_vectors_climb_to_the_signal_and_rest_there(signal):
    truth, samples = signal
    ascent = passed(Ascent(randoms(truth.dims, 1), randoms(truth.dims, 2)), samples, 1)
    assert not ascent.rests[0]
    passed(ascent, samples, 2)
    assert truth.overlaps(ascent.vectors).min() > 1 - 1e-12
    assert ascent.rests.all()
    np.testing.assert_allclose(ascent.rewards, truth.strength)


def test_signs_come_out_so_that_the_reward_is_positive(signal):
    truth, samples = signal
    first, *others = truth.vectors
    ascent = passed(Ascent((-first, *others), truth.vectors), samples, 1)
    for one in (0, 1):
        assert np.prod([s[one] @ v for s, v in zip(ascent.stacks, truth.vectors, strict=True)]) > 0.99


def test_the_larger_reward_is_the_best_and_makes_room_for_no_worse_one(signal):
    truth, samples = signal
    noise = 0.2 * np.random.default_rng(3).standard_normal(truth.dims)
    ascent = passed(Ascent(randoms(truth.dims, 1), truth.vectors), samples + noise, 1)
    assert truth.overlaps(ascent.vectors).min() > 0.9
    ascent.rises[1] = False
    other = elsewhere(truth)
    assert not ascent.challenge(other)
    np.testing.assert_array_equal(ascent.stacks[0][1], other[0])
    passed(ascent, samples + noise, 1)
    assert truth.overlaps(ascent.vectors).min() > 0.9


def test_nothing_better_is_in_sight_when_the_best_rests_and_the_proposal_is_known(signal):
    truth, samples = signal
    ascent = passed(Ascent(truth.vectors, truth.vectors), samples, 2)
    assert ascent.challenge(truth.vectors)
    assert not ascent.challenge(elsewhere(truth))


def test_a_gradient_of_zero_moves_nothing():
    start = randoms((3, 4), 0)
    ascent = passed(Ascent(start, start), np.zeros((2, 3, 4)), 1)
    for v, w in zip(ascent.vectors, start, strict=True):
        np.testing.assert_array_equal(v, w)
