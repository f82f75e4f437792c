"""Paths and metadata that a terminal, rich or a text encoding would take for something else."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import command
from tpca.wording import printable

NOISE = np.random.default_rng(0).standard_normal((60, 4, 5))
RED = "x\x1b[31mred.npy"


def tpca(*arguments, cwd):
    asked = [sys.executable, "-m", "tpca.cli", *arguments]
    return subprocess.run(asked, cwd=cwd, capture_output=True, text=True, check=False, errors="surrogateescape")


def test_control_characters_are_written_out_and_letters_are_not():
    assert printable("a\x1b[2J\x07\u202eb\udcff") == r"a\x1b[2J\x07\u202eb\udcff"
    assert printable("Größe × 2 — 頻度 é") == "Größe × 2 — 頻度 é"


# What cannot be encoded is the matter of the stream of a process; what redraws is in the text itself.
@pytest.mark.parametrize(
    ("name", "tpca"), [(RED, command.run), pytest.param(os.fsdecode(b"y\xff.npy"), tpca, marks=pytest.mark.slow)]
)
def test_names_of_files_cannot_redraw_the_screen_nor_break_the_text(name, tpca, tmp_path):
    np.save(tmp_path / name, NOISE)
    for arguments, code in (
        (["info", name], 0),
        (["fit", name, "--out", "o", "--report", "r.html"], 3),
        (["info", "o"], 0),
        (["report", "o", "--out", "s.html"], 0),
        (["fit", name, "--out", "p", "--solver", "nonsense"], 2),
        (["info", f"no{name}"], 2),
    ):
        done = tpca(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("asking", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_brackets_in_a_path_are_no_markup(asking, code, tmp_path):
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((20000, 6, 6, 6)))
    asked = [sys.executable, "-m", "tpca.cli", "fit", "d.npy", "--solver", "race", "--out", "a[/b]/o"]
    fit = subprocess.Popen([*asked, "--checkpoint-every", "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "a[").rglob("state.json")) and fit.poll() is None:
        time.sleep(0.01)
    fit.send_signal(asking)
    _, said = fit.communicate()
    assert fit.returncode == code, said
    assert "everything so far is in 'a[/b]/o/checkpoint'. Go on with:" in said
    assert "--out 'a[/b]/o' --checkpoint-every 0 --resume" in said
