r"""State against samples: N at 50 % success of every method, and along the race's memory dial.

The prediction is the lower bound of Dudeja and Hsu (2024) for vectors that may differ from mode to mode,

.. math:: S\, K\, \lambda^2 N \gtrsim d^{\bar k}

(S the state, K the passes), up to constants and logs.  S is counted in floats of 64 bits, so that four numbers in half
precision are one; the constant that a violation would have to undercut is set to 0.1 (``BOUND``).  Methods for equal
vectors know more than the bound allows for: S N ~ d^{k̄/2 + 2} for the partial traces, which falls below d^k̄ from order
5 on.

A trial is ``count`` runs of one method at one size.  The race is run once per seed and watched: its success at N is
that of the estimate which a run cut at N returns.  All others are run anew at every N of a ladder 2^(j/2)·d^p, up from
a usual j until all runs succeed and down until none does.  Methods that see only the mean of all samples get it from
its law in one draw, one-pass methods that take growing rounds get :class:`~research.law.LawEngine`.  Vectors by online
SGD and the paper's algorithm go one sample at a time and are simulated (:mod:`research.simulate`), with the state
counted by formula.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.law import LawEngine, drawn_average
from research.methods import METHODS, Problem
from research.simulate import simulate_online
from research.studies.climbs import COARSE, cell_of, climb, planned_climb
from research.studies.estimates import Curve, Interval
from research.studies.store import Store, key
from research.studies.study import Finding, Params, Record, Records, Scale, Study, Verdict
from tpca.errors import StudyError
from tpca.model import SpikedTensor
from tpca.planning import race_size
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.race.rounds import samples_factor
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.race.strategies.choice import least_bytes
from tpca.tensors.blocks import Partition

GOOD = 0.9
MATRIX_STEPS = 200  # of one matrix by SGD, of equal size
PAPER_UNIT = 2.0**20  # N at which the budget of the paper's algorithm is 1
FURTHEST = 12  # steps of the ladder, each way
CUT = 32.0  # most samples of a race, in units of d^(k̄/2)
RACES = ("race", "race, equal", "race, singles", "race, pairs", "race, halves")
SLOW = (*RACES, "mean", "oja", "matrix-sgd")
DIMS: dict[int, tuple[int, ...]] = {3: (16, 24), 4: (10, 16), 5: (6, 8), 6: (6, 8)}
# Memories of the race in units of d² floats.
DIAL: dict[int, tuple[int, ...]] = {
    3: (5, 8, 16, 32),
    4: (8, 14, 28, 56, 112, 400),
    5: (32, 48, 80, 160, 320, 640),
    6: (32, 48, 80, 160, 320),
}
# Partitions that the race is given at the smaller size, in the middle of the dial.
BY_HAND: dict[int, tuple[str, ...]] = {
    3: ("singles",),
    4: ("singles",),
    5: ("singles", "pairs", "halves"),
    6: ("singles", "pairs", "halves"),
}


# ---- trials


def _grid(scale: Scale) -> list[Params]:
    """Every method that applies; the smaller size and the first seeds in the quick run."""
    trials: list[Params] = []
    for order, every in DIMS.items():
        trials += _races(order, every[0], scale)
        for dim in every[:1] if scale == "quick" else every:
            trials += _cells(order, dim, [(name, None) for name in applicable(order, dim)], scale)
        if scale == "full":
            dial = DIAL[order][:: 2 if order == 6 else 1]
            asked = [("race", m) for m in dial] + [("race, equal", DIAL[order][-1])]
            trials += _cells(order, every[1], asked, scale)
    return trials


def _races(order: int, dim: int, scale: Scale) -> list[Params]:
    """The ends of the dial as far as the race runs there; in the full run, all of it and partitions by hand."""
    dial = [m for m in DIAL[order] if least_bytes((dim,) * order) <= 8 * m * dim**2]
    asked = [("race", m) for m in ((dial[0], dial[-1]) if scale == "quick" else dial)]
    if scale == "full":
        asked.append(("race, equal", dial[-1]))
        asked += [(f"race, {kind}", DIAL[order][2]) for kind in BY_HAND[order]]
    return _cells(order, dim, asked, scale)


def _cost(params: Params) -> float:
    """Races and passes of rounds take longest."""
    entries = float(params["dim"]) ** params["order"]
    each = (0.5 + 2e-5 * entries) if params["method"] in SLOW else (0.02 + 3e-6 * entries)
    return float(params["count"] * each)


def _trial(params: Params) -> dict[str, Any]:
    """Success counts over a ladder of N, the state and the passes."""
    began = time.perf_counter()
    result = _race(params) if params["method"] in RACES else _ladder(params)
    return {**result, "runs": params["count"], "seconds_per_run": (time.perf_counter() - began) / params["count"]}


def applicable(order: int, dim: int) -> list[str]:
    """The methods for an order; least squares, which tries many starts, only where that is cheap."""
    left_out = {"recursive-unfolding"} if order < 5 else set()  # up to order 4 it is the unfolding
    left_out |= {"mean"} if dim**order > 10**5 else set()
    names = [m.name for m in METHODS.values() if not m.obstacle(Problem((dim,) * order, symmetric=m.symmetric))]
    return [name for name in names if name not in left_out]


def _cells(order: int, dim: int, asked: Sequence[tuple[str, float | None]], scale: Scale) -> list[Params]:
    """Some runs of every method asked for: slow ones two at a time, others four."""
    trials = []
    for name, memory in asked:
        count = 2 if name in SLOW else 4
        for chunk in range(1 if scale == "quick" else 3):
            first = count * chunk
            cell = {"order": order, "dim": dim, "method": name, "memory": memory}
            trials.append({**cell, "first": first, "count": count})
    return trials


def for_equal_vectors(method: str) -> bool:
    """Whether a method is given equal vectors."""
    return method == "race, equal" or (method in METHODS and METHODS[method].symmetric)


def _truth(params: Params, seed: int) -> SpikedTensor:
    options: dict[str, Any] = {"correlation": 1.0, "symmetric": True} if for_equal_vectors(params["method"]) else {}
    return SpikedTensor.random((params["dim"],) * params["order"], 1.0, random_state=seed, **options)


def _seed(params: Params, index: int, step: int = 0) -> int:
    """A seed of its own for every run; races of all memories see the same samples."""
    cell = key({"order": params["order"], "dim": params["dim"], "step": step})
    return int(generator(params["first"] + index, cell).integers(2**31))


def _race(params: Params) -> dict[str, Any]:
    """Races watched to the N from which every overlap stays above 0.9."""
    order, dim = params["order"], params["dim"]
    unit = dim ** (order / 2)
    reached, state = [], 0.0
    for i in range(params["count"]):
        seed = _seed(params, i)
        truth = _truth(params, seed)
        seen: list[tuple[int, float]] = []
        solver = RaceSolver(
            random_state=seed,
            memory_limit=8 * params["memory"] * dim**2,
            max_samples=int(CUT * unit),
            tol=0.2,
            partition=_partition(params["method"], truth.dims),
            callbacks=[_watch(truth, seen)],
        )
        estimate = solver.run(LawEngine(truth, random_state=seed))
        poor = max((n for n, overlap in seen if overlap <= GOOD), default=0)
        reached.append(min((n for n, _ in seen if n > poor), default=math.inf))
        state = max(state, estimate.state_bytes / 8)
    samples = race_levels(params)
    wins = [sum(n <= level for n in reached) for level in samples]
    return {"samples": samples, "wins": wins, "levels": [params["count"]] * len(wins), "state": state, "passes": 1}


def race_levels(params: Params) -> list[float]:
    """N at which races are asked whether they had succeeded."""
    unit = params["dim"] ** (params["order"] / 2)
    return [2 ** (j / 4) * unit for j in range(-12, 4 * int(math.log2(CUT)) + 1)]


def _watch(truth: SpikedTensor, seen: list[tuple[int, float]]) -> Any:
    return lambda record: seen.append((record["samples"], float(truth.overlaps(record["vectors"]).min())))


def _partition(method: str, dims: tuple[int, ...]) -> Sequence[Sequence[int]] | None:
    kinds = {"singles": Partition.singles, "pairs": Partition.pairs, "halves": Partition.halves}
    kind = method.removeprefix("race, ")
    return kinds[kind](dims).groups if kind in kinds else None


@dataclass(frozen=True)
class Outcome:
    """One run: success, samples, floats of state, passes."""

    won: bool
    samples: float
    state: float
    passes: int = 1


def run_once(name: str, truth: SpikedTensor, step: int, seed: int) -> Outcome:
    """A method at a step of its ladder."""
    if name == "vector-sgd":
        return _vectors(truth, ladder_samples(name, truth, step), seed)
    if name == "paper":
        return _paper(truth, ladder_samples(name, truth, step) / PAPER_UNIT, seed)
    estimate = _recovered(name, truth, ladder_samples(name, truth, step), seed)
    won = bool(truth.overlaps(estimate.vectors).min() > GOOD)
    return Outcome(won, estimate.n_samples, estimate.state_bytes / 8, estimate.n_passes)


def ladder_samples(name: str, truth: SpikedTensor, step: int) -> int:
    """N at a step of the ladder: 2^(step/2)·d^(k̄/2), or d^(k̄−1) where random starts of vectors must be left."""
    dim, slow = truth.dims[0], name in ("vector-sgd", "power-iteration", "power-passes")
    unit = PAPER_UNIT if name == "paper" else dim ** (truth.order - 1.0 if slow else truth.order / 2)
    return max(2, round(2 ** (step / 2) * unit))


def _recovered(name: str, truth: SpikedTensor, n: int, seed: int) -> Estimate:
    """A method on the mean of n samples, or on rounds drawn from the law; least squares in the least memory."""
    method = METHODS[name]
    if name == "mean":
        least = int(8 * method.state(Problem(truth.dims)))
        solver = LeastSquares(random_state=seed, memory_limit=least, max_samples=n)
        return solver.run(LawEngine(truth, random_state=seed))
    if method.sees == "mean":
        return method.run(drawn_average(truth, n, seed), seed)
    options = {"batch_size": max(1, n // MATRIX_STEPS)} if name == "matrix-sgd" else {}
    return method.run(LawEngine(truth, random_state=seed), seed, max_samples=n, **options)


def _vectors(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """Online SGD on one vector a mode, simulated; it stops at overlaps of 0.9."""
    aligned = simulate_online(truth.dims, truth.strength, n, generator(seed, "memory vectors"), coarse=COARSE)
    return Outcome(bool(np.abs(aligned).min() >= GOOD), n, METHODS["vector-sgd"].state(Problem(truth.dims)))


def _paper(truth: SpikedTensor, budget: float, seed: int) -> Outcome:
    """The paper's algorithm up to the selection, simulated at ``budget`` times the samples its formulas ask for."""
    found = climb(_climb_params(truth, budget, seed))
    return Outcome(bool(found["wins"]), found["samples"], METHODS["paper"].state(Problem(truth.dims)))


