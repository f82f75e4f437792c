r"""What a tensor would take: samples, memory and time of the mean and of the race, beside the lower bound.

Samples for success (every overlap above 0.9) in half of all runs are

.. math:: N = C \cdot F \sqrt{\textstyle\prod_i d_i}\; \sigma^2/\lambda^2,

C a measured constant of the solver and of the order, F = 1 for the mean.  For the race F depends on the strategy that
fits into memory (:mod:`tpca.solvers.race.rounds`): :math:`c_w` for the sum of all samples, :math:`c_w + b/r` for r
columns, :math:`c_w + c_{\bar k}(d/R)^{0.65}` for R small replicas.  Twice N is called *enough*.  No method without
structure does with a smaller product of state, passes and samples than :math:`\prod_i d_i\,\sigma^2/\lambda^2` up to
constants (Dudeja & Hsu 2024).

The recommendation is what ``TensorPCA(solver="auto")`` takes: least squares where its sums fit.
Other methods are compared by ``make compare`` of the repository.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpca.data.stored import SLAB_ENTRIES
from tpca.errors import MemoryBudgetError, ModelError, SolverError
from tpca.inference.design import Design
from tpca.model import BATCH_ENTRIES, check_strength
from tpca.solvers.least_squares.solver import LEAST_BINS, held_bytes
from tpca.solvers.memory import SHARE_OF_MACHINE, default_memory, machine_memory, parse_memory
from tpca.solvers.race.rounds import round_sizes, samples_factor
from tpca.solvers.race.strategies import RaceSize, least_bytes, size_within
from tpca.tensors.blocks import check_dims
from tpca.threads import cores
from tpca.wording import amount, approximately, duration

MAX_MODES = 12
ENOUGH = ((2.0, "enough"), (1.0, "borderline"), (-1.0, "too few"))  # from so many times N₅₀ on
LONG = 30 * 86400.0  # seconds that are worth a word

# C by order: at the sizes measured, beyond them, and those values of d.  Of 378 stored trials (docs/reproduction/
# memory.jsonl); tests/research/test_compare.py computes them again.  At small d the mean's random starts find what
# they would not at large d, so beyond it is planned no better than ALS, whose start is spectral.
CONSTANTS: dict[str, dict[int, tuple[float, float, tuple[int, ...]]]] = {
    "mean": {3: (1.5, 1.6, (16, 24)), 4: (0.708, 0.957, (10, 16)), 5: (0.535, 0.871, (6, 8)), 6: (0.419, 0.845, (6,))},
    "race": {
        3: (0.776, 0.776, (16, 24)),
        4: (0.672, 0.672, (10, 16)),
        5: (0.468, 0.468, (6, 8)),
        6: (0.319, 0.319, (6, 8)),
    },
}
FRONTIER = 10.7  # the smallest S·K·N, in units of the lower bound, that any method without structure was seen to need


@dataclass(frozen=True)
class Problem:
    """Shape of a sample, strength λ of the signal, standard deviation σ of an entry's noise."""

    dims: tuple[int, ...]
    strength: float = 1.0
    noise: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", check_dims(self.dims))
        if len(self.dims) > MAX_MODES:
            raise ModelError(
                f"a plan covers orders up to {MAX_MODES}, got order {len(self.dims)}; group modes together."
            )
        check_strength(self.strength)
        if not (math.isfinite(self.noise) and self.noise > 0):
            raise ModelError(f"noise must be a positive finite number, got {self.noise}.")

    @property
    def order(self) -> int:
        """k̄."""
        return len(self.dims)

    @property
    def entries(self) -> int:
        """Entries of a sample, ∏d."""
        return math.prod(self.dims)

    @property
    def unit(self) -> float:
        """√∏d, which is d^(k̄/2): the natural unit of samples."""
        return math.sqrt(self.entries)

    @property
    def ratio(self) -> float:
        """σ²/λ²: all numbers of samples are proportional to it."""
        return (self.noise / self.strength) ** 2

    @property
    def least_product(self) -> float:
        """∏d σ²/λ²: the least S·K·N, up to constants and logs, for vectors that may differ from mode to mode."""
        return self.entries * self.ratio


def race_size(dims: tuple[int, ...], nbytes: float) -> RaceSize | None:
    """The race within ``nbytes``, without building it; ``None`` if not even the smallest fits."""
    try:
        return size_within(dims, nbytes)
    except MemoryBudgetError:
        return None


