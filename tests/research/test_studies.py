"""Studies: estimates with known answers, the store, the runner, and every study's conclusions from few trials."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from amounts import few_or_many
from research import StudyError
from research.__main__ import app
from research.figures import draw_studies
from research.reproduce import BEGIN, END, STUDIES, as_markdown, as_rows, write_markdown
from research.studies.climbs import climb, planned_climb
from research.studies.diagram import DIAGRAM, boundary
from research.studies.estimates import (
    Curve,
    Ratio,
    Slope,
    interval_of,
    power_law,
    power_law_of,
    rate_interval,
    spread,
)
from research.studies.scaling import (
    CORRELATIONS,
    HIDDEN,
    UNCORRELATED,
    _cycles,
    adaptive_fits,
    adaptive_form,
    best_pairing,
    logarithm,
)
from research.studies.store import Store, key, run_studies, stale
from research.studies.study import Record, Study
from research.theory import limit_alignment, noise_norm
from tpca.model import SpikedTensor
from tpca.solvers.paper.run import pairings_of

ROOT = Path(__file__).parents[2]


def logistic_curve(dim, slope, rng, runs=200):
    """Trials whose success is ½ at N = 3 d^slope."""
    points = []
    for j in range(-8, 9):
        samples = 3 * dim**slope * 2 ** (j / 2)
        p = 1 / (1 + math.exp(-3 * j / 2))
        points.append((samples, int(rng.binomial(runs, p)), runs))
    return Curve.gather(points)


@few_or_many(8, 40)
@pytest.mark.slow
def test_slope_of_a_known_law_is_found_and_covered(runs):
    """N₅₀ = 3 d^2.5 exactly, in 40 experiments, or 8.

    The 95 % interval should hold 38: fewer than 30 have probability < 1e-5, as have fewer than 5 of 8 (2e-5).
    """
    covered, values = 0, []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        law = power_law({d: logistic_curve(d, 2.5, rng) for d in (8, 16, 32, 64, 128, 256)})
        covered += law.slope.holds(2.5)
        values.append(law.slope.value)
    assert np.mean(values) == pytest.approx(2.5, abs=0.01 * math.sqrt(40 / runs))
    assert covered >= {40: 30, 8: 5}[runs]


def test_half_is_interpolated_between_levels():
    assert Curve.gather([(10, 1, 10), (10.001, 3, 10), (20, 9, 10)]).runs.tolist() == [20, 10]  # one level
    curve = Curve.gather([(10, 0, 10), (100, 10, 10)])
    assert curve.at() == pytest.approx(math.sqrt(1000))
    assert curve.at(0.9) == pytest.approx(10 * 10**0.9)
    half, ninety = interval_of(curve), interval_of(curve, 0.9)
    assert 10 <= half.low < half.value < half.high <= 100
    assert half.value < ninety.value
    assert Curve.gather([(10, 6, 10), (100, 10, 10)]).at() == pytest.approx(10)
    assert math.isinf(Curve.gather([(10, 0, 10), (100, 4, 10)]).at())
    # Between two rungs, from 0 to 1, the crossing may be anywhere: uniform in log N, so all of 200 draws lie there and
    # their mean is that of the interpolation within 6 standard errors (false alarms below 1e-8).
    draws = np.log([curve.redrawn(np.random.default_rng(seed)) for seed in range(200)])
    assert np.all((draws >= math.log(10)) & (draws <= math.log(100)))
    assert np.mean(draws) == pytest.approx(math.log(1000) / 2, abs=6 * math.log(10) / math.sqrt(12 * 200))
    ratio = Ratio(curve, Curve.gather([(1, 0, 10), (10, 10, 10)]))
    assert ratio.at() == pytest.approx(10)


def test_power_laws_and_rates_with_known_answers():
    values = {x: [5 * math.log(x) * x**-1.0] * 3 for x in (10.0, 100.0, 1000.0, 1e4)}
    assert power_law_of(values).slope.value > -0.95
    law = power_law_of(values, math.log)
    assert [law.slope.value, law.upper()] == pytest.approx([-1.0, -1.0])
    assert law.at(100.0) == pytest.approx(values[100.0][0])
    assert math.isnan(power_law_of({1.0: [1.0], 2.0: [2.0]}).slope.value)  # too few points
    rate = rate_interval(0, 20)
    assert (rate.value, rate.low) == (0.0, 0.0)
    assert rate.high == pytest.approx(1 - 0.025 ** (1 / 20))  # Clopper and Pearson


def exact(slope):
    """Measurements that follow a power law, with a narrow interval."""
    return power_law_of({float(d): [0.99 * d**slope, d**slope, 1.01 * d**slope] for d in (8, 16, 32, 64, 128)})


def test_a_bound_is_judged_from_one_side_and_an_equality_from_both():
    laws = [exact(slope) for slope in (1.5, 2.0, 2.5)]
    for bound, agree in ((True, [True, True, False]), (False, [False, True, False])):
        assert [Slope("x", 2, law, bound=bound)([])[0].agrees for law in laws] == agree
    (below,) = Slope("x", 2, laws[0])([])
    assert below.reason.endswith("not tight here.")
    assert below.predicted == "slope at most 2"
    for slope, ratio in ((2.0, 1.0), (2.5, 4.0)):  # what is left of d^2: (128/8)^0.5
        low, high = spread(exact(slope), 2.0)
        assert high / low == pytest.approx(ratio)


def test_adaptivity_fits_the_constant_of_the_start():
    """N₅₀ made from the form with c₀ = 1.5: the fit finds it, and the slope is one."""
    records = []
    for correlation in CORRELATIONS:
        centre = 7 * adaptive_form(64, correlation, 1.5)
        for j in range(-8, 9):
            params = {"order": 6, "dim": 64, "correlation": correlation, "budget": j}
            wins = round(100 / (1 + math.exp(-1.5 * j)))
            records.append(Record(params, {"wins": wins, "runs": 100, "samples": centre * 2 ** (j / 4)}, 0.1))
    ((law, c0),) = adaptive_fits(records).values()
    assert c0 == pytest.approx(1.5, rel=0.02)
    assert law.slope.value == pytest.approx(1.0, abs=0.01)


def test_scores_of_pairings_have_their_joint_law():
    """The covariance of two scores is ⟨⊗I, ⊗I'⟩, whose trace over d = 3 is counted by brute force."""
    eye = np.eye(3)
    every = [p.groups for p in pairings_of((3,) * 4)]
    tensors = [
        np.einsum("ab,cd->abcd", eye, eye).transpose(np.argsort([n for g in groups for n in g])) for groups in every
    ]
    inner = [[int(np.sum(a * b)) for b in tensors] for a in tensors]
    assert inner == [[3 ** _cycles(p, q) for q in every] for p in every]
    truth = SpikedTensor.random((8,) * 6, 1.0, random_state=1)
    hidden = SpikedTensor(tuple(truth.vectors[n] for n in (0, 1, 0, 3, 1, 3)), 1.0)
    groups, score = best_pairing(hidden, 10**6, np.random.default_rng(0))
    assert set(groups) == set(HIDDEN)
    assert score == pytest.approx(1.0, abs=6 * 8**1.5 / 1000)  # six standard deviations


