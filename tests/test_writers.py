"""No writer replaces what is somebody's: anything but a regular file, another kind of file, or one of the data."""

import os

import matplotlib.pyplot as plt
import numpy as np
import pytest

from command import line, run
from tpca import TensorCCA, TensorPCA
from tpca.data.write import write_samples
from tpca.errors import CheckpointError, OutputError, TpcaError
from tpca.model import Samples
from tpca.report.style import save

RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((60, 4, 3))
NOTES = b"notes of somebody"


@pytest.fixture(scope="module")
def fitted():
    return TensorPCA(n_resamples=19, random_state=0).fit(SAMPLES)


@pytest.fixture
def folder(tmp_path, fitted):
    """Data, a result and a page."""
    np.save(tmp_path / "d.npy", SAMPLES)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", RNG.standard_normal((60, 4)))
    fitted.save(tmp_path / "r")
    fitted.report(tmp_path / "page.html")
    return tmp_path


def contents(folder):
    """Every file and link below, with what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path] = os.readlink(path)
        elif path.is_file():
            found[path] = path.read_bytes()
        else:
            found[path] = path.stat().st_mode
    return found


def draw(path, **options):
    figure = plt.figure()
    try:
        save(figure, path, **options)
    finally:
        plt.close(figure)


def generate(path, **options):
    write_samples(path, Samples((4, 3), None, "gaussian", 0), 9, **options)


WRITERS = {
    "p.html": lambda fitted, path, **options: fitted.report(path, **options),
    "result.json": lambda fitted, path, **options: fitted.save(path.parent, **options),
    "vectors.npz": lambda fitted, path, **options: fitted.save(path.parent, **options),
    "f.png": lambda _, path, **options: draw(path, **options),
    "g.npy": lambda _, path, **options: generate(path, **options),
    "g.npy.truth.npz": lambda _, path, **options: generate(path.with_name("g.npy"), **options),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_library_replaces_its_own_files_and_others_only_where_asked(name, fitted, tmp_path):
    path = tmp_path / name
    path.write_bytes(NOTES)
    with pytest.raises(OutputError, match=f"{name}.*overwrite=True"):
        WRITERS[name](fitted, path)
    assert contents(tmp_path) == {path: NOTES}
    WRITERS[name](fitted, path, overwrite=True)
    assert not path.exists() or path.read_bytes() != NOTES
    if name not in ("g.npy", "g.npy.truth.npz"):  # no truth is beside them: nobody knows who wrote them
        WRITERS[name](fitted, path)


def place_folder(path):
    path.mkdir()
    (path / "notes").write_bytes(NOTES)


def place_link(path):
    (path.parent / "notes").write_bytes(NOTES)
    path.symlink_to("notes")


ODD = {
    "folder": place_folder,
    "link": place_link,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/null"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_regular_file_is_never_replaced(name, odd, fitted, tmp_path):
    ODD[odd](tmp_path / name)
    before = contents(tmp_path)
    for options in ({}, {"overwrite": True}):
        with pytest.raises(OutputError, match="regular file is replaced; choose another place"):
            WRITERS[name](fitted, tmp_path / name, **options)
        assert contents(tmp_path) == before


def test_a_store_is_replaced_by_a_store_and_no_file_or_link_is(tmp_path):
    path = tmp_path / "g.zarr"
    for make, way_out in (
        (lambda: path.write_bytes(NOTES), "choose another place"),
        (lambda: path.symlink_to("."), "choose another place"),
    ):
        make()
        with pytest.raises(OutputError, match=way_out):
            generate(path, overwrite=True)
        path.unlink()
    place_folder(path)
    with pytest.raises(OutputError, match="overwrite=True"):
        generate(path)
    assert (path / "notes").read_bytes() == NOTES
    generate(path, overwrite=True)
    assert not (path / "notes").exists()


def test_an_empty_path_is_refused(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for write in (fitted.save, fitted.report, lambda place: TensorPCA(n_resamples=19).fit(SAMPLES, checkpoint=place)):
        with pytest.raises(TpcaError, match=r"'' is empty"):
            write("")
    assert os.listdir(tmp_path) == []


# The command --------------------------------------------------------------------------------------------------------

FIT = ("fit", "d.npy", "--n-resamples", "19")
REFUSED = {
    "the data as a report": (*FIT, "--report", "d.npy"),
    "other data as a report": (*FIT, "--report", "a.npy"),
    "a view as a report": ("fit", "a.npy", "b.npy", "--report", "b.npy"),
    "the data by another name": (*FIT, "--report", "hard.html"),
    "columns as a report": (*FIT, "--y", "y.npy", "--report", "y.npy"),
    "a result as a report": (*FIT, "--report", "r/result.json"),
    "vectors of somebody": (*FIT, "--out", "o"),
    "the report of a result": ("report", "r", "--out", "d.npy"),
    "the page of data": ("report", "r", "--out", "a.npy", "--data", "d.npy"),
    "generated data": ("generate", "--dims", "4,3", "--samples", "9", "--out", "d.npy"),
    "a picture": ("demo", "--out", "pictures"),
    "standard output": (*FIT, "--report", "/dev/stdout"),
    "a device": (*FIT, "--report", "/dev/null"),
    "a pipe": (*FIT, "--report", "pipe"),
    "the page of standard output": ("report", "r", "--out", "/dev/stdout"),
    "no folder": (*FIT, "--out", ""),
    "no report": (*FIT, "--report", ""),
    "no checkpoint": (*FIT, "--checkpoint", ""),
    "no page": ("report", "r", "--out", ""),
    "no data": ("generate", "--dims", "4,3", "--samples", "9", "--out", ""),
    "no picture": ("demo", "--out", ""),
    "no result": ("report", ""),
}


@pytest.fixture
def others(folder):
    """Files of somebody where the command would write."""
    np.save(folder / "y.npy", np.arange(60.0))
    os.link(folder / "d.npy", folder / "hard.html")
    os.mkfifo(folder / "pipe")
    (folder / "o").mkdir()
    (folder / "pictures").mkdir()
    np.savez(folder / "o" / "vectors.npz", data=SAMPLES)
    (folder / "pictures" / "alignment.png").write_bytes(b"\x89PNG\r\n\x1a\n" + NOTES)
    return folder


@pytest.mark.parametrize("case", REFUSED)
def test_the_command_refuses_before_the_work_and_changes_nothing(case, others, monkeypatch):
    for work in ("estimators.TensorPCA._fit", "estimators.TensorCCA.fit", "data.write.write_samples", "cli.demo._both"):
        monkeypatch.setattr(f"tpca.{work}", None)
    monkeypatch.setattr("tpca.result.Result.report", None)  # who runs the tests as root keeps /dev/stdout
    before = contents(others)
    devices = [os.lstat(path) for path in ("/dev/stdout", "/dev/null")]
    said = line(run(*REFUSED[case], cwd=others))
    assert "choose another place" in said or "is empty" in said
    assert contents(others) == before
    assert [(one.st_ino, one.st_mode) for one in devices] == [
        (one.st_ino, one.st_mode) for one in map(os.lstat, ("/dev/stdout", "/dev/null"))
    ]


def test_data_among_the_results_of_a_fit_go_only_where_asked(folder):
    """Weights of one fit as the data of another: they begin as what is written there."""
    np.savez(folder / "r" / "vectors.npz", mode_0=SAMPLES)
    words = ("fit", "r/vectors.npz", "--n-resamples", "19", "--out", "r", "--quiet")
    assert "among the data" in line(run(*words, cwd=folder))
    with np.load(folder / "r" / "vectors.npz") as stored:
        np.testing.assert_array_equal(stored["mode_0"], SAMPLES)
    assert run(*words, "--overwrite", cwd=folder).returncode in (0, 3)


def test_own_pages_are_replaced_and_all_files_with_overwrite(folder):
    (folder / "notes.html").write_bytes(NOTES)
    fit = (*FIT, "--quiet", "--no-scores")
    assert run(*fit, "--report", "page.html", cwd=folder).returncode in (0, 3)
    assert run(*fit, "--report", "notes.html", "--overwrite", cwd=folder).returncode in (0, 3)
    (folder / "notes.html").write_bytes(NOTES)
    assert run("report", "r", "--no-scores", "--out", "page.html", cwd=folder).returncode == 0
    assert run("report", "r", "--no-scores", "--out", "notes.html", "--overwrite", cwd=folder).returncode == 0
    assert (folder / "notes.html").read_bytes() == (folder / "page.html").read_bytes()


def test_a_checkpoint_is_not_written_where_something_else_has_its_number(folder):
    (folder / "c").mkdir()
    (folder / "c" / "00000001").symlink_to("nowhere")
    with pytest.raises(CheckpointError, match="another folder"):
        TensorPCA(n_resamples=19).fit(SAMPLES, checkpoint=folder / "c")
    assert os.readlink(folder / "c" / "00000001") == "nowhere"


def test_views_are_written_by_the_same_rule(folder):
    shared = RNG.standard_normal((60, 1))
    cca = TensorCCA(random_state=0).fit([shared + RNG.standard_normal((60, d)) for d in (4, 3)])
    with pytest.raises(OutputError, match="overwrite=True"):
        cca.report(folder / "d.npy")
    assert cca.report(folder / "page.html").exists()
