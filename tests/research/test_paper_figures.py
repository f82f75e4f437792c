"""Pictures of the pages on the paper, and the run that they trace."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from research.figures import PIECES, draw_collapse, trace
from research.studies.store import Store
from tpca import SpikedTensor
from tpca.solvers.paper.schedule import PRESETS, stage_bounds, theorem_schedule

STORED = Store(Path(__file__).parents[2] / "docs" / "reproduction")


def test_a_trace_is_a_whole_run_in_pieces():
    truth = SpikedTensor.random((40,) * 4, 2.0, correlation=0.0, random_state=1)
    schedule = theorem_schedule(truth, PRESETS["practical"])
    run, phases = trace(truth, schedule, seed=1)
    assert run.samples == schedule.samples(4)
    assert phases["I"].shape == (len(schedule.stages) * 2 * PIECES, 2)
    assert phases["II"].shape == (2 * PIECES, 2)
    assert phases["I"][0].max() < 0.3  # starts have alignments of about 1/d
    np.testing.assert_allclose(phases["III"][-1], np.abs(run.alignments[:, 0]), atol=0.05)
    assert phases["III"][-1].min() > 0.9


def test_bounds_of_the_cycles_join():
    truth = SpikedTensor.random((40,) * 6, 1.0, correlation=0.0, random_state=1)
    bounds = stage_bounds(truth, PRESETS["practical"])
    np.testing.assert_allclose(bounds[0][0], [1 / 40] * 3)
    assert all(high == low for (_, high), (low, _) in itertools.pairwise(bounds))
    assert bounds[-1][1] == [0.5] * 3  # 4·(1/40)^(1/2) = 0.63, capped


@pytest.mark.slow
def test_stored_trials_are_drawn(tmp_path):
    draw_collapse(tmp_path / "collapse.png", STORED)
    assert (tmp_path / "collapse.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_tour_prints_what_its_page_says(tmp_path, monkeypatch, capsys):
    """Words as they are, numbers within 5 %, or 0.02: another BLAS may round the last digit the other way."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "paper-tour.md").read_text()
    names = {"__name__": "page"}
    for text in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
        exec(text, names)
    printed, told = capsys.readouterr().out, "".join(re.findall(r"^```text\n(.*?)^```", page, re.S | re.M))
    number = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
    assert re.sub(number, "", printed).split() == re.sub(number, "", told).split()
    for wanted, got in zip(re.findall(number, told), re.findall(number, printed), strict=True):
        assert float(got) == pytest.approx(float(wanted), rel=0.05, abs=0.02)
