"""Odd order: the vector block idle in Phase I, d^(k̄−2) samples, against the printed schedule, d^(k̄−1).

Which of the two takes fewer samples depends on the rate of success that is asked for: N₅₀ and N₉₀ of both, and how
often each succeeds at its own N.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from research.studies.climbs import (
    GOOD,
    Cells,
    climb,
    constants_of,
    curves,
    drawn_runs,
    half_law,
    kind_of,
    planned_climb,
)
from research.studies.estimates import HALF, NINETY, Interval, PowerLaw, Ratio, Slope, flat, interval_of, rate_interval
from research.studies.scaling import logarithm
from research.studies.study import Finding, Line, Params, Records, Scale, Study, chosen, counted
from tpca.engines import open_engine
from tpca.model import SpikedTensor
from tpca.solvers.paper.run import PaperRun
from tpca.solvers.paper.schedule import Schedule, theorem_schedule
from tpca.tensors.blocks import Partition

# Order and correlation: the values of d of the quick run and of the full one, and the exponent.
CASES: dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...], int]] = {
    (5, 0.0): ((16, 256, 4096), (16, 32, 64, 128, 256, 512, 1024, 4096), 3),
    (7, 0.0): ((16, 64, 256), (16, 32, 64, 128, 256), 5),
    (7, 1.0): ((64, 256, 1024), (64, 128, 256, 512, 1024), 4),
}
BOTH = (8, 16, 64)  # d at which both schedules are run at order 5
OWN = (6, 16, 64)
SAMPLED: Params = {"dim": 5, "order": 5, "correlation": 0.0, "strength": 2.0, "vector": "idle"}


def _grid(scale: Scale) -> list[Params]:
    """Climbs of both orders, and at one size the same on real samples."""
    trials = []
    for (order, correlation), (quick, full, _) in CASES.items():
        fixed = {"order": order, "correlation": correlation, "vector": "idle"}
        trials += Cells(quick, full, (-8, 4), (10, 20) if order == 5 else (10, 10), fixed)(scale)
    for vector in ("printed", "idle"):
        fixed = {"order": 5, "correlation": 0.0, "vector": vector}
        trials += Cells(BOTH, BOTH, (-8, 10), (20, 40), {"kind": "both", **fixed})(scale)
        own = {"kind": "own", **fixed, "budget": 1.0, "count": 100}
        later = () if scale == "quick" else (100,)
        trials += [{**own, "dim": dim, "first": first} for dim in OWN for first in (0, *later)]
    for budget in (0.25, 1.0):
        place = {**SAMPLED, "budget": budget}
        firsts = (0, 5, 10, 15) if scale == "full" else (0,)
        trials += [{**place, "kind": "samples", "first": first, "count": 5} for first in firsts]
        trials += [{**place, "kind": "law", "first": 0, "count": 100}]
    return trials


def _slope(order: int, correlation: float, exponent: int) -> Slope:
    """N₅₀ against d; at order 5 the even schedule's log d divided out."""
    correction = logarithm(4, 0.0) if order == 5 else flat  # that of the even schedule
    where: Params = {"order": order, "correlation": correlation, "vector": "idle", "kind": None}
    return Slope(
        f"order {order}, {kind_of(correlation)} vectors, N",
        exponent,
        half_law(correction=correction, **where),
        functools.partial(_constants, exponent),
        "log d" if order == 5 else "",
        line=f"order {order}, {kind_of(correlation)}",
    )


def _constants(exponent: int, law: PowerLaw, _: Records) -> str:
    points = ", ".join(f"{y / x**exponent:.3g}" for x, y in sorted(law.points.items()))
    return f"N₅₀/d^{exponent}, d growing: {points}."


def _product(order: int, slope: Slope, records: Records) -> list[Finding]:
    """S·N: the slope of N and 2."""
    law = slope.measure(records)
    if not math.isfinite(law.slope.value):
        return []
    whole = Interval(law.slope.value + 2, law.slope.low + 2, law.slope.high + 2)
    note = "S is 2^k̄ starts of d entries and k·d², all held at once: the slope above and 2."
    label, told = f"order {order}, S·N, the ordinary product", f"slope at most {order}"
    return [Finding(label, told, whole.text(), whole.low <= order, note)]


def _lines() -> list[Line]:
    found: list[Line] = []
    for (order, correlation), (_, _, exponent) in CASES.items():
        slope = _slope(order, correlation, exponent)
        found.append(slope)
        if correlation == 0:
            found.append(functools.partial(_product, order, slope))
    return [*found, _twice, _own, *(functools.partial(_compared, budget) for budget in (0.25, 1.0))]


