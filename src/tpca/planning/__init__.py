"""Which method for which tensor: what each would need, and a recommendation."""

from tpca.planning.choice import Choice, choose_solver
from tpca.planning.plan import Plan, make_plan
from tpca.planning.problem import Problem

__all__ = ["Choice", "Plan", "Problem", "choose_solver", "make_plan"]
