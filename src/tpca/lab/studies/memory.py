r"""State against samples: N at 50 % success of every method, and along the race's memory dial.

The prediction is the lower bound of Dudeja and Hsu (2024) for vectors that may differ from mode to mode,

.. math:: S\, K\, \lambda^2 N \gtrsim d^{\bar k}

(S the state, K the passes), up to constants and logs.  S is counted in floats of 64 bits, so that four numbers in half
precision are one; the constant that a violation would have to undercut is set to 0.1 (``BOUND``).  Methods for equal
vectors know more than the bound allows for: S N ~ d^{k̄/2 + 2} for the partial traces, which falls below d^k̄ from order
5 on.

A trial is ``count`` runs of one method at one size.  The race is run once per seed and watched: its success at N is
that of the estimate which a run cut at N returns.  All others are run anew at every N of a ladder 2^(j/2)·d^p, up from
a usual j until all runs succeed and down until none does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tpca.engines import LawEngine
from tpca.lab.studies.averages import installed
from tpca.lab.studies.climbs import cell_of
from tpca.lab.studies.memory_findings import Point, bound_finding, dial_finding, point, symmetric_finding
from tpca.lab.studies.memory_methods import GOOD, METHODS, ladder_samples
from tpca.lab.studies.store import key
from tpca.lab.studies.study import Finding, Params, Record, Scale
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.race.solver import RaceSolver
from tpca.tensors.blocks import Partition

FURTHEST = 12  # steps of the ladder, each way
CUT = 32.0  # most samples of a race, in units of d^(k̄/2)
RACES = ("race", "race, equal", "race, singles", "race, pairs", "race, halves")
SLOW = (*RACES, "mean", "oja", "matrix-sgd")


class Memory:
    """Every method, every memory."""

    name = "memory"
    title = "State against samples at 50 % success, every method"
    claim = (
        "S·K·λ²N ≳ d^k̄ for vectors that may differ from mode to mode (Dudeja & Hsu 2024): more memory buys samples "
        "until N ~ d^(k̄/2), where the dial ends. Methods for equal vectors may lie below."
    )
    version = 1
    dims: ClassVar[dict[int, tuple[int, ...]]] = {3: (16, 24), 4: (10, 16), 5: (6, 8), 6: (6, 8)}
    dial: ClassVar[dict[int, tuple[int, ...]]] = {
        3: (5, 8, 16, 32),
        4: (8, 14, 28, 56, 112, 400),
        5: (32, 48, 80, 160, 320, 640),
        6: (32, 48, 80, 160, 320),
    }
    """Memories of the race in units of d² floats."""
    by_hand: ClassVar[dict[int, tuple[str, ...]]] = {
        3: ("singles",),
        4: ("singles",),
        5: ("singles", "pairs", "halves"),
        6: ("singles", "pairs", "halves"),
    }
    """Partitions that the race is given at the smaller size, in the middle of the dial."""

    def grid(self, scale: Scale) -> list[Params]:
        """Every method that applies; the smaller size and the first seeds in the quick run."""
        trials: list[Params] = []
        for order, every in self.dims.items():
            trials += self._races(order, every[0], scale)
            for dim in every[:1] if scale == "quick" else every:
                trials += _cells(order, dim, [(name, None) for name in applicable(order, dim)], scale)
            if scale == "full":
                dial = self.dial[order][:: 2 if order == 6 else 1]
                asked = [("race", m) for m in dial] + [("race, equal", self.dial[order][-1])]
                trials += _cells(order, every[1], asked, scale)
        return trials

    def _races(self, order: int, dim: int, scale: Scale) -> list[Params]:
        """The dial and, in the full run, all of it and partitions by hand."""
        dial = self.dial[order]
        asked = [("race", m) for m in ((dial[0], dial[-1]) if scale == "quick" else dial)]
        if scale == "full":
            asked.append(("race, equal", dial[-1]))
            asked += [(f"race, {kind}", dial[2]) for kind in self.by_hand[order]]
        return _cells(order, dim, asked, scale)

    def cost(self, params: Params) -> float:
        """Races and passes of rounds take longest."""
        entries = float(params["dim"]) ** params["order"]
        each = (0.5 + 2e-5 * entries) if params["method"] in SLOW else (0.02 + 3e-6 * entries)
        return float(params["count"] * each)

    def run(self, params: Params) -> dict[str, Any]:
        """Success counts over a ladder of N, the state and the passes."""
        began = time.perf_counter()
        result = _race(params) if params["method"] in RACES else _ladder(params)
        return {**result, "runs": params["count"], "seconds_per_run": (time.perf_counter() - began) / params["count"]}

    def points(self, records: Sequence[Record]) -> list[Point]:
        """All methods at all sizes."""
        groups: dict[str, list[Record]] = {}
        for record in records:
            groups.setdefault(cell_of(record.params), []).append(record)
        return [point(group) for group in groups.values()]

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The bound, the methods for equal vectors, and the dial, order by order."""
        found = []
        points = [p for p in self.points(records) if math.isfinite(p.samples.value)]
        for order in self.dims:
            here = [p for p in points if p.order == order]
            found += [bound_finding(order, here), symmetric_finding(order, here)]
            for dim in sorted({p.dim for p in here}):
                found.append(dial_finding(order, dim, [p for p in here if p.dim == dim and p.method == "race"]))
        return [finding for finding in found if finding is not None]