def _twice(records: Records) -> list[Finding]:
    """N₅₀ and N₉₀ of both schedules, and whether the idle one takes fewer samples at both."""
    found = []
    idle, printed = (curves(records, kind="both", vector=vector) for vector in ("idle", "printed"))
    for dim in sorted(set(idle) & set(printed)):
        for name, rate in (("N₅₀", HALF), ("N₉₀", NINETY)):
            ratio = interval_of(Ratio(idle[dim], printed[dim]), rate)
            ours, theirs = (interval_of(each[dim], rate).short() for each in (idle, printed))
            text = f"idle {ours}, printed {theirs}; ratio {ratio.text()}"
            label = f"order 5, d = {dim:g}, {name}, idle against printed"
            note = "" if ratio.low <= 1 else "where both starts of the vector are poor, only many more samples help."
            found.append(Finding(label, "fewer samples", text, ratio.low <= 1, note))
    return found


def _own(records: Records) -> list[Finding]:
    """Success at a schedule's own N, against 1 − 2δ."""
    found = []
    for vector, dim in itertools.product(("printed", "idle"), OWN):
        if mine := chosen(records, kind="own", vector=vector, dim=dim):
            wins, runs = counted(mine)
            rate = rate_interval(wins, runs)
            text = f"{wins} of {runs}: {rate.text()}; N = {mine[0].result['samples']:.2g}"
            label = f"order 5, d = {dim}, {vector}, success at its own N"
            found.append(Finding(label, "at least 0.8 (δ = 0.1)", text, rate.high >= 0.8))
    return found


def _compared(budget: float, records: Records) -> list[Finding]:
    """Whether samples succeed as often as the law says: the intervals of both overlap."""
    both = [counted(chosen(records, kind=kind, budget=budget)) for kind in ("samples", "law")]
    if not all(runs for _, runs in both):
        return []
    sampled, law = (rate_interval(*counts) for counts in both)
    label = f"order 5, d = 5, λ = 2, budget {budget:g}, on real samples"
    agrees = sampled.low <= law.high and law.low <= sampled.high
    return [Finding(label, f"success {law.text()} by the law", f"success {sampled.text()}", agrees)]


def _climb(params: Params) -> dict[str, Any]:
    """Phases I and II and the selection, by the exact law or on real samples."""
    if params.get("kind") != "samples":
        return climb(params)
    wins, taken = 0, []
    for rng, truth in drawn_runs(params):
        schedule = theorem_schedule(truth, constants_of(params))
        run = sampled_climb(truth, schedule, "gaussian", rng, spare=True)
        wins += worst_alignment(run, truth) > GOOD
        taken.append(run.samples)
    return {"wins": int(wins), "runs": params["count"], "samples": float(np.mean(taken))}


def sampled_climb(
    truth: SpikedTensor, schedule: Schedule, noise: str, rng: np.random.Generator, spare: bool = False
) -> PaperRun:
    """Phases I and II and the selection of a run on real samples of a noise law."""
    stream = truth.stream(noise=noise, random_state=int(rng.integers(2**31)))
    run = PaperRun(open_engine(stream), rng, spare=spare)
    for legs in (*schedule.stages, schedule.ascent):
        run.sequential_ascent(legs, "climb")
    run.select(schedule.selection)
    return run


def worst_alignment(run: PaperRun, truth: SpikedTensor) -> float:
    """The smallest |α_m| of the start that was selected."""
    planted_blocks = Partition.pairs(truth.dims).outer(truth.vectors)
    return min(abs(float(np.vdot(block[0], b))) for block, b in zip(run.replicas, planted_blocks, strict=True))


ODD_ORDER = Study(
    "odd-order",
    "Odd order: the vector block idle in Phase I, or as printed",
    'Ours (`preset="idle"`): contracted with a random w₁ that stands still, samples of order 2k+1 are samples of order '
    "2k and of strength λ⟨w₁, v₁⟩ ~ λ/√d. So N ~ d·d^(2k−2) = d^(k̄−2) without correlation (times log d at order 5), "
    "d·d^k with equal vectors, and S·N ~ d^k̄ with the ordinary product; the printed schedule takes d^(k̄−1). But w₁ has "
    "nothing but its start: a run fails where both of its starts are poor.",
    _grid,
    _climb,
    _lines(),
    planned=planned_climb,
)
