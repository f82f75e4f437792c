"""Other schedules on the same problems, and other noise.

Phase I in one go, the schedule without the truth; at odd order the vector block idle in Phase I; and
the paper's algorithm on real samples of every noise law, beside the exact law.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from research.studies.climbs import (
    GOOD,
    cells,
    climb,
    constants_of,
    curves,
    drawn_runs,
    half_law,
    kind_of,
    planned_climb,
    schedule_of,
)
from research.studies.estimates import (
    HALF,
    NINETY,
    Curve,
    Interval,
    PowerLaw,
    Ratio,
    Slope,
    flat,
    interval_of,
    power_law,
    rate_interval,
)
from research.studies.scaling import logarithm
from research.studies.study import Finding, Line, Params, Records, Study, chosen, counted
from tpca.engines import open_engine
from tpca.model import NOISE_LAWS
from tpca.solvers.paper.run import PaperRun
from tpca.solvers.paper.schedule import PRESETS, search_steps
from tpca.tensors.blocks import Partition

# ---- Phase I in one go, and the schedule without the truth

Cases = dict[tuple[int, float], tuple[int, ...]]  # order, correlation: values of d


def _both(cases: Cases, ladders: dict[str, range], **fixed: Any) -> list[Params]:
    """Both schedules, the theorem's first, on every case."""
    trials = []
    for (order, correlation), dims in cases.items():
        for schedule, rungs in ladders.items():
            about = {"order": order, "correlation": correlation, "schedule": schedule, **fixed}
            trials += cells(dims, rungs, (10, 10), **about)
    return trials


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
    (6, 0.0): (64, 256, 1024, 4096, 16384),
    (6, 1.0): (512, 2048, 8192, 32768, 131072),
}
STAGES = Study(
    "stages",
    "Phase I in one go costs more",
    "Without the h* cycles Phase I takes γ^(−2/(k−1)) times more samples: d for uncorrelated pairs at order 6, √d "
    "for equal vectors. Phase II keeps its own budget, and targets go up to 0.95, or the cap of ½ would bind.",
    _both(_STAGES, {"theorem": range(-8, 3), "one stage": range(-20, -1)}, kept=1.0, cap=0.95),
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
    (4, 0.0): (16, 64, 256),
    (4, 1.0): (16, 64, 256),
    (6, 0.0): (16, 64, 128, 256, 1024),
    (6, 1.0): (16, 64, 128, 256, 1024),
}
_ODD: Cases = {
    (5, 0.0): (16, 32, 64, 128, 256),
    (5, 1.0): (16, 32, 64, 128, 256),
    (7, 1.0): (16, 32, 64, 128),
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
    [
        *_both(_EMPIRICAL, {"theorem": range(-8, 1), "empirical": range(-8, 1)}),
        *_both({(5, 0.0): _ODD[5, 0.0]}, {"theorem": range(-8, 3), "empirical": range(-8, 3)}),
        *_both({p: d for p, d in _ODD.items() if p[1]}, {"theorem": range(-8, 7), "empirical": range(-18, 3)}),
    ],
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

# ---- odd order

# Order and correlation: the values of d, and the exponent.
CASES: dict[tuple[int, float], tuple[tuple[int, ...], int]] = {
    (5, 0.0): ((16, 32, 64, 128, 256, 512, 1024, 4096), 3),
    (7, 0.0): ((16, 32, 64, 128, 256), 5),
    (7, 1.0): ((64, 128, 256, 512, 1024), 4),
}
BOTH = (8, 16, 64)  # d at which both schedules are run at order 5
OWN = (6, 16, 64)
SAMPLED: Params = {"dim": 5, "order": 5, "correlation": 0.0, "strength": 2.0, "vector": "idle"}


def _odd_trials() -> list[Params]:
    """Climbs of both orders; both schedules at order 5, and each at its own N; at one size also real samples."""
    trials = []
    for (order, correlation), (dims, _) in CASES.items():
        seeds = (10, 20) if order == 5 else (10, 10)
        trials += cells(dims, range(-8, 5), seeds, order=order, correlation=correlation, vector="idle")
    for vector in ("printed", "idle"):
        fixed = {"order": 5, "correlation": 0.0, "vector": vector}
        trials += cells(BOTH, range(-8, 11), (20, 40), kind="both", **fixed)
        own = {"kind": "own", **fixed, "budget": 1.0, "count": 100}
        trials += [{**own, "dim": dim, "first": first} for dim in OWN for first in (0, 100)]
    for budget in (0.25, 1.0):
        place = {**SAMPLED, "budget": budget}
        trials += [{**place, "kind": "samples", "first": first, "count": 5} for first in (0, 5, 10, 15)]
        trials += [{**place, "kind": "law", "first": 0, "count": 100}]
    return trials


def _law_or_samples(params: Params) -> dict[str, Any]:
    """``count`` climbs: by the exact law, or on real samples of Gaussian or another noise, up to the selection."""
    kind = params.get("kind")
    if kind != "samples" and kind not in NOISE_LAWS:
        return climb(params)
    wins, samples = 0, 0
    for rng, truth in drawn_runs(params):
        schedule, partition = schedule_of(params, truth), Partition.pairs(truth.dims)
        noise = "gaussian" if kind == "samples" else kind
        stream = truth.stream(noise=noise, random_state=int(rng.integers(2**31)))
        run = PaperRun(open_engine(stream), rng, spare=constants_of(params).idle_vector)
        for legs in (*schedule.stages, schedule.ascent):
            run.sequential_ascent(legs, "climb")
        run.select(schedule.selection)
        both = zip(run.replicas, partition.outer(truth.vectors), strict=True)
        wins += min(abs(float(np.vdot(block[0], planted))) for block, planted in both) > GOOD
        samples += run.samples
    taken = {"samples": samples / params["count"]} if kind == "samples" else {"climb": planned_climb(params)["climb"]}
    return {"wins": int(wins), "runs": params["count"], **taken}


def _odd_lines(order: int, correlation: float) -> list[Line]:
    """The slope of N₅₀ against d, at order 5 with the even schedule's log d divided out; and that of S·N."""
    exponent = CASES[order, correlation][1]

    def note(law: PowerLaw, _: Records) -> str:
        points = ", ".join(f"{y / x**exponent:.3g}" for x, y in sorted(law.points.items()))
        return f"N₅₀/d^{exponent}, d growing: {points}."

    name, correction = f"order {order}, {kind_of(correlation)}", logarithm(4, 0.0) if order == 5 else flat
    law = half_law(correction=correction, vector="idle", kind=None, order=order, correlation=correlation)
    slope = Slope(f"{name} vectors, N", exponent, law, note, "log d" if order == 5 else "", line=name)

    def product(records: Records) -> list[Finding]:
        of_n = law(records).slope
        if not math.isfinite(of_n.value):
            return []
        whole = Interval(of_n.value + 2, of_n.low + 2, of_n.high + 2)
        reason = "S is 2^k̄ starts of d entries and k·d², all held at once: the slope above and 2."
        label, told = f"order {order}, S·N, the ordinary product", f"slope at most {order}"
        return [Finding(label, told, whole.text(), whole.low <= order, reason)]

    return [slope, product] if correlation == 0 else [slope]


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


def _on_samples(records: Records) -> list[Finding]:
    """Whether samples succeed as often as the law says: the intervals of both overlap."""
    found = []
    for budget in (0.25, 1.0):
        kinds = [counted(chosen(records, kind=kind, budget=budget)) for kind in ("samples", "law")]
        if all(runs for _, runs in kinds):
            sampled, law = (rate_interval(*counts) for counts in kinds)
            label, told = (
                f"order 5, d = 5, λ = 2, budget {budget:g}, on real samples",
                f"success {law.text()} by the law",
            )
            agrees = sampled.low <= law.high and law.low <= sampled.high
            found.append(Finding(label, told, f"success {sampled.text()}", agrees))
    return found


ODD_ORDER = Study(
    "odd-order",
    "Odd order: the vector block idle in Phase I, or as printed",
    'Ours (`preset="idle"`): contracted with a random w₁ that stands still, samples of order 2k+1 are samples of order '
    "2k and of strength λ⟨w₁, v₁⟩ ~ λ/√d. So N ~ d·d^(2k−2) = d^(k̄−2) without correlation (times log d at order 5), "
    "d·d^k with equal vectors, and S·N ~ d^k̄ with the ordinary product; the printed schedule takes d^(k̄−1). But w₁ has "
    "nothing but its start: a run fails where both of its starts are poor.",
    _odd_trials(),
    _law_or_samples,
    [*(line for case in CASES for line in _odd_lines(*case)), _twice, _own, _on_samples],
    planned=planned_climb,
)

# ---- other noise than Gaussian

LAW = "Gaussian, exact law"
SHARED = {"order": 4, "correlation": 0.0, "strength": 3.0}
NOTES = {
    "bounded": "‖E‖ = 1 is d^(k̄/2) times weaker an entry: what is left is the number of steps that a climb takes.",
    "student-t": "outside the assumption.",
}


def _noise_curves(records: Records) -> dict[str, dict[float, Curve]]:
    each = {kind: curves(records, count="climb", kind=kind) for kind in (LAW, *NOISE_LAWS)}
    return {kind: found for kind, found in each.items() if found}


def _noise_findings(records: Records) -> list[Finding]:
    """N₅₀ over that of the exact law, d by d: is it above?"""
    found, each = [], _noise_curves(records)
    for noise in NOISE_LAWS:
        if noise not in each or LAW not in each:
            continue
        ratios = {d: interval_of(Ratio(curve, each[LAW][d])) for d, curve in each[noise].items() if d in each[LAW]}
        text = ", ".join(f"{ratio.text()} at d = {d:g}" for d, ratio in sorted(ratios.items()))
        _, runs = counted(chosen(records, kind=noise))
        agree = all(ratio.low <= 1 for ratio in ratios.values())
        note = f"{runs} runs, steps of the ladder are 2. {NOTES.get(noise, '')}".strip()
        found.append(Finding(f"{noise}, N₅₀ over that of the exact law", "at most 1", text, agree, note))
    return found


PAPER_NOISE = Study(
    "paper-noise",
    "The paper's algorithm under every noise law, order 4, λ = 3",
    "The theorem holds for all sub-Gaussian noise: N₅₀ of Phases I and II is no larger than for Gaussian noise. "
    "Student t is outside the assumption. Three sizes and few runs: a factor 2 would be seen, an exponent would not.",
    [
        p
        for kind in (LAW, *NOISE_LAWS)
        for p in cells((6, 8, 10), (-8, -6, -4, -2, -1), (40,) if kind == LAW else (3, 3), kind=kind, **SHARED)
    ],
    _law_or_samples,
    [_noise_findings],
    planned=planned_climb,
    laws=lambda records: {kind: power_law(each) for kind, each in _noise_curves(records).items()},
)