@pytest.mark.parametrize("without", ["", "I", "II", "III"])
def test_a_phase_that_is_left_out_takes_no_samples(without):
    """Order 4, d = 8, λ = 1: all phases succeed in 8 of 8 runs (in development 100 of 100 at d = 32)."""
    params = {"order": 4, "dim": 8, "correlation": 0.0, "budget": 1.0, "without": without, "first": 0, "count": 8}
    study = STUDIES["phases"]
    found = study.run(params)
    assert stale(study, [Record(params, found, 0.1)]) == []
    assert found["samples"] == pytest.approx(study.planned(params)["samples"], abs=study.planned(params)["rounding"])
    if not without:
        assert found["wins"] >= 7


def test_boundaries_of_a_planted_diagram():
    """N₅₀ = 100/λ² for every method, whatever the correlation: the slope is −2, and correlation saves nothing."""
    records = []
    for params in DIAGRAM.grid("full"):
        if "kind" in params or params["order"] != 3:
            continue
        samples = [100 / params["strength"] ** 2 * 2 ** (j / 2) for j in range(-4, 5)]
        wins = [round(params["count"] / (1 + math.exp(-3 * j))) for j in range(-4, 5)]
        result = {"samples": samples, "wins": wins, "levels": [params["count"]] * 9, "state": 1.0, "passes": 1}
        records.append(Record(params, result, 0.1))
    found = DIAGRAM.findings(records)
    assert len(found) == 8  # four methods, two questions each
    assert all(finding.agrees for finding in found)
    half = boundary(records, 3, "als", "strength")
    assert [half[x].at() * x * x for x in (0.25, 1.0, 2.0)] == pytest.approx([100] * 3, rel=0.2)


