"""``tpca fit`` and what is done with its result: the answer, the files, the exit code."""

import inspect
import json

import numpy as np
import pytest

import tpca
from command import line, run
from tpca.cli.fit import fit

SMALL = ("--dims", "8,7,6", "--strength", "2", "--samples", "400", "--random-state", "3")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same samples in two formats, noise, and samples that follow a dose, of 40 subjects."""
    folder = tmp_path_factory.mktemp("data")
    for suffix in ("npy", "zarr"):
        assert run("generate", *SMALL, "--out", f"d.{suffix}", cwd=folder).returncode == 0
    assert run("generate", *SMALL, "--strength", "0", "--out", "noise.npy", cwd=folder).returncode == 0
    rng, pattern = np.random.default_rng(0), np.load(folder / "d.npy").mean(axis=0)
    dose = rng.standard_normal(400)
    np.save(folder / "e.npy", rng.standard_normal((400, 8, 7, 6)) + dose[:, None, None, None] * pattern)
    rows = [f"{d},{i % 40},{'drug' if d > 0 else 'none'}" for i, d in enumerate(dose)]
    (folder / "t.csv").write_text("\n".join(["dose,subject,arm", *rows]) + "\n")
    return folder


def fitted(folder, *words):
    """The result of a fit as JSON, and the exit code."""
    done = run("fit", *words, "--json", cwd=folder)
    assert done.returncode in (0, 3, 4), done.stderr
    return json.loads(done.stdout), done.returncode


def test_the_command_says_why_it_took_the_race_and_what_only_least_squares_has(data):
    done = run("fit", "d.npy", "--memory-limit", "20kB", "--dependence", "none", cwd=data)
    assert (done.returncode, done.stderr) == (0, "")
    assert "raise memory_limit to 95 kB to use least squares." in " ".join(done.stdout.split())
    done = run("fit", "d.npy", "--memory-limit", "20kB", "--whiten", "modes", cwd=data)
    assert done.returncode == 2
    assert "or leave out whiten='modes', and the race takes over." in done.stderr


def test_the_answer_is_printed_nothing_is_written_and_exit_codes_say_what_was_found(data, tmp_path):
    before = sorted(data.iterdir())
    done = run("fit", "d.npy", cwd=data)
    assert (done.returncode, done.stderr, done.stdout[:6], "saved" in done.stdout) == (0, "", "Signal", False)
    assert sorted(data.iterdir()) == before
    quiet = run("fit", "d.npy", "--quiet", cwd=data)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    done = run("fit", "noise.npy", cwd=data)
    assert done.returncode == 3, done.stdout  # a false alarm has 5 %; the seed is fixed
    assert done.stdout.startswith("No signal")
    words = ("--order", "4", "--dim", "3", "--strength", "5", "--samples", "3000", "--out", "d.npy")
    assert run("generate", *words, cwd=tmp_path).returncode == 0
    done = run("fit", "d.npy", "--solver", "paper", "--strength", "5", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "--strength" in run("fit", "d.npy", "--solver", "paper", cwd=tmp_path).stderr


def test_generate_fit_and_score_agree_over_all_formats(data, tmp_path):
    vectors = []
    for suffix in ("npy", "zarr"):
        done = run("fit", f"d.{suffix}", "--out", tmp_path / suffix, cwd=data)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in (tmp_path / suffix).iterdir()) == ["result.json", "vectors.npz"]
        told = json.loads(run("score", f"d.{suffix}", tmp_path / suffix, "--truth", "--json", cwd=data).stdout)
        # Squared error (d-1)/(λ²N) is below 0.5 % here: an overlap under 0.95 would be ten standard errors away.
        assert min(told["overlaps"]) >= 0.95
        assert abs(told["score"] - 2) < 8 * told["standard_error"]
        vectors.append(tpca.load(tmp_path / suffix).vectors)
    for a, b in zip(*vectors, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_command_gives_what_python_gives_and_has_its_defaults(data):
    dose = np.loadtxt(data / "t.csv", delimiter=",", skiprows=1, usecols=0)
    subject = np.arange(400) % 40
    own = tpca.TensorPCA(2, target="effect", random_state=0).fit(str(data / "e.npy"), dose, groups=subject).result_
    words = ("e.npy", "--y", "t.csv::dose", "--groups", "t.csv::subject", "--n-components", "2")
    told, code = fitted(data, *words)
    assert code == 0
    assert told["n_units"] == own.n_units == 40
    for mine, theirs in zip(own.components, told["components"], strict=True):
        assert (mine.strength, mine.p_value) == (theirs["strength"], theirs["p_value"])
    command, python = (inspect.signature(one).parameters for one in (fit, tpca.TensorPCA))
    for name in set(command) & set(python) - {"target", "random_state"}:  # --y implies the target; a seed is given
        assert str(command[name].default) == str(python[name].default), name


def test_what_is_asked_is_what_is_fitted(data, tmp_path):
    for words, target, effect in (
        ((), "mean", ""),
        (("--y", "t.csv::dose"), "effect", "dose"),
        (("--y", "t.csv::arm"), "effect", "none - drug"),
        (("--target", "variance"), "variance", ""),
    ):
        told, _ = fitted(data, "e.npy", *words)
        assert told["settings"]["target"] == target
        assert told["components"][0]["effect"] == effect
    assert run("fit", "e.npy", "--y", "t.csv::dose", "--out", tmp_path / "e", "--quiet", cwd=data).returncode == 0
    scored = json.loads(run("score", "e.npy", tmp_path / "e", "--y", "t.csv::dose", "--json", cwd=data).stdout)
    assert scored["score"] > 10 * scored["standard_error"]
    assert "--y" in run("score", "e.npy", tmp_path / "e", cwd=data).stderr


def test_options_reach_the_solver(data):
    for words, solver in (
        ((), "least_squares"),
        (("--solver", "race"), "race"),
        (("--memory-limit", "20kB"), "race"),
        (("--solver", "race", "--tol", "0.05", "--max-passes", "2", "--confidence", "0.9"), "race"),
    ):
        told, code = fitted(data, "d.npy", *words)
        assert (told["solver"], code) == (solver, 0)
    assert fitted(data, "d.npy", "--max-samples", "300")[0]["n_samples"] == 300
    assert fitted(data, "d.npy", "--n-resamples", "99")[0]["n_resamples"] == 99
    assert fitted(data, "d.npy", "--dependence", "10", "--whiten", "none")[0]["n_units"] == 40
    assert fitted(data, "d.npy", "--solver", "race", "--tol", "0.2")[0]["n_samples"] < 400


def test_a_folder_keeps_its_result_unless_another_is_wanted(data, tmp_path):
    out = tmp_path / "r"
    assert run("fit", "d.npy", "--out", out, cwd=data).returncode == 0
    before = (out / "result.json").read_bytes()
    assert run("fit", "d.npy", "--out", out, cwd=data).returncode == 0  # the same once more
    assert (out / "result.json").read_bytes() == before
    for words, says in (
        (("d.npy", "--random-state", "1"), "random_state"),
        (("d.npy", "--solver", "race"), "solver"),
        (("noise.npy",), "of d.npy"),
    ):
        said = line(run("fit", *words, "--out", out, cwd=data))
        assert says in said
        assert "--overwrite" in said
        assert (out / "result.json").read_bytes() == before
    assert run("fit", "noise.npy", "--out", out, "--overwrite", cwd=data).returncode == 3


def test_info_tells_what_is_in_data_and_results(data, tmp_path):
    told = json.loads(run("info", "d.zarr", "--json", cwd=data).stdout)
    assert (told["kind"], told["samples"], told["dims"]) == ("zarr", 400, [8, 7, 6])
    assert told["truth"] == "d.zarr.truth.npz"
    assert told["solver"] == "least_squares"
    assert "8 × 7 × 6" in run("info", "d.zarr", cwd=data).stdout
    assert "least squares" in run("info", "d.npy", cwd=data).stdout
    answer = run("fit", "d.npy", "--out", tmp_path / "r", cwd=data).stdout
    said = run("info", tmp_path / "r", cwd=data).stdout
    assert said.splitlines()[0] == "Result of fitting d.npy"
    assert said.splitlines()[1] == answer.splitlines()[0]
    assert json.loads(run("info", tmp_path / "r", "--json", cwd=data).stdout)["n_samples"] == 400


def test_reports_are_pages_with_scores_where_the_data_are(data, tmp_path):
    words = ("e.npy", "--y", "t.csv::dose", "--out", tmp_path / "r", "--report", tmp_path / "f.html")
    done = run("fit", *words, cwd=data)
    assert (done.returncode, done.stderr) == (0, "")
    assert run("report", tmp_path / "r", "--out", tmp_path / "d.html", cwd=data).returncode == 0
    assert run("report", tmp_path / "r", "--no-scores", cwd=data).returncode == 0
    without = (tmp_path / "r" / "report.html").read_text()
    assert without.lower().startswith("<!doctype html")
    for name in ("f.html", "d.html"):
        assert len((tmp_path / name).read_text()) > len(without)  # scores are drawn, too
    moved = run("report", tmp_path / "r", "--out", tmp_path / "m.html", cwd=tmp_path)  # nothing is where it was
    assert (moved.returncode, "no scores" in moved.stderr) == (0, True)
    found = run("report", tmp_path / "r", "--out", tmp_path / "m.html", "--data", "e.npy", cwd=data)
    assert (found.returncode, found.stderr) == (0, "")


def views(folder, strength):
    """Files of four views that share a factor."""
    rng = np.random.default_rng(5)
    factor = rng.standard_normal(2000)
    for name in "abcd":
        u = rng.standard_normal(10)
        signal = strength * np.outer(factor, u / np.linalg.norm(u))
        np.save(folder / f"{name}.npy", signal + rng.standard_normal((2000, 10)))
    return [f"{name}.npy" for name in "abcd"]


def test_several_files_are_views(tmp_path):
    files = views(tmp_path, 3.0)
    done = run("fit", *files, "--out", "r", "--report", "r.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Signal")
    assert "a.npy" in done.stdout
    own = tpca.TensorCCA(random_state=0).fit([np.load(tmp_path / name) for name in files])
    for mine, theirs in zip(own.weights_, tpca.load(tmp_path / "r").vectors, strict=True):
        np.testing.assert_allclose(mine, theirs)
    scored = json.loads(run("score", *files, "r", "--json", cwd=tmp_path).stdout)
    assert scored["score"] > 5 * scored["standard_error"]
    assert run("info", "r", cwd=tmp_path).stdout.splitlines()[1].startswith("Signal")
    assert run("report", "r", cwd=tmp_path).returncode == 0
    views(tmp_path, 0.0)
    assert run("fit", *files, cwd=tmp_path).returncode == 3  # a false alarm has 5 %; the seed is fixed


def test_labels_name_the_entries(data, tmp_path):
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"0": {"name": "channel", "entries": [f"ch{i}" for i in range(8)]}}))
    done = run("fit", "d.npy", "--labels", names, "--out", tmp_path / "r", cwd=data)
    assert "  channel  ch" in done.stdout
    assert tpca.load(tmp_path / "r").labels.modes[0] == "channel"


def test_a_table_is_read_by_its_columns_and_an_array_along_the_axis_that_is_named(tmp_path):
    rng = np.random.default_rng(1)
    cells = [(f"s{i}", gene, cell) for i in range(60) for gene in "pqr" for cell in "xy"]
    rows = [f"{','.join(cell)},{1 + rng.standard_normal():.4f}" for cell in cells]
    (tmp_path / "t.csv").write_text("\n".join(["who,gene,cell,level", *rows]) + "\n")
    words = ("--sample", "who", "--modes", "gene,cell", "--value", "level")
    assert run("fit", "t.csv", *words, "--out", "r", cwd=tmp_path).returncode == 0
    assert tpca.load(tmp_path / "r").labels.modes == ("gene", "cell")
    done = run("score", "t.csv", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "60 samples" in done.stdout
    np.save(tmp_path / "d.npy", np.random.default_rng(0).standard_normal((5, 80, 4)) + 1)
    assert fitted(tmp_path, "d.npy", "--dim", "1")[0]["n_samples"] == 80
    np.save(tmp_path / "y.npy", np.arange(80.0))
    assert "--dim 1" in run("fit", "d.npy", "--y", "y.npy", cwd=tmp_path).stderr  # y has a row for every entry there


def test_workers_give_the_same_answer(data, tmp_path):
    pytest.importorskip("distributed")
    assert run("fit", "d.zarr", "--out", tmp_path / "here", cwd=data).returncode == 0
    done = run("fit", "d.zarr", "--workers", "1", "--out", tmp_path / "there", cwd=data)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "vectors.npz").read_bytes() == (tmp_path / "there" / "vectors.npz").read_bytes()
