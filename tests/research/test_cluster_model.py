"""The arithmetic of what a cluster is worth."""

import itertools
import math
import re
from pathlib import Path

import pytest

from research.cluster import Machine, Traffic, round_traffic, simulate
from research.law import LawEngine
from tpca import RaceSolver, SpikedTensor
from tpca.engines.dask.engine import merge_fan, power_of_two, runs_of
from tpca.solvers.race import run
from tpca.solvers.race.rounds import round_size, round_sizes

ROOT = Path(__file__).parents[2]

MACHINE = Machine(samples_per_second=1000.0, bytes_per_second=1e9, task_seconds=1e-3, round_seconds=0.01)


def test_one_worker_is_sent_the_replicas_and_sends_its_part_by_way_of_the_scheduler():
    for leaves in (1, 64):
        traffic = round_traffic(1000, 300, 1, leaves)
        assert traffic == Traffic(through_scheduler=1300, between_workers=0, tasks=1, levels=0)
        assert traffic.sent == 2600


def test_two_workers_pass_the_replicas_on_and_send_a_part_each():
    traffic = round_traffic(1000, 300, 2, 64)
    assert traffic == Traffic(through_scheduler=1000 + 2 * 300, between_workers=1000, tasks=1 + 2, levels=0)


def test_a_round_of_one_group_uses_one_worker():
    assert round_traffic(1000, 300, 100, 1).between_workers == 0


@pytest.mark.parametrize("workers", [2, 3, 5, 8, 100, 128, 1000])
def test_every_worker_is_sent_the_replicas_once_and_sends_about_one_part(workers):
    traffic = round_traffic(1, 0, workers, 2**14)
    assert traffic.between_workers == workers - 1
    parts = round_traffic(0, 1, workers, 2**14)
    assert parts.through_scheduler <= 8
    assert parts.between_workers <= 3 * workers  # one each up the tree; more where runs of two workers are merged
    if power_of_two(workers) == workers:
        assert parts.between_workers < workers


def test_merging_ends_with_at_most_eight_parts():
    for workers, leaves in itertools.product([1, 2, 3, 7, 16, 100, 1000], [1, 2, 8, 256, 2**14]):
        parts, level = runs_of(leaves, workers), 0
        while (fan := merge_fan(parts, workers, level)) > 1:
            assert parts % fan == 0
            parts, level = parts // fan, level + 1
        assert parts <= 8


class NotedLaw(LawEngine):
    """Notes the samples of every round."""

    def __init__(self, truth, samples):
        super().__init__(truth, random_state=1, dims=(4, 4, 4), max_samples=samples)
        self.sizes = []

    def reduce(self, blank, n=None):
        answered = super().reduce(blank, n)
        self.sizes += [answered.n] if answered.n else []
        return answered


@pytest.mark.parametrize("samples", [1, 9, 1234])
@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_a_race_has_the_rounds_that_are_planned_for(samples, strength):
    """All of them: of the search and the trial of noise, and of the refinement of a signal."""
    truth = SpikedTensor.random((4, 4, 4), strength, random_state=2) if strength else None
    engine = NotedLaw(truth, samples)
    found = RaceSolver(random_state=3).run(engine)
    assert engine.sizes == round_sizes(samples, 4**3)
    assert found.n_samples == sum(engine.sizes) == samples
    ends = list(itertools.accumulate(engine.sizes))
    assert [record["samples"] for record in found.history] == ends[3:]  # the first three are the scale estimate's
    assert simulate(samples, 10, 1000, 1000, 16, MACHINE).rounds >= len(engine.sizes)  # it knows of large samples only


def test_rounds_are_a_quarter_of_the_samples_at_first_and_then_six_percent():
    sizes = round_sizes(100_000)
    assert sizes[:13] == [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4]
    done = list(itertools.accumulate(sizes, initial=0))
    assert all(size == int(0.06 * before) for before, size in zip(done, sizes[:-1], strict=False) if before > 100)
    assert len(sizes) == 152
    assert sum(sizes) == 100_000


def test_rounds_of_small_samples_are_an_eighth():
    assert len(round_sizes(300, 8**3)) == 36
    assert len(round_sizes(300)) == 52
    small = round_sizes(100_000, 100)
    done = list(itertools.accumulate(small, initial=0))
    assert all(size == before // 8 for before, size in zip(done, small[:-1], strict=False) if 64 <= before < 80_000)


@pytest.mark.parametrize("text", [(ROOT / "docs" / "race.md").read_text(), run.__doc__], ids=["race.md", "run.py"])
def test_the_formula_of_the_pages_is_that_of_the_race(text):
    formula = re.search(r"round takes B = (max\(.*?\)\)) fresh samples", text)[1]
    for shown, meant in (("⌊", "int("), ("⌋", ")"), ("·", "*"), ("0.06 n", "0.06*n"), ("2²⁰", "2**20")):
        formula = formula.replace(shown, meant)
    for entries in (64, 8000, 110_592, 2**20, 10**8):
        assert all(eval(formula, {"n": n, "D": entries}) == round_size(n, 1, entries) for n in range(2000))


def test_with_nothing_but_reading_many_workers_are_as_many_times_as_fast():
    free = Machine(1000.0, math.inf, 0.0, 0.0)
    fit = simulate(10**7, 10, 10**6, 10**6, 64, free)
    assert fit.total == fit.reading
    assert fit.network == fit.scheduler == 0
    assert 0.9 < fit.efficiency(64) <= 1


def test_more_bytes_cost_more_network_and_nothing_else():
    light, heavy = (simulate(10**6, 100, size, size, 16, MACHINE) for size in (10**5, 10**6))
    assert heavy.network == pytest.approx(10 * light.network)
    assert (heavy.reading, heavy.scheduler, heavy.rounds) == (light.reading, light.scheduler, light.rounds)
    assert heavy.total == pytest.approx(heavy.reading + heavy.network + heavy.scheduler + heavy.solver)
    assert light.alone == 10**6 / 1000.0


def test_a_thousand_workers_need_more_samples_than_a_hundred():
    small, large = 10**5, 10**8
    assert simulate(small, 64, 10**6, 10**6, 1000, MACHINE).efficiency(1000) < 0.05
    assert 0.1 < simulate(large, 64, 10**6, 10**6, 1000, MACHINE).efficiency(1000) < 0.5  # a task costs a millisecond
    assert simulate(100 * large, 64, 10**6, 10**6, 1000, MACHINE).efficiency(1000) > 0.7
    assert simulate(large, 64, 10**6, 10**6, 100, MACHINE).efficiency(100) > 0.75