@dataclass(frozen=True)
class Machine:
    """Bytes of samples added up a second and floating-point operations a second, by one worker; and its cores."""

    bandwidth: float
    flops: float
    cores: int


@functools.cache
def this_machine() -> Machine:
    """Measured once a process, the best of a few tries, in well under a second."""

    def best(work: Callable[[], object]) -> float:
        spans = []
        for _ in range(4):
            began = time.perf_counter()
            work()
            spans.append(time.perf_counter() - began)
        return max(min(spans), 1e-6)

    samples, square = np.ones((8, 2**19)), np.ones((384, 384))  # 32 MB: more than most caches hold
    adding, multiplying = best(lambda: samples.sum(axis=0)), best(lambda: square @ square)
    return Machine(samples.nbytes / adding, 2 * 384**3 / multiplying, cores())


@dataclass(frozen=True)
class Row:
    """One solver; ``obstacle`` says why it cannot be used, ``suffices`` what the samples at hand do for it."""

    name: str
    title: str
    obstacle: str = ""
    samples: float = math.nan
    basis: str = ""
    state_bytes: float = math.nan
    buffer_bytes: float = math.nan
    seconds: float = math.nan
    product: float = math.nan
    suffices: str = ""


@dataclass(frozen=True)
class Plan:
    """Both rows, the recommendation in a sentence, and what it was made for."""

    problem: Problem
    memory_limit: int
    samples: int | None
    rate: float | None
    workers: int
    machine: Machine
    least_product: float
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
    """What the mean and the race would need for ``problem``.

    Parameters
    ----------
    samples
        How many there are, a number or an expression such as ``"4d^2"``.
    memory_limit
        Bound on a solver's state; by default what the solver that is chosen would take.
    rate
        Samples a second that arrive or can be read; by default as fast as memory delivers them.
    workers
        Machines like this one that share the samples.
    """
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise SolverError(f"rate must be a positive number of samples a second, got {rate}.")
    if workers < 1:
        raise SolverError(f"workers must be at least 1, got {workers}.")
    dims = problem.dims
    if memory_limit is None:
        usual = int(SHARE_OF_MACHINE * machine_memory())
        nbytes = usual if _least_state(dims) <= usual else default_memory(dims)
    else:
        nbytes = parse_memory(memory_limit)
    count = None if samples is None else parse_samples(samples, dims)
    plan = Plan(problem, nbytes, count, rate, workers, this_machine(), problem.least_product)
    least, (mean, basis) = _least_state(dims), needed("mean", problem)
    squares = Row("least_squares", "least squares", "", max(1.0, mean), basis, least)
    plan = replace(plan, rows=(_race_row(plan), _finished(plan, squares, 0.0)))
    recommended, sentence = _recommend(plan)
    return replace(plan, recommended=recommended, recommendation=sentence)


def needed(solver: str, problem: Problem) -> tuple[float, str]:
    """C·√∏d·σ²/λ² of a solver, and what that rests on: "measured", "extrapolated" or "theory"."""
    known = CONSTANTS[solver].get(problem.order)
    if known is None:
        return problem.unit * problem.ratio, "theory"
    (value, beyond, sizes), dim = known, problem.entries ** (1 / problem.order)
    measured = min(sizes) / 1.5 <= dim <= 1.5 * max(sizes)
    c = value if measured or dim <= max(sizes) else max(value, beyond)
    return c * problem.unit * problem.ratio, "measured" if measured else "extrapolated"


def _least_state(dims: Sequence[int]) -> int:
    """Bytes that least squares takes at least: where they fit, ``solver="auto"`` takes it."""
    return held_bytes(dims, LEAST_BINS, Design())


def _race_row(plan: Plan) -> Row:
    """The race in the memory given."""
    problem = plan.problem
    size = race_size(problem.dims, plan.memory_limit)
    if size is None:
        least = least_bytes(problem.dims)
        return Row("race", "race (RaceSolver)", f"needs at least {amount(least)} of state", state_bytes=least)
    samples, basis = needed("race", problem)
    # Far beyond the sizes measured the form would undercut what no method was seen to undercut.
    samples = max(
        samples * samples_factor(problem.dims, size.main, size.size), FRONTIER * problem.least_product / size.floats
    )
    rounds = samples if problem.entries > SLAB_ENTRIES else len(round_sizes(math.ceil(samples), problem.entries))
    row = Row("race", f"race, {size.text}", "", samples, basis, 8 * size.floats)
    return _finished(plan, row, rounds * 2.0 * size.size)  # on both sides of the blocks


