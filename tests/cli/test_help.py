"""Help on one screen, and all of it when asked for."""

import pytest
import typer
from typer.testing import CliRunner

from tpca.cli import COMMANDS, app
from tpca.cli.helping import COMMON


def told(*arguments):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, terminal_width=80)
    assert done.exit_code == 0, done.output
    return done.output


def options_of(name):
    parameters = typer.main.get_command(app).commands[name].params
    return {str(one.name): one.opts[0] for one in parameters if one.param_type_name == "option"}


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_help_of_a_command_fits_a_screen(name):
    lines = told(*filter(None, (name, "--help"))).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", COMMON)
def test_all_options_are_told_when_asked_for(name):
    few, whole, options = told(name, "--help"), told(name, "--help-all"), options_of(name)
    assert set(COMMON[name]) < set(options)
    for option, spelled in options.items():
        assert f"  {spelled}" in whole
        assert (f"  {spelled} " in few) == (option in (*COMMON[name], "help"))
    assert whole.index("\nOptions:") < whole.index("\nAdvanced options:")
    assert "Advanced options" not in few


def test_usage_is_plain():
    said = CliRunner().invoke(app, ["score", "--help"], prog_name="tpca").output
    assert said.startswith("Usage: tpca score [OPTIONS] PATH")  # the oldest typer has no dots
    assert "{" not in said


def test_a_plan_begins_with_its_advice():
    said = CliRunner().invoke(app, ["plan", "--order", "3", "--dim", "8", "--memory-limit", "1MB"]).output
    assert said.startswith("Use MeanSolver")
    assert "S·K·N" not in said  # a column that a narrow screen goes without
