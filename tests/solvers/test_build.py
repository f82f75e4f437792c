"""One place builds a solver from its name and options."""

import numpy as np
import pytest

from tpca import MeanSolver, PaperSolver, RaceSolver
from tpca.errors import SolverError
from tpca.solvers.build import CLASSES, applicable, build_solver, options_of
from tpca.solvers.options import APPLIES, SOLVERS
from tpca.streams import open_stream

DATA = open_stream(np.random.default_rng(0).standard_normal((20, 6, 5, 4)))


def test_a_name_and_options_become_a_solver_and_a_reason():
    options = {"random_state": 3, "memory_limit": "1MB", "confidence": 0.9}
    race, why = build_solver("race", DATA, {**options, "tol": 0.2, "max_passes": "auto"})
    assert isinstance(race, RaceSolver)
    assert (race.random_state, race.memory_limit, race.confidence, race.tol) == (3, 10**6, 0.9, 0.2)
    assert (why.solver, why.reason) == ("race", "asked for")
    mean, why = build_solver("auto", DATA, {**options, "max_passes": "auto"})
    assert isinstance(mean, MeanSolver)
    assert "fits into memory" in why.reason
    assert isinstance(build_solver("auto", DATA, {**options, "memory_limit": 20_000})[0], RaceSolver)
    assert isinstance(build_solver("auto", DATA, {"tol": 0.1})[0], RaceSolver)
    paper, _ = build_solver("paper", DATA, {"strength": 2.0})
    assert isinstance(paper, PaperSolver)


@pytest.mark.parametrize(
    ("name", "option", "way"),
    [
        ("mean", {"tol": 0.1}, "leave it out, or use 'race'"),
        ("race", {"strength": 1.0}, "leave it out, or use 'paper'"),
        ("paper", {"max_samples": 5}, "leave it out, or use 'mean' or 'race'"),
        ("auto", {"strength": 1.0}, "leave it out, or use 'paper'"),
        ("auto", {"colour": "red"}, "leave it out"),
    ],
)
def test_an_option_that_means_nothing_is_refused(name, option, way):
    with pytest.raises(SolverError, match=rf"{next(iter(option))}=.* means nothing to solver='{name}'; {way}\.$"):
        build_solver(name, DATA, {"random_state": 0, **option})


def test_what_any_possible_solver_refuses_is_refused():
    """The mean, which would be chosen, has no passes; what is wrong with them is said all the same."""
    with pytest.raises(SolverError, match="max_passes must be a whole number"):
        build_solver("auto", DATA, {"max_passes": 0})
    with pytest.raises(SolverError, match="solver must be 'auto', 'mean', 'race' or 'paper', got 'best'"):
        build_solver("best", DATA, {})


def test_the_table_of_options_says_what_the_solvers_take():
    """The table, which the command reads before anything slow is imported, and the options of the classes agree."""
    for name in SOLVERS:
        listed = {option for option, kinds in APPLIES.items() if name in kinds}
        # Of the command and the estimator, whatever the solver: how samples are read, and what is looked for in them.
        of_fits = {"solver", "items", "shuffle", "restart", "sample_dim", "sample", "modes", "value", "missing"}
        of_fits |= {"target", "y", "nuisance", "group_by", "block_size"}
        own = {
            "partition",
            "schedule",
            "preset",
            "truth",
            "estimator",
            "pairing",
        }  # in Python only, for those who make one
        assert listed - of_fits == set(options_of(CLASSES[name])) - own
    assert applicable({"tol": 1, "strength": 2, "shuffle": True}, "auto") == {"tol": 1}
