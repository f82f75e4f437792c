"""Real data side by side: what is stored holds its targets, and a few of its rows come out again."""

import json
from pathlib import Path

import numpy as np
import pytest

from research.real import __main__ as command
from research.real import measures, peers, plain
from research.real.sets import SETS, Samples
from research.real.tables import TABLES, allowed

STORED = Path(__file__).parents[2] / "docs" / "real.json"
AGAIN = ("IL-2", "firms", "serology", "breast cancer", "wine", "iris", "diabetes", "El Niño", "gapminder", "economy")
POOLED = 0.055


@pytest.fixture(scope="module")
def stored():
    return {row["name"]: row for row in json.loads(STORED.read_text())["rows"]}


def test_every_set_is_stored(stored):
    assert list(stored) == list(SETS)
    assert len({row["package"] for row in stored.values()}) >= 10
    assert {row["question"] for row in stored.values()} == {"mean", "labels", "dose", "variation", "views"}
    assert {len(row["made"]["revision"]) for row in stored.values()} == {10}  # no change that was not committed


@pytest.mark.parametrize("name", AGAIN)
def test_what_is_stored_comes_out_again(name, stored):
    """Estimates to rounding; p to three flips of 999, which another processor may round across a tie."""
    one, row = SETS[name], stored[name]
    data = one.load()
    answer = measures.answer(one, data)
    assert answer["verdict"] == row["answer"]["verdict"]
    for what in ("p", "p_any_order"):
        expected = row["answer"][what]
        assert answer[what] == pytest.approx(np.nan if expected is None else expected, abs=0.0035, nan_ok=True)
    for what in ("length", "strength", "interval"):
        np.testing.assert_allclose(answer[what], row["answer"][what], rtol=1e-4, atol=1e-6 * row["answer"]["length"])
    assert max(measures.distance(one, data, measures.fitted(one, data)).values()) < 1e-6


def test_targets_of_real_data(stored):
    tensors = [row for row in stored.values() if row["question"] != "views"]
    for row in tensors:
        assert max(row["plain"].values()) < 1e-6
        for how in row["orders"].values():
            assert max(how["cosine_gap"], how["length_gap"]) < 1e-9
        if row["question"] != "variation":  # whose intervals leave out runs of neighbours
            assert row["orders"]["any_order"]["strength_gap"] < 1e-6
    claims = {row["name"]: row["claims"] for row in stored.values()}
    assert {name for name, one in claims.items() if one["claims"] > allowed(one["runs"])} == set()
    assert all(one["runs"] >= 100 for one in claims.values())
    assert sum(one["claims"] for one in claims.values()) < POOLED * sum(one["runs"] for one in claims.values())


def test_what_is_asked_is_what_plain_algebra_says(rng):
    X = rng.standard_normal((30, 3, 4))
    labels = np.repeat(["a", "b", "c"], 10)
    D = plain.estimate(Samples(X, labels), "labels")
    between = sum(10 * np.outer(m := X[labels == k].mean(axis=0).ravel() - X.mean(axis=0).ravel(), m) for k in "abc")
    np.testing.assert_allclose(np.einsum("kij,klm->ijlm", D, D).reshape(12, 12), between / 30)
    two = plain.estimate(Samples(X[:20], labels[:20]), "labels")
    np.testing.assert_allclose(two, plain.estimate(Samples(X[:20], (labels[:20] == "b").astype(float)), "dose"))
    length, vectors = plain.rank_one(np.einsum("i,j,k->ijk", *(3.0 * v[:2] for v in X[0])))
    assert length == pytest.approx(27 * np.prod([np.linalg.norm(v[:2]) for v in X[0]]))
    assert plain.cosine(vectors, [v[:2] / np.linalg.norm(v[:2]) for v in X[0]]) == pytest.approx(1)


@pytest.mark.parametrize("name", ["firms", "iris", "diabetes", "economy", "exercise"])
def test_versions_without_a_signal_keep_what_they_should(name, rng):
    one = SETS[name]
    data = one.load()
    version = measures.null(one, data, rng)
    views, others = ([x] if one.question != "views" else x for x in (data.X, version.X))
    for before, after in zip(views, others, strict=True):
        np.testing.assert_allclose(np.sort(np.abs(before), axis=0), np.sort(np.abs(after), axis=0))
    moved = [version.y is not None and (version.y != data.y).any()]
    moved += [(before != after).any() for before, after in zip(views, others, strict=True)]
    assert any(moved)


def test_neighbours_are_those_along_ordered_axes():
    data = Samples(np.zeros((2, 3, 4)), axes=("a", "b"), ordered=(False, True))
    whole = peers.adjacency(data).toarray()
    expected = np.kron(np.eye(3), np.eye(4, k=1) + np.eye(4, k=-1))
    np.testing.assert_array_equal(whole, expected)


def test_one_row_may_be_run_alone(tmp_path, monkeypatch, capsys):
    for module, name, value in (
        (measures, "ORDERS", 2),
        (measures, "HALVES", 1),
        (measures, "NULLS", 2),
        (peers, "PERMUTATIONS", 19),
        (peers, "SCORED", 3),
    ):
        monkeypatch.setattr(module, name, value)
    out = tmp_path / "real.json"
    rows = json.loads(STORED.read_text())["rows"]
    out.write_text(json.dumps({"rows": rows}))
    command.main(["--out", str(out), "--only", "iris", "--figure", str(tmp_path / "real.png")])
    written = json.loads(out.read_text())["rows"]
    assert [row["name"] for row in written] == list(SETS)
    changed = [new["name"] for new, old in zip(written, rows, strict=True) if new != old]
    assert changed == ["iris"]
    iris = next(row for row in written if row["name"] == "iris")
    assert iris["claims"]["runs"] == 2
    assert iris["peers"]["MNE clusters"]["p"] <= 1
    assert (tmp_path / "real.png").stat().st_size > 10_000
    assert "iris: signal" in capsys.readouterr().out
    assert all(table({"rows": written}) for table in TABLES.values())
