import numpy as np
import pytest

from tpca import SpikedTensor
from tpca.engines import LocalEngine
from tpca.solvers.race.replicas import Climbs
from tpca.tensors import Gradients
from tpca.tensors.blocks import unit


def randoms(dims, seed):
    rng = np.random.default_rng(seed)
    return tuple(unit(rng.standard_normal(d)) for d in dims)


def passed(climbs, samples, passes):
    """So many passes over the samples."""
    for _ in range(passes):
        part = LocalEngine(samples).reduce(Gradients(climbs.queries(), 1.0), len(samples))
        climbs.absorb(part.answers, len(samples))
    return climbs


@pytest.fixture
def signal():
    """Samples of which all are the signal: random vectors, however far off, climb to it in two steps."""
    truth = SpikedTensor.random((5, 6, 7), 2.0, random_state=0)
    return truth, np.stack([truth.signal()] * 4)


def test_vectors_climb_to_the_signal_and_rest_there(signal):
    truth, samples = signal
    climbs = passed(Climbs([randoms(truth.dims, 1), randoms(truth.dims, 2)]), samples, 1)
    assert not climbs.rest
    passed(climbs, samples, 2)
    assert truth.overlaps(climbs.propose()).min() > 1 - 1e-6
    assert climbs.rest


def test_the_larger_reward_is_the_best_and_a_new_proposal_takes_the_place_of_the_worst(signal):
    truth, samples = signal
    samples = samples + 0.2 * np.random.default_rng(3).standard_normal(truth.dims)
    first, *others = truth.vectors
    away = np.eye(len(first))[0]
    elsewhere = (unit(away - (away @ first) * first), *others)
    climbs = passed(Climbs([elsewhere, truth.vectors]), samples, 1)
    assert truth.overlaps(climbs.propose()).min() > 0.9
    climbs.rest = True
    climbs.challenge(truth.vectors)  # which is known
    assert climbs.rest
    other = tuple(unit(v - (v @ w) * w) for v, w in zip(randoms(truth.dims, 5), truth.vectors, strict=True))
    climbs.challenge(other)
    assert not climbs.rest
    passed(climbs, samples, 1)
    assert truth.overlaps(climbs.propose()).min() > 0.9