def test_the_best_rank_one_fit_has_its_limits():
    """Order 3, d = 20, six tensors: overlaps have standard deviation 0.01 at β = 3, lengths of noise 0.1."""
    fit = {"kind": "fit", "order": 3, "dim": 20, "beta": 3.0, "count": 6, "first": 0}
    assert np.mean(DIAGRAM.run(fit)["values"]) == pytest.approx(limit_alignment(3, 3.0), abs=0.03)
    noise = DIAGRAM.run({"kind": "noise", "order": 3, "dim": 20, "count": 6, "first": 0})["values"]
    assert np.mean(noise) == pytest.approx(noise_norm(3), rel=0.15)


def squares(version=1):
    """A study that costs nothing."""
    trials = [{"x": x, "first": x // 3} for x in range(5)]
    return Study("squares", "Squares", "x²", trials, lambda p: {"y": p["x"] ** 2}, version=version)


def test_store_keeps_what_was_added_and_passes_over_a_torn_line(tmp_path):
    store, study = Store(tmp_path / "s"), squares()
    store.add(study, {"x": 1, "first": 0}, {"y": 1}, 0.5)
    store.add(study, {"x": 2, "first": 0}, {"y": 4}, 0.5)
    path = store.path(study)
    line = json.loads(path.read_text().splitlines()[0])
    assert {"version", "params", "result", "seconds", "tpca", "numpy", "python", "revision"} <= set(line)
    path.write_bytes(path.read_bytes()[:-25])  # as a kill leaves it
    assert [r.params for r in store.records(study)] == [{"x": 1, "first": 0}]
    assert store.pending(study, study.grid("quick")) == [{"x": 0, "first": 0}, {"x": 2, "first": 0}]
    store.add(study, {"x": 2, "first": 0}, {"y": 4}, 0.5)
    assert [r.result for r in store.records(study)] == [{"y": 1}, {"y": 4}]
    assert store.records(squares(version=2)) == []


def test_a_quick_run_has_the_first_seeds_and_a_few_steps_of_every_ladder():
    cell = {"order": 6, "count": 1}
    trials = [
        {**cell, "dim": d, "budget": b, "first": f} for d in (8, 16, 32, 64, 128) for b in range(4) for f in (0, 1)
    ]
    quick = Study("s", "s", "", trials + [{**cell, "kind": "few", "dim": d} for d in (3, 4)], dict).grid("quick")
    assert {(p["dim"], p["budget"], p["first"]) for p in quick[:-1]} == {
        (d, b, 0) for d in (8, 32, 128) for b in (0, 2)
    }
    assert quick[-1]["dim"] == 3


@pytest.mark.parametrize("name", list(STUDIES))
def test_the_stored_table_is_whole_and_of_todays_code(name):
    """Every trial of the full grid is there, and no other; every N without chance in it is computed again."""
    study, store = STUDIES[name], Store(ROOT / "docs" / "reproduction")
    records = store.records(study)
    assert [record.params for record in stale(study, records)] == []
    quick, full = ([key(params) for params in study.grid(scale)] for scale in ("quick", "full"))
    assert {key(record.params) for record in records} == set(full)
    assert set(STUDIES) == {path.stem for path in store.folder.glob("*.jsonl")}
    assert len(set(quick)) == len(quick)
    assert set(quick) <= set(full)
    assert all(json.loads(key(params)) == params for params in study.grid("quick"))
    assert all(finding.agrees is None for finding in study.findings([]))


def test_other_samples_than_those_planned_are_stale():
    params = {"order": 5, "dim": 16, "correlation": 0.0, "budget": 1.0, "first": 0, "count": 1}
    planned = planned_climb(params)
    assert stale(STUDIES["worst-case"], [Record(params, planned, 0.1)]) == []
    for name in ("samples", "climb", "phase_one", "weighted"):
        assert stale(STUDIES["worst-case"], [Record(params, planned | {name: 1.05 * planned[name]}, 0.1)])


def test_planned_samples_are_those_of_a_climb():
    study = STUDIES["worst-case"]
    for more in ({"correlation": 1.0}, {"correlation": 0.0, "starts": "random"}, {"correlation": 0.0, "order": 5}):
        params = {"order": 4, "dim": 8, "budget": 0.25, "first": 0, "count": 2, **more}
        found = climb(params)
        assert set(planned_climb(params)) - {"rounding"} <= set(found)
        assert stale(study, [Record(params, found, 0.1)]) == []


def test_a_climb_succeeds_with_many_samples_and_fails_with_few():
    params = {"order": 4, "dim": 16, "correlation": 0.0, "first": 0, "count": 10}
    plenty, few = climb({**params, "budget": 4.0}), climb({**params, "budget": 0.05})
    assert plenty["wins"] == 10
    assert few["wins"] == 0
    assert plenty["samples"] > 50 * few["samples"]
    assert climb({**params, "budget": 4.0}) == plenty


@pytest.mark.slow
def test_findings_of_a_planted_store(tmp_path):
    """Records that follow the prediction exactly are told as agreement, others as difference; all of it is drawn."""
    study = STUDIES["worst-case"]
    rng = np.random.default_rng(0)

    def records(bend):
        found = []
        for order, (slope, *_) in UNCORRELATED.orders.items():
            for dim in (16, 32, 64, 128):
                correction = logarithm(order, 0.0)(dim)
                for j in range(-6, 7):
                    n = correction * dim ** (slope + bend) * 2 ** (j / 2)
                    wins = int(rng.binomial(50, 1 / (1 + math.exp(-3 * j))))
                    params = {"order": order, "dim": dim, "budget": j}
                    found.append(Record(params, {"wins": wins, "runs": 50, "samples": n, "weighted": n * dim}, 0.1))
        return found

    assert {f.verdict for f in study.findings(records(0.0))} == {"agrees"}
    assert {f.verdict for f in study.findings(records(0.5))} == {"differs"}


@pytest.mark.slow
def test_table_and_figures_of_a_real_store(tmp_path):
    """A few real trials of one study, run by the runner in processes of its own; the figures of two stored ones."""
    store, study = Store(tmp_path / "store"), STUDIES["initialisation"]
    seen = []
    ran = run_studies([study], "quick", store, seen.append, processes=2)
    assert ran == len(seen) == len(study.grid("quick"))
    assert run_studies([study], "quick", store) == 0
    findings = {study.name: study.findings(store.records(study))}
    by_case = {f.label: f for f in findings[study.name]}
    assert by_case["order 6, random, identical"].agrees
    assert by_case["order 6, identity, identical"].agrees
    assert len(as_rows(findings)) == 8
    assert "| order 6, both, identical | finds |" in as_markdown([study], findings)
    study = STUDIES["stages"]
    findings[study.name] = []
    drawn = draw_studies(list(STUDIES.values()), Store(ROOT / "docs" / "reproduction"), tmp_path / "figures")
    assert set(STUDIES) - set(drawn) == {"phases", "initialisation", "chances"}  # whose tables say all
    assert all(path.stat().st_size > 5000 for path in drawn.values())
    told = tmp_path / "told.md"
    told.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_markdown(told, [study], findings, drawn)
    assert told.read_text().startswith("before\n")
    assert told.read_text().endswith("after\n")
    assert "old" not in told.read_text()
    assert "](figures/stages.png)" in told.read_text()


@pytest.mark.slow
def test_a_study_goes_on_after_kill_9(tmp_path):
    """A real SIGKILL in the middle; the lines stored before stay as they are, and only the rest is run."""
    store = tmp_path / "store"
    path = store / "initialisation.jsonl"
    arguments = ["reproduce", "initialisation", "--quick", "--store", str(store), "--processes", "1"]
    command = [sys.executable, "-m", "research", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = path.read_bytes()
    whole = before[: before.rindex(b"\n") + 1]
    total = len(STUDIES["initialisation"].grid("quick"))
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert (done.exit_code, len(json.loads(done.stdout))) == (0, 8)
    after = path.read_bytes()
    assert after.startswith(whole)
    lines = [json.loads(line) for line in after.splitlines() if line.endswith(b"}")]
    assert len({key(line["params"]) for line in lines}) == len(lines) == total


def test_the_list_names_every_study():
    done = CliRunner().invoke(app, ["reproduce", "--list"])
    assert done.exit_code == 0
    assert all(name in done.stdout for name in STUDIES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say how much to run"),
        (("worst", "--quick"), "there is no study 'worst'"),
        (("--quick", "--full"), "choose one of"),
        (("--show", "--store", "nowhere"), "no finished trials in 'nowhere'"),
    ],
)
def test_bad_usage_is_told(tmp_path, arguments, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", *arguments])
    assert isinstance(done.exception, StudyError)
    assert words in str(done.exception)
    assert not list(tmp_path.iterdir())
