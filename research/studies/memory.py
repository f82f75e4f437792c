r"""State against samples: N at 50 % success of every method, and along the race's memory dial.

The prediction is the lower bound of Dudeja and Hsu (2024) for vectors that may differ from mode to mode,

.. math:: S\, K\, \lambda^2 N \gtrsim d^{\bar k}

(S the state, K the passes), up to constants and logs.  S is counted in floats of 64 bits, so that four numbers in half
precision are one; the constant that a violation would have to undercut is set to 0.1 (``BOUND``).  Methods for equal
vectors know more than the bound allows for.

A trial is ``count`` runs of one method at one size.  The race is run once per seed and watched: its success at N is
that of the estimate which a run cut at N returns.  All others are run anew at every N of a ladder 2^(j/2)·d^p, up from
a usual j until all runs succeed and down until none does.  Methods that see only the mean of all samples get it from
its law in one draw, one-pass methods that take growing rounds get :class:`~research.law.LawEngine`.  Vectors by online
SGD and the paper's algorithm go one sample at a time and are simulated (:mod:`research.simulate`), with the state
counted by formula.
"""

from __future__ import annotations

import copy
import itertools
import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.law import LawEngine, drawn_average
from research.methods import METHODS
from research.simulate import simulate_online
from research.studies.climbs import COARSE, cell_of, climb, planned_climb
from research.studies.estimates import NINETY, Curve, Interval, interval_of
from research.studies.study import Finding, Params, Record, Records, Study, chosen, key
from tpca.engines import open_engine
from tpca.model import SpikedTensor
from tpca.planning import race_size
from tpca.randomness import generator
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.options import held_bytes
from tpca.solvers.paper.run import PaperRun
from tpca.solvers.paper.solver import PaperSolver
from tpca.solvers.race.rounds import samples_factor
from tpca.solvers.race.run import RaceSolver
from tpca.solvers.race.strategies import least_bytes
from tpca.tensors.blocks import Array, Partition

GOOD = 0.9
MATRIX_STEPS = 200  # of one matrix by SGD, of equal size
PAPER_UNIT = 2.0**20  # N at which the budget of the paper's algorithm is 1
FURTHEST = 12  # steps of the ladder, each way
CUT = 32.0  # most samples of a race, in units of d^(k̄/2)
PROTOCOLS = ((4, 4), (5, 3), (6, 3))  # order, d
PROTOCOL_STRENGTH = 2.0
RACES = ("race", "race, equal")
SLOW = (*RACES, "mean", "matrix-sgd")
DIMS: dict[int, tuple[int, ...]] = {3: (16, 24), 4: (10, 16), 5: (6, 8), 6: (6, 8)}
# Memories of the race in units of d² floats.
DIAL: dict[int, tuple[int, ...]] = {
    3: (5, 8, 16, 32),
    4: (8, 14, 28, 56, 112, 400),
    5: (32, 48, 80, 160, 320, 640),
    6: (32, 48, 80, 160, 320),
}


# ---- trials


def _trials() -> list[Params]:
    """Every method that applies; the dial of the race as far as it runs, and equal vectors; the paper's protocol."""
    trials: list[Params] = [{"kind": "protocol", "order": order, "dim": dim} for order, dim in PROTOCOLS]
    for order, (small, large) in DIMS.items():
        dial = [m for m in DIAL[order] if least_bytes((small,) * order) <= 8 * m * small**2]
        asked: list[tuple[int, str, int | None]] = [(small, "race", m) for m in dial]
        asked += [(large, "race", m) for m in DIAL[order][:: 2 if order == 6 else 1]]
        asked += [(small, "race, equal", dial[-1]), (large, "race, equal", DIAL[order][-1])]
        for dim, (name, method) in itertools.product((small, large), METHODS.items()):
            dear = name == "mean" and dim**order > 10**5  # least squares tries many starts
            if not dear and not method.obstacle((dim,) * order, method.symmetric):
                asked.append((dim, name, None))
        for dim, name, memory in asked:
            count = 2 if name in SLOW else 4
            cell = {"order": order, "dim": dim, "method": name, "memory": memory, "count": count}
            trials += [{**cell, "first": count * chunk} for chunk in range(3)]
    return trials


def run_cell(params: Params) -> dict[str, Any]:
    """Success counts over a ladder of N, the state and the passes; or the protocol."""
    if params.get("kind") == "protocol":
        return _protocol(params)
    began = time.perf_counter()
    result = _race(params) if params["method"] in RACES else _ladder(params)
    return {**result, "runs": params["count"], "seconds_per_run": (time.perf_counter() - began) / params["count"]}


