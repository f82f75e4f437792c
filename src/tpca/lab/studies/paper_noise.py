"""The paper's algorithm under other noise than Gaussian, at growing d, on real samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpca.lab.studies.climbs import GOOD, cell_of, cells, climb, constants_of, curves, planted
from tpca.lab.studies.estimates import Curve, PowerLaw, Ratio, power_law, slope_finding
from tpca.lab.studies.odd_order import sampled_climb, worst_alignment
from tpca.lab.studies.study import Finding, Params, Record, Scale
from tpca.model.sampling import NOISE_LAWS
from tpca.randomness import generator
from tpca.solvers.paper.schedules import theorem_schedule

LAW = "Gaussian, exact law"
NOTES = {
    "bounded": "‖E‖ = 1 is d^(k̄/2) times weaker an entry: what is left is the number of steps that a climb takes.",
    "student-t": "outside the assumption.",
}


class PaperNoise:
    """Phases I and II at growing budgets: N₅₀ of every noise law."""

    name = "paper-noise"
    title = "The paper's algorithm under every noise law, order 4, λ = 3"
    claim = (
        "The theorem holds for all sub-Gaussian noise: N₅₀ of Phases I and II grows with d as for Gaussian noise, and "
        "is no larger. Student t is outside the assumption."
    )
    version = 1

    def grid(self, scale: Scale) -> list[Params]:
        """Real samples of every law, and the exact law of Gaussian noise."""
        dims, seeds = ((6, 8, 10), (3,)) if scale == "quick" else ((6, 8, 10), (3, 3))
        budgets = [2.0**j for j in (-4, -3, -2, -1, -0.5)]
        fixed = {"order": 4, "correlation": 0.0, "strength": 3.0}
        trials = cells((6, 8, 10), budgets, (40,), kind=LAW, **fixed)
        for noise in NOISE_LAWS:
            trials += cells(dims, budgets[1:4] if scale == "quick" else budgets, seeds, kind=noise, **fixed)
        return trials

    def cost(self, params: Params) -> float:
        """Drawing d⁴ numbers a sample."""
        if params["kind"] == LAW:
            return 0.2
        return float(params["count"] * params["budget"] * 1.5e-4 * params["dim"] ** 4.2)

    def run(self, params: Params) -> dict[str, Any]:
        """``count`` climbs."""
        if params["kind"] == LAW:
            return climb(params)
        wins, taken = 0, 0
        for i in range(params["count"]):
            rng = generator(params["first"] + i, cell_of(params))
            truth = planted(params, int(rng.integers(2**31)))
            schedule = theorem_schedule(truth, constants_of(params))
            run = sampled_climb(truth, schedule, params["kind"], rng)
            wins += worst_alignment(run, truth) > GOOD
            taken = 2**4 * schedule.climb()
        return {"wins": int(wins), "runs": params["count"], "climb": float(taken)}

    def laws(self, records: Sequence[Record]) -> dict[str, PowerLaw]:
        """N₅₀ against d, for every law."""
        return {kind: power_law(each) for kind, each in self._curves(records).items()}

    def _curves(self, records: Sequence[Record]) -> dict[str, dict[float, Curve]]:
        each = {kind: curves(records, count="climb", kind=kind) for kind in (LAW, *NOISE_LAWS)}
        return {kind: found for kind, found in each.items() if found}

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """N₅₀ over that of the exact law: does it grow, and is it above?"""
        found, each = [], self._curves(records)
        for noise in NOISE_LAWS:
            if noise not in each or LAW not in each:
                continue
            ratios = power_law({d: Ratio(c, each[LAW][d]) for d, c in each[noise].items() if d in each[LAW]})
            text = ", ".join(f"{ratios.points[d]:.2g} at {d:g}" for d in sorted(ratios.points))
            label = f"{noise}, N₅₀ over that of the exact law"
            note = f"ratio {text}, d growing; {NOTES.get(noise, 'steps of the ladder are 2.')}"
            found.append(slope_finding(label, ratios, 0, note))
        return found
