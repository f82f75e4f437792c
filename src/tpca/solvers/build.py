"""Which solver for which data, made with the options that were given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from typing import Any

from tpca.engines import Data
from tpca.errors import MemoryBudgetError, SolverError
from tpca.inference.design import Design
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.options import same
from tpca.solvers.paper.solver import PaperSolver
from tpca.solvers.race.contrasts import refused
from tpca.solvers.race.run import RaceSolver
from tpca.solvers.variation import Variation

SOLVERS: dict[str, type[Any]] = {"least_squares": LeastSquares, "race": RaceSolver, "paper": PaperSolver}


def build_solver(
    solver: Any,
    target: str,
    data: Data,
    design: Design,
    given: Mapping[str, Any],
    chosen: Set[str],
    known: Mapping[str, Any],
) -> tuple[Any, str]:
    """A solver, and why it is that one in a sentence.

    ``given`` are options by name, of which ``chosen`` are not the default: one of these that means nothing to the
    solver is refused.  ``known`` are options that all solvers have.
    """
    if isinstance(solver, type):
        raise SolverError(f"solver must be a solver, got the class {solver.__name__}; make one: {solver.__name__}().")
    if solver not in ("auto", *SOLVERS) if isinstance(solver, str) else not hasattr(solver, "run"):
        raise SolverError(
            f"solver must be 'auto', 'least_squares', 'race' or 'paper', got {solver!r}; or an object with run(stream)."
        )
    if not isinstance(solver, str):
        for name in sorted(chosen):
            raise SolverError(
                f"{name} means nothing beside a solver that is given; give it to that {type(solver).__name__}."
            )
        if target == "variance" and not isinstance(solver, Variation):
            raise SolverError("target='variance' has a solver of its own; leave solver out.")
        return solver, "given"
    if target == "variance":
        if solver != "auto":
            raise SolverError(
                f"solver={solver!r} means nothing to target='variance', which has one solver; leave it out."
            )
        return _made(Variation, given, chosen, known, "target='variance'"), "target='variance' has one solver"
    if solver != "auto":
        return _made(SOLVERS[solver], given, chosen, known, f"solver={solver!r}"), "asked for"
    squares = _made(LeastSquares, given, chosen, known, "least squares")
    reason = "the samples never end, and only the race knows when to stop"
    if not data.endless or squares.max_samples is not None:
        try:
            squares.plan(data, design)
        except MemoryBudgetError as error:
            if not design.plain and (target != "effect" or refused(design) is not None):
                raise
            reason = f"the race, since {str(error).split(';')[0]}"
        else:
            return squares, "the sums of all samples fit into memory"
    return _made(RaceSolver, given, chosen, known, "the race, which was taken"), reason


def _made(kind: type[Any], given: Mapping[str, Any], chosen: Set[str], known: Mapping[str, Any], where: str) -> Any:
    if same(given.get("n_components"), "auto") and kind is not LeastSquares:
        raise SolverError(f"n_components='auto' means nothing to {where}; give a number, or use least squares.")
    own = {field.name for field in dataclasses.fields(kind)}
    for name in sorted(chosen - own):
        raise SolverError(f"{name}={given[name]!r} means nothing to {where}; leave it out.")
    usual = {"max_passes": "auto"} if kind is RaceSolver else {}  # as often as it helps, of what can be read again
    return kind(**{name: value for name, value in {**usual, **given, **known}.items() if name in own})
