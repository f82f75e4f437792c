"""Odd order with the vector block idle in Phase I: d^(k̄−2) samples where the printed schedule takes d^(k̄−1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.engines import open_engine
from tpca.lab.studies.climbs import (
    GOOD,
    ClimbStudy,
    cells,
    climb,
    climb_cost,
    constants_of,
    curves,
    drawn_runs,
    kind_of,
    ladder,
    theorem_climb,
)
from tpca.lab.studies.estimates import Estimate, PowerLaw, flat, power_law, rate_interval, slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model import SpikedTensor
from tpca.solvers.paper.run import PaperRun
from tpca.solvers.paper.schedules import Schedule, theorem_schedule
from tpca.tensors.blocks import Partition

# Order and correlation: the values of d of the quick run and of the full one, and the exponent.
CASES: dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...], int]] = {
    (5, 0.0): ((16, 256, 4096), (16, 32, 64, 128, 256, 512, 1024, 4096), 3),
    (7, 0.0): ((16, 64, 256), (16, 32, 64, 128, 256), 5),
    (7, 1.0): ((64, 256, 1024), (64, 128, 256, 512, 1024), 4),
}
SAMPLED = {"dim": 5, "order": 5, "correlation": 0.0, "strength": 2.0, "vector": "idle"}


class OddOrder(ClimbStudy):
    """The vector block idle in Phase I, on the exact law and on samples."""

    name = "odd-order"
    title = "Odd order with the vector block idle in Phase I"
    claim = (
        "Ours: contracted with a random w₁ that stands still, samples of order 2k+1 are samples of order 2k and of "
        "strength λ⟨w₁, v₁⟩ ~ λ/√d. So N ~ d·d^(2k−2) = d^(k̄−2) without correlation (times log d at order 5), d·d^k "
        "with equal vectors, and S·N ~ d^k̄ with the ordinary product; the printed schedule takes d^(k̄−1)."
    )

    def grid(self, scale: Scale) -> list[Params]:
        """Climbs of both orders, and at one size the same on real samples."""
        trials, full = [], scale == "full"
        for (order, correlation), case in CASES.items():
            seeds = ((10, 20) if order == 5 else (10, 10)) if full else (10,)
            fixed = {"order": order, "correlation": correlation, "vector": "idle"}
            trials += cells(case[1] if full else case[0], ladder(-8, 4, fine=full), seeds, **fixed)
        for budget in (0.25, 1.0):
            place = {**SAMPLED, "budget": budget}
            trials += [
                {**place, "kind": "samples", "first": first, "count": 5} for first in ((0, 5, 10, 15) if full else (0,))
            ]
            trials += [{**place, "kind": "law", "first": 0, "count": 100}]
        return trials

    def cost(self, params: Params) -> float:
        """Samples are drawn; the rest is simulated."""
        return 10.0 if params.get("kind") == "samples" else climb_cost(params)

    def run(self, params: Params) -> dict[str, Any]:
        """A climb, or one on real samples."""
        return _sampled(params) if params.get("kind") == "samples" else climb(params)

    def laws(self, records: Sequence[Record]) -> dict[tuple[int, str], PowerLaw]:
        """N₅₀ against d; at order 5 the even schedule's log d divided out."""
        found = {}
        for order, correlation in CASES:
            each = curves(records, order=order, correlation=correlation, vector="idle")
            some = {d: c for d, c in each.items() if d != SAMPLED["dim"]}
            found[order, kind_of(correlation)] = power_law(some, _logarithm if order == 5 else flat)
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes of N, of S·N, and success on samples against success on the law."""
        found = []
        for ((order, correlation), case), law in zip(CASES.items(), self.laws(records).values(), strict=True):
            form = "log d" if order == 5 else ""
            points = ", ".join(f"{y / x ** case[2]:.3g}" for x, y in sorted(law.points.items()))
            label = f"order {order}, {kind_of(correlation)} vectors, N"
            found.append(slope_finding(label, law, case[2], f"N₅₀/d^{case[2]}, d growing: {points}.", form))
            if correlation == 0 and math.isfinite(law.slope.value):
                whole = Estimate(law.slope.value + 2, law.slope.low + 2, law.slope.high + 2)
                told, text = f"slope at most {order}", whole.text()
                note = "S is 2^k̄ starts of d entries and k·d², all held at once: the slope above and 2."
                verdict = Verdict.of(whole.low <= order)
                found.append(Finding(f"order {order}, S·N, the ordinary product", told, text, verdict, note))
        for budget in (0.25, 1.0):
            found += self._compared(
                [r for r in records if r.params.get("kind") and r.params["budget"] == budget], budget
            )
        return found

    def _compared(self, records: Sequence[Record], budget: float) -> list[Finding]:
        """Whether samples succeed as often as the law says: the intervals of both overlap."""
        counts = {}
        for kind in ("samples", "law"):
            mine = [r.result for r in records if r.params["kind"] == kind]
            counts[kind] = (sum(r["wins"] for r in mine), sum(r["runs"] for r in mine))
        if not all(runs for _, runs in counts.values()):
            return []
        sampled, law = (rate_interval(*counts[kind]) for kind in ("samples", "law"))
        label = f"order 5, d = 5, λ = 2, budget {budget:g}, on real samples"
        agree = sampled.low <= law.high and law.low <= sampled.high
        return [Finding(label, f"success {law.text()} by the law", f"success {sampled.text()}", Verdict.of(agree))]


def _logarithm(dim: float) -> float:
    """What the even theorem's sum of stages has beyond d² at order 4."""
    return theorem_climb(4, int(dim), 0.0) / dim**2


def _sampled(params: Params) -> dict[str, Any]:
    """Phases I and II and the selection, on real samples."""
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
