"""Rounds of a race, and the bytes that they send on a cluster."""

import itertools
import re
from pathlib import Path

import pytest

from research.cluster import Traffic, round_traffic
from research.law import LawEngine
from tpca import RaceSolver, SpikedTensor
from tpca.engines.dask.engine import merge_fan, power_of_two, runs_of
from tpca.solvers.race import run
from tpca.solvers.race.rounds import round_size, round_sizes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("workers", "leaves", "through", "between"),
    [(1, 1, 1300, 0), (1, 64, 1300, 0), (2, 64, 1000 + 2 * 300, 1000), (100, 1, 1300, 0)],
    ids=["one worker", "one worker, many groups", "two pass the replicas on and send a part each", "one group"],
)
def test_few_workers(workers, leaves, through, between):
    traffic = round_traffic(1000, 300, workers, leaves)
    assert traffic == Traffic(through_scheduler=through, between_workers=between)
    assert traffic.sent == 2 * through + between


@pytest.mark.parametrize("workers", [2, 3, 5, 8, 100, 128, 1000])
def test_every_worker_is_sent_the_replicas_once_and_sends_about_one_part(workers):
    assert round_traffic(1, 0, workers, 2**14).between_workers == workers - 1
    parts = round_traffic(0, 1, workers, 2**14)
    assert parts.through_scheduler <= 8
    assert parts.between_workers <= 3 * workers  # one each up the tree; more where runs of two workers are merged
    if power_of_two(workers) == workers:
        assert parts.between_workers < workers
    for leaves in (1, 2, 8, 256, 2**14):
        count, level = runs_of(leaves, workers), 0
        while (fan := merge_fan(count, workers, level)) > 1:
            assert count % fan == 0
            count, level = count // fan, level + 1
        assert count <= 8


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


def test_rounds_are_a_quarter_of_the_samples_at_first_and_then_six_percent_or_an_eighth_of_small_ones():
    sizes = round_sizes(100_000)
    assert sizes[:13] == [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4]
    done = list(itertools.accumulate(sizes, initial=0))
    assert all(size == int(0.06 * before) for before, size in zip(done, sizes[:-1], strict=False) if before > 100)
    assert (len(sizes), sum(sizes)) == (152, 100_000)
    assert [len(round_sizes(300, 8**3)), len(round_sizes(300))] == [36, 52]
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
