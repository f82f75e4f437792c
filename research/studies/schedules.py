"""Other schedules on the same problems: Phase I in one go, the schedule without the truth, a phase left out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from research.simulate import SimulatedRun
from research.studies.climbs import (
    COARSE,
    Cells,
    climb,
    constants_of,
    curves,
    drawn_runs,
    half_law,
    kind_of,
    planned_climb,
    together,
)
from research.studies.estimates import PowerLaw, Ratio, Slope, power_law, rate_interval
from research.studies.study import Finding, Params, Records, Scale, Study, chosen, counted
from tpca.model import SpikedTensor
from tpca.solvers.paper.schedule import IDLE, PRESETS, Schedule, search_steps, theorem_schedule
from tpca.tensors.blocks import Partition

Cases = dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...]]]  # order, correlation: quick dims, all dims


def _both(cases: Cases, ladders: dict[str, tuple[int, int]], **fixed: Any) -> Callable[[Scale], list[Params]]:
    """Both schedules, the theorem's first, on every case."""
    return together(
        *(
            Cells(*dims, rungs, (10, 10), {"order": order, "correlation": cor, "schedule": schedule, **fixed})
            for (order, cor), dims in cases.items()
            for schedule, rungs in ladders.items()
        )
    )


def _ratio(order: int, correlation: float, other: str, count: str) -> Callable[[Records], PowerLaw]:
    """How many times more samples another schedule takes than the theorem's, against d; ``count`` says of which."""

    def law(records: Records) -> PowerLaw:
        usual, more = (
            curves(records, count=count, order=order, correlation=correlation, schedule=name)
            for name in ("theorem", other)
        )
        return power_law({d: Ratio(more[d], usual[d]) for d in more if d in usual})

    return law


def _growing(text: str, law: PowerLaw, _: Records) -> str:
    return f"{text}, d growing: {', '.join(f'{law.points[d]:.2g}' for d in sorted(law.points))}."


_STAGES: Cases = {
    (6, 0.0): ((64, 1024, 16384), (64, 256, 1024, 4096, 16384)),
    (6, 1.0): ((512, 8192, 131072), (512, 2048, 8192, 32768, 131072)),
}
STAGES = Study(
    "stages",
    "Phase I in one go costs more",
    "Without the h* cycles Phase I takes γ^(−2/(k−1)) times more samples: d for uncorrelated pairs at order 6, √d "
    "for equal vectors. Phase II keeps its own budget, and targets go up to 0.95, or the cap of ½ would bind.",
    _both(_STAGES, {"theorem": (-8, 2), "one stage": (-20, -2)}, kept=1.0, cap=0.95),
    climb,
    [
        Slope(
            f"order {order}, {kind_of(correlation)} vectors",
            1.0 if correlation == 0 else 0.5,
            _ratio(order, correlation, "one stage", "phase_one"),
            functools.partial(_growing, "Phase I in one go over Phase I in stages, at 50 % success"),
            line=f"order {order}, {kind_of(correlation)}",
        )
        for order, correlation in _STAGES
    ],
    version=2,
    planned=planned_climb,
    axes=("d", "ratio of N at 50 % success: Phase I, one go / stages"),
)


