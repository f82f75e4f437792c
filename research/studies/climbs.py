r"""The trial behind most studies: Phases I and II of the paper's algorithm, simulated, at a given budget.

The *budget* x multiplies the samples that the paper's formulas ask for (so a slope in d tests whether its schedule
suffices uniformly in d, not what the algorithm needs at least): step sizes are divided and durations multiplied
by √x (``c2`` and ``duration`` of the ``practical`` constants), so that the noise energy of a turn stays what the paper
makes it and the signal grows with √x.  A trial *succeeds* if the start that the selection picks has every alignment
above ½, from where Phase III converges.  Samples are counted as the theorem does, all 2^k̄ starts and the
selection, but without Phase III, which has a study of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.simulate import SimulatedRun, simulate_empirical
from research.studies.estimates import Correction, Curve, PowerLaw, flat, power_law
from research.studies.store import key
from research.studies.study import Params, Record, Scale
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.paper.schedule import (
    PRESETS,
    Constants,
    Schedule,
    empirical_schedule,
    gauged_schedule,
    theorem_schedule,
)
from tpca.tensors.blocks import Partition

GOOD = 0.5
COARSE = 0.005
# Seeds of a trial: the quick run takes the first, the full one both.
SEEDS = (20, 40)


def climb(params: Params) -> dict[str, Any]:
    """``count`` simulated climbs: how many succeed, and the samples of one; those of the search and Phase I apart.

    ``case_one`` counts the searches for c₃ that have found one.
    """
    found = [_one(params, rng, truth) for rng, truth in drawn_runs(params)]
    runs = [run for run, _ in found]
    searched = {"case_one": sum("Case I (" in schedule.name for _, schedule in found)}
    return {
        **(searched if params.get("schedule") == "empirical" else {}),
        "wins": sum(bool(np.abs(run.alignments).min() > GOOD) for run in runs),
        "runs": len(runs),
        "samples": _mean([run.samples for run in runs]),
        "weighted": _mean([_weighted(run) for run in runs]),
        "climb": _mean([sum(run.block_samples) for run in runs]),
        "phase_one": _mean([run.phase_one for run in runs]),
        "steps": sum(run.steps for run in runs),
    }


def _mean(values: Sequence[float]) -> float:
    """Geometric."""
    return float(np.exp(np.mean([math.log(value) for value in values])))


def cell_of(params: Params) -> str:
    """The name of what a trial is one of: its parameters but for its seeds."""
    return key({name: value for name, value in params.items() if name not in ("first", "count")})


def drawn_runs(params: Params) -> Iterator[tuple[np.random.Generator, SpikedTensor]]:
    """The random numbers of every run of a trial, and the truth that was drawn with them."""
    for i in range(params["count"]):
        rng = generator(params["first"] + i, cell_of(params))
        yield rng, planted(params, int(rng.integers(2**31)))


def _one(params: Params, rng: np.random.Generator, truth: SpikedTensor) -> tuple[SimulatedRun, Schedule]:
    constants = constants_of(params)
    if params.get("schedule") == "empirical":
        return simulate_empirical(truth, constants, rng, coarse=COARSE)
    schedule = _schedule(params, truth, constants)
    starts = params.get("starts", "both")
    run = SimulatedRun(truth, rng, starts=starts, coarse=COARSE, spare=constants.idle_vector)
    run.climb(schedule)
    run.select(schedule.selection)
    return run, schedule


def planted(params: Params, seed: int) -> SpikedTensor:
    """The truth of a trial: ``lengths``, or ``order`` and ``dim``; ``correlation`` of all pairs, or of each."""
    dims = tuple(params.get("lengths") or (params["dim"],) * params["order"])
    return SpikedTensor.random(dims, params.get("strength", 1.0), params["correlation"], random_state=seed)


def constants_of(params: Params) -> Constants:
    """The ``practical`` constants at a budget, or with a c_2 of its own; or those of ``idle``."""
    preset = PRESETS["idle" if params.get("vector") == "idle" else "practical"]
    if "c2" in params:
        return dataclasses.replace(preset, c2=params["c2"])
    root = math.sqrt(params["budget"])
    return dataclasses.replace(preset, c2=root, duration=root, target_cap=params.get("cap", preset.target_cap))


def _schedule(params: Params, truth: SpikedTensor, constants: Constants) -> Schedule:
    name = params.get("schedule")
    if name == "gauged":
        return gauged_schedule(truth, constants)
    if name == "case II":
        return empirical_schedule(Partition.pairs(truth.dims), truth.strength, constants, c3=None)
    schedule = theorem_schedule(truth, constants, cycles=1 if name == "one stage" else None)
    if params.get("kept"):  # Phase II at a budget of its own
        whole = theorem_schedule(truth, constants_of({**params, "budget": params["kept"]}))
        return dataclasses.replace(schedule, ascent=whole.ascent)
    return schedule


def _weighted(run: SimulatedRun) -> float:
    """Σ N_m S_m: every block's samples times its entries (Corollary cor-equal-dim-odd)."""
    return float(sum(n * size for n, size in zip(run.block_samples, run.partition.sizes, strict=True)))