def applicable(order: int, dim: int) -> list[str]:
    """The methods for an order; the mean with its contrasts, which tries many starts, only where that is cheap."""
    names = [name for name, m in METHODS.items() if order in m.orders and installed(name)]
    return [name for name in names if name != "mean" or dim**order <= 10**5]


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


def _truth(params: Params, seed: int) -> SpikedTensor:
    method = params["method"]
    symmetric = method == "race, equal" or (method in METHODS and METHODS[method].symmetric)
    options: dict[str, Any] = {"correlation": 1.0, "symmetric": True} if symmetric else {}
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
        recovery = solver.run(LawEngine(truth, random_state=seed))
        poor = max((n for n, overlap in seen if overlap <= GOOD), default=0)
        reached.append(min((n for n, _ in seen if n > poor), default=math.inf))
        state = max(state, recovery.state_bytes / 8)
    samples = [2 ** (j / 4) * unit for j in range(-12, 4 * int(math.log2(CUT)) + 1)]
    wins = [sum(n <= level for n in reached) for level in samples]
    return {"samples": samples, "wins": wins, "levels": [params["count"]] * len(wins), "state": state, "passes": 1}


def _watch(truth: SpikedTensor, seen: list[tuple[int, float]]) -> Any:
    return lambda record: seen.append((record["samples"], float(truth.overlaps(record["vectors"]).min())))


def _partition(method: str, dims: tuple[int, ...]) -> Sequence[Sequence[int]] | None:
    kinds = {"singles": Partition.singles, "pairs": Partition.pairs, "halves": Partition.halves}
    kind = method.removeprefix("race, ")
    return kinds[kind](dims).groups if kind in kinds else None


def _ladder(params: Params) -> dict[str, Any]:
    """Runs at N = 2^(j/2)·d^p: up until all succeed, down until none does."""
    method, count = METHODS[params["method"]], params["count"]
    levels: dict[int, list[Any]] = {}

    def wins(step: int) -> int:
        n = ladder_samples(method, params["order"], params["dim"], step)
        if step not in levels:
            seeds = [_seed(params, i, step) for i in range(count)]
            levels[step] = [method.run(_truth(params, seed), n, seed) for seed in seeds]
        return sum(run.won for run in levels[step])

    for direction, enough in ((1, count), (-1, 0)):
        step = method.start
        while wins(step) != enough and abs(step - method.start) < FURTHEST:
            step += direction
    every = [levels[step] for step in sorted(levels)]
    return {
        "samples": [float(np.mean([run.samples for run in runs])) for runs in every],
        "wins": [sum(run.won for run in runs) for runs in every],
        "levels": [count] * len(every),
        "state": float(max(run.state for runs in every for run in runs)),
        "passes": float(np.median([run.passes for runs in every for run in runs if run.won] or [1])),
    }