def _search(order: int, records: Records) -> list[Finding]:
    """All tests of the search over d^(k̄−2), where ⌈T̃⌉ steps up and between; that needs no trials."""
    if not records:
        return []
    dims = (16, 64, 65, 256, 1024, 4096)
    tests = [search_steps(Partition.pairs((d,) * order), 1.0, PRESETS["practical"]) for d in dims]
    spent = [sum(test.samples for test in each) / d ** (order - 2) for each, d in zip(tests, dims, strict=True)]
    each = ", ".join(f"{x:.2g} (d = {d}, {len(t)} tests)" for x, d, t in zip(spent, dims, tests, strict=True))
    # The last test has 32·d^k·κ^(−2kτ) samples, τ ≤ T̃ + 1 and κ^(−2kT̃) = d^(k−2); each one before a 4^k-th of the next.
    most = 32.0 * 4 ** (order // 2) * (4 ** (order // 2) / (4 ** (order // 2) - 1))
    told = f"at most {most:.0f}·d^{order - 2} in all"
    return [Finding(f"order {order}, search alone", told, f"in d^{order - 2}: {each}", max(spent) <= most)]


_EMPIRICAL: Cases = {
    (4, 0.0): ((16, 64, 256), (16, 64, 256)),
    (4, 1.0): ((16, 64, 256), (16, 64, 256)),
    (6, 0.0): ((16, 64, 256), (16, 64, 128, 256, 1024)),
    (6, 1.0): ((16, 64, 256), (16, 64, 128, 256, 1024)),
}
_ODD: Cases = {
    (5, 0.0): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (5, 1.0): ((16, 64, 256), (16, 32, 64, 128, 256)),
    (7, 1.0): ((), (16, 32, 64, 128)),
}


def _searched(order: int, correlation: float, law: PowerLaw, records: Records) -> str:
    """How often a c₃ was found, where that was counted, and the ratios."""
    mine = chosen(records, order=order, correlation=correlation, schedule="empirical")
    found, runs = counted([r for r in mine if "case_one" in r.result], "case_one")
    told = f"Case I in {found} of {runs} runs; " if runs else ""
    return told + _growing("ratio of N₅₀", law, records)


EMPIRICAL_SCHEDULE = Study(
    "empirical-schedule",
    "Case I and Case II against the theorem's schedule",
    "The empirical schedule costs a constant factor (Corollary empirical-hyper-para-convergence): the ratio of N₅₀ "
    "of Phases I and II does not grow with d. The search for c₃ is counted apart: ⌈T̃⌉ + 1 tests, each 4^k times "
    "longer than the one before, d^(k̄−2) samples in all but for that rounding. Odd order (Corollary "
    "empirical-hyper-para-convergence-odd): Σ N_m S_m at most d^k̄ in Case II and d^(⌈k̄/2⌉+2)/c₃^(k̄+1) in Case I, which "
    "with c₃^⌈k̄/2⌉ ≈ ⟨w₁, v₁⟩ ≈ d^(−1/2) is d^(⌈k̄/2⌉+3).",
    together(
        _both(_EMPIRICAL, {"theorem": (-8, 0), "empirical": (-8, 0)}),
        _both({(5, 0.0): _ODD[5, 0.0]}, {"theorem": (-8, 2), "empirical": (-8, 2)}),
        _both({place: dims for place, dims in _ODD.items() if place[1]}, {"theorem": (-8, 6), "empirical": (-18, 2)}),
    ),
    climb,
    [
        *(
            Slope(
                f"order {order}, {kind_of(correlation)} vectors, climb",
                0,
                _ratio(order, correlation, "empirical", "climb"),
                functools.partial(_searched, order, correlation),
                line=f"order {order}, {kind_of(correlation)}",
            )
            for order, correlation in (*_EMPIRICAL, *_ODD)
        ),
        *(
            Slope(
                f"order {order}, {kind_of(correlation)} vectors, Σ N_m S_m",
                order,
                half_law(count="weighted", order=order, correlation=correlation, schedule="empirical"),
            )
            for order, correlation in _ODD
        ),
        *(functools.partial(_search, order) for order in (4, 6)),
    ],
    version=2,
    planned=planned_climb,
    axes=("d", "ratio of N at 50 % success: climb, empirical / theorem"),
)

# ---- what each phase is for

FOUND = 0.9
LEFT_OUT = ("", "I", "II", "III")
_PLACES = ((4, 32), (5, 32), (6, 32))
_LARGE = {"order": 6, "dim": 1000, "correlation": 0.0, "budget": 1.0, "without": ""}


def _phases_grid(scale: Scale) -> list[Params]:
    """Every phase left out at d = 32, and the whole algorithm at order 6, d = 1000."""
    trials: list[Params] = []
    for order, dim in _PLACES:
        place = {"order": order, "dim": dim, "correlation": 0.0, "budget": 1.0}
        for first in (0,) if scale == "quick" else (0, 20, 40, 60, 80):
            trials += [{**place, "without": phase, "first": first, "count": 20} for phase in LEFT_OUT]
    return trials + [{**_LARGE, "first": s, "count": 1} for s in range(1 if scale == "quick" else 6)]


def _cut(truth: SpikedTensor, params: Params) -> Schedule:
    """The theorem's schedule without a phase."""
    schedule = theorem_schedule(truth, constants_of(params))
    nothing = (IDLE,) * len(schedule.ascent)
    cut: dict[str, dict[str, Any]] = {"I": {"stages": ()}, "II": {"ascent": nothing}, "III": {"estimation": nothing}}
    return dataclasses.replace(schedule, **cut.get(params["without"], {}))


def _phases_run(params: Params) -> dict[str, Any]:
    """``count`` runs of the whole algorithm, vectors drawn at the end."""
    overlaps, losses, samples = [], [], 0
    for rng, truth in drawn_runs(params):
        schedule, run = _cut(truth, params), SimulatedRun(truth, rng, coarse=COARSE)
        run.climb(schedule)
        run.select(schedule.selection)
        if params["without"] != "III":
            run.estimate(schedule.estimation)
        vectors = run.vectors()
        overlaps.append(float(truth.overlaps(vectors).min()))
        losses.append(float(np.mean(truth.loss(vectors))))
        samples = run.samples
    wins = sum(overlap > FOUND for overlap in overlaps)
    return {"wins": wins, "runs": len(overlaps), "loss": float(np.median(losses)), "samples": float(samples)}


def _phases(records: Records) -> list[Finding]:
    """Success and error without each phase."""
    found = []
    for order, dim in (*_PLACES, (6, 1000)):
        own = chosen(records, order=order, dim=dim)
        for phase in LEFT_OUT:
            mine, whole = ([r.result["loss"] for r in chosen(own, without=name)] for name in (phase, ""))
            if not mine:
                continue
            wins, runs = counted(chosen(own, without=phase))
            rate, loss = rate_interval(wins, runs), float(np.median(mine))
            samples = chosen(own, without=phase)[0].result["samples"]
            text = f"{wins} of {runs}: {rate.text()}; median loss {loss:.2g}, N = {samples:.2g}"
            label = f"order {order}, d = {dim}, {f'without Phase {phase}' if phase else 'all phases'}"
            told = {"": "succeeds", "III": "a larger error"}.get(phase, "fails")
            agrees = {"": rate.high >= FOUND, "III": bool(whole) and loss > 2 * float(np.median(whole))}
            found.append(Finding(label, told, text, agrees.get(phase, rate.high < FOUND), _ROLES[phase]))
    return found


_ROLES = {
    "": "",
    "I": "from a random start Phase II's step is far too large.",
    "II": "Phase III begins where Phase I ends: with the cap of ½ that is near enough for these constants, so that "
    "Phase II is needed by the proof, and hardly by the algorithm.",
    "III": "the vectors' error is what Phase II leaves.",
}


def _planned_phases(params: Params) -> dict[str, float]:
    truth = SpikedTensor.random((params["dim"],) * params["order"], 1.0, correlation=0.0, random_state=0)
    schedule = _cut(truth, params)
    rounding = float(2**truth.order * sum(len(legs) for legs in (*schedule.stages, schedule.ascent)))
    return {"samples": float(schedule.samples(truth.order)), "rounding": rounding}


PHASES = Study(
    "phases",
    "What each phase is for",
    "All phases at the schedule's own N, and each of them left out; λ = 1, uncorrelated, every overlap above 0.9. "
    "Phase I lifts the alignments from d^(−1), Phase II to a constant, Phase III lowers the error (Section sketch).",
    _phases_grid,
    _phases_run,
    [_phases],
    planned=_planned_phases,
)
