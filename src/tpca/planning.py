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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.data.stored import SLAB_ENTRIES
from tpca.errors import MemoryBudgetError, SolverError, check_integer
from tpca.model import check_strength
from tpca.solvers.least_squares.plan import bytes_of_fewest_bins
from tpca.solvers.options import budget, check_memory, check_positive, default_memory, machine_memory
from tpca.solvers.race.rounds import round_sizes, samples_factor
from tpca.solvers.race.strategies import RaceSize, least_bytes, size_within
from tpca.tensors.blocks import check_dims
from tpca.wording import amount, approximately

ENOUGH = ((2.0, "enough"), (1.0, "borderline"), (-1.0, "too few"))  # from so many times N₅₀ on

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
        if len(self.dims) > 12:  # more take minutes to find the best partition of
            raise SolverError(f"a plan covers orders up to 12, got order {len(self.dims)}; group axes together.")
        check_strength(self.strength)
        check_positive("noise", self.noise)

    @property
    def order(self) -> int:
        """k̄."""
        return len(self.dims)

    @property
    def entries(self) -> int:
        """Entries of a sample, ∏d."""
        return math.prod(self.dims)

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


@functools.cache
def this_machine() -> tuple[float, float]:
    """Bytes of samples added up and floating-point operations a second, by one worker; the best of a few tries."""
    samples, square = np.ones((8, 2**19)), np.ones((384, 384))  # 32 MB: more than most caches hold
    spans = []
    for work in (lambda: samples.sum(axis=0), lambda: square @ square):
        moments = [time.perf_counter()]
        for _ in range(4):
            work()
            moments.append(time.perf_counter())
        spans.append(max(float(np.min(np.diff(moments))), 1e-6))
    return samples.nbytes / spans[0], 2 * 384**3 / spans[1]


@dataclass(frozen=True)
class Row:
    """One solver; ``obstacle`` says why it cannot be used, ``suffices`` what the samples at hand do for it."""

    name: str
    title: str
    obstacle: str = ""
    samples: float = math.nan
    basis: str = ""
    state_bytes: float = math.nan
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
    bandwidth: float
    least_product: float
    rows: tuple[Row, ...]
    recommended: str
    recommendation: str


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
    if rate is not None:
        check_positive("rate", rate)
    check_integer("workers", workers)
    dims, entries = problem.dims, problem.entries
    bandwidth, flops = this_machine()
    least = bytes_of_fewest_bins(dims)  # of least squares: where they fit, solver="auto" takes it
    nbytes = budget(None) if least <= budget(None) else default_memory(dims)
    if memory_limit is not None:
        nbytes = check_memory("memory_limit", memory_limit)
    memory = amount(nbytes)
    given = None if samples is None else parse_samples(samples, dims)

    def row(name: str, title: str, state: float, wanted: float, basis: str, contractions: float) -> Row:
        """``contractions`` with a whole sample or a mean are taken beside adding up."""
        work = 8.0 * entries * wanted / bandwidth + 2.0 * entries * contractions / flops
        seconds = max(work / workers, wanted / rate if rate else 0.0)
        room = min(nbytes, machine_memory())
        obstacle = f"needs {amount(state)} of state, the memory is {amount(room)}" if state > room else ""
        suffices = "" if given is None else next(word for n, word in ENOUGH if given >= n * wanted)
        product = state / 8 * wanted / problem.least_product
        return Row(name, title, obstacle, wanted, basis, state, seconds, product, suffices)

    wanted, basis = needed("mean", problem)
    squares = row("least_squares", "least squares", least, max(1.0, wanted), basis, 0.0)
    size = race_size(dims, nbytes)
    if size is None:
        smallest = least_bytes(dims)
        race = Row("race", "race (RaceSolver)", f"needs at least {amount(smallest)} of state", state_bytes=smallest)
    else:
        wanted, basis = needed("race", problem)
        # Far beyond the sizes measured the form would undercut what no method was seen to undercut.
        frontier = FRONTIER * problem.least_product / size.floats
        wanted = max(wanted * samples_factor(dims, size.main, size.size), frontier)
        rounds = wanted if entries > SLAB_ENTRIES else len(round_sizes(math.ceil(wanted), entries))
        sides = 2.0 * size.size  # the contractions of a round, on both sides of the blocks
        race = row("race", f"race, {size.text}", 8 * size.floats, wanted, basis, rounds * sides)

    taken = squares if least <= nbytes else race
    recommended = "" if math.isnan(taken.samples) else taken.name
    sentence = f"Nothing fits: RaceSolver {race.obstacle}, the memory is {memory}; give more memory."
    if recommended:
        sentence = f"Use RaceSolver: the sums of least squares do not fit into {memory}"
        if taken is squares:
            sentence = f"Use least squares: its sums need {amount(least)} at least, and fit into memory"
        sentence += f"; about {approximately(taken.samples)} samples recover the signal in half of all runs"
        sentence += "" if given is None else f", and {given:,} are {taken.suffices}"
        sentence += f", but on this machine it {taken.obstacle}." if taken.obstacle else "."
    rows = (race, squares)
    return Plan(problem, nbytes, given, rate, workers, bandwidth, problem.least_product, rows, recommended, sentence)


def needed(solver: str, problem: Problem) -> tuple[float, str]:
    """C·√∏d·σ²/λ² of a solver, and what that rests on: "measured", "extrapolated" or "theory"."""
    known, scale = CONSTANTS[solver].get(problem.order), math.sqrt(problem.entries) * problem.ratio
    if known is None:
        return scale, "theory"
    (value, beyond, sizes), dim = known, problem.entries ** (1 / problem.order)
    measured = min(sizes) / 1.5 <= dim <= 1.5 * max(sizes)
    c = value if measured or dim <= max(sizes) else max(value, beyond)
    return c * scale, "measured" if measured else "extrapolated"


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