def _climb_params(truth: SpikedTensor, budget: float, seed: int) -> Params:
    params = {"order": truth.order, "dim": truth.dims[0], "correlation": 0.0, "budget": budget}
    return {**params, "first": seed, "count": 1, **({"vector": "idle"} if truth.order % 2 else {})}


def _ladder(params: Params) -> dict[str, Any]:
    """Runs at N = 2^(j/2)·d^p: up until all succeed, down until none does."""
    name, count = params["method"], params["count"]
    levels: dict[int, list[Outcome]] = {}

    def wins(step: int) -> int:
        if step not in levels:
            seeds = [_seed(params, i, step) for i in range(count)]
            levels[step] = [run_once(name, _truth(params, seed), step, seed) for seed in seeds]
        return sum(run.won for run in levels[step])

    begin = METHODS[name].step
    for direction, enough in ((1, count), (-1, 0)):
        step = begin
        while wins(step) != enough and abs(step - begin) < FURTHEST:
            step += direction
    every = [levels[step] for step in sorted(levels)]
    return {
        "samples": [float(np.mean([run.samples for run in runs])) for runs in every],
        "wins": [sum(run.won for run in runs) for runs in every],
        "levels": [count] * len(every),
        "state": float(max(run.state for runs in every for run in runs)),
        "passes": float(np.median([run.passes for runs in every for run in runs if run.won] or [1])),
    }


