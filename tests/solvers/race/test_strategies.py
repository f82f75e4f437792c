import math

import numpy as np
import pytest

from amounts import Traced
from research.law import LawEngine
from tpca import SpikedTensor
from tpca.engines import LocalEngine
from tpca.solvers.options import held_bytes
from tpca.solvers.race import replicas
from tpca.solvers.race.flow import BlockFlow, state_floats
from tpca.solvers.race.strategies import WholeSum, whole_floats
from tpca.tensors import Gradients
from tpca.tensors.blocks import Partition, unit


def flow(columns):
    return (
        lambda d, rng: BlockFlow(Partition.halves(d), columns, rng),
        lambda d: state_floats(Partition.halves(d), columns),
    )


# name: (dims, how to make it, its size in floats, the kind of signal it is made for)
EQUAL = {"correlation": 1.0, "symmetric": True}
STRATEGIES = {
    "flow": ((12,) * 4, *flow(20), {}),
    "flow, order 3": ((24,) * 3, *flow(10), {}),
    "flow, order 5": ((8,) * 5, *flow(20), {}),
    "whole": ((16,) * 3, lambda d, _: WholeSum(d), whole_floats, {}),
    "singles": (
        (8,) * 5,
        lambda d, rng: replicas.Singles.random(d, 100, rng),
        lambda d: replicas.singles_floats(d, 100),
        {},
    ),
    "symmetric": ((16,) * 4, replicas.Symmetric, replicas.symmetric_floats, EQUAL),
    "equal, odd": ((16,) * 3, replicas.Symmetric, replicas.symmetric_floats, EQUAL),
    "symmetric pairs": ((16,) * 4, replicas.SymmetricPairs, replicas.symmetric_pairs_floats, {"correlation": 1.0}),
}


def rounds(strategy, engine, count):
    n = 0
    for _ in range(count):
        answered = engine.reduce(Gradients(strategy.queries()), max(1, int(0.06 * n)))
        n += answered.n
        held = sum(a.nbytes for a in answered.answers)
        strategy.absorb(answered.answers, answered.n)
        yield n, held


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_strategy_ends_with_the_right_proposal(name):
    dims, make, _, kind = STRATEGIES[name]
    truth = SpikedTensor.random(dims, 2.0, random_state=1, **kind)
    strategy = make(dims, np.random.default_rng(2))
    for n, _ in rounds(strategy, LawEngine(truth, random_state=3), 300):
        if n > 20 * math.prod(dims) ** 0.5:
            break
    proposal = strategy.read().propose()
    assert truth.overlaps(proposal).min() > 0.8
    signs = [np.sign(a @ b) for a, b in zip(proposal, truth.vectors, strict=True)]
    assert np.prod(signs) == 1.0
    sums, _ = strategy.read().evidence(proposal)
    for i, (total, v) in enumerate(zip(sums, proposal, strict=True)):
        assert total.shape == (dims[i],)
        assert total @ v > 0  # evidence points the way of the proposal


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_state_stays_below_its_formula_and_does_not_grow(name):
    dims, make, floats, kind = STRATEGIES[name]
    strategy = make(dims, np.random.default_rng(2))
    sizes, truth = [], SpikedTensor.random(dims, 1.0, random_state=1, **kind)
    for _, answered in rounds(strategy, LawEngine(truth, random_state=3), 60):
        made = [block for query in strategy.queries() for block in query.replicas]
        sizes.append(held_bytes([*strategy.arrays(), *made]) + answered + strategy.working_bytes)
    assert max(sizes) <= 8 * floats(dims)
    assert len(set(sizes[3:])) == 1
    assert sizes[-1] >= 0.5 * 8 * floats(dims)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_working_copies_stay_below_what_is_declared(name):
    # Python's own objects (lists, frames) are traced as well: 24 kB are allowed for them.
    dims, make, _, kind = STRATEGIES[name]
    dims = tuple(2 * d for d in dims) if len(dims) < 5 else dims
    strategy = make(dims, np.random.default_rng(2))
    engine = LawEngine(SpikedTensor.random(dims, 1.0, random_state=1, **kind), random_state=3)
    list(rounds(strategy, engine, 3))
    answered = engine.reduce(Gradients(strategy.queries()), 2)
    with Traced() as traced:
        strategy.absorb(answered.answers, answered.n)
    assert traced.peak <= strategy.working_bytes + 24_000


def test_pairings_are_all_there_are():
    counted = [len(list(replicas.pairings(tuple(range(order))))) for order in (2, 3, 4, 5, 6)]
    assert counted == [1, 3, 3, 15, 15]
    for groups in replicas.pairings(tuple(range(5))):
        assert sorted(n for group in groups for n in group) == list(range(5))


def randoms(dims, seed):
    rng = np.random.default_rng(seed)
    return tuple(unit(rng.standard_normal(d)) for d in dims)


def passed(climbs, samples, passes):
    """So many passes over the samples."""
    for _ in range(passes):
        part = LocalEngine(samples).reduce(Gradients(climbs.queries(), 1.0), len(samples))
        climbs.absorb(part.answers, len(samples))


def test_vectors_climb_and_a_new_proposal_takes_the_place_of_the_worst():
    """Samples of which nearly all is the signal: random vectors, however far off, climb to it in two steps."""
    truth = SpikedTensor.random((5, 6, 7), 2.0, random_state=0)
    samples = np.stack([truth.signal()] * 4)
    climbs = replicas.Climbs([randoms(truth.dims, 1), randoms(truth.dims, 2)])
    for passes, rest in ((1, False), (2, True)):
        passed(climbs, samples, passes)
        assert climbs.rest == rest
    assert truth.overlaps(climbs.propose()).min() > 1 - 1e-6
    samples += 0.2 * np.random.default_rng(3).standard_normal(truth.dims)
    first, *others = truth.vectors
    away = np.eye(len(first))[0]
    climbs = replicas.Climbs([(unit(away - (away @ first) * first), *others), truth.vectors])
    passed(climbs, samples, 1)
    assert truth.overlaps(climbs.propose()).min() > 0.9
    climbs.rest = True
    climbs.challenge(truth.vectors)  # which is known
    assert climbs.rest
    climbs.challenge(tuple(unit(v - (v @ w) * w) for v, w in zip(randoms(truth.dims, 5), truth.vectors, strict=True)))
    assert not climbs.rest
    passed(climbs, samples, 1)
    assert truth.overlaps(climbs.propose()).min() > 0.9