class _TurnOver(Exception):  # noqa: N818
    """Raised after every turn of the protocol, in the place of what writes checkpoints."""

    @classmethod
    def after_round(cls, *_: Any) -> None:
        raise cls


def _protocol(params: Params) -> dict[str, Any]:
    """Algorithm mem-con-template, literally: after every turn all is forgotten but the state M, and a new run goes on.

    ``bits`` are those of the largest M, its arrays and its random generator (PCG64: 352 bits); ``same`` is whether the
    end is that of a run that was left alone, bit by bit.
    """
    truth = SpikedTensor.random((params["dim"],) * params["order"], PROTOCOL_STRENGTH, random_state=0)
    solver = PaperSolver(strength=PROTOCOL_STRENGTH, schedule="theorem", truth=truth, random_state=0)
    whole, bits = solver.run(truth.stream(random_state=1)), 0
    engine = open_engine(truth.stream(random_state=1))
    run = PaperRun(engine, generator(0, "paper"))
    while True:
        state = copy.deepcopy(run.state()) | {"history": []}
        bits = max(bits, 8 * held_bytes(_arrays(state)) + 352)
        run = PaperRun(engine, generator(0, "paper"))
        run.restore(state)
        try:
            run.multi_phase(solver.find_schedule(run), _TurnOver)  # type: ignore[arg-type]
            break
        except _TurnOver:
            continue
    known = {"passes": 1, "samples": float(run.samples), "state": whole.state_bytes / 8}
    return {**known, "bits": bits, "same": bool(run.mean_reward == whole.history[-1]["reward"])}


def _arrays(state: Any) -> list[Array]:
    if isinstance(state, np.ndarray):
        return [state]
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, tuple | list) else ()
    return [array for part in parts for array in _arrays(part)]


def protocol_findings(records: Records) -> list[Finding]:
    """S, K and N of the paper's algorithm as a memory-bounded protocol (Definition def-memory)."""
    found = []
    for record in sorted(chosen(records, kind="protocol"), key=lambda r: r.params["order"]):
        order, dim, result = record.params["order"], record.params["dim"], record.result
        blocks = sum(Partition.pairs((dim,) * order).sizes)
        rest = result["bits"] - 64 * 2**order * blocks
        product = result["bits"] * result["samples"] * PROTOCOL_STRENGTH**2 / float(dim) ** order
        label = f"order {order}, d = {dim}, as an (N, K, S) protocol"
        told = f"S = 64·2^k̄·{blocks} bits, K = 1; the end is that of a run left alone"
        text = f"S = {result['bits']} bits ({rest} beside the blocks), K = 1, N = {result['samples']:.0f}; "
        text += "the same bits" if result["same"] else "another end"
        note = f"all but M is forgotten after every turn; S·K·λ²N = {product:.2g}·d^k̄ bits."
        found.append(Finding(label, told, text, result["same"] and rest < 0.1 * result["bits"], note))
    return found


def for_equal_vectors(method: str) -> bool:
    """Whether a method is given equal vectors."""
    return method == "race, equal" or (method in METHODS and METHODS[method].symmetric)


def _truth(params: Params, seed: int) -> SpikedTensor:
    options: dict[str, Any] = {"correlation": 1.0, "symmetric": True} if for_equal_vectors(params["method"]) else {}
    if "correlation" in params:
        options = {"correlation": params["correlation"]}
    strength = params.get("strength", 1.0)
    return SpikedTensor.random((params["dim"],) * params["order"], strength, random_state=seed, **options)


def _seed(params: Params, index: int, step: int = 0) -> int:
    """A seed of its own for every run; races of all memories see the same samples."""
    cell = key({"order": params["order"], "dim": params["dim"], "step": step})
    return int(generator(params["first"] + index, cell).integers(2**31))


