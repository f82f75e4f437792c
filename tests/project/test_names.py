"""Every name that the documentation or a module promises can be imported."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import research
import tpca

ROOT = Path(__file__).parents[2]
DOCUMENTED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def documented_names():
    """What the pages of docs/api have a section for."""
    names = []
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        names.extend(DOCUMENTED.findall(page.read_text()))
    return names


def promised_names():
    """All that is in an ``__all__``, or is imported when it is asked for."""
    names = []
    for package in (tpca, research):
        modules = [package.__name__]
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                modules.append(info.name)
        for module in modules:
            space = vars(importlib.import_module(module))
            promised = {*space.get("__all__", ()), *space.get("_HOMES", ())}
            names.extend(f"{module}.{name}" for name in sorted(promised))
    return names


def imported(name):
    """A module, or an attribute of one, by its dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


def test_every_documented_name_can_be_imported():
    names = documented_names()
    assert {"tpca.TensorPCA", "tpca.RaceSolver", "tpca.planning.Problem"} <= set(names)
    for name in names:
        assert imported(name) is not None, name


def test_every_promised_name_can_be_imported():
    names = promised_names()
    assert {"tpca.TensorPCA", "tpca.solvers.RaceSolver", "tpca.engines.DaskEngine"} <= set(names)
    for name in names:
        assert imported(name) is not None, name


def test_solvers_by_their_short_names():
    from tpca.solvers import LeastSquares, PaperSolver, RaceSolver, Variation

    assert RaceSolver is tpca.RaceSolver
    assert PaperSolver is tpca.PaperSolver
    assert LeastSquares.__module__ == "tpca.solvers.least_squares.solver"
    assert Variation.__module__ == "tpca.solvers.variation"
    with pytest.raises(ImportError, match="Race"):
        from tpca.solvers import Race  # noqa: F401
