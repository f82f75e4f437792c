"""What a look costs, by counts: starts, factorizations, sweeps, widenings, looks of a fit."""

import tracemalloc

import numpy as np
import pytest

from tpca.engines import LawEngine
from tpca.model import SpikedTensor
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.rounds import round_sizes
from tpca.solvers.race.run import RaceRun
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.race.strategies import look as looks
from tpca.solvers.race.strategies import wide
from tpca.solvers.race.strategies.climb import Climbs
from tpca.solvers.race.strategies.columns import Columns
from tpca.solvers.race.strategies.flow import BlockFlow
from tpca.solvers.race.strategies.whole import WholeSum
from tpca.streams import open_stream
from tpca.tensors import Gradients
from tpca.tensors.blocks import Partition, widen


class Counter:
    """Counts calls of a function, and passes them on."""

    def __init__(self, monkeypatch, owner, name):
        self.calls, original = 0, getattr(owner, name)

        def counted(*args, **kwargs):
            self.calls += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)


def flow_after(dims, kind, samples=30):
    """A flow, or the whole sum, that has seen some samples of noise, and looked once."""
    partition, rng = Partition.halves(dims), np.random.default_rng(0)
    strategy = WholeSum(partition, rng) if kind == "whole" else BlockFlow(partition, 6, rng)
    engine = LawEngine(SpikedTensor.random(dims, 0.1, random_state=1), random_state=2)
    for n in (2, samples - 2):
        strategy.absorb(engine.reduce(Gradients(strategy.queries()), n).answers, n)
        strategy.read().propose()
    return strategy


@pytest.mark.parametrize(
    ("dims", "kind"), [((12,) * 3, "flow"), ((6,) * 4, "flow"), ((8,) * 3, "whole"), ((4,) * 6, "flow")]
)
def test_a_look_factorises_once_and_climbs_from_few_starts(dims, kind, monkeypatch):
    strategy = flow_after(dims, kind)
    look = strategy.read()
    past = Counter(monkeypatch, looks, "all_eigenvectors")
    tops = [Counter(monkeypatch, module, "top_eigenvectors") for module in (looks, wide)]
    fits = Counter(monkeypatch, Climbs, "fit")
    starts = look._starts()
    assert [top.calls for top in tops] == [1, 2]  # of both Gram matrices, and of an unfolding and what it leaves
    assert len(starts) <= looks.EIGENVECTORS + 2  # an unfolding, and the last proposal
    proposal = look.propose()
    for _ in range(8):  # as many as a candidate refines its vectors with
        look.evidence(proposal.vectors)
    assert past.calls == (1 if strategy.past is not None else 0)
    groups = -(-len(starts) // look._together(len(starts), look._first_fit))
    assert fits.calls <= 2 * (looks.SWEEPS[0] * max(groups, len(starts)) + looks.SWEEPS[1] * looks.FINALISTS)


def test_columns_that_there_is_room_for_are_widened_once_a_look(monkeypatch):
    strategy = flow_after((8,) * 3, "whole")
    monkeypatch.setattr(type(strategy), "room", property(lambda self: 10**6))
    widened = Counter(monkeypatch, wide, "widen")
    look = strategy.read()
    for _ in range(8):
        look.evidence(strategy.last)
    assert widened.calls == 1


def test_of_columns_that_there_is_no_room_for_the_rest_alone_is_widened_again(monkeypatch):
    columns = Columns(10, (6, 7), level=0.3, rng=np.random.default_rng(0))
    held = wide.Wide(columns, 1.0, room=8 * 42 * 4)  # eight of ten: six are held, two at a time are not
    rows = []
    monkeypatch.setattr(wide, "widen", lambda half, single: (rows.append(len(half)), widen(half, single))[1])
    for _ in range(3):
        held.times(np.ones((1, 10), np.float32))
    assert rows == [2, 2] * 3


@pytest.mark.parametrize(("dims", "columns"), [((24,) * 4, 30), ((8,) * 6, 20), ((30, 31, 32), 30)])
def test_a_look_stays_in_the_memory_of_the_answers(dims, columns):
    """Beside Python's own objects, for which 24 kB are allowed, and at order 3 the past columns in double precision."""
    strategy = BlockFlow(Partition.halves(dims), columns, np.random.default_rng(0))
    engine = LawEngine(SpikedTensor.random(dims, 0.1, random_state=1), random_state=2)
    for n in (2, 30):
        strategy.absorb(engine.reduce(Gradients(strategy.queries()), n).answers, n)
        strategy.read().propose()
    past = 0 if strategy.past is None else 4 * strategy.past.nbytes
    tracemalloc.start()
    look = strategy.read()
    look.evidence(look.propose().vectors)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= strategy.room + past + 24_000


def test_small_samples_have_fewer_rounds_and_one_look_each(monkeypatch):
    looks = Counter(monkeypatch, Candidate, "consider")
    RaceSolver(random_state=1, memory_limit=15_360).run(np.random.default_rng(0).standard_normal((300, 8, 8, 8)))
    rounds = len(round_sizes(300, 8**3))
    assert rounds == 36
    assert len(round_sizes(300)) == 52
    assert looks.calls <= rounds - 3  # the first three are the scale estimate's


@pytest.mark.parametrize("known", [True, False])
def test_no_look_at_strategies_that_will_be_larger_once_the_noise_is_known(known, monkeypatch):
    """In 24 kB strategies on 10⁴ entries grow by a third when the noise is known: until then they are only fed."""
    looks, rounds = Counter(monkeypatch, Candidate, "consider"), Counter(monkeypatch, BlockFlow, "absorb")
    seen, enlarge = [], RaceRun.enlarge
    monkeypatch.setattr(
        RaceRun, "enlarge", lambda run: (seen.append((looks.calls, rounds.calls, run.samples)), enlarge(run))[1]
    )
    samples = np.random.default_rng(0).standard_normal((150, *(10,) * 4))
    source = samples if known else open_stream(iter([samples]), items="batches")
    RaceSolver(random_state=1, memory_limit=24_000).run(source)
    ((looked, absorbed, at),) = seen
    assert 0 < absorbed < at
    assert looked == 0 if known else 0 < looked < absorbed


def test_samples_that_end_before_the_noise_is_known_are_looked_at_once():
    strong = SpikedTensor.random((10,) * 4, 40.0, random_state=1)
    noise = np.random.default_rng(2).standard_normal((12, *strong.dims))
    source = open_stream(iter([noise + strong.signal()]), items="batches")
    recovery = RaceSolver(random_state=1, memory_limit=24_000).run(source)
    assert not recovery.found
    assert strong.overlaps(recovery.vectors).min() > 0.9
