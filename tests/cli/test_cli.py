import json
import os
import re
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import zarr

from command import run
from tpca import SpikedTensor

SMALL = ("--dims", "8,7,6", "--strength", "2", "--samples", "400", "--random-state", "3")


def run_process(*arguments, cwd):
    """In a process of its own; for all that need not be in one there is ``run``."""
    command = [sys.executable, "-m", "tpca.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same samples as npy, Zarr and HDF5, and noise without a signal."""
    folder = tmp_path_factory.mktemp("data")
    for suffix in ("npy", "zarr", "h5"):
        done = run("generate", *SMALL, "--out", f"d.{suffix}", cwd=folder)
        assert done.returncode == 0, done.stderr
    assert run("generate", *SMALL, "--strength", "0", "--out", "noise.npy", cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize("dim", [6, pytest.param(10, marks=pytest.mark.slow)])  # 10 is what the command does
def test_demo_shows_overlaps_samples_and_state_and_writes_the_figure(dim, tmp_path, monkeypatch):
    monkeypatch.setattr("tpca.lab.studies.demo.DIM", dim)
    done = run("demo", "--out", "figures", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for solver in ("race", "paper"):
        assert min(result[solver]["overlaps"]) >= 0.95
        assert result[solver]["state_bytes"] > 0
    assert result["race"]["n_samples"] * 20 < result["paper"]["n_samples"]
    picture = (tmp_path / "figures" / "alignment.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_help_names_the_commands_and_errors_have_no_traceback(tmp_path):
    text = run("--help", cwd=tmp_path).stdout
    assert all(command in text for command in ("fit", "score", "info", "generate", "demo", "Exit codes", "130"))
    bad = run_process("demo", "--random-state", "-1", cwd=tmp_path)
    assert bad.returncode == 2
    assert "random_state must be a whole number of at least 0" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_import_loads_no_optional_package():
    names = ("matplotlib", "zarr", "h5py", "dask", "sklearn", "pandas")
    code = f"import sys, tpca, tpca.cli; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_generate_fit_score_agree_over_all_formats(data, tmp_path):
    found = {}
    for suffix in ("npy", "zarr", "h5"):
        out = tmp_path / suffix
        fitted = run("fit", f"d.{suffix}", "--out", out, "--json", cwd=data)
        assert fitted.returncode == 0, fitted.stderr
        scored = run("score", f"d.{suffix}", out, "--truth", "--json", cwd=data)
        assert scored.returncode == 0, scored.stderr
        report = json.loads(scored.stdout)
        # Squared error (d-1)/(λ²N) is below 0.5 % here: an overlap under 0.95 would be ten standard errors away.
        assert min(report["overlaps"]) >= 0.95
        assert abs(report["rewards"][0] - 2) < 8 * report["standard_errors"][0]
        assert json.loads(fitted.stdout)["n_samples"] == 400
        with np.load(out / "vectors.npz") as stored:
            found[suffix] = [stored[f"mode_{i}"][0] for i in range(3)]
            assert stored["standard_error_0"].shape == (1, 8)
        assert not (out / "checkpoint").exists()
    for suffix in ("zarr", "h5"):
        for a, b in zip(found["npy"], found[suffix], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_generated_files_hold_what_was_planted(data):
    truth = SpikedTensor.random((8, 7, 6), 2.0, random_state=3)
    with np.load(data / "d.npy.truth.npz") as stored:
        assert float(stored["strength"]) == 2.0
        np.testing.assert_array_equal(stored["mode_2"], truth.vectors[2])
    samples = np.load(data / "d.npy")
    assert samples.shape == (400, 8, 7, 6)
    np.testing.assert_array_equal(samples, zarr.open_array(data / "d.zarr", mode="r")[:])
    with h5py.File(data / "d.h5") as file:
        np.testing.assert_array_equal(samples, file["samples"][:])
    np.testing.assert_array_equal(samples, next(iter(truth.stream(random_state=3, batch_size=400))))
    assert not (data / "noise.npy.truth.npz").exists()


def test_the_solver_is_chosen_and_said(data, tmp_path):
    assert "solver mean: the mean of all samples fits" in run("fit", "d.npy", "--out", tmp_path / "r", cwd=data).stdout
    for arguments, name in (
        (("--solver", "race"), "race"),
        (("--memory-limit", "20kB"), "race"),
        (("--solver", "mean"), "mean"),
    ):
        told = run("fit", "d.npy", "--out", tmp_path / "r", "--json", "--overwrite", *arguments, cwd=data)
        assert json.loads(told.stdout)["solver"] == name


def test_noise_is_no_signal_and_exit_code_three(data, tmp_path):
    done = run_process("fit", "noise.npy", "--out", tmp_path / "r", cwd=data)
    # A false alarm has probability at most 5 %; this seed is fixed, so the test cannot flicker.
    assert done.returncode == 3, done.stdout
    assert "No signal" in done.stdout
    stored = json.loads((tmp_path / "r" / "recovery.json").read_text())
    assert not stored["found"]
    assert stored["components"][0]["strength"] is None
    scored = run("score", "noise.npy", tmp_path / "r", cwd=data)
    assert scored.returncode == 2
    assert "no signal was found" in scored.stderr


def test_info_on_data_and_results(data, tmp_path):
    told = json.loads(run("info", "d.zarr", "--json", cwd=data).stdout)
    assert (told["kind"], told["samples"], told["dims"]) == ("zarr", 400, [8, 7, 6])
    assert told["truth"] == "d.zarr.truth.npz"
    assert "8 × 7 × 6" in run("info", "d.h5::/samples", cwd=data).stdout
    assert run("fit", "d.npy", "--out", tmp_path / "r", "--max-samples", "300", cwd=data).returncode == 0
    result = json.loads(run("info", tmp_path / "r", "--json", cwd=data).stdout)
    assert result["kind"] == "result"
    assert result["n_samples"] == 300
    assert "Signal" in run("info", tmp_path / "r", cwd=data).stdout


def _bad_files(folder):
    good = np.random.default_rng(0).standard_normal((20, 4, 3))
    np.save(folder / "good.npy", good)
    (folder / "empty.npy").write_bytes(b"")
    (folder / "magic.npy").write_bytes(b"not an array at all" * 10)
    (folder / "short.npy").write_bytes((folder / "good.npy").read_bytes()[:-100])
    np.save(folder / "object.npy", np.array([{"a": 1}] * 3, dtype=object), allow_pickle=True)
    np.save(folder / "complex.npy", good.astype(complex))
    np.save(folder / "none.npy", good[:0])
    np.save(folder / "matrix.npy", good[:, :, 0])
    np.save(folder / "constant.npy", np.ones((30, 4, 3)))
    bad = good.copy()
    bad[7, 1, 1] = np.nan
    np.save(folder / "nan.npy", bad)
    (folder / "mixed").mkdir()
    np.save(folder / "mixed" / "a.npy", good)
    np.save(folder / "mixed" / "b.npy", good[:, :3])
    (folder / "text.csv").write_text("1,2,3")
    (folder / "wrong.h5").write_bytes(b"not hdf5" * 100)
    store = zarr.open_array(folder / "torn.zarr", mode="w", shape=(64, 8, 8), chunks=(16, 8, 8), dtype="f8")
    store[:] = np.random.default_rng(1).standard_normal((64, 8, 8))
    chunk = next(p for p in sorted((folder / "torn.zarr" / "c").rglob("*")) if p.is_file())
    chunk.write_bytes(chunk.read_bytes()[:50])


BAD = {
    "missing.npy": "no such file",
    "empty.npy": "empty",
    "magic.npy": "npy",
    "short.npy": "bytes",
    "object.npy": "object",
    "complex.npy": "real numbers, got dtype complex128",
    "none.npy": "no samples",
    "matrix.npy": "at least two modes",
    "constant.npy": "all samples are the same",
    "nan.npy": "sample 7 contains NaN or Inf",
    "mixed": "b.npy",
    "text.csv": "--sample, --modes, --value",
    "wrong.h5": "HDF5",
    "torn.zarr": "cannot read samples",
}


def test_bad_data_are_one_line_exit_two_and_leave_nothing(tmp_path):
    _bad_files(tmp_path)
    for name, says in BAD.items():
        # Zarr reads in threads of its own: only the end of a process shows whether they leave a word behind.
        done = (run_process if name == "torn.zarr" else run)("fit", name, "--out", "r", cwd=tmp_path)
        assert done.returncode == 2, (name, done.stdout, done.stderr)
        assert says in done.stderr, (name, done.stderr)
        assert done.stderr.count("\n") == 1, (name, done.stderr)
        assert "Traceback" not in done.stderr
        left = [p for p in (tmp_path / "r").rglob("*") if p.is_file()] if (tmp_path / "r").exists() else []
        assert left == [], name


def test_nan_policies_are_counted(tmp_path):
    truth = SpikedTensor.random((6, 5, 4), 3.0, random_state=1)
    samples = next(iter(truth.stream(random_state=2, batch_size=300)))
    samples[::50, 0, 0, 0] = np.nan
    np.save(tmp_path / "d.npy", samples)
    for policy, used, skipped in (("omit", 294, 6), ("zero", 300, 0)):
        done = run("fit", "d.npy", "--out", policy, "--nan-policy", policy, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["n_samples"], result["n_skipped"]) == (used, skipped)


def test_usage_errors_name_the_value(data, tmp_path):
    for arguments, says in (
        (("--memory-limit", "lots"), "'lots'"),
        (("--max-passes", "many"), "'many'"),
        (("--confidence", "2"), "2.0"),
        (("--nan-policy", "ignore"), "ignore"),
        (("--memory-limit", "100"), "too small"),
        (("--solver", "best"), "'best'"),
        (("--solver", "mean", "--tol", "0.1"), "--tol is for --solver race"),
    ):
        done = run("fit", "d.npy", "--out", tmp_path / "r", *arguments, cwd=data)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_output_that_cannot_be_written(data, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = run("fit", "d.npy", "--out", tmp_path / "file", cwd=data)
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    kept = run("generate", *SMALL, "--out", "file.npy", cwd=tmp_path)
    assert kept.returncode == 0
    np.save(tmp_path / "mine.npy", np.zeros(3))
    refused = run("generate", *SMALL, "--out", "mine.npy", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert np.load(tmp_path / "mine.npy").shape == (3,)
    assert run("generate", *SMALL, "--out", "d.csv", cwd=tmp_path).returncode == 2


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails like one on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from tpca.cli import main
sys.argv = ["tpca", *sys.argv[2:]]
main()
"""


@pytest.mark.parametrize("suffix", ["npy", "zarr", pytest.param("h5", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_nothing_half_written(suffix, tmp_path):
    command = [sys.executable, "-c", FULL_DISK, "20000", "generate", *SMALL, "--out", f"d.{suffix}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_result_before(data, tmp_path):
    assert run("fit", "d.npy", "--out", tmp_path / "r", cwd=data).returncode == 0
    before = {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    again = ["fit", "d.npy", "--out", tmp_path / "r", "--random-state", "1", "--overwrite"]
    command = [sys.executable, "-c", FULL_DISK, "1000", *again]
    done = subprocess.run(command, capture_output=True, text=True, cwd=data, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir() if p.is_file()} == before


def test_interrupt_resume_and_restart(tmp_path):
    """Ctrl-C ends with 130 and the line to go on with; that line gives the bytes of an uninterrupted fit."""
    made = run("generate", "--dims", "12,12,12,12", "--samples", "600", "--out", "d.npy", cwd=tmp_path)
    assert made.returncode == 0
    whole = run("fit", "d.npy", "--out", "whole", "--memory-limit", "40kB", cwd=tmp_path).returncode
    assert whole == 0
    command = [sys.executable, "-m", "tpca.cli", "fit", "d.npy", "--out", "r", "--memory-limit", "40kB"]
    started = subprocess.Popen(
        [*command, "--checkpoint-every", "0"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline, folder = time.monotonic() + 60, tmp_path / "r" / "checkpoint"
    while not (folder.exists() and any(path.name.isdigit() for path in folder.iterdir())):  # the first are soon gone
        assert started.poll() is None, "ended before it could be interrupted"
        assert time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.002)
    os.kill(started.pid, signal.SIGINT)
    _, told = started.communicate(timeout=60)
    assert started.returncode == 130, told
    assert re.search(r"tpca fit d.npy --out r --memory-limit 40kB --checkpoint-every 0 --resume", told)
    refused = run(*command[3:], cwd=tmp_path)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    assert run(*command[3:], "--resume", cwd=tmp_path).returncode == whole
    for name in ("recovery.json", "vectors.npz"):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert run(*command[3:], "--restart", cwd=tmp_path).returncode == whole


def _write_views(folder, strength):
    rng = np.random.default_rng(5)
    factor = rng.standard_normal(2000)
    directions = []
    for name in "abcd":
        u = rng.standard_normal(10)
        directions.append(u / np.linalg.norm(u))
        np.save(folder / f"{name}.npy", strength * np.outer(factor, directions[-1]) + rng.standard_normal((2000, 10)))
    return directions


def test_views_are_fitted_and_unrelated_ones_are_not(tmp_path):
    files = [f"{name}.npy" for name in "abcd"]
    directions = _write_views(tmp_path, 3.0)
    done = run("fit", "--views", *files, "--out", "r", "--clip", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["components"][0]["p_value"] <= 0.005
    with np.load(tmp_path / "r" / "vectors.npz") as stored:
        for i, u in enumerate(directions):
            w = stored[f"mode_{i}"][0]
            assert abs(float(w @ u)) / np.linalg.norm(w) > 0.9
    assert "Signal: directions shared by all views" in run("info", "r", cwd=tmp_path).stdout
    scored = json.loads(run("score", *files, "r", "--json", cwd=tmp_path).stdout)
    assert scored["rows"] == 2000
    assert scored["correlations"][0] > 5 * scored["standard_errors"][0]
    again = run("fit", "--views", *files, "--out", "r", "--clip", "2", "--live", cwd=tmp_path)
    assert again.stderr.splitlines()[0] == "tpca fit --views"
    assert "component 1, judged" in again.stderr
    assert "correlation" in again.stderr.splitlines()[-1]
    _write_views(tmp_path, 0.0)
    nothing = run("fit", "--views", *files, "--out", "n", cwd=tmp_path)
    assert nothing.returncode == 3, nothing.stdout  # a false alarm has 5 %; the seed is fixed
    assert "No signal: nothing shared" in nothing.stdout
    _write_views(tmp_path, 3.0)  # a symmetric factor, which has no third moment
    odd = run("fit", "--views", *files[:3], "--out", "o", "--confidence", "0.99", cwd=tmp_path)
    assert odd.returncode == 3
    assert "related in pairs" in odd.stdout
    for bad, says in (
        ((*files[:1], "--views"), "at least two views"),
        (files, "--views"),
        (("x.npy",), "no such file"),
    ):
        refused = run("fit", *bad, "--out", "x", cwd=tmp_path)
        assert refused.returncode == 2
        assert says in refused.stderr
        assert refused.stderr.count("\n") == 1
