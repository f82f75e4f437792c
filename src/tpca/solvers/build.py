"""Which solver for which data, made with the options that were given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from tpca.engines import Data
from tpca.errors import MemoryBudgetError, SolverError
from tpca.inference.design import Design
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.options import same
from tpca.solvers.paper.solver import PaperSolver
from tpca.solvers.race.contrasts import unreadable
from tpca.solvers.race.run import RaceSolver
from tpca.solvers.variation import Variation
from tpca.wording import amount

SOLVERS: dict[str, type[Any]] = {"least_squares": LeastSquares, "race": RaceSolver, "paper": PaperSolver}


@dataclass(frozen=True)
class Choice:
    """A solver, why it is that one in words, and the line of advice that says so where it is not the usual one."""

    solver: Any
    reason: str
    advice: str = ""


def build_solver(
    solver: Any,
    target: str,
    data: Data,
    design: Design,
    given: Mapping[str, Any],
    chosen: Set[str],
    known: Mapping[str, Any],
    pushed: bool = False,
) -> Choice:
    """The solver for some samples, which may be ``pushed``, batch after batch.

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
        return Choice(solver, "given")
    if target == "variance":
        if solver != "auto":
            raise SolverError(
                f"solver={solver!r} means nothing to target='variance', which has one solver; leave it out."
            )
        variation = _made(Variation, given, chosen, known, "target='variance'")
        return Choice(variation, "target='variance' has one solver")
    if solver != "auto":
        return Choice(_made(SOLVERS[solver], given, chosen, known, f"solver={solver!r}"), "asked for")
    squares = _made(LeastSquares, given, chosen, known, "least squares")
    if data.endless and squares.max_samples is None:
        reason = "the samples never end, and only the race knows when to stop"
        remedy = "give max_samples"
        refusal: type[SolverError] = SolverError
    else:
        try:
            squares.plan(data, design, pushed)
        except MemoryBudgetError as error:
            reason = str(error).split(";")[0]
        else:
            return Choice(squares, "the sums of all samples fit into memory")
        remedy = f"raise memory_limit to {amount(_sufficient_memory(squares, data, design, pushed))}"
        refusal = MemoryBudgetError
    changes = _changes_for_race(data, design, given, chosen, pushed)
    if changes:
        raise refusal(f"{reason}; {remedy}, or {' and '.join(changes)}, and the race takes over.")
    advice = f"Solved by the race, not least squares: {reason}; {remedy} to use least squares."
    return Choice(_race_for(given, chosen, known), reason, advice)


def _sufficient_memory(squares: LeastSquares, data: Data, design: Design, pushed: bool) -> int:
    """The least memory limit at which least squares fits, rounded up to two digits."""

    def fits(limit: int) -> bool:
        try:
            dataclasses.replace(squares, memory_limit=limit).plan(data, design, pushed)
        except MemoryBudgetError:
            return False
        return True

    small = squares.budget()
    large = 2 * small
    while not fits(large):
        small = large
        large = 2 * small
    while large - small > max(1, large // 1000):
        middle = (small + large) // 2
        if fits(middle):
            large = middle
        else:
            small = middle
    digit: int = 10 ** max(0, len(str(large)) - 2)
    return -(-large // digit) * digit


def _changes_for_race(
    data: Data, design: Design, given: Mapping[str, Any], chosen: Set[str], pushed: bool
) -> list[str]:
    """What a user would have to change for the race to answer the question, in words; empty where it can."""
    dropped = [f"{name}={given[name]!r}" for name in sorted(chosen - _options_of_race(given, design))]
    for name, values in (("sample_weight", design.weights), ("groups", design.groups)):
        if values is not None:
            dropped.append(name)
    if design.columns is not None and design.n_nuisance > 1:
        dropped.append("nuisance")
    changes = [f"leave out {' and '.join(dropped)}"] if dropped else []
    if len(data.dims) < 2:
        changes.append("give samples of two axes or more")
    if data.partial:
        changes.append("use nan_policy='omit'")
    if design.columns is None:
        return changes
    if design.n_columns - design.n_nuisance > 1:
        changes.append("give one number or two labels for every sample")
    if pushed:
        changes.append("give all samples to fit at once")
    elif unreadable(data) and not data.partial:
        changes.append("give whole samples of NumPy to this process")
    return changes


def _options_of_race(given: Mapping[str, Any], design: Design) -> set[str]:
    """The options of which the race can do what was asked for, each by itself or by one of another name."""
    names = {field.name for field in dataclasses.fields(RaceSolver)}
    if same(given.get("n_components"), "auto"):
        names.remove("n_components")
    if given.get("whiten") is None:  # the race never whitens
        names.add("whiten")
    if given.get("dependence") is None or design.columns is None:  # contrasts are not cut where neighbours are
        names.add("dependence")
    return names


def _race_for(given: Mapping[str, Any], chosen: Set[str], known: Mapping[str, Any]) -> Any:
    """The race in place of least squares: samples that count as one unit are one of its groups."""
    options = dict(known)
    if "dependence" in chosen:
        dependence = given["dependence"]
        options["groups"] = 1 if dependence is None else dependence
    return _made(RaceSolver, given, chosen - {"dependence", "whiten"}, options, "the race")


def _made(kind: type[Any], given: Mapping[str, Any], chosen: Set[str], known: Mapping[str, Any], where: str) -> Any:
    if same(given.get("n_components"), "auto") and kind is not LeastSquares:
        raise SolverError(f"n_components='auto' means nothing to {where}; give a number, or use least squares.")
    own = {field.name for field in dataclasses.fields(kind)}
    for name in sorted(chosen - own):
        raise SolverError(f"{name}={given[name]!r} means nothing to {where}; leave it out.")
    usual = {"max_passes": "auto"} if kind is RaceSolver else {}  # as often as it helps, of what can be read again
    return kind(**{name: value for name, value in {**usual, **given, **known}.items() if name in own})
