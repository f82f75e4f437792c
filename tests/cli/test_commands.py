"""``tpca generate``, ``plan`` and ``demo``."""

import json

import numpy as np
import pytest
import zarr

from command import run
from tpca import SpikedTensor


def test_generated_files_hold_what_was_planted(tmp_path):
    small = ("--dims", "8,7,6", "--strength", "2", "--samples", "400", "--random-state", "3")
    for suffix in ("npy", "zarr"):
        assert run("generate", *small, "--out", f"d.{suffix}", cwd=tmp_path).returncode == 0
    truth = SpikedTensor.random((8, 7, 6), 2.0, random_state=3)
    samples = np.load(tmp_path / "d.npy")
    np.testing.assert_array_equal(samples, next(iter(truth.stream(random_state=3, batch_size=400))))
    np.testing.assert_array_equal(samples, zarr.open_array(tmp_path / "d.zarr", mode="r")[:])
    with np.load(tmp_path / "d.npy.truth.npz") as stored:
        assert float(stored["strength"]) == 2.0
        np.testing.assert_array_equal(stored["mode_2"], truth.vectors[2])
    assert run("generate", *small, "--strength", "0", "--out", "noise.npy", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "noise.npy.truth.npz").exists()


def test_a_plan_begins_with_its_advice_and_agrees_with_info(tmp_path):
    for limit, solver in (("1MB", "least squares"), ("20kB", "RaceSolver")):
        words = ("--dims", "8,7,6", "--memory-limit", limit, "--samples", "4d^2")
        said = run("plan", *words, cwd=tmp_path).stdout
        assert said.startswith(f"Use {solver}")
        told = json.loads(run("plan", *words, "--json", cwd=tmp_path).stdout)
        assert told["samples"] == round(4 * (8 * 7 * 6) ** (2 / 3))
        assert {row["name"] for row in told["rows"]} == {"race", "least_squares"}
    assert run("plan", "--order", "3", cwd=tmp_path).returncode == 2
    asked = ("plan", "--order", "4", "--dim", "32", "--memory-limit")
    said = run(*asked, "100MB", "--samples", "4d^2", cwd=tmp_path).stdout
    assert all(word in said for word in ("least squares", "race", "Use RaceSolver", "do not fit", "enough"))
    assert "Not possible: least squares: needs " in run(*asked, "2MB", cwd=tmp_path).stdout


@pytest.mark.parametrize("dim", [7, pytest.param(10, marks=pytest.mark.slow)])  # 10 is what the command does
@pytest.mark.slow
def test_the_demo_finds_what_it_planted_in_two_ways(dim, tmp_path, monkeypatch):
    monkeypatch.setattr("tpca.cli.demo.DIM", dim)
    done = run("demo", "--out", "figures", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for solver in ("race", "paper"):
        assert min(result[solver]["overlaps"]) >= 0.95
    assert result["race"]["n_samples"] * 20 < result["paper"]["n_samples"]
    picture = (tmp_path / "figures" / "alignment.png").read_bytes()
    assert (picture[:4], len(picture) > 10_000) == (b"\x89PNG", True)
