"""Solvers: least squares, variation, the race, the paper's algorithm."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpca.solvers.least_squares.solver import LeastSquares as LeastSquares
    from tpca.solvers.paper.solver import PaperSolver as PaperSolver
    from tpca.solvers.race.run import RaceSolver as RaceSolver
    from tpca.solvers.variation import Variation as Variation

# Where each solver lives.  It is imported when it is first asked for.
_HOMES = {
    "LeastSquares": "tpca.solvers.least_squares.solver",
    "PaperSolver": "tpca.solvers.paper.solver",
    "RaceSolver": "tpca.solvers.race.run",
    "Variation": "tpca.solvers.variation",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """A solver by name, imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tpca.solvers' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The solvers, imported or not."""
    return __all__
