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
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from research.simulate import SimulatedRun, simulate_empirical
from research.studies.estimates import Correction, Curve, PowerLaw, flat, power_law
from research.studies.study import Params, Record, chosen, key
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
SEEDS = (20, 40)  # runs of a cell: of its first trial, and of its second


# ---- trials


def climb(params: Params) -> dict[str, Any]:
    """``count`` simulated climbs: how many succeed, and the samples of one; those of the search and Phase I apart.

    ``case_one`` counts the searches for c₃ that have found one.
    """
    runs, case_one, constants = [], 0, constants_of(params)
    for rng, truth in drawn_runs(params):
        if params.get("schedule") == "empirical":
            run, schedule = simulate_empirical(truth, constants, rng, coarse=COARSE)
            case_one += "Case I (" in schedule.name
        else:
            schedule = schedule_of(params, truth)
            run = SimulatedRun(
                truth, rng, starts=params.get("starts", "both"), coarse=COARSE, spare=constants.idle_vector
            )
            run.climb(schedule)
            run.select(schedule.selection)
        runs.append(run)

    def mean(values: Iterable[float]) -> float:  # geometric
        return float(np.exp(np.mean([math.log(value) for value in values])))

    return {
        **({"case_one": case_one} if params.get("schedule") == "empirical" else {}),
        "wins": sum(succeeds(run) for run in runs),
        "runs": len(runs),
        "samples": mean(run.samples for run in runs),
        "weighted": mean(weighted(run.block_samples, run.partition) for run in runs),
        "climb": mean(sum(run.block_samples) for run in runs),
        "phase_one": mean(run.phase_one for run in runs),
        "steps": sum(run.steps for run in runs),
    }


def weighted(samples: Iterable[int], partition: Partition) -> int:
    """Σ N_m S_m: every block's samples times its entries (Corollary cor-equal-dim-odd)."""
    return sum(n * size for n, size in zip(samples, partition.sizes, strict=True))


def succeeds(run: SimulatedRun) -> bool:
    """Whether every alignment of the start that was selected is good."""
    return bool(np.abs(run.alignments).min() > GOOD)


def cell_of(params: Params) -> str:
    """The name of what a trial is one of: its parameters but for its seeds."""
    return key(params, but=("first", "count"))


def drawn_runs(params: Params) -> Iterator[tuple[np.random.Generator, SpikedTensor]]:
    """The random numbers of every run of a trial, and the truth that was drawn with them."""
    for i in range(params["count"]):
        rng = generator(params["first"] + i, cell_of(params))
        yield rng, planted(params, int(rng.integers(2**31)))


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


def schedule_of(params: Params, truth: SpikedTensor) -> Schedule:
    """The schedule of a trial: the theorem's, unless it names another."""
    name, constants = params.get("schedule"), constants_of(params)
    if name == "gauged":
        return gauged_schedule(truth, constants)
    if name == "case II":
        return empirical_schedule(Partition.pairs(truth.dims), truth.strength, constants, c3=None)
    schedule = theorem_schedule(truth, constants, cycles=1 if name == "one stage" else None)
    if params.get("kept"):  # Phase II at a budget of its own
        whole = theorem_schedule(truth, constants_of({**params, "budget": params["kept"]}))
        return dataclasses.replace(schedule, ascent=whole.ascent)
    return schedule


def planned_climb(params: Params) -> dict[str, float]:
    """Samples of :func:`climb` that follow from its schedule alone, those of all starts; nothing for a search.

    All samples, those of the climb, those of Phase I, and weighted by entries.  Correlations of drawn vectors are as
    told but for the last bits, and every leg's steps are rounded: one step more or less in each leg is the same
    schedule (``rounding``, in samples).
    """
    if params.get("schedule") == "empirical":
        return {}
    truth = planted(params, 0)
    schedule, partition = schedule_of(params, truth), Partition.pairs(truth.dims)
    starts = 2**truth.order if params.get("starts", "both") == "both" else 2 ** len(partition)
    cycles = [*schedule.stages, schedule.ascent]
    climbed = starts * schedule.climb()
    return {
        "samples": float(climbed + starts * schedule.selection),
        "climb": float(climbed),
        "phase_one": float(climbed - starts * sum(leg.steps for leg in schedule.ascent)),
        "weighted": float(starts * sum(weighted([leg.steps for leg in legs], partition) for legs in cycles)),
        "rounding": float(starts * sum(len(legs) for legs in cycles)),
    }


@functools.cache
def theorem_climb(order: int, dim: int, correlation: float) -> float:
    """Samples of Phases I and II as the theorem adds them up, at budget 1: its logs, caps and rounding included."""
    truth = SpikedTensor.random((dim,) * order, 1.0, correlation=correlation, random_state=0)
    return float(2**order * theorem_schedule(truth, PRESETS["practical"]).climb())


# ---- grids


def cells(dims: Iterable[int], rungs: Iterable[int], seeds: Sequence[int], **fixed: Any) -> list[Params]:
    """A trial for every d, budget 2^(j/2) of the ``rungs`` j, and number of runs; ``seeds`` are these numbers."""
    return [
        {**fixed, "dim": dim, "budget": 2.0 ** (j / 2), "first": sum(seeds[:i]), "count": count}
        for dim, j in itertools.product(dims, rungs)
        for i, count in enumerate(seeds)
    ]


# ---- conclusions


def curves(records: Iterable[Record], by: str = "dim", count: str = "samples", **where: Any) -> dict[float, Curve]:
    """Success curves of the records that match ``where``, one for every value of ``by``; ``count`` names what N is."""
    points: dict[float, list[tuple[float, int, int]]] = {}
    for record in chosen(records, **where):
        samples = record.result[count]
        points.setdefault(record.params[by], []).append((samples, record.result["wins"], record.result["runs"]))
    return {value: Curve.gather(rows) for value, rows in sorted(points.items())}


def half_law(
    by: str = "dim",
    count: str = "samples",
    correction: Correction = flat,
    form: Callable[[float], float] = float,
    **where: Any,
) -> Callable[[Sequence[Record]], PowerLaw]:
    """N₅₀ of the trials that match ``where`` against ``form(by)``."""

    def law(records: Sequence[Record]) -> PowerLaw:
        each = curves(records, by, count, **where)
        return power_law({form(x): curve for x, curve in each.items()}, correction)

    return law


def kind_of(correlation: float) -> str:
    """What vectors of a correlation inside the pairs are called."""
    return "uncorrelated" if correlation == 0 else "identical"
