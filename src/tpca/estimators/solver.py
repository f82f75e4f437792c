"""The solver that an estimator's options ask for."""

from __future__ import annotations

from typing import Any

from tpca.engines import Data
from tpca.solvers.base import Solver
from tpca.solvers.build import applicable, build_for, build_solver, given_solver
from tpca.solvers.choice import Choice
from tpca.solvers.options import parameters_of, refuse_idle


def solver_for(estimator: Any, data: Data, known: dict[str, Any]) -> tuple[Solver, Choice]:
    """The solver for some data, and why; options that mean nothing to it are refused.

    ``known`` are options that take the place of the estimator's own.
    """
    asked = estimator.solver
    if estimator.target == "variance":
        refuse_idle(estimator, "variance", "means nothing to target='variance'; leave it out, or use another target")
        return build_for("variance", asked, data, {**parameters_of(estimator), **known})
    if not isinstance(asked, str):
        solver, choice = given_solver(asked)
        why = f"means nothing beside a solver that is given; give it to that {choice.solver}"
        refuse_idle(estimator, "given", why)
        return solver, choice
    own = applicable({**parameters_of(estimator), **known}, asked)
    refuse_idle(estimator, asked, f"means nothing to solver={asked!r}; leave it out, or use 'race'")
    return build_solver(asked, data, own)