@functools.cache
def theorem_climb(order: int, dim: int, correlation: float) -> float:
    """Samples of Phases I and II as the theorem adds them up, at budget 1: its logs, caps and rounding included."""
    truth = SpikedTensor.random((dim,) * order, 1.0, correlation=correlation, random_state=0)
    return float(2**order * theorem_schedule(truth, PRESETS["practical"]).climb())


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


def curves(records: Iterable[Record], by: str = "dim", count: str = "samples", **where: Any) -> dict[float, Curve]:
    """Success curves of the records that match ``where``, one for every value of ``by``; ``count`` names what N is."""
    points: dict[float, list[tuple[float, int, int]]] = {}
    for record in records:
        if all(record.params.get(name) == value for name, value in where.items()):
            samples = record.result[count]
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


@dataclass(frozen=True)
class Cells:
    """A part of a grid: every d and every budget 2^(j/2), j from ``rungs[0]`` to ``rungs[1]``, at ``fixed`` values.

    The quick run has the dims ``quick``, every second rung (all if ``fine``) and the first of the ``seeds``.
    """

    quick: Sequence[int]
    full: Sequence[int]
    rungs: tuple[int, int]
    seeds: tuple[int, ...]
    fixed: dict[str, Any]
    fine: bool = False

    def __call__(self, scale: Scale) -> list[Params]:
        """Its trials."""
        whole = scale == "full"
        budgets = ladder(*self.rungs, fine=whole or self.fine)
        return cells(self.full if whole else self.quick, budgets, self.seeds if whole else self.seeds[:1], **self.fixed)


def together(*parts: Callable[[Scale], list[Params]]) -> Callable[[Scale], list[Params]]:
    """A grid of several parts."""
    return lambda scale: [params for part in parts for params in part(scale)]


def half_law(
    by: str = "dim",
    count: str = "samples",
    since: float = 0.0,
    correction: Correction = flat,
    form: Callable[[float], float] = float,
    **where: Any,
) -> Callable[[Sequence[Record]], PowerLaw]:
    """N₅₀ of the trials that match ``where`` against ``form(by)``, from ``since`` on."""

    def law(records: Sequence[Record]) -> PowerLaw:
        each = curves(records, by, count, **where)
        return power_law({form(x): curve for x, curve in each.items() if x >= since}, correction)

    return law


def planned_climb(params: Params) -> dict[str, float]:
    """Samples of :func:`climb` that follow from its schedule alone, those of all starts; nothing for a search.

    Correlations of drawn vectors are as told but for the last bits, and every leg's steps are rounded: one step more or
    less in each leg is the same schedule (``rounding``, in samples).
    """
    if params.get("schedule") == "empirical":
        return {}
    truth, constants = planted(params, 0), constants_of(params)
    schedule = _schedule(params, truth, constants)
    starts = 2**truth.order if params.get("starts", "both") == "both" else 2 ** len(Partition.pairs(truth.dims))
    return planned_samples(schedule, Partition.pairs(truth.dims), starts)


def planned_samples(schedule: Schedule, partition: Partition, starts: int) -> dict[str, float]:
    """What :func:`climb` counts: all samples, those of the climb, those of Phase I, and weighted by entries."""
    cycles = [*schedule.stages, schedule.ascent]
    weighted = sum(leg.steps * size for legs in cycles for leg, size in zip(legs, partition.sizes, strict=True))
    climbed = starts * schedule.climb()
    return {
        "samples": float(climbed + starts * schedule.selection),
        "climb": float(climbed),
        "phase_one": float(climbed - starts * sum(leg.steps for leg in schedule.ascent)),
        "weighted": float(starts * weighted),
        "rounding": float(starts * sum(len(legs) for legs in cycles)),
    }
