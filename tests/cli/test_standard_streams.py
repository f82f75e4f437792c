"""Standard output and standard error that are closed, full or without some letters: one line and exit code 2."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from command import line, run
from tpca.cli import main

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("d.npy", 0.3 + RNG.standard_normal((60, 4, 3)))
    return tmp_path


def exit_code(monkeypatch, *words):
    """What the command ends with in this process, whatever its streams are."""
    monkeypatch.setattr(sys, "argv", ["tpca", *words])
    try:
        main()
    except SystemExit as left:
        return left.code
    return 0


def written(monkeypatch, encoding, *words):
    """What the command writes to a standard output of some encoding."""
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, encoding))
    assert exit_code(monkeypatch, *words) == 0
    return file.getvalue().decode(encoding, errors="replace")  # Typer takes ASCII for a slip, and writes UTF-8


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("words", ["fit d.npy", "info d.npy", "plan --order 3 --dim 10", "--help"])
def test_letters_that_an_encoding_lacks_are_written_in_others(encoding, words, folder, monkeypatch):
    told = written(monkeypatch, encoding, *words.split())
    assert len(told.splitlines()) > 3
    if words == "fit d.npy":
        assert ("+/-" if encoding == "ascii" else "±") in told


def test_json_is_json_in_every_encoding(folder, monkeypatch):
    names = {"0": ["α", "β", "γ", "δ"]}
    (folder / "names.json").write_text(json.dumps(names))
    told = written(monkeypatch, "ascii", "fit", "d.npy", "--labels", "names.json", "--json")
    assert json.loads(told)["labels"]["0"]["entries"] == names["0"]


def test_a_closed_standard_output_is_found_before_the_work(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    with monkeypatch.context() as patched:
        patched.setattr("tpca.estimators.TensorPCA._fit", None)
        assert exit_code(monkeypatch, "fit", "d.npy", "--out", "r") == 2
    said = capsys.readouterr().err
    assert said.startswith("tpca: standard output is closed")
    assert "--quiet" in said
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_code(monkeypatch, "fit", "d.npy", "--out", "r", "--quiet") == 0
    assert (folder / "r" / "result.json").exists()


@pytest.mark.parametrize("words", ["info d.npy", "plan --order 3 --dim 10", "--help"])
def test_what_cannot_be_printed_is_one_line(words, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_code(monkeypatch, *words.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "standard output" in said


class Full(io.StringIO):
    """A stream that takes nothing."""

    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [None, Full()], ids=["closed", "full"])
@pytest.mark.parametrize("words", ["info none.npy", "fit d.npy --bad", "fit d.npy --tol 1"])
def test_an_error_that_cannot_be_told_is_still_an_exit_code(words, stream, folder, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    assert exit_code(monkeypatch, *words.split()) == 2


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes files")
@pytest.mark.parametrize(
    ("closed", "words", "code"),
    [
        (">&-", "info d.npy", 2),
        pytest.param(">&- 2>&-", "info d.npy", 2, marks=pytest.mark.slow),
        pytest.param("2>&-", "info none.npy", 2, marks=pytest.mark.slow),
        pytest.param(">&-", "fit d.npy --quiet --out r", 0, marks=pytest.mark.slow),
    ],
)
def test_streams_that_a_shell_closes(closed, words, code, folder):
    asked = f"{sys.executable} -m tpca.cli {words} {closed}"
    done = subprocess.run(["sh", "-c", asked], stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


# Names that are no text ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="file names are text there")
@pytest.mark.parametrize("words", ["{} --out r", "d.npy --y {} --out r", "{} d.npy --out r"])
def test_a_file_name_that_is_not_utf_8_is_refused_before_the_work(words, folder, monkeypatch):
    name = os.fsdecode(b"bad\xff.npy")
    np.save(name, np.arange(60.0))
    monkeypatch.setattr("tpca.estimators.TensorPCA._fit", None)
    monkeypatch.setattr("tpca.estimators.TensorCCA.fit", None)
    said = line(run("fit", *(word.format(name) for word in words.split()), cwd=folder))
    assert "'bad\\udcff.npy'" in said
    assert "rename" in said
    assert not (folder / "r").exists()


def test_labels_that_are_no_text_are_refused_before_the_work(folder):
    (folder / "names.json").write_text('{"0": ["a", "b", "\\udcff", "d"]}')
    assert "'names.json'" in line(run("fit", "d.npy", "--labels", "names.json", "--out", "r", cwd=folder))
    assert not (folder / "r").exists()


@pytest.mark.parametrize("words", ["fit d.npy --report r.html", "report kept"])
def test_a_backend_that_is_none_is_one_line(words, folder, monkeypatch):
    assert run("fit", "d.npy", "--out", "kept", "--quiet", cwd=folder).returncode == 0
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    monkeypatch.setattr("tpca.estimators.TensorPCA._fit", None)
    said = line(run(*words.split(), cwd=folder))
    assert "MPLBACKEND='nonsense'" in said
    assert "unset MPLBACKEND" in said
