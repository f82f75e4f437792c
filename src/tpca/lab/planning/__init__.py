"""Which method for which tensor: what each would need, and a recommendation."""

from tpca.lab.planning.plan import Plan, make_plan
from tpca.lab.planning.problem import Problem
from tpca.solvers.choice import Choice, choose_solver

__all__ = ["Choice", "Plan", "Problem", "choose_solver", "make_plan"]