# ---- conclusions

BOUND = 0.1


@dataclass(frozen=True)
class Point:
    """A method at one size: floats of state, passes, N₅₀ with its interval, and S·K·N over d^k̄."""

    method: str
    order: int
    dim: int
    memory: float | None
    state: float
    passes: float
    samples: Interval
    runs: int

    @property
    def product(self) -> float:
        """S K N / d^k̄."""
        return self.state * self.passes * self.samples.value / float(self.dim) ** self.order

    @property
    def symmetric(self) -> bool:
        """Whether the method was given equal vectors."""
        return for_equal_vectors(self.method)


def point(records: Records) -> Point:
    """One method at one size, from all its trials."""
    rows: list[tuple[float, int, int]] = []
    for record in records:
        rows += zip(record.result["samples"], record.result["wins"], record.result["levels"], strict=True)
    params, curve = records[0].params, Curve.gather(rows)
    rng = generator(0, "memory bootstrap")
    draws = [curve.redrawn(rng) for _ in range(100)]
    low, high = np.quantile(draws, [0.025, 0.975], method="nearest")
    return Point(
        params["method"],
        params["order"],
        params["dim"],
        params["memory"],
        max(record.result["state"] for record in records),
        float(np.median([record.result["passes"] for record in records])),
        Interval(curve.half(), float(low), float(high)),
        sum(record.params["count"] for record in records),
    )


