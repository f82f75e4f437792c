"""From the name of a solver and options to a solver, in one place: for the command, the estimators and the studies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from tpca.engines import Data
from tpca.errors import SolverError
from tpca.solvers.base import CommonOptions, Solver
from tpca.solvers.choice import Choice, choose_for
from tpca.solvers.mean.solver import MeanSolver
from tpca.solvers.options import SOLVERS
from tpca.solvers.paper.solver import PaperSolver
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.variance.solver import VarianceSolver

DECIDING = ("memory_limit", "max_samples", "tol", "confidence")  # what the choice depends on besides the data
CLASSES: dict[str, type[CommonOptions]] = {"mean": MeanSolver, "race": RaceSolver, "paper": PaperSolver}


def build_solver(name: str, data: Data, options: Mapping[str, Any]) -> tuple[Solver, Choice]:
    """The solver of that name with those options, and why it is the one; ``"auto"`` looks at the data.

    All solvers that ``name`` may stand for check their options, so that a value which one of them refuses is refused
    whichever is chosen.  An option that means nothing to any of them is an error.
    """
    possible = _possible(name)
    for option in options.keys() - _known(name):
        elsewhere = [one for one in SOLVERS if option in options_of(CLASSES[one])]
        way = f"leave it out, or use {' or '.join(map(repr, elsewhere))}" if elsewhere else "leave it out"
        raise SolverError(f"{option}={options[option]!r} means nothing to solver={name!r}; {way}.")
    built = {}
    for one, solver in possible.items():
        own = _known(one)
        built[one] = solver(**{option: value for option, value in options.items() if option in own})
    if name != "auto":
        return built[name], Choice(name, "asked for")
    choice = choose_for(data, **{option: options[option] for option in DECIDING if option in options})
    return built[choice.solver], choice


def build_for(target: str, name: str, data: Data, options: Mapping[str, Any]) -> tuple[Solver, Choice]:
    """The solver for a target, with those of the options that it has; ``name`` is one of several, but of variation."""
    if target != "variance":
        return build_solver(name, data, applicable(options, name))
    own = options_of(VarianceSolver)
    solver = VarianceSolver(**{option: value for option, value in options.items() if option in own})
    return solver, Choice("variance", "target='variance' has one solver")


def given_solver(solver: Any) -> tuple[Solver, Choice]:
    """A solver that is given as an object, or what it must be."""
    name = type(solver).__name__
    if isinstance(solver, type):
        raise SolverError(
            f"solver must be a solver, got the class {solver.__name__}; make one of it: {solver.__name__}()."
        )
    if not isinstance(solver, Solver):
        raise SolverError(
            f"solver must be 'auto', 'mean', 'race', 'paper' or an object with run(stream), got {solver!r}."
        )
    return solver, Choice(name, "given")


def applicable(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Those of some options that are options of a solver that ``name`` may stand for."""
    known = _known(name)
    return {option: value for option, value in options.items() if option in known}


def options_of(solver: type[CommonOptions]) -> tuple[str, ...]:
    """Names of the options of a kind of solver."""
    return tuple(field.name for field in dataclasses.fields(solver))


@functools.cache
def _known(name: str) -> frozenset[str]:
    """Options of all solvers that ``name`` may stand for; to look them up takes a while beside a small fit."""
    return frozenset(option for solver in _possible(name).values() for option in options_of(solver))


def _possible(name: str) -> dict[str, type[CommonOptions]]:
    if name not in ("auto", *SOLVERS):
        names = ", ".join(map(repr, SOLVERS[:-1]))
        raise SolverError(f"solver must be 'auto', {names} or {SOLVERS[-1]!r}, got {name!r}.")
    return {one: solver for one, solver in CLASSES.items() if one == name or (name == "auto" and one != "paper")}
