"""The net: rows that must stay have their stored answers; of those that may change, how many did is told at the end."""

import json
from collections import Counter

import numpy as np
import pytest

from net.clusters import clusters
from net.rows import PLACE, TOLERANCES, Net, rows


def marked(mark):
    return [name for name, row in rows().items() if row["mark"] == mark]


@pytest.fixture(scope="module")
def net():
    with clusters() as client_of:
        yield Net(client_of)


@pytest.mark.parametrize("name", marked("stay"))
def test_what_must_stay_is_as_it_was(name, net):
    outcome = net.outcome(name)
    assert outcome.same, outcome.told


@pytest.mark.parametrize("name", marked("change"))
def test_what_may_change_still_has_an_answer(name, net, record_property):
    record_property("net row that may change", not net.outcome(name).same)
    answer, spec = net.answer(name), rows()[name]["data"]
    assert 0 < answer["n_samples"] <= spec["n"]
    assert answer["vectors"]
    for component in answer["vectors"]:
        assert [len(vector) for vector in component] == spec["dims"]
        assert all(np.isfinite(vector).all() and any(vector) for vector in component)


def test_every_row_has_one_name_one_mark_and_something_to_compare_with():
    every = json.loads(PLACE.read_text())
    assert len(every) == len(rows())
    for row in every:
        assert sum(key in row for key in ("answer", "same_as", "refused")) == 1, row["name"]
        if row.get("via") == "resumed" or row.get("via") == "killed" or "workers" in row:
            assert "same_as" in row, row["name"]
        if row["mark"] == "stay" and "answer" in row:
            assert row["method"] in TOLERANCES, row["name"]
    marks = Counter(row["mark"] for row in every)
    assert marks.keys() == {"stay", "change"}
    assert marks["stay"] > 100
    assert marks["change"] > 40
