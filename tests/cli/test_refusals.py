"""What cannot be done is refused in one line, with exit code 2, before the work, and leaves nothing behind."""

import os
import subprocess
import sys

import numpy as np
import pytest

from command import line, run

RNG = np.random.default_rng(0)
GOOD = RNG.standard_normal((60, 4, 3))


def in_process(*words, cwd, **more):
    """What only the end of a process shows."""
    asked = [sys.executable, "-m", "tpca.cli", *map(str, words)]
    return subprocess.run(asked, cwd=cwd, stderr=subprocess.PIPE, text=True, check=False, timeout=120, **more)


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "d.npy", GOOD)
    np.save(tmp_path / "y.npy", np.arange(60.0))
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", RNG.standard_normal((60, 4)))
    return tmp_path


def bad_files(folder):
    """Names of files, and what is said of them."""
    bad, good = GOOD.copy(), (folder / "d.npy").read_bytes()
    bad[7, 1, 1] = np.nan
    (folder / "mixed").mkdir()
    for name, content, says in (
        ("missing.npy", None, "no such file"),
        ("empty.npy", b"", "empty"),
        ("magic.npy", b"not an array at all" * 10, "npy"),
        ("short.npy", good[:-100], "bytes"),
        ("object.npy", np.array([{"a": 1}] * 3, dtype=object), "object"),
        ("complex.npy", GOOD.astype(complex), "complex128"),
        ("none.npy", GOOD[:0], "no samples"),
        ("nan.npy", bad, "sample 7"),
        ("mixed/a.npy", GOOD, ""),
        ("mixed/b.npy", GOOD[:, :3], ""),
        ("text.csv", b"1,2,3", "cannot read 'text.csv' as a table"),
        ("wrong.h5", b"not hdf5" * 100, "HDF5"),
    ):
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        elif content is not None:
            np.save(folder / name, content, allow_pickle=True)
        if says:
            yield name, says
    yield "mixed", "b.npy"


def test_bad_data_leave_nothing(folder):
    for name, says in bad_files(folder):
        assert says in line(run("fit", name, "--out", "r", cwd=folder)), name
        assert not [p for p in (folder / "r").rglob("*") if p.is_file()], name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--memory-limit lots", "'lots'"),
        ("--memory-limit 100", "100 bytes"),
        ("--confidence 2", "2.0"),
        ("--nan-policy ignore", "ignore"),
        ("--solver best", "'best'"),
        ("--target median", "'median'"),
        ("--whiten all", "'all'"),
        ("--dependence much", "'much'"),
        ("--n-resamples 3", "3"),
        ("--random-state -1", "-1"),
        ("--y y.npy --groups y.npy", "groups"),
        ("--y d.npy::x", "d.npy"),
        ("--checkpoint-every -1 --out r", "checkpoint_every"),
    ],
)
def test_a_bad_value_is_named(words, says, folder):
    assert says in line(run("fit", "d.npy", *words.split(), cwd=folder))


IDLE = [
    "fit d.npy --solver race --n-resamples 99",
    "fit d.npy --solver race --dependence none",
    "fit d.npy --solver paper --y y.npy",
    "fit d.npy --solver race --groups y.npy",
    "fit d.npy --solver paper --strength 1 --n-components 2",
    "fit d.npy --tol 0.1",
    "fit d.npy --max-passes 2",
    "fit d.npy --strength 2",
    "fit d.npy --solver race --strength 2",
    "fit d.npy --target variance --whiten none",
    "fit d.npy --target variance --solver race",
    "fit d.npy --target variance --weights y.npy",
    "fit d.npy --target mean --y y.npy",
    "fit d.npy --nuisance y.npy",
    "fit d.npy --shrinkage 0.5",
    "fit d.npy --resume",
    "fit d.npy --restart",
    "fit d.npy --overwrite",
    "fit d.npy --out r --restart --resume",
    "fit d.npy --no-scores",
    "fit d.npy --quiet --json",
    "fit a.npy b.npy --y y.npy",
    "fit a.npy b.npy --max-samples 9",
    "fit a.npy b.npy --out r --resume",
    "fit a.npy b.npy --dim 1",
    "generate --out g.npy --dims 3,3 --order 2",
    "generate --out g.npy --strength 0 --correlation 0.5",
]


@pytest.mark.parametrize("words", IDLE)
def test_an_option_that_means_nothing_is_refused_by_name(words, folder, monkeypatch):
    monkeypatch.setattr("tpca.data.open_stream", lambda *_, **__: pytest.fail("the work was begun"))
    said, option = line(run(*words.split(), cwd=folder)), [word for word in words.split() if word.startswith("--")][-1]
    assert said.startswith(f"tpca: {option} ")
    assert not (folder / "r").exists()


