r"""The trial behind most studies: Phases I and II of the paper's algorithm, simulated, at a given budget.

The *budget* x multiplies the samples that the paper's formulas ask for: step sizes are divided and durations multiplied
by √x (``c2`` and ``duration`` of the ``practical`` constants), so that the noise energy of a turn stays what the paper
makes it and the signal grows with √x.  A trial *succeeds* if the start that the selection picks has every alignment
above ½, from where Phase III converges.  Samples are counted as the theorem does, all 2^k̄ starts and the
selection, but without Phase III, which has a study of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tpca.lab.simulate import SimulatedRun, simulate_empirical
from tpca.lab.studies.estimates import Curve
from tpca.lab.studies.store import key
from tpca.lab.studies.study import Params, Record
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.paper.schedules import PRESETS, theorem_schedule

GOOD = 0.5
COARSE = 0.005
# Seeds of a trial: the quick run takes the first, the full one both.
SEEDS = (20, 40)


def climb(params: Params) -> dict[str, Any]:
    """``count`` simulated climbs: how many succeed, and the samples of one."""
    runs = [_one(params, generator(params["first"] + i, cell_of(params))) for i in range(params["count"])]
    return {
        "wins": sum(bool(np.abs(run.alignments).min() > GOOD) for run in runs),
        "runs": len(runs),
        "samples": float(np.exp(np.mean([math.log(run.samples) for run in runs]))),
        "weighted": float(np.exp(np.mean([math.log(_weighted(run)) for run in runs]))),
        "steps": sum(run.steps for run in runs),
    }


def cell_of(params: Params) -> str:
    """The name of what a trial is one of: its parameters but for its seeds."""
    return key({name: value for name, value in params.items() if name not in ("first", "count")})


def _one(params: Params, rng: np.random.Generator) -> SimulatedRun:
    dims = (params["dim"],) * params["order"]
    truth = SpikedTensor.random(
        dims, params.get("strength", 1.0), correlation=params["correlation"], random_state=int(rng.integers(2**31))
    )
    root = math.sqrt(params["budget"])
    constants = dataclasses.replace(PRESETS["practical"], c2=root, duration=root)
    if params.get("schedule") == "empirical":
        return simulate_empirical(truth, constants, rng, coarse=COARSE)[0]
    cycles = 1 if params.get("schedule") == "one stage" else None
    schedule = theorem_schedule(truth, constants, cycles=cycles)
    run = SimulatedRun(truth, rng, starts=params.get("starts", "both"), coarse=COARSE)
    run.climb(schedule)
    run.select(schedule.selection)
    return run


def _weighted(run: SimulatedRun) -> float:
    """Σ N_m S_m: every block's samples times its entries (Corollary cor-equal-dim-odd)."""
    return float(sum(n * size for n, size in zip(run.block_samples, run.partition.sizes, strict=True)))


@functools.cache
def theorem_climb(order: int, dim: int, correlation: float) -> float:
    """Samples of Phases I and II as the theorem adds them up, at budget 1: its logs, caps and rounding included."""
    truth = SpikedTensor.random((dim,) * order, 1.0, correlation=correlation, random_state=0)
    schedule = theorem_schedule(truth, PRESETS["practical"])
    return float(2**order * sum(leg.steps for stage in (*schedule.stages, schedule.ascent) for leg in stage))


def ladder(low: int, high: int, fine: bool) -> list[float]:
    """Budgets 2^(j/2) for j from ``low`` to ``high``, every second one unless ``fine``."""
    return [2.0 ** (j / 2) for j in range(low, high + 1) if fine or (j - low) % 2 == 0]


def cells(dims: Iterable[int], budgets: Sequence[float], seeds: Sequence[int], **fixed: Any) -> list[Params]:
    """A grid: every d, every budget, trials of ``seeds[0]``, ``seeds[1]``, … seeds after one another."""
    return [
        {**fixed, "dim": dim, "budget": budget, "first": sum(seeds[:i]), "count": count}
        for dim in dims
        for budget in budgets
        for i, count in enumerate(seeds)
    ]


def curves(records: Iterable[Record], by: str = "dim", weighted: bool = False, **where: Any) -> dict[float, Curve]:
    """Success curves of the records that match ``where``, one for every value of ``by``."""
    points: dict[float, list[tuple[float, int, int]]] = {}
    for record in records:
        if all(record.params.get(name) == value for name, value in where.items()):
            samples = record.result["weighted" if weighted else "samples"]
            points.setdefault(record.params[by], []).append((samples, record.result["wins"], record.result["runs"]))
    return {value: Curve.gather(rows) for value, rows in sorted(points.items())}


def kind_of(correlation: float) -> str:
    """What vectors of a correlation inside the pairs are called."""
    return "uncorrelated" if correlation == 0 else "identical"


def climb_cost(params: Params) -> float:
    """Seconds of :func:`climb`: 2^k̄ starts, the blocks, about log d stages of 1/ε steps at 10⁷ a second."""
    order, dim = params["order"], params["dim"]
    stages = 2 + math.log(dim) / max(1, order // 2 - 1)
    steps = 1.5 / COARSE
    return float(params["count"] * 2**order * ((order + 1) // 2) * stages * steps * 1e-7 + 0.03)


class ClimbStudy:
    """A study whose trials are climbs."""

    version = 1

    def cost(self, params: Params) -> float:
        """About how many seconds a trial takes."""
        return climb_cost(params)

    def run(self, params: Params) -> dict[str, Any]:
        """One trial."""
        return climb(params)
