"""What is written appears whole or not at all, and what belongs together is never of two runs."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

import command
from kills import kills
from tpca import SpikedTensor
from tpca.data.write import read_truth, truth_path, write_samples
from tpca.errors import OutputError
from tpca.files import clear_drafts, replacing
from tpca.model import Samples
from tpca.result import load

STEPS = [(os, "replace"), (os, "unlink"), (shutil, "rmtree"), (np, "savez"), (Path, "write_text")]


def no_drafts(folder):
    return not list(folder.rglob(".writing-*"))


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


# -- A result.

KILLED = """
import os, sys
from tpca.cli import main
replace, name = os.replace, sys.argv.pop(1)
def die_before(draft, path):
    if os.path.basename(path) == name:
        os._exit(9)
    replace(draft, path)
os.replace = die_before
sys.argv[0] = "tpca"
main()
"""


@pytest.mark.parametrize("killed_before", ["result.json", "vectors.npz"])
def test_a_fit_killed_while_it_writes_its_result_mixes_nothing(killed_before, tmp_path, monkeypatch):
    """The result before is one of no signal; the new one has a signal."""

    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).standard_normal((60, 4, 5, 6))
    np.save("d.npy", noise)
    assert command.run("fit", "d.npy", "--out", "r", "--quiet", cwd=tmp_path).returncode == 3
    files = ("result.json", "vectors.npz")
    before = [Path("r", name).read_bytes() for name in files]
    np.save("d.npy", noise + SpikedTensor.random((4, 5, 6), 3.0).signal())
    again = ["fit", "d.npy", "--out", "r", "--quiet", "--overwrite"]
    done = subprocess.run([sys.executable, "-c", KILLED, killed_before, *again], check=False)
    assert done.returncode == 9
    if killed_before == "result.json":  # nothing was replaced yet
        assert [Path("r", name).read_bytes() for name in files] == before
        assert load("r").verdict == "no signal"
    else:
        for words in (("info", "r"), ("score", "d.npy", "r")):
            said = command.run(*words, cwd=tmp_path)
            assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
            assert "vectors.npz' does not belong to the result.json beside it" in said.stderr
    assert command.run(*again, "--resume", cwd=tmp_path).returncode == 0
    assert sorted(os.listdir("r")) == [*files]
    assert load("r").verdict == "signal"


# -- Generated data and their truth.

COUNT = 6
TRUTHS = {name: SpikedTensor.random((3, 4), seed + 1.0, random_state=seed) for seed, name in enumerate(("old", "new"))}


def generate(path, name):
    path.parent.mkdir(exist_ok=True)
    write_samples(path, TRUTHS[name].stream(random_state=1, batch_size=COUNT), COUNT, TRUTHS[name], overwrite=True)


def samples_in(path):
    """Whose samples they are; ``None`` if there are none."""
    if not path.exists():
        return None
    found = np.load(path) if path.suffix == ".npy" else zarr.open_array(str(path), mode="r")[:]
    for name, truth in TRUTHS.items():
        if np.array_equal(found, next(iter(truth.stream(random_state=1, batch_size=COUNT)))):
            return name
    raise AssertionError("samples that nobody wrote")


def truth_in(path):
    if not truth_path(path).exists():
        return None
    strength = read_truth(truth_path(path)).strength
    return next(name for name, truth in TRUTHS.items() if truth.strength == strength)


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_a_kill_at_any_step_leaves_no_data_with_the_truth_of_others(suffix, tmp_path, monkeypatch):
    seen, file = set(), f"d{suffix}"
    old, new = (lambda folder, name=name: generate(folder / file, name) for name in ("old", "new"))
    for folder in kills(monkeypatch, tmp_path, old, new, STEPS, 4):
        seen.add((samples_in(folder / file), truth_in(folder / file)))
        generate(folder / file, "new")
        assert (samples_in(folder / file), truth_in(folder / file)) == ("new", "new")
        assert no_drafts(folder)
    between = {(None, None)} if suffix == ".zarr" else set()  # a folder cannot be replaced in one step
    assert seen == {("old", "old"), ("old", None), ("new", None), ("new", "new")} | between


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_data_that_cannot_be_written_leave_those_before(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"d{suffix}"
    generate(path, "old")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for step in ((os, "fsync"), (np, "savez")):
        with monkeypatch.context() as patch:
            patch.setattr(*step, full)
            with pytest.raises(OutputError, match="No space left on device"):
                generate(path, "new")
        assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    replace = os.replace
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda a, b: full() if b == path and "-old-" not in a.name else replace(a, b))
        with pytest.raises(OutputError, match="No space left on device"):
            generate(path, "new")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == {
        p: content for p, content in before.items() if p != truth_path(path)
    }
    generate(path, "old")
    write_samples(path, Samples((3, 4), None, "gaussian", 0), COUNT)  # without a truth, the old one goes
    assert os.listdir(tmp_path) == [path.name]


# -- Drafts.


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with replacing(tmp_path / "mine") as (draft,):
        host = draft.name.split("-")[2]
        draft.touch()
    theirs, folder = (tmp_path / f".writing-{other.pid}-{host}-{name}" for name in ("x.npz", "d.zarr"))
    theirs.write_bytes(b"half of")
    folder.mkdir()
    (folder / "c").write_bytes(b"half of")
    # Process 1 of another host cannot be asked.
    foreign = [tmp_path / name for name in (".writing-letters", ".hidden", "writing-1-x", ".writing-1-0badcafe-d.zarr")]
    for path in foreign:
        path.write_text("not ours")
    left = tmp_path / f".writing-{os.getpid()}-{host}-y.npz"  # of another process, long ago, that had our number
    left.write_bytes(b"half of")
    with replacing(tmp_path / "mine") as (draft,):
        draft.write_text("at work")
        clear_drafts(tmp_path)
        assert draft.exists()
        assert theirs.exists()
        assert folder.exists()
        assert not left.exists()
    other.communicate(b"\n")
    with replacing(tmp_path / "mine") as (draft,):
        draft.write_text("again")
    assert sorted(tmp_path.iterdir()) == sorted([*foreign, tmp_path / "mine"])
    assert (tmp_path / "mine").read_text() == "again"


def test_an_error_of_the_caller_is_its_own_and_what_is_in_the_way_is_not_thrown_away(tmp_path):
    def work():
        with replacing(tmp_path / "a", tmp_path / "b") as (one, _):
            one.write_text("begun")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(OutputError, match="cannot write"), replacing(tmp_path / "mine") as (draft,):
        draft.write_text("a file")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes"]
