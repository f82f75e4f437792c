"""Real data side by side: what is stored holds its targets, and a few of its rows come out again."""

import json
from pathlib import Path

import numpy as np
import pytest

from research.noise.tables import allowed
from research.real import __main__ as command
from research.real import measures, peers, plain
from research.real.sets import SETS, Samples
from research.real.tables import REASONS, TABLES, differing, draw

STORED = Path(__file__).parents[2] / "docs" / "real.json"
AGAIN = ("IL-2", "firms", "serology", "breast cancer", "wine", "iris", "diabetes", "El Niño", "gapminder", "economy")
POOLED = 0.055


@pytest.fixture(scope="module")
def content():
    return json.loads(STORED.read_text())


@pytest.fixture(scope="module")
def stored(content):
    return {row["name"]: row for row in content["rows"]}


def test_what_is_stored_is_one_run_of_all_sets(content):
    assert [row["name"] for row in content["rows"]] == list(SETS)
    assert len({row["package"] for row in content["rows"]}) >= 15
    assert {row["question"] for row in content["rows"]} == {"mean", "labels", "dose", "variation", "views"}
    assert len(content["made"]["revision"]) == 10  # one, and no change that was not committed
    assert set(content["made"]["versions"]) >= {*(row["package"] for row in content["rows"]), *command.PEERS}
    assert "not installed" not in content["made"]["versions"].values()
    assert {"date", "machine", "minutes", "python"} <= set(content["made"])


def test_what_differs_has_a_reason(content):
    assert [name for name in differing(content) if name not in REASONS] == []
    assert set(REASONS) <= set(SETS)


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
        for how in (row["orders"]["any_order"], row["orders"]["auto"]):
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
    data = Samples(np.zeros((2, 3, 4)), ordered=(False, True))
    whole = peers.adjacency(data).toarray()
    expected = np.kron(np.eye(3), np.eye(4, k=1) + np.eye(4, k=-1))
    np.testing.assert_array_equal(whole, expected)


def test_one_row_may_be_run_alone(monkeypatch, capsys):
    for module, name, value in (
        (measures, "ORDERS", 2),
        (measures, "HALVES", 1),
        (measures, "NULLS", 2),
        (peers, "PERMUTATIONS", 19),
        (peers, "SCORED", 3),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(command, "ProcessPoolExecutor", lambda *_, **__: Here())
    command.main(["--only", "iris"])
    said, _, printed = capsys.readouterr().out.partition("\n")
    assert said.startswith("iris: signal")
    (iris,) = json.loads(printed)
    assert iris["claims"]["runs"] == 2
    assert iris["peers"]["MNE clusters"]["p"] <= 1


class Here:
    """A pool that works in this process."""

    map = staticmethod(map)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_tables_and_figure_of_a_run(content, tmp_path):
    assert all(table(content) for table in TABLES.values())
    assert f"{len(SETS)} [real questions]" in TABLES["readme"](content)
    draw(content, tmp_path / "real.png")
    assert (tmp_path / "real.png").stat().st_size > 10_000


def test_a_run_without_its_packages_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(type(SETS["iris"]), "installed", property(lambda one: one.name != "iris"))
    with pytest.raises(SystemExit):
        command.main([])
    assert "scikit-learn" in capsys.readouterr().err