def bound_finding(order: int, points: Sequence[Point]) -> Finding | None:
    """The smallest S·K·N of methods that use no structure."""
    plain = [p for p in points if not p.symmetric]
    if not plain:
        return None
    least = min(plain, key=lambda p: p.product)
    text = f"smallest {least.product:.2g}·d^{order} ({least.method}, d = {least.dim}) of {len(plain)} points"
    told, verdict = f"at least {BOUND:g}·d^{order}", Verdict.of(least.product >= BOUND)
    return Finding(f"order {order}, S·K·N", told, text, verdict, "S in floats of 64 bits.")


def symmetric_finding(order: int, points: Sequence[Point]) -> Finding | None:
    """The smallest S·K·N of methods for equal vectors, size by size: it falls with d from order 5 on."""
    symmetric = [p for p in points if p.symmetric]
    dims = sorted({p.dim for p in symmetric})
    if len(dims) < 2:
        return None
    least = [min((p for p in symmetric if p.dim == d), key=lambda p: p.product) for d in dims]
    text = ", ".join(f"{p.product:.2g}·d^{order} (d = {p.dim}, {p.method})" for p in least)
    slope = math.log(least[-1].product / least[0].product) / math.log(dims[-1] / dims[0])
    predicted = 2 - order / 2
    verdict = Verdict.of(abs(slope - predicted) <= 1)
    told = f"S·K·N/d^{order} ~ d^{predicted:g}, ±1 at such sizes"
    reason = f"measured d^{slope:.1f}; S ~ d² and N ~ d^{order / 2:g}, which the bound does not cover."
    return Finding(f"order {order}, equal vectors", told, text, verdict, reason)


