"""The judge of noise that is not white: laws, nulls, planted signals, the command, and what is stored."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from research.noise import checks
from research.noise.laws import LAWS, chain, random_vectors, serial, smooth, white
from research.noise.tables import TABLES, allowed, count, missed, targets

DIMS = (3, 4, 2)
STORED = Path(__file__).parents[2] / "docs" / "noise-checks.json"


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("name", list(LAWS))
def test_every_law_draws_samples_of_mean_zero(name):
    """The sum of all entries over 60 draws is zero within 6 standard errors: false alarms, all laws, < 1e-5."""
    draws = [LAWS[name](np.random.default_rng(seed), 30, DIMS) for seed in range(60)]
    assert all(draw.shape == (30, *DIMS) and np.isfinite(draw).all() for draw in draws)
    sums = np.array([draw.sum() for draw in draws])
    assert abs(sums.mean()) < 6 * sums.std(ddof=1) / math.sqrt(len(sums))


@pytest.mark.parametrize(
    ("name", "variance"), [("dir8", 64.0), ("resonances", 100.0), ("slow-direction", 17.0), ("dirsign8", 64.0)]
)
def test_strong_directions_are_as_strong_as_said(name, variance):
    """The largest eigenvalue of 4000 samples' covariance is that of the direction.

    Its relative error is at most √(2/n_eff) ≈ 0.1 at the 210 independent samples of an AR(0.9) in 4000, five times
    which is allowed; false alarms < 1e-5.
    """
    noise = LAWS[name](np.random.default_rng(1), 4000, (6, 6, 6)).reshape(4000, -1)
    assert np.linalg.eigvalsh(np.cov(noise.T))[-1] == pytest.approx(variance, rel=0.5)


def test_steps_follow_their_formulas(rng):
    noise = rng.standard_normal((50, 2, 3))
    samples = serial(0.9)(rng, noise)
    np.testing.assert_allclose(samples[1:] - 0.9 * samples[:-1], math.sqrt(1 - 0.81) * noise[1:], atol=1e-12)
    drawn = chain(white, smooth(0.9))(np.random.default_rng(0), 20000, (3, 2)).reshape(20000, -1)
    wanted = np.kron(0.9 ** np.abs(np.subtract.outer(range(3), range(3))), [[1, 0.9], [0.9, 1]])
    np.testing.assert_allclose(np.cov(drawn.T), wanted, atol=0.06)  # six standard errors
    assert [np.linalg.norm(v) for v in random_vectors(rng, DIMS)] == pytest.approx([1, 1, 1])


def test_allowed_is_what_five_per_cent_exceeds_once_in_a_thousand():
    assert allowed(400) == 35


def record(found, **more):
    return {
        "kind": "claims",
        "name": "some",
        "runs": 400,
        "found": found,
        "entries": 0,
        "tested": 400,
        "excluded": {},
    } | more


def test_too_many_claims_are_bold_and_missed_unless_no_target_is_set():
    assert [count(record(n), "found") for n in (20, 36)] == ["5.0", "**9.0**"]
    assert count(record(300, excluded={"found": "why"}), "found") == "(75.0)"
    assert not missed(record(300, excluded={"found": "why"}), "found")
    content = {"rows": [record(36), record(10, name="other")]}
    assert {what: good for what, _, _, good in targets(content)} == {
        "claims of a signal, each row": False,
        "claims of a signal, pooled": False,
        "claims of any entry, each row": True,
        "claims of any entry, pooled": True,
    }


@pytest.mark.slow
def test_the_command_runs_resumes_writes_and_draws(tmp_path, capsys):
    """A run or two of every row that takes little time."""
    names = ("claims: white, effect", "claims: rare, mean", "power: white, n = 40, λ = 1.4", "coverage: white, 8×6, n")
    store, out, figure = tmp_path / "store", tmp_path / "checks.json", tmp_path / "noise.png"
    places = ["--store", str(store), "--out", str(out), "--figure", str(figure), "--processes", "0"]
    for name in names:
        checks.main([*places, "--rows", name, "--share", "0.002"])
    first = json.loads(out.read_text())
    assert {row["kind"] for row in first["rows"]} == {"claims", "power", "coverage"}
    assert all(row["digest"] == checks.ROWS[f"{row['kind']}: {row['name']}"].digest for row in first["rows"])
    assert first["made"]["numpy"]
    assert figure.stat().st_size > 5000
    assert "| signal | before | prototype | now |" in capsys.readouterr().out
    file = store / "chunks.jsonl"
    lines = file.read_text()
    checks.main([*places, "--rows", "claims: rare, mean", "--share", "0.002"])
    assert json.loads(out.read_text())["rows"] == first["rows"]
    file.write_text(lines.replace('"digest":"', '"digest":"x'))  # samples of other rows
    checks.main([*places, "--rows", "claims: rare, mean", "--share", "0.002"])
    assert {row["kind"] for row in json.loads(out.read_text())["rows"]} == {"claims"}


def test_what_is_stored_is_of_the_rows_as_they_are(stored):
    rows = {f"{row['kind']}: {row['name']}": row for row in stored["rows"]}
    assert list(rows) == list(checks.ROWS)
    stale = [name for name, row in rows.items() if row["digest"] != checks.ROWS[name].digest]
    assert stale == []
    assert all(table(stored) for table in TABLES.values())


@pytest.mark.parametrize(
    "name", ["claims: serial0.5, mean", "claims: 30 % of entries missing, effect", "coverage: t3, 8×6×5, n = 40, two"]
)
def test_what_is_stored_comes_out_again(name, stored):
    row = next(row for row in stored["rows"] if f"{row['kind']}: {row['name']}" == name)
    for seed, outcome in enumerate(row["head"]):
        assert checks.ROWS[name].run(seed) == pytest.approx(outcome, abs=0.03)
