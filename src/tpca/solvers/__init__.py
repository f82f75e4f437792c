"""Solvers: least squares, the race, the paper's algorithm."""

import importlib
from typing import Any

_HOMES = {"LeastSquares": "least_squares", "RaceSolver": "race", "PaperSolver": "paper"}


def __getattr__(name: str) -> Any:
    """A solver by name, imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tpca.solvers' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tpca.solvers.{_HOMES[name]}.solver"), name)
