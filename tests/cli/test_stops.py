"""Fits that are stopped: what is said, what is kept, and that going on gives the bits of a fit that was not."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from command import line, run
from tpca.checkpoint import Checkpoints
from tpca.cli.progress import FitProgress

RACE = ("--memory-limit", "40kB")  # in which least squares does not fit
FITS = {"race": RACE, "least squares": ()}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Samples, and the results of fits that were not stopped."""
    folder = tmp_path_factory.mktemp("data")
    assert run("generate", "--dims", "12,12,12,12", "--samples", "600", "--out", "d.npy", cwd=folder).returncode == 0
    for name, words in FITS.items():
        assert run("fit", "d.npy", *words, "--out", name, cwd=folder).returncode == 0
    return folder


def stopped(folder, asking, *words):
    """A fit that is sent a signal once it has left a checkpoint; returns what it said, and its exit code."""
    asked = [sys.executable, "-m", "tpca.cli", "fit", *map(str, words), "--checkpoint-every", "0"]
    fit = subprocess.Popen(asked, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    place, deadline = words[words.index("--out") + 1] / "checkpoint", time.monotonic() + 120
    while not (place.exists() and any(path.name.isdigit() for path in place.iterdir())):
        assert fit.poll() is None, fit.stderr.read()
        assert time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.002)
    fit.send_signal(asking)
    _, said = fit.communicate(timeout=120)
    return said, fit.returncode


@pytest.mark.parametrize(
    ("asking", "code", "fit"),
    [
        (signal.SIGINT, 130, "race"),
        (signal.SIGKILL, -9, "race"),
        pytest.param(signal.SIGTERM, 143, "race", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "least squares", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, "least squares", marks=pytest.mark.slow),
    ],
)
def test_a_fit_that_was_stopped_goes_on_to_the_same_bits(asking, code, fit, data, tmp_path):
    out = tmp_path / "a[/b]"  # no markup
    words = ("d.npy", "--out", out, *FITS[fit])
    said, status = stopped(data, asking, *words)
    assert status == code, said
    assert not (out / "result.json").exists()
    if asking != signal.SIGKILL:
        assert said.splitlines()[-1].endswith("--checkpoint-every 0 --resume")
        assert str(out) in said
    refused = run("fit", *words, cwd=data)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    assert run("fit", *words, "--resume", "--quiet", cwd=data).returncode == 0
    for name in ("result.json", "vectors.npz"):
        assert (out / name).read_bytes() == (data / fit / name).read_bytes()
    assert not (out / "checkpoint").exists()


def test_restart_begins_afresh(data, tmp_path):
    words = ("d.npy", "--out", tmp_path / "r", *RACE)
    stopped(data, signal.SIGKILL, *words)
    assert run("fit", *words, "--restart", "--quiet", cwd=data).returncode == 0
    assert (tmp_path / "r" / "vectors.npz").read_bytes() == (data / "race" / "vectors.npz").read_bytes()


def test_without_out_nothing_is_kept_and_that_is_said(tmp_path):
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((200, 6, 6, 6)))
    code = (  # Ctrl-C after the first round, from within: from outside the fit may be over before
        "import os, signal, sys; import tpca.cli.fit as fit; from tpca.cli import main\n"
        "usual = fit.FitProgress.__call__\n"
        "def told(self, record):\n"
        "    fit.FitProgress.__call__ = usual; os.kill(os.getpid(), signal.SIGINT); return usual(self, record)\n"
        "fit.FitProgress.__call__ = told; sys.argv = ['tpca', 'fit', 'd.npy', '--solver', 'race']; main()"
    )
    fit = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert fit.returncode == 130, fit.stderr
    assert [word in fit.stderr for word in ("nothing is kept", "--out", "Traceback")] == [True, True, False]


TESTING = {"mean": (), "variance": ("--target", "variance")}


@pytest.mark.parametrize("asking", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("target", TESTING)
def test_a_fit_that_was_stopped_while_testing_goes_on_to_the_same_bits(target, asking, tmp_path, monkeypatch):
    np.save(tmp_path / "d.npy", 0.3 + np.random.default_rng(0).standard_normal((200, 4, 3)))
    words = ("d.npy", *TESTING[target], "--checkpoint-every", "1000")
    whole = run("fit", *words, "--out", "whole", cwd=tmp_path)
    usual = FitProgress.__call__

    def stop_while_testing(progress, record):
        if record["phase"] == "testing":
            monkeypatch.setattr(FitProgress, "__call__", usual)
            signal.raise_signal(asking)
        return usual(progress, record)

    monkeypatch.setattr(FitProgress, "__call__", stop_while_testing)
    stopped_fit = run("fit", *words, "--out", "r", cwd=tmp_path)
    assert stopped_fit.returncode == 128 + asking
    assert stopped_fit.stderr.splitlines()[-1].endswith("--out r --resume")
    assert "nothing" not in stopped_fit.stderr
    assert "--resume" in line(run("fit", *words, "--out", "r", cwd=tmp_path))
    assert run("fit", *words, "--out", "r", "--resume", cwd=tmp_path).returncode == whole.returncode
    for name in ("result.json", "vectors.npz"):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "r" / "checkpoint").exists()


def test_ctrl_c_after_the_result_was_saved_says_where_it_is(tmp_path, monkeypatch):
    np.save(tmp_path / "d.npy", 0.3 + np.random.default_rng(0).standard_normal((200, 4, 3)))
    monkeypatch.setattr("tpca.cli.fit._show", lambda *_: signal.raise_signal(signal.SIGINT))
    done = run("fit", "d.npy", "--out", "r", cwd=tmp_path)
    assert done.returncode == 130
    assert "the result is in 'r'" in done.stderr
    assert (tmp_path / "r" / "result.json").exists()


# What is not ours is never removed -----------------------------------------------------------------------------------


def everything(folder):
    return sorted((path, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*"))


@pytest.fixture
def samples(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 4, 3)))
    return tmp_path


def refused(folder, kept, *words):
    """What is said of a fit that does not touch what is in ``kept``."""
    before = everything(kept)
    done = run("fit", "x.npy", "--out", "o", *words, "--quiet", cwd=folder)
    assert done.returncode == 2
    assert everything(kept) == before
    return done.stderr


@pytest.mark.parametrize("more", [("--restart",), ("--resume",), ()])
def test_folders_named_by_date_are_refused_by_name_and_stay(more, samples):
    (samples / "t/dates/20260101").mkdir(parents=True)
    (samples / "t/dates/20260102/raw").mkdir(parents=True)
    (samples / "t/dates/20260101/a.txt").write_text("x\n")
    said = refused(samples, samples / "t", "--checkpoint", "t/dates", *more)
    assert "'t/dates/20260101'" in said
    assert "--restart" not in said


def test_a_checkpoint_with_something_of_the_users_in_it_stays(samples):
    Checkpoints(samples / "kept").save({"number": 1})
    (samples / "kept/00000001/notes.txt").write_text("mine")
    assert "'kept/00000001'" in refused(samples, samples / "kept", "--checkpoint", "kept", "--restart")


@pytest.mark.parametrize("inner", [False, True], ids=["the folder", "a checkpoint in it"])
def test_nothing_is_removed_through_a_link(inner, samples):
    behind = samples / "behind"
    Checkpoints(behind).save({"number": 1})
    link = samples / ("o/checkpoint/00000001" if inner else "o/checkpoint")
    link.parent.mkdir(parents=True)
    link.symlink_to(behind / "00000001" if inner else behind)
    assert f"'{link.relative_to(samples)}'" in refused(samples, behind, "--restart")
