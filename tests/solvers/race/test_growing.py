"""Strategies that go on in more memory: what is known stays, and what is new is noise of the same size."""

import math

import numpy as np
import pytest

from tpca.engines import LawEngine
from tpca.model import SpikedTensor
from tpca.solvers.race.run import RaceRun
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.race.strategies.carrying import enlarged
from tpca.solvers.race.strategies.flow import BlockFlow
from tpca.solvers.race.strategies.replicas import PairReplicas
from tpca.solvers.race.strategies.singles import SingleReplicas
from tpca.solvers.race.strategies.whole import WholeSum
from tpca.tensors import Gradients
from tpca.tensors.blocks import Partition

RNG = np.random.default_rng


def feed(strategy, engine, rounds):
    for n in rounds:
        strategy.absorb(engine.reduce(Gradients(strategy.queries()), n).answers, n)


@pytest.mark.parametrize("dims", [(12,) * 4, (20,) * 3])
def test_columns_that_a_flow_gets_are_noise(dims):
    """N(0, nσ²) like those that it had: sums of squares within 5 standard deviations, √(2/entries) (chance 6e-7)."""
    halves = Partition.halves(dims)
    old, new = BlockFlow(halves, 8, RNG(0)), BlockFlow(halves, 14, RNG(1))
    feed(old, LawEngine(SpikedTensor.random(dims, 1e-6, random_state=1), random_state=2), (1, 2, 4, 8, 16))
    assert enlarged(old, new)
    assert (new.count, new.sigma) == (old.count, old.sigma)
    for known, own in zip(old.sums, new.sums, strict=True):
        np.testing.assert_array_equal(known.store, own.store[:8])
        added = own.unit * own.flat[8:].astype(float)
        size = np.mean(added**2) / (old.count * old.sigma**2)
        tolerance = 5 * math.sqrt(2 / added.size + 2 / known.store.size)
        assert size == pytest.approx(1.0, abs=tolerance)
        np.testing.assert_allclose(own.gram, own.flat.astype(float) @ own.flat.T.astype(float), rtol=1e-3, atol=1e-3)
    if new.past is not None:
        np.testing.assert_array_equal(new.past[:8], old.past)
        assert not new.past[8:].any()


def test_replicas_that_are_added_to_singles_count_as_the_noise_of_all_samples():
    dims = (8,) * 5
    old, new = SingleReplicas(dims, 20, RNG(0)), SingleReplicas(dims, 50, RNG(1))
    feed(old, LawEngine(SpikedTensor.random(dims, 1e-6, random_state=1), random_state=2), (1, 2, 4, 8, 16))
    assert enlarged(old, new)
    known, own = old.arrays(), new.arrays()
    for mode in range(5):
        np.testing.assert_array_equal(own[f"vectors_{mode}"][:20], known[f"vectors_{mode}"])
        lengths = np.linalg.norm(own[f"vectors_{mode}"].astype(float), axis=1)
        np.testing.assert_allclose(lengths, lengths[0], rtol=3e-3)  # float16: 2^-11 an entry
    np.testing.assert_array_equal(own["lengths"][:, :20], known["lengths"])
    # Lengths of sums of n samples' noise in 8 dimensions: √(8 n) σ on average, which 20 replicas tell to a tenth.
    np.testing.assert_allclose(own["lengths"][:, 20:], np.sqrt(np.mean(known["lengths"] ** 2)), rtol=0.4)
    assert not own["scores"][20:].any()


@pytest.mark.parametrize("small", [True, False])
def test_a_signal_that_was_on_its_way_is_found_by_the_larger_strategy(small):
    dims = (8,) * 5 if small else (12,) * 4
    truth = SpikedTensor.random(dims, 3.0, random_state=3)
    engine = LawEngine(truth, random_state=4)
    if small:
        old, new = SingleReplicas(dims, 100, RNG(0)), SingleReplicas(dims, 130, RNG(1))
    else:
        old, new = (BlockFlow(Partition.halves(dims), r, RNG(r)) for r in (20, 26))
    feed(old, engine, [max(1, n // 8) for n in range(60)])
    assert truth.overlaps(old.read().propose().vectors).min() > 0.9
    assert enlarged(old, new)
    assert truth.overlaps(new.read().propose().vectors).min() > 0.9
    feed(new, engine, (20, 20))
    assert truth.overlaps(new.read().propose().vectors).min() > 0.9


def test_what_is_another_strategy_begins_anew():
    halves = Partition.halves((6,) * 4)
    flow, more = (BlockFlow(halves, r, RNG(0)) for r in (4, 6))
    whole, singles = WholeSum(halves, RNG(0)), SingleReplicas((6,) * 4, 9, RNG(0))
    pairs = PairReplicas(Partition.pairs((6,) * 4), 3, RNG(0))
    assert not any(enlarged(old, new) for old, new in [(flow, whole), (singles, flow), (pairs, pairs), (more, flow)])


def test_a_race_goes_on_with_what_it_knows_when_memory_becomes_free(monkeypatch):
    """10⁶ in 40 kB: 77 replicas while the noise is learnt, 108 from then on, which have seen all samples."""
    seen, enlarge = [], RaceRun.enlarge

    def noted(run):
        before = run.searches[0]
        enlarge(run)
        seen.append((before, run.searches[0]))

    monkeypatch.setattr(RaceRun, "enlarge", noted)
    truth = SpikedTensor.random((10,) * 6, 1e-6, random_state=5)
    RaceSolver(random_state=1, memory_limit=40_000, max_samples=100).run(LawEngine(truth, random_state=6))
    ((before, after),) = seen
    assert after.candidate is before.candidate
    assert before.strategy.replicas < after.strategy.replicas
    np.testing.assert_array_equal(after.strategy.arrays()["scores"][: before.strategy.replicas] != 0, True)
