"""What an import loads, by counting modules; how long it takes is for ``make bench``."""

import functools
import importlib
import json
import subprocess
import sys

import pytest
import typer

import tpca
from tpca.cli import COMMANDS, app

SLOW = ("numba", "sklearn", "scipy.stats", "matplotlib", "zarr", "h5py", "dask", "pandas", "threadpoolctl")
SLOW += ("xarray", "pyarrow", "h5netcdf")


@functools.cache
def loaded_by(code):
    """The modules that a new process has loaded after ``code``."""
    command = [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def test_the_package_alone_loads_nothing_but_itself():
    assert [m for m in loaded_by("import tpca") if m.partition(".")[0] in ("numpy", "scipy", *SLOW)] == []


def test_solvers_do_not_load_what_is_slow():
    modules = loaded_by("from tpca import PaperSolver, RaceSolver, SpikedTensor, open_stream")
    assert [m for m in modules if m.startswith(SLOW)] == []


def test_the_help_of_the_command_does_not_load_numpy():
    code = "import sys; sys.argv = ['tpca', '--help']\nfrom tpca.cli import main\ntry: main()\nexcept SystemExit: pass"
    modules = loaded_by(code)
    assert [m for m in modules if m.partition(".")[0] in ("numpy", "scipy", *SLOW)] == []
    assert "typer" in modules


def test_the_list_of_commands_says_what_their_own_help_begins_with():
    found = {name: importlib.import_module(f"tpca.cli.{name}") for name in COMMANDS}
    first = {name: getattr(module, name).__doc__.strip().splitlines()[0] for name, module in found.items()}
    assert first == COMMANDS
    commands = typer.main.get_command(app).commands
    assert list(commands) == list(COMMANDS)
    assert {name: command.name for name, command in commands.items()} == {name: name for name in COMMANDS}


def test_the_list_of_commands_imports_none_of_them():
    code = "import sys; sys.argv = ['tpca', '--help']\nfrom tpca.cli import main\ntry: main()\nexcept SystemExit: pass"
    assert [m for m in loaded_by(code) if m.removeprefix("tpca.cli.") in COMMANDS] == []


def test_every_public_name_is_there():
    assert set(tpca.__all__) <= set(dir(tpca))
    assert [name for name in tpca.__all__ if getattr(tpca, name).__name__ != name] == []
    assert sorted(tpca.__all__) == tpca.__all__
    assert len(tpca.__all__) <= 12


def test_the_lab_and_its_parts_are_loaded_when_asked_for():
    lab = [m for m in loaded_by("import tpca; tpca.TensorPCA") if m.split(".")[:2] == ["tpca", "lab"]]
    parts = [m for m in loaded_by("import tpca; tpca.lab.planning") if m in ("tpca.lab.planning", "tpca.lab.baselines")]
    assert (lab, parts) == ([], ["tpca.lab.planning"])
    assert "lab" in dir(tpca)
    with pytest.raises(AttributeError, match=r"tpca\.lab.*nothing_such"):
        _ = tpca.lab.nothing_such


def test_star_import_gives_all_names_and_a_wrong_one_is_an_attribute_error():
    space = {}
    exec("from tpca import *", space)
    assert set(tpca.__all__) <= set(space)
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = tpca.nothing_such