def _finished(plan: Plan, row: Row, contractions: float) -> Row:
    """Time, product and obstacles; ``contractions`` with a whole sample or a mean are taken beside adding up."""
    entries = plan.problem.entries
    work = 8.0 * entries * row.samples / plan.machine.bandwidth + 2.0 * entries * contractions / plan.machine.flops
    seconds = max(work / plan.workers, row.samples / plan.rate if plan.rate else 0.0)
    least, obstacle = min(plan.memory_limit, machine_memory()), ""
    if row.state_bytes > least:
        obstacle = f"needs {amount(row.state_bytes)} of state, the memory is {amount(least)}"
    # A batch in flight and the sum of a round; huge samples come in slabs, if they are stored.
    held = SLAB_ENTRIES if entries > SLAB_ENTRIES else max(entries, BATCH_ENTRIES) + 2 * entries
    return replace(
        row,
        obstacle=obstacle,
        buffer_bytes=8.0 * held,
        seconds=seconds,
        product=row.state_bytes / 8 * row.samples / plan.least_product,
        suffices="" if plan.samples is None else next(word for n, word in ENOUGH if plan.samples >= n * row.samples),
    )


def _recommend(plan: Plan) -> tuple[str, str]:
    """The solver that ``TensorPCA`` would take, why, and what to expect of it."""
    squares = _least_state(plan.problem.dims) <= plan.memory_limit
    chosen = "least_squares" if squares else "race"
    row = next(r for r in plan.rows if r.name == chosen)
    if math.isnan(row.samples):
        memory = amount(plan.memory_limit)
        return "", f"Nothing fits: RaceSolver {row.obstacle}, the memory is {memory}; give more memory."
    name, reason = "RaceSolver", f"the sums of least squares do not fit into {amount(plan.memory_limit)}"
    if squares:
        name, reason = "least squares", f"its sums need {amount(row.state_bytes)} at least, and fit into memory"
    sentence = (
        f"Use {name}: {reason}; about {approximately(row.samples)} samples recover the signal in half of all runs"
    )
    if plan.samples is not None:
        sentence += f", and {plan.samples:,} are {row.suffices}"
    if row.obstacle:
        sentence += f", but on this machine it {row.obstacle}"
    elif row.seconds > LONG:
        sentence += f", which takes {duration(row.seconds)} of reading dense samples"
    return chosen, sentence + "."


def tensor_dims(order: int | None, dim: int | None, dims: str | Sequence[int] | None) -> tuple[int, ...]:
    """Dims from ``order`` and ``dim``, or from a list such as ``"10,20,30"``."""
    if dims is not None:
        if order is not None or dim is not None:
            raise SolverError("give either dims, or order and dim, not both.")
        if isinstance(dims, str):
            if not re.fullmatch(r"\s*\d+(\s*[,x×]\s*\d+)*\s*", dims):
                raise SolverError(f"dims must be whole numbers with commas, such as 10,20,30, got {dims!r}.")
            dims = [int(part) for part in re.split(r"[,x×]", dims)]
        return check_dims(dims)
    if order is None or dim is None:
        raise SolverError("say how large a sample is: order and dim, or dims.")
    return check_dims((dim,) * order)


def parse_samples(text: str | float, dims: Sequence[int]) -> int:
    """A number of samples: ``2304``, or in d as ``4d^2`` and ``0.5*d^(3/2)``; d is the geometric mean of dims."""
    number = r"[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?"
    match = re.fullmatch(
        rf"\s*({number})?\s*\*?\s*(?:(d)(?:(?:\^|\*\*)\(?({number})(?:/({number}))?\)?)?)?\s*", str(text)
    )
    value = math.nan
    if match is not None and (match[1] or match[2]):
        d = math.prod(dims) ** (1 / len(dims)) if match[2] else 1.0
        with contextlib.suppress(ArithmeticError):
            value = float(match[1] or 1) * d ** (float(match[3] or 1) / float(match[4] or 1))
    if not (math.isfinite(value) and round(value) >= 1):
        raise SolverError(f"samples must be at least 1, as a number or in d such as 4d^2, got {text!r}.")
    return round(value)
