"""The net: rows that must stay have their stored answers; those that may change have one."""

import contextlib
import json
import logging
from collections import Counter

import numpy as np
import pytest

from net.rows import PLACE, TOLERANCES, Net, rows


def marked(mark):
    return [name for name, row in rows().items() if row["mark"] == mark]


@pytest.fixture(scope="module")
def net():
    """The rows; clusters run within this process, each started when it is first asked for."""
    clients = {}
    with contextlib.ExitStack() as stack:

        def client_of(workers):
            from distributed import Client, LocalCluster

            if workers not in clients:
                quiet = {"processes": False, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
                cluster = stack.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, **quiet))
                clients[workers] = stack.enter_context(Client(cluster, set_as_default=False))
            return clients[workers]

        yield Net(client_of)


@pytest.mark.parametrize("name", marked("stay"))
def test_what_must_stay_is_as_it_was(name, net):
    assert net.difference(name) == ""


@pytest.mark.parametrize("name", marked("change"))
def test_what_may_change_still_has_an_answer(name, net):
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
        if row.get("via") == "resumed" or "workers" in row:
            assert "same_as" in row, row["name"]
        if row["mark"] == "stay" and "answer" in row:
            assert row["method"] in TOLERANCES, row["name"]
    marks = Counter(row["mark"] for row in every)
    assert marks.keys() == {"stay", "change"}
    assert marks["stay"] > 100
    assert marks["change"] > 40
