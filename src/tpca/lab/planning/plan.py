r"""The plan: for every method what it would need, whether that is to be had, and one recommendation.

A row says how many samples the method needs for success in half of all runs (C·form·σ²/λ²,
:mod:`tpca.lab.planning.methods`), twice which is called *enough*; state, buffer and passes; the time to read and add up
that many dense samples at the speed of this machine's memory or at the ``rate`` at which they come, with the
contractions of every round; and S·K·N in units of the lower bound ∏d·σ²/λ².

The recommendation is that of :func:`tpca.solvers.choice.choose_solver`, which ``TensorPCA(solver="auto")`` follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tpca.errors import SolverError
from tpca.lab.planning.constants import Machine, constant, frontier, this_machine
from tpca.lab.planning.methods import METHODS, Method, RaceSize, least_race_bytes, race_size
from tpca.lab.planning.problem import Problem, parse_samples
from tpca.model.sampling import BATCH_ENTRIES
from tpca.solvers.choice import choose_solver
from tpca.solvers.mean.memory import default_mean_memory
from tpca.solvers.memory import default_memory, machine_memory, parse_memory
from tpca.solvers.race.rounds import round_sizes
from tpca.streams.stored import SLAB_ENTRIES
from tpca.wording import amount, approximately, duration

ENOUGH = ((2.0, "enough"), (1.0, "borderline"), (-1.0, "too few"))  # from so many times N₅₀ on
LONG = 30 * 86400.0
FOREVER = 100 * 365.25 * 86400.0
TOO_LONG = "would take"


@dataclass(frozen=True)
class Row:
    """One method; ``obstacle`` says why it cannot be used, ``suffices`` what the samples at hand do for it."""

    name: str
    title: str
    obstacle: str = ""
    samples: float = math.nan
    basis: str = ""
    state_bytes: float = math.nan
    buffer_bytes: float = math.nan
    passes: float = math.nan
    seconds: float = math.nan
    seconds_by_workers: float = math.nan
    product: float = math.nan
    suffices: str = ""

    @property
    def endless(self) -> bool:
        """Whether time is all that stands against it."""
        return self.obstacle.startswith(TOO_LONG)


@dataclass(frozen=True)
class Plan:
    """All rows, the recommendation in a sentence, and what it was made for."""

    problem: Problem
    memory_limit: int
    samples: int | None
    rate: float | None
    workers: int
    least_product: float
    machine: Machine
    rows: tuple[Row, ...] = ()
    recommended: str = ""
    recommendation: str = ""


def make_plan(
    problem: Problem,
    *,
    samples: str | float | None = None,
    memory_limit: str | float | None = None,
    rate: float | None = None,
    workers: int = 1,
) -> Plan:
    """What every method would need for ``problem``.

    Parameters
    ----------
    samples
        How many there are, a number or an expression such as ``"4d^2"``.
    memory_limit
        Bound on a method's state; by default what the solver that is chosen would take.
    rate
        Samples a second that arrive or can be read; by default as fast as memory delivers them.
    workers
        Machines like this one that share the samples.
    """
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise SolverError(f"rate must be a positive number of samples a second, got {rate}.")
    if workers < 1:
        raise SolverError(f"workers must be at least 1, got {workers}.")
    nbytes = _usual_memory(problem.dims) if memory_limit is None else parse_memory(memory_limit)
    count = None if samples is None else parse_samples(samples, problem.dims)
    asked = Plan(problem, nbytes, count, rate, workers, problem.least_product, this_machine())
    plan = replace(asked, rows=(_race_row(asked), *(_row(asked, method) for method in METHODS)))
    recommended, sentence = _recommend(plan, memory_limit is not None)
    return replace(plan, recommended=recommended, recommendation=sentence)


def _usual_memory(dims: tuple[int, ...]) -> int:
    """What the solver that would be chosen takes, where nothing is said."""
    mean = choose_solver(dims).solver == "mean"
    return max(default_memory(dims), default_mean_memory(dims) if mean else 0)


def _race_row(plan: Plan) -> Row:
    """The race in the memory given."""
    dims = plan.problem.dims
    size = race_size(dims, plan.memory_limit)
    if size is None:
        least = least_race_bytes(dims)
        return Row("race", "race (RaceSolver)", f"needs at least {amount(least)} of state", state_bytes=least)
    samples, basis = race_samples(plan.problem, size)
    asked = (
        samples if plan.problem.entries > SLAB_ENTRIES else len(round_sizes(math.ceil(samples), plan.problem.entries))
    )
    row = Row("race", f"race, {size.text}", "", samples, basis, 8 * size.floats, passes=1.0)
    return _finished(plan, row, asked * 2.0 * size.count)  # on both sides of the blocks


def race_samples(problem: Problem, size: RaceSize) -> tuple[float, str]:
    """N₅₀ of the race at a size, and what that rests on."""
    if problem.symmetric and size.symmetric:
        found = constant("race, equal", problem.order)
        return found.value * problem.unit * problem.ratio, found.basis(_dim(problem))
    found = constant("race", problem.order)
    samples = found.value * size.form(problem.dims) * problem.unit * problem.ratio
    # Far beyond the sizes measured the form would undercut what no method was seen to undercut.
    return max(samples, frontier() * problem.least_product / size.floats), found.basis(_dim(problem))


def _row(plan: Plan, method: Method) -> Row:
    problem = plan.problem
    if obstacle := method.obstacle(problem):
        return Row(method.name, method.title, obstacle)
    found = constant(method.measured_as(problem.order), problem.order)
    value, basis = found.value, found.basis(_dim(problem))
    if method.at_large and basis == "extrapolated" and _dim(problem) > max(found.dims):
        value = max(value, constant(method.at_large, problem.order).value)
    samples = max(1.0, value * method.form(problem) * problem.ratio)
    passes = found.passes if method.passes else 1.0
    row = Row(method.name, method.title, "", samples, basis, 8 * method.state(problem), passes=passes)
    return _finished(plan, row, samples * passes if method.sequential else 0.0, method.sequential)


def _finished(plan: Plan, row: Row, contractions: float, sequential: bool = False) -> Row:
    """Time, product and obstacles of a method whose needs are known.

    ``contractions`` with a whole sample or a mean are taken beside adding samples up.
    """
    taken, entries = row.samples * row.passes, plan.problem.entries
    read, flops = 8.0 * entries * taken, 2.0 * entries * contractions
    arriving = taken / plan.rate if plan.rate else 0.0
    alone = max(plan.machine.seconds(read, flops), arriving)
    shared = alone if sequential else max(plan.machine.seconds(read, flops, plan.workers), arriving)
    least, obstacle = min(plan.memory_limit, machine_memory()), ""
    if row.state_bytes > least:
        obstacle = f"needs {amount(row.state_bytes)} of state, the memory is {amount(least)}"
    elif shared > FOREVER:
        obstacle = f"{TOO_LONG} {approximately(100 * shared / FOREVER)} years"
    return replace(
        row,
        obstacle=obstacle,
        buffer_bytes=buffer_bytes(plan.problem),
        seconds=alone,
        seconds_by_workers=shared,
        product=row.state_bytes / 8 * taken / plan.least_product,
        suffices="" if plan.samples is None else next(word for n, word in ENOUGH if plan.samples >= n * row.samples),
    )


def _recommend(plan: Plan, told: bool) -> tuple[str, str]:
    """The solver that ``TensorPCA`` would take, why, and what to expect of it."""
    choice = choose_solver(plan.problem.dims, plan.memory_limit if told else None, max_samples=plan.samples)
    row = next(r for r in plan.rows if r.name == choice.solver)
    name = {"mean": "MeanSolver", "race": "RaceSolver"}[choice.solver]
    why, _, taken = choice.reason.partition(": ")  # of the mean: what it takes, of what is there
    sizes = f"it needs {amount(row.state_bytes)}, and takes {taken} for more groups of samples, a better test"
    reason = f"{why}: {sizes}" if taken and not taken.startswith(amount(row.state_bytes)) else choice.reason
    sentence = f"Use {name}: {reason}"
    if math.isnan(row.samples):
        return _instead(plan.rows, f"RaceSolver {row.obstacle}, the memory is {amount(plan.memory_limit)}")
    sentence += f"; about {approximately(row.samples)} samples recover the signal in half of all runs"
    if plan.samples is not None:
        sentence += f", and {plan.samples:,} are {row.suffices}"
        if row.suffices == "too few":
            least = min((r for r in plan.rows if not r.obstacle), key=lambda r: r.samples, default=row)
            fewest = f"the least of all methods here: {approximately(least.samples)}, {least.title}"
            sentence += f" ({fewest if least.samples < 0.8 * row.samples else 'no method here needs fewer'})"
    if row.obstacle:
        sentence += f", but on this machine it {row.obstacle}"
    elif row.seconds_by_workers > LONG:
        sentence += f", which takes {duration(row.seconds_by_workers)} of reading dense samples"
    return choice.solver, sentence + "."


def _instead(rows: tuple[Row, ...], why: str) -> tuple[str, str]:
    """When neither of our solvers fits: the method that does with the fewest samples, or none."""
    fitting = [r for r in rows if not r.obstacle]
    if not fitting:
        return "", f"Nothing fits: {why}; give more memory."
    least = min(fitting, key=lambda r: r.samples)
    return least.name, f"{why}: give more memory, or use {least.title}, which has no test for a signal."


def buffer_bytes(problem: Problem) -> float:
    """A batch in flight and the sum of a round; huge samples come in slabs, if they are stored."""
    if problem.entries > SLAB_ENTRIES:
        return 8.0 * SLAB_ENTRIES
    return 8.0 * (max(problem.entries, BATCH_ENTRIES) + 2 * problem.entries)


def _dim(problem: Problem) -> float:
    return float(problem.entries ** (1 / problem.order))
