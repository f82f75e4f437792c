"""All methods on the same samples, their formulas; the study of memory and the constants made from it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from research import StudyError
from research.__main__ import app
from research.baselines import ALS, Unfolding
from research.compare import TITLES, Setting, comparison, left_out
from research.law import averaged, drawn_average
from research.methods import METHODS
from research.studies.memory import MEMORY, constants, points_of, protocol_findings, run_once
from research.studies.store import Store
from research.studies.study import Record
from tpca import SpikedTensor
from tpca.errors import ModelError, StreamError
from tpca.planning import CONSTANTS, FRONTIER

runner = CliRunner()


def outcomes_of(setting, seeds, methods):
    study = comparison(setting, methods, seeds)
    return [outcome for params in study.grid("full") for outcome in study.run(params)["outcomes"]]


def test_the_average_is_the_samples_to_methods_that_see_only_the_mean():
    truth = SpikedTensor.random((6, 5, 7), 2.0, random_state=1)
    average = averaged(truth.stream(random_state=2, batch_size=13), 100)
    for method in (ALS, Unfolding):
        direct = method(max_samples=100).run(truth.stream(random_state=2))
        average.rewind()
        fed = method().run(average)
        assert fed.n_samples == direct.n_samples == 100
        assert fed.state_bytes == direct.state_bytes
        for a, b in zip(fed.vectors, direct.vectors, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8)


def test_the_average_refuses_what_only_samples_can_answer():
    average = drawn_average(SpikedTensor.random((4, 4), 1.0, random_state=0), 50, 0)
    with pytest.raises(StreamError, match="cannot answer for 10"):
        ALS(max_samples=10).run(average)
    assert average.buffer_bytes == 8 * 16


@pytest.mark.parametrize("law", [False, True])
def test_every_method_runs_and_strong_signals_are_found(law):
    """λ²N = 2000 is 4·d^(k̄−1) at 8×8×8 and far beyond any threshold; SGD steps are made for less and are not judged."""
    setting = Setting((8, 8, 8), 500, strength=2.0, symmetric=True, law=law)
    reasons = left_out(setting)
    chosen = [name for name in TITLES if name not in reasons]
    assert set(reasons) <= {"paper", "matrix-sgd", "tensorly", "pyttb"}
    outcomes = outcomes_of(setting, range(2), chosen)
    assert len(outcomes) == 2 * len(chosen)
    for outcome in outcomes:
        if outcome["method"] != "vector-sgd":
            assert outcome["success"], outcome
            assert outcome["error"] < 0.1
        assert outcome["samples"] == 500
        assert outcome["state_bytes"] > 0
        assert outcome["seconds"] > 0


def test_the_papers_algorithm_runs_where_there_are_enough_samples():
    setting = Setting((3,) * 4, 2000, strength=8.0)
    assert "paper" not in left_out(setting)
    (outcome,) = outcomes_of(setting, [0], ["paper"])
    assert outcome["success"]
    assert 1000 < outcome["samples"] <= 2000  # it stops when its schedule is done
    few = Setting((3,) * 4, 100, strength=2.0)
    assert "its schedule asks for" in left_out(few)["paper"]


def test_what_is_left_out_has_a_reason():
    setting = Setting((10,) * 4, 100, memory_limit=60_000)
    reasons = left_out(setting)
    assert "needs" in reasons["mean"]
    assert "needs" in reasons["als"]
    assert "only for equal vectors" in reasons["matrix-sgd"]
    assert "race" not in reasons
    assert left_out(setting, ["race"])["als"] == "not asked for"
    with pytest.raises(StudyError, match="no method 'nothing'"):
        left_out(setting, ["nothing"])


def test_the_command():
    arguments = ["compare", "--order", "3", "--dim", "7", "--strength", "2", "--samples", "6d^1.5", "--trials", "2"]
    done = runner.invoke(app, arguments, env={"COLUMNS": "110"})
    assert done.exit_code == 0, done.output
    assert "race (RaceSolver)" in done.output
    assert "Left out" in done.output
    done = runner.invoke(app, [*arguments, "--methods", "als,race", "--json"])
    content = json.loads(done.stdout)
    assert {row["method"] for row in content["methods"]} == {"als", "race"}
    assert content["samples"] == 111
    assert content["left_out"]["amp"] == "not asked for"


@pytest.mark.slow
def test_the_study_of_memory():
    """Trials repeat exactly, N₅₀ is in the range that theory gives (within a factor ten), the bound holds."""
    chosen = ("als", "vector-sgd", "unfolding-passes")
    every, few = ([p for p in MEMORY.grid(scale) if "method" in p and p["order"] == 3] for scale in ("full", "quick"))
    trials = [p for p in every if p["method"] in chosen and p["first"] == 0]
    trials += [p for p in few if p["method"] == "race"]
    records = [Record(p, MEMORY.run(p), 0.1) for p in trials]
    again = MEMORY.run(records[0].params)
    assert again["wins"] == records[0].result["wins"]
    for point in points_of(records):
        power = 2 if point.method == "vector-sgd" else 1.5
        assert 0.1 < point.samples.value / point.dim**power < 20, point
        assert point.samples.low <= point.samples.value <= point.samples.high
        assert point.state > 0
    found = {f.label: f for f in MEMORY.findings(records)}
    assert found["order 3, S·K·N"].agrees


def test_the_memory_protocol_ends_with_the_same_bits():
    """Order 4 and 5: S is 64·2^k̄ bits for every entry of a block, and a few for counts and the generator."""
    for order, dim in ((4, 3), (5, 2)):
        params = {"kind": "protocol", "order": order, "dim": dim}
        found = MEMORY.run(params)
        assert found["same"]
        assert found["state"] == 2**order * (order // 2 * dim**2 + order % 2 * dim)
        assert 0 < found["bits"] - 64 * found["state"] < 64 * 2**order + 1000
        (finding,) = protocol_findings([Record(params, found, 0.1)])
        assert f"S = {found['bits']} bits" in finding.measured


def test_the_constants_of_the_planner_are_those_of_the_stored_study():
    frontier, found = constants(Store(Path(__file__).parents[2] / "docs" / "reproduction").records(MEMORY))
    for order in (3, 4, 5, 6):
        (mean, dims), (als, _), (race, race_dims) = (found[name, order] for name in ("mean", "als", "race"))
        assert CONSTANTS["mean"][order] == (mean, als, tuple(dims))
        assert CONSTANTS["race"][order] == (race, race, tuple(race_dims))
    assert frontier == FRONTIER


def test_when_no_method_can_run_the_reasons_are_told():
    done = runner.invoke(app, ["compare", "--order", "4", "--dim", "6", "--methods", "paper,", "--samples", "50"])
    assert isinstance(done.exception, StudyError)
    assert "none of the methods can run here: paper: its schedule asks for" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (["--order", "2", "--dim", "4", "--correlation", "2"], ModelError, "correlation"),
        (["--dims", "4,5", "--symmetric"], ModelError, "equal dims"),
        (["--order", "3", "--dim", "4", "--symmetric", "--correlation", "0.3"], StudyError, "leave --correlation out"),
    ],
)
def test_bad_problems_are_refused(options, error, words):
    done = runner.invoke(app, ["compare", *options])
    assert isinstance(done.exception, error)
    assert words in str(done.exception)


@pytest.mark.parametrize("order", [3, 4, 5])
def test_state_formulas_hold(order):
    """The formulas of all methods against the arrays that their runs held, within a tenth."""
    dim = {3: 12, 4: 7, 5: 5}[order]
    for name, method in METHODS.items():
        formal = name in ("paper", "tensorly", "vector-sgd")  # counted by formula, or theirs
        if formal or method.obstacle((dim,) * order, method.symmetric):
            continue
        options = {"correlation": 1.0, "symmetric": True} if method.symmetric else {}
        truth = SpikedTensor.random((dim,) * order, 1.0, random_state=0, **options)
        outcome, formula = run_once(name, truth, method.step, 0), method.state(truth.dims)
        if name == "mean":  # the formula is for eight units; the samples may fill only five of them
            assert 0.5 * formula < outcome.state <= formula
        else:
            assert outcome.state == pytest.approx(formula, rel=0.12, abs=8 * dim), name
