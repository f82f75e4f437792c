"""The solver that an estimator's options ask for."""

from __future__ import annotations

from typing import Any

from tpca.engines import Data
from tpca.solvers.base import Solver
from tpca.solvers.build import applicable, build_solver, given_solver
from tpca.solvers.choice import Choice
from tpca.solvers.options import parameters_of, refuse_idle


def solver_for(estimator: Any, data: Data, known: dict[str, Any]) -> tuple[Solver, Choice]:
    """The solver for some data, and why; options that mean nothing to it are refused.

    ``known`` are options that take the place of the estimator's own.
    """
    asked = estimator.solver
    if not isinstance(asked, str):
        solver, choice = given_solver(asked)
        why = f"means nothing beside a solver that is given; give it to that {choice.solver}"
        refuse_idle(estimator, "given", why)
        return solver, choice
    own = applicable({**parameters_of(estimator), **known}, asked)
    refuse_idle(estimator, asked, f"means nothing to solver={asked!r}; leave it out, or use 'race'")
    return build_solver(asked, data, own)