def test_options_that_mean_nothing_to_a_result_are_refused(folder):
    assert run("fit", "d.npy", "--out", "r", "--quiet", cwd=folder).returncode in (0, 3)
    assert line(run("info", "r", "--dim", "1", cwd=folder)).startswith("tpca: --dim")
    assert line(run("score", "d.npy", "r", "--y", "y.npy", cwd=folder)).startswith("tpca: --y")
    assert line(run("report", "r", "--no-scores", "--data", "d.npy", cwd=folder)).startswith("tpca: --data")
    assert "(4, 3)" in line(run("score", "a.npy", "r", cwd=folder))


def test_a_ragged_table_is_refused_with_its_line(folder):
    rows = [f"{i % 2},{i}" for i in range(60)]
    for third in ("1,1,7", "1"):
        (folder / "y.csv").write_text("\n".join(["dose,age", rows[0], third, *rows[2:]]) + "\n")
        for column in ("dose", "dosis"):
            said = line(run("fit", "d.npy", "--y", f"y.csv::{column}", cwd=folder))
            assert f"line 3 of 'y.csv' has {third.count(',') + 1} cells" in said
    (folder / "y.csv").write_text("\n".join(["dose,age", *rows]) + "\n\n")
    assert "only dose, age" in line(run("fit", "d.npy", "--y", "y.csv::dosis", cwd=folder))
    assert "y.csv::dose" in line(run("fit", "d.npy", "--y", "y.csv", cwd=folder))
    assert run("fit", "d.npy", "--y", "y.csv::dose", "--nuisance", "y.csv::age", "--quiet", cwd=folder).returncode < 4


@pytest.mark.parametrize(
    "place",
    [
        "--y p.npy",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("--y p.csv", "--groups p.npy", "--labels p.json")),
    ],
)
def test_a_pipe_is_refused_and_does_not_hang(place, folder):
    os.mkfifo(folder / place.split()[1])
    done = in_process("fit", "d.npy", *place.split(), cwd=folder, stdout=subprocess.PIPE)
    assert "regular file" in line(done)


# Places --------------------------------------------------------------------------------------------------------------

PLACES = {
    "out": ("fit", "d.npy", "--out", "x/o"),
    "report": ("fit", "d.npy", "--report", "x/r.html"),
    "checkpoint": ("fit", "d.npy", "--checkpoint", "x/c"),
    "views": ("fit", "a.npy", "b.npy", "--out", "x/o"),
    "generate": ("generate", "--dims", "4,3,2", "--samples", "9", "--out", "x/d.npy"),
    "demo": ("demo", "--out", "x/demo"),
}


@pytest.mark.parametrize("closed", [False, True], ids=["a file in the way", "no permission"])
@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_cannot_be_written_to_is_found_before_the_work(name, closed, folder, monkeypatch):
    if closed:
        (folder / "x").mkdir()
        allowed = os.access  # root may write where nobody else may: what the system would say to others
        monkeypatch.setattr(os, "access", lambda path, how: str(path) != str(folder / "x") and allowed(path, how))
    else:
        (folder / "x").touch()
    for work in ("TensorPCA._fit", "TensorCCA.fit"):
        monkeypatch.setattr(f"tpca.estimators.{work}", None)
    monkeypatch.setattr("tpca.data.write.write_samples", None)
    assert line(run(*PLACES[name], cwd=folder)).startswith("tpca: cannot write 'x")


def test_data_of_somebody_are_not_written_over(tmp_path):
    small = ("--dims", "4,3", "--samples", "9")
    np.save(tmp_path / "mine.npy", np.zeros(3))
    assert "--overwrite" in line(run("generate", *small, "--out", "mine.npy", cwd=tmp_path))
    assert np.load(tmp_path / "mine.npy").shape == (3,)
    assert run("generate", *small, "--out", "mine.npy", "--overwrite", cwd=tmp_path).returncode == 0
    assert "csv" in line(run("generate", *small, "--out", "d.csv", cwd=tmp_path))
    assert "disk" in line(run("generate", "--dims", "4,3", "--samples", str(10**15), "--out", "d.npy", cwd=tmp_path))
    assert "take 8e+04 PB" in line(run("generate", "--order", "8", "--dim", "100", "--out", "g.npy", cwd=tmp_path))
    assert not (tmp_path / "g.npy").exists()


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails like one on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from tpca.cli import main
sys.argv = ["tpca", *sys.argv[2:]]
main()
"""


@pytest.mark.parametrize("suffix", ["npy", pytest.param("zarr", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_nothing_half_written(suffix, tmp_path):
    words = ("20000", "generate", "--dims", "8,7,6", "--samples", "400", "--out", f"d.{suffix}")
    asked = [sys.executable, "-c", FULL_DISK, *words]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    assert "cannot write" in line(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "words", ["info d.npy", pytest.param("info d.npy --json", marks=pytest.mark.slow), "fit d.npy", "--help"]
)
def test_standard_output_that_is_full_ends_in_one_line(words, folder):
    with open("/dev/full", "w") as full:
        assert "standard output" in line(in_process(*words.split(), cwd=folder, stdout=full))