def _race(params: Params) -> dict[str, Any]:
    """Races watched to the N from which every overlap stays above 0.9."""
    reached, state = [], 0.0
    for i in range(params["count"]):
        seed = _seed(params, i)
        truth = _truth(params, seed)
        seen: list[tuple[int, float]] = []

        def watch(record: Any, truth: SpikedTensor = truth, seen: list[tuple[int, float]] = seen) -> None:
            seen.append((record["samples"], float(truth.overlaps(record["vectors"]).min())))

        solver = RaceSolver(
            random_state=seed,
            memory_limit=8 * params["memory"] * params["dim"] ** 2,
            max_samples=int(CUT * _race_unit(params)),
            tol=0.2,
            callbacks=[watch],
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
    return [2 ** (j / 4) * _race_unit(params) for j in range(-12, 4 * int(math.log2(CUT)) + 1)]


def _race_unit(params: Params) -> float:
    return float(params["dim"] ** (params["order"] / 2) / params.get("strength", 1.0) ** 2)


@dataclass(frozen=True)
class Outcome:
    """One run: success, samples, floats of state, passes."""

    won: bool
    samples: float
    state: float
    passes: int = 1


def run_once(name: str, truth: SpikedTensor, step: int, seed: int, correlation: float = 0.0) -> Outcome:
    """A method at a step of its ladder; ``correlation`` is that inside the pairs, for the simulated climb.

    Online SGD on one vector a mode is simulated, and stops at overlaps of 0.9; the paper's algorithm is simulated up to
    the selection.  Others see the mean of n samples, or rounds drawn from the law; least squares in the least memory.
    """
    n, method = ladder_samples(name, truth, step), METHODS[name]
    state = method.state(truth.dims)
    if name == "vector-sgd":
        aligned = simulate_online(truth.dims, truth.strength, n, generator(seed, "memory vectors"), coarse=COARSE)
        return Outcome(bool(np.abs(aligned).min() >= GOOD), n, state)
    if name == "paper":
        found = climb(_climb_params(truth, n / PAPER_UNIT, seed, correlation))
        return Outcome(bool(found["wins"]), found["samples"], state)
    if name == "mean":
        solver = LeastSquares(random_state=seed, memory_limit=int(8 * state), max_samples=n)
        estimate = solver.run(LawEngine(truth, random_state=seed))
    elif method.sees == "mean":
        estimate = method.run(drawn_average(truth, n, seed), seed)
    else:
        options = {"batch_size": max(1, n // MATRIX_STEPS)} if name == "matrix-sgd" else {}
        estimate = method.run(LawEngine(truth, random_state=seed), seed, max_samples=n, **options)
    won = bool(truth.overlaps(estimate.vectors).min() > GOOD)
    return Outcome(won, estimate.n_samples, estimate.state_bytes / 8, estimate.n_passes)


def ladder_samples(name: str, truth: SpikedTensor, step: int) -> int:
    """N at a step of the ladder: 2^(step/2)·d^(k̄/2)/λ², or d^(k̄−1)/λ² where random starts of vectors must be left."""
    slow = name in ("vector-sgd", "power-iteration")
    unit = float(truth.dims[0] ** (truth.order - 1.0 if slow else truth.order / 2)) / truth.strength**2
    return max(2, round(float(2 ** (step / 2)) * (PAPER_UNIT if name == "paper" else unit)))


def _climb_params(truth: SpikedTensor, budget: float, seed: int, correlation: float) -> Params:
    cell = {"order": truth.order, "dim": truth.dims[0], "correlation": correlation, "budget": budget}
    return {**cell, "first": seed, "count": 1, **({"strength": truth.strength} if truth.strength != 1 else {})}


def _ladder(params: Params) -> dict[str, Any]:
    """Runs at N = 2^(j/2)·d^p: up until all succeed, down until none does."""
    name, count = params["method"], params["count"]
    levels: dict[int, list[Outcome]] = {}

    def wins(step: int) -> int:
        if step not in levels:
            seeds = [_seed(params, i, step) for i in range(count)]
            inside = params.get("correlation", 0.0)
            levels[step] = [run_once(name, _truth(params, seed), step, seed, inside) for seed in seeds]
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
    """A method at one size: floats of state, passes, N₅₀ and N₉₀ with their intervals, and S·K·N over d^k̄."""

    method: str
    order: int
    dim: int
    memory: float | None
    state: float
    passes: float
    samples: Interval
    ninety: Interval
    runs: int

    @property
    def product(self) -> float:
        """S K N / d^k̄."""
        return self.state * self.passes * self.samples.value / float(self.dim) ** self.order

    @property
    def symmetric(self) -> bool:
        """Whether the method was given equal vectors."""
        return for_equal_vectors(self.method)


def curve_of(records: Records) -> Curve:
    """Success against N of one method at one size."""
    rows: list[tuple[float, int, int]] = []
    for record in records:
        rows += zip(record.result["samples"], record.result["wins"], record.result["levels"], strict=True)
    return Curve.gather(rows)


def points_of(records: Records) -> list[Point]:
    """All methods at all sizes, each from all its trials."""
    groups: dict[str, list[Record]] = {}
    for record in chosen(records, kind=None):
        groups.setdefault(cell_of(record.params), []).append(record)
    found = []
    for mine in groups.values():
        params, curve = mine[0].params, curve_of(mine)
        found.append(
            Point(
                **{name: params[name] for name in ("method", "order", "dim", "memory")},
                state=max(record.result["state"] for record in mine),
                passes=float(np.median([record.result["passes"] for record in mine])),
                samples=interval_of(curve),
                ninety=interval_of(curve, NINETY),
                runs=sum(record.params["count"] for record in mine),
            )
        )
    return found


def _conclusions(records: Records) -> list[Finding]:
    """The smallest S·K·N of methods that use no structure, order by order."""
    found = []
    points = [p for p in points_of(records) if math.isfinite(p.samples.value) and not p.symmetric]
    for order in sorted({p.order for p in points}):
        plain = [p for p in points if p.order == order]
        least = min(plain, key=lambda p: p.product)
        text = f"smallest {least.product:.2g}·d^{order} ({least.method}, d = {least.dim}: N₅₀ {least.samples.short()}, "
        text += f"N₉₀ {least.ninety.short()}, {least.runs} runs) of {len(plain)} points"
        told, agrees = f"at least {BOUND:g}·d^{order}", least.product >= BOUND
        found.append(Finding(f"order {order}, S·K·N", told, text, agrees, "S in floats of 64 bits."))
    return found


def planned_cell(params: Params) -> dict[str, float | list[float]]:
    """Every N that the ladder of a method may have come to."""
    if params["method"] in RACES:
        return {"samples": race_levels(params)}
    method, truth = METHODS[params["method"]], _truth(params, 0)
    steps = range(method.step - FURTHEST, method.step + FURTHEST + 1)
    levels = [ladder_samples(method.name, truth, step) for step in steps]
    if method.name != "paper":
        return {"samples": [float(n) for n in levels]}
    inside = params.get("correlation", 0.0)
    plans = [planned_climb(_climb_params(truth, n / PAPER_UNIT, 0, inside)) for n in levels]
    return {"samples": [plan["samples"] for plan in plans], "rounding": plans[0]["rounding"]}


MEMORY = Study(
    "memory",
    "State against samples at 50 % success, every method",
    "S·K·λ²N ≳ d^k̄ for vectors that may differ from mode to mode (Dudeja & Hsu 2024): more memory buys samples "
    "until N ~ d^(k̄/2), where the dial ends. Methods for equal vectors may lie below. The paper's algorithm is a "
    "memory-bounded protocol (Definition def-memory): one pass, and a state M of S bits is all that is kept.",
    _trials(),
    run_cell,
    [_conclusions, protocol_findings],
    planned=lambda params: {} if params.get("kind") == "protocol" else planned_cell(params),
)

# ---- the constants of ``tpca.planning``: N₅₀ over the form of the mean, of ALS, and of the race


def _unit(point: Point) -> float:
    """What N₅₀ of a point is divided by; NaN where the race would choose nothing for its memory."""
    dims = (point.dim,) * point.order
    factor = 1.0
    if point.method == "race":
        size = race_size(dims, 8 * (point.memory or 0) * point.dim**2)
        factor = math.nan if size is None else samples_factor(dims, size.main, size.size)
    return factor * math.sqrt(math.prod(dims))


def constants(records: Records) -> tuple[float, dict[tuple[str, int], tuple[float, list[int]]]]:
    """The least S·K·N of all methods without structure; by method and order N₅₀ in its unit, and the values of d."""
    points = [p for p in points_of(records) if math.isfinite(p.samples.high)]
    found = {}
    for name, order in sorted({(p.method, p.order) for p in points if p.method in ("mean", "als", "race")}):
        mine = [p for p in points if (p.method, p.order) == (name, order) and math.isfinite(_unit(p))]
        value = math.exp(statistics.fmean(math.log(p.samples.value / _unit(p)) for p in mine))
        found[name, order] = (float(f"{value:.3g}"), sorted({p.dim for p in mine}))
    return float(f"{min(p.product for p in points if not p.symmetric):.3g}"), found
