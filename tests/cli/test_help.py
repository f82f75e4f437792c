"""Help that fits a screen, a quick start, and text that a terminal would take for something else."""

import functools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import command
from tpca.cli import COMMANDS, app
from tpca.cli.options import COMMON
from tpca.wording import printable


def told(*arguments):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, terminal_width=80, prog_name="tpca")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", ["", "fit", "score", "report", "info", "plan", "generate", "demo"])
def test_the_help_of_a_command_fits_a_screen(name):
    lines = told(*filter(None, (name, "--help"))).splitlines()
    if name:
        assert COMMANDS[name] in lines[2]  # the list of commands says the same
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert not re.search(r"[<{]|list\[|INTEGER|RANGE", "\n".join(lines), re.IGNORECASE)  # no words of a programmer


@pytest.mark.parametrize("name", COMMON)
def test_all_options_are_told_when_asked_for(name):
    parameters = typer.main.get_command(app).get_command(None, name).params
    options = {str(one.name): one.opts[0] for one in parameters if one.param_type_name == "option"}
    few, whole = told(name, "--help"), told(name, "--help-all")
    assert set(COMMON[name]) < set(options)
    for option, spelled in options.items():
        assert f"  {spelled} " in whole
        assert (f"  {spelled} " in few) == (option in (*COMMON[name], "help"))
    assert "Advanced options" not in few


def test_a_slip_in_the_name_of_a_command_is_told_with_the_command_that_was_meant():
    done = CliRunner().invoke(app, ["fot", "d.npy"])
    assert done.exit_code == 2
    assert "'fot'" in done.output
    assert "'fit'" in done.output


@functools.cache
def loaded_by(code):
    """The modules that a new process has loaded after ``code``."""
    asked = [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"]
    return json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def test_the_start_loads_nothing_that_is_slow():
    code = "import sys; sys.argv = ['tpca', '--help']\nfrom tpca.cli import main\ntry: main()\nexcept SystemExit: pass"
    slow = ("numpy", "scipy", "sklearn", "matplotlib", "zarr", "h5py", "dask", "pandas", "xarray", "pyarrow")
    assert [m for m in loaded_by(code) if m.partition(".")[0] in slow] == []
    of_fit = loaded_by(code.replace("'--help'", "'fit', '--help'"))
    assert [m for m in of_fit if m.partition(".")[0] in slow] == []
    assert [m for m in loaded_by("import tpca") if m.partition(".")[0] in slow] == []
    solvers = loaded_by("from tpca import PaperSolver, RaceSolver, SpikedTensor, open_stream")
    assert [m for m in solvers if m.partition(".")[0] in slow[2:]] == []


def test_names_of_files_cannot_redraw_the_screen(tmp_path):
    assert printable("a\x1b[2J\x07\u202eb\udcff × é") == r"a\x1b[2J\x07\u202eb\udcff × é"
    name = "x\x1b[31m[/b]red.npy"
    os.makedirs(tmp_path / os.path.dirname(name))
    np.save(tmp_path / name, np.random.default_rng(0).standard_normal((60, 4, 5)))
    for arguments, codes in (
        (["info", name], (0,)),
        (["fit", name, "--out", "o", "--report", "r.html"], (0, 3)),
        (["info", "o"], (0,)),
        (["report", "o", "--out", "s.html"], (0,)),
        (["fit", name, "--solver", "nonsense"], (2,)),
        (["info", f"no{name}"], (2,)),
    ):
        done = command.run(*arguments, cwd=tmp_path)
        assert done.returncode in codes, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
