"""Signal, no signal or not tested: one verdict, the same in Python, on the command line, on disk and in the report."""

import json
import re
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from tpca import MeanSolver, PaperSolver, RaceSolver, TensorCCA, TensorPCA
from tpca.cli import app
from tpca.lab.baselines import ALS
from tpca.report.folder import write_report
from tpca.results import read_result, write_result
from tpca.solvers.claim import Verdict
from tpca.solvers.recovery import StopReason

CODES = {"signal": 0, "no signal": 3, "not tested": 4}
HEADLINES = {"signal": ("A signal was found", "✓"), "no signal": ("No signal", "✕"), "not tested": ("Not tested", "?")}
SURE = 0.9999  # a false alarm in noise has 1e-4 or less
runner = CliRunner()


def noise(count):
    return np.random.default_rng(0).standard_normal((count, 4, 4, 4, 4))


def planted(count):
    """Strength 3: with 300 samples 50 standard errors, far more than the 20 or so that proof takes."""
    samples = noise(count)
    samples[:, 0, 1, 2, 3] += 3.0
    return samples


def quietly(function, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*given)


CASES = {  # solver, data, verdict; the paper's schedule asks for 3664 samples
    "mean": (MeanSolver(random_state=0), lambda: planted(300), "signal"),
    "race": (RaceSolver(random_state=0), lambda: planted(300), "signal"),
    "mean, noise": (MeanSolver(random_state=0, confidence=SURE), lambda: noise(100), "no signal"),
    "race, noise": (RaceSolver(random_state=0, confidence=SURE), lambda: noise(100), "no signal"),
    "paper": (PaperSolver(strength=3.0, random_state=0), lambda: planted(3700), "not tested"),
    "paper, noise": (PaperSolver(strength=2.0, random_state=0), lambda: noise(3700), "not tested"),
    "paper, cut short": (PaperSolver(strength=2.0, random_state=0), lambda: noise(50), "not tested"),
    "ALS, noise": (ALS(), lambda: noise(100), "not tested"),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: quietly(TensorPCA(solver=solver).fit, data()) for name, (solver, data, _) in CASES.items()}


def test_every_stop_reason_has_a_verdict():
    untested = {StopReason.SCHEDULE_DONE, StopReason.STREAM_ENDED_EARLY, StopReason.ITERATED}
    for reason in StopReason:
        expected = "not tested" if reason in untested else "no signal" if reason is StopReason.NO_SIGNAL else "signal"
        assert reason.verdict == expected


@pytest.mark.parametrize("name", CASES)
def test_found_is_a_proven_signal_and_nothing_else(name, fitted):
    pca, verdict = fitted[name], CASES[name][2]
    assert pca.verdict_ is pca.recovery_.verdict is Verdict(verdict)
    assert pca.recovery_.found == (verdict == "signal")
    assert pca.n_components_ == (0 if verdict == "no signal" else 1)  # without a test there still is an answer
    assert all(np.isfinite(e).all() == (verdict != "not tested") for e in pca.standard_errors_)


@pytest.mark.parametrize("name", CASES)
def test_files_screens_and_report_say_the_same(name, fitted, tmp_path):
    recovery, verdict = fitted[name].recovery_, CASES[name][2]
    write_result(tmp_path, recovery, "data")
    summary = json.loads((tmp_path / "recovery.json").read_text())
    assert (summary["verdict"], summary["found"]) == (verdict, verdict == "signal")
    assert len(read_result(tmp_path).vectors) == (0 if verdict == "no signal" else 4)
    told = runner.invoke(app, ["info", str(tmp_path)]).output
    assert verdict.capitalize() in told.splitlines()[1]
    assert ("95 % interval" in told, "strength at most" in told) == (verdict == "signal", verdict == "no signal")
    write_report(tmp_path, tmp_path / "r.html", checks=False)
    page = (tmp_path / "r.html").read_text()
    headline, sign = HEADLINES[verdict]
    assert headline in re.search(r"<h2>(.*?)</h2>", page).group(1)
    assert re.search(r'class="sign"[^>]*>(.)<', page).group(1) == sign
    assert re.search(rf"verdict</t[hd]><td[^>]*>{verdict}<", page)
    assert ("of runs on pure noise" in page) == (verdict != "not tested")


@pytest.mark.parametrize(
    ("data", "options", "verdict"),
    [
        (planted(300), [], "signal"),
        (noise(100), ["--confidence", str(SURE)], "no signal"),
        (noise(3700), ["--solver", "paper", "--strength", "2"], "not tested"),
        (noise(50), ["--solver", "paper", "--strength", "2"], "not tested"),
    ],
    ids=["signal", "noise", "paper", "paper, cut short"],
)
def test_the_command_says_it_and_exits_with_it(data, options, verdict, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    np.save(tmp_path / "d.npy", data)
    command = ["fit", str(tmp_path / "d.npy"), "--out", str(tmp_path / "r"), *options]
    done = runner.invoke(app, command)
    assert done.exit_code == CODES[verdict], done.output
    assert verdict.capitalize() in done.output
    assert ("\x1b[1;32m" in done.output) == (verdict == "signal")  # green, bold
    told = runner.invoke(app, [*command, "--json"])
    assert (told.exit_code, json.loads(told.stdout)["verdict"]) == (CODES[verdict], verdict)


def test_views_have_a_verdict_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((400, 3)) for _ in range(3)]
    nothing = quietly(TensorCCA(random_state=0, confidence=SURE).fit, views)
    assert (nothing.verdict_, nothing.n_components_) == (Verdict.NO_SIGNAL, 0)
    shared = rng.standard_normal((400, 1)) ** 2  # skewed: the mean product of three of them is not zero
    some = TensorCCA(random_state=0).fit([view + 3 * shared for view in views])
    assert (some.verdict_, some.n_components_) == (Verdict.SIGNAL, 1)


def test_the_exit_codes_are_in_the_help():
    for asked in (["--help"], ["fit", "--help-all"]):
        told = " ".join(runner.invoke(app, asked).output.split())
        assert re.search(r"3:? no signal", told)
        assert re.search(r"4:? not tested", told)
