"""What is stored of components that are fitted together is one run, and comes out again."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from research import components
from research.components import Setting

STORED = Path(__file__).parents[2] / "docs" / "components.json"


@pytest.fixture(scope="module")
def content():
    return json.loads(STORED.read_text())


def setting_of(line):
    fields = {name: value for name, value in line.items() if name != "records"}
    return Setting(**{**fields, "strengths": tuple(fields["strengths"])})


def test_what_is_stored_is_one_run_of_all_lines(content):
    assert len(content["made"]["revision"]) == 10  # one, and no change that was not committed
    wanted = [dataclasses.replace(setting, runs=0) for setting in components.settings(1.0)]
    assert [dataclasses.replace(setting_of(line), runs=0) for line in content["lines"]] == wanted
    assert [len(line["records"]) for line in content["lines"]] == [line["runs"] for line in content["lines"]]


@pytest.mark.parametrize("kind", ["number", "intervals"])
def test_what_is_stored_comes_out_again(kind, content):
    """A run of three sources that are rather alike.  Tests decide by counts of flips, which rounding leaves alone."""
    line = next(
        line
        for line in content["lines"]
        if line["kind"] == kind and line["congruence"] == 0.6 and len(line["strengths"]) == 3
    )
    again = components.RUNS[kind](setting_of(line), 0)
    for name, value in line["records"][0].items():
        np.testing.assert_allclose(again[name], value, atol=1e-9)


def test_tables_show_every_line(content):
    told = components.tables(content["lines"])
    rows = [row for row in told.splitlines() if row.startswith(("| 3 ", "| 4 "))]
    kinds = [line["kind"] for line in content["lines"]]
    numbers = {
        (line["order"], line["congruence"], len(line["strengths"]))
        for line in content["lines"]
        if line["kind"] == "number"
    }
    assert len(rows) == kinds.count("match") + len(numbers) + kinds.count("intervals")