def dial_finding(order: int, dim: int, points: Sequence[Point]) -> Finding | None:
    """Slopes of log N against log S over the whole dial, and over its lower and upper half."""
    line = sorted(points, key=lambda p: p.state)
    if len(line) < 3:
        return None
    middle = line[len(line) // 2]
    whole, lower, upper = _slope(line[0], line[-1]), _slope(line[0], middle), _slope(middle, line[-1])
    unit = dim ** (order / 2)
    ends = [f"{p.samples.value / unit:.2g} at {p.state / dim**2:.0f}·d²" for p in (line[0], line[-1])]
    text = f"slope {whole:.2f} ({lower:.2f}, then {upper:.2f}); N/d^{order / 2:g} = {', '.join(ends)}"
    verdict = Verdict.of(-1.1 <= whole <= 0 and upper > lower)
    reason = "at small d a part of the state is fixed, which makes the lower end steeper." if lower < -1.1 else ""
    last = race_size((dim,) * order, 8 * (line[-1].memory or 0) * dim**2)
    if upper <= lower and last is not None and last.main == "whole":
        reason = "the upper end is where the sum of all samples fits: another strategy, not only more columns."
    return Finding(
        f"order {order}, d = {dim}, memory of the race", "slope from −1 to 0, flattening", text, verdict, reason
    )


def _slope(first: Point, last: Point) -> float:
    """Of log N against log S, from one point to another."""
    return math.log(last.samples.value / first.samples.value) / math.log(last.state / first.state)


def points_of(records: Records) -> list[Point]:
    """All methods at all sizes."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(cell_of(record.params), []).append(record)
    return [point(group) for group in groups.values()]


def _conclusions(records: Records) -> list[Finding]:
    """The bound, the methods for equal vectors, and the dial, order by order."""
    found = []
    points = [p for p in points_of(records) if math.isfinite(p.samples.value)]
    for order in DIMS:
        here = [p for p in points if p.order == order]
        found += [bound_finding(order, here), symmetric_finding(order, here)]
        for dim in sorted({p.dim for p in here}):
            found.append(dial_finding(order, dim, [p for p in here if p.dim == dim and p.method == "race"]))
    return [finding for finding in found if finding is not None]


def _planned(params: Params) -> dict[str, float | list[float]]:
    """Every N that the ladder of a method may have come to."""
    if params["method"] in RACES:
        return {"samples": race_levels(params)}
    method, truth = METHODS[params["method"]], _truth(params, 0)
    steps = range(method.step - FURTHEST, method.step + FURTHEST + 1)
    levels = [ladder_samples(method.name, truth, step) for step in steps]
    if method.name != "paper":
        return {"samples": [float(n) for n in levels]}
    plans = [planned_climb(_climb_params(truth, n / PAPER_UNIT, 0)) for n in levels]
    return {"samples": [plan["samples"] for plan in plans], "rounding": plans[0]["rounding"]}


MEMORY = Study(
    "memory",
    "State against samples at 50 % success, every method",
    "S·K·λ²N ≳ d^k̄ for vectors that may differ from mode to mode (Dudeja & Hsu 2024): more memory buys samples "
    "until N ~ d^(k̄/2), where the dial ends. Methods for equal vectors may lie below.",
    _grid,
    _trial,
    _cost,
    [_conclusions],
    planned=_planned,
)

# ---- constants: N₅₀ over the form of a method; those of ``tpca.planning`` are among them


def unit_of(point: Point) -> float:
    """What N₅₀ of a point is divided by; NaN where it has no form."""
    problem = Problem((point.dim,) * point.order, symmetric=point.symmetric)
    if point.method == "race":
        size = race_size(problem.dims, 8 * (point.memory or 0) * point.dim**2)
        return math.nan if size is None else samples_factor(problem.dims, size.main, size.size) * problem.unit
    if point.method == "race, equal":
        return problem.unit
    return METHODS[point.method].form(problem) if point.method in METHODS else math.nan


def measured(points: Sequence[Point]) -> dict[str, Any]:
    """One method at one order."""
    units = [unit_of(p) for p in points]
    logs = [
        [math.log(x / u) for x in (p.samples.value, p.samples.low, p.samples.high)]
        for p, u in zip(points, units, strict=True)
    ]
    value, low, high = (math.exp(statistics.fmean(column)) for column in zip(*logs, strict=True))
    return {
        "constant": float(f"{value:.3g}"),
        "interval": [float(f"{low:.3g}"), float(f"{high:.3g}")],
        "spread": float(f"{math.exp(max(row[0] for row in logs) - min(row[0] for row in logs)):.3g}"),
        "passes": statistics.median(p.passes for p in points),
        "dims": sorted({p.dim for p in points}),
        "runs": sum(p.runs for p in points),
    }


def constants(store: Store) -> dict[str, Any]:
    """All constants that the store has data for."""
    records = store.records(MEMORY)
    if not records:
        raise StudyError(f"there is nothing in {store.path(MEMORY)}; run the study 'memory' first.")
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in points_of(records):
        if math.isfinite(point.samples.high) and math.isfinite(unit_of(point)):
            groups.setdefault((point.method, point.order), []).append(point)
    general = [p for points in groups.values() for p in points if not p.symmetric]
    frontier = min((p.product for p in general), default=1.0)
    methods: dict[str, dict[str, Any]] = {}
    for (name, order), points in sorted(groups.items()):
        methods.setdefault(name, {})[str(order)] = measured(points)
    return {"frontier": float(f"{frontier:.3g}"), "methods": methods}
