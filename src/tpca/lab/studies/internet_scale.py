"""Sizes that nobody can store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tpca.lab.simulate import SimulatedRun
from tpca.lab.studies.climbs import COARSE, SEEDS, cells, climb, climb_cost, curves, ladder
from tpca.lab.studies.estimates import PowerLaw, power_law
from tpca.lab.studies.scaling import logarithm
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.paper.schedules import PRESETS, theorem_schedule


class InternetScale:
    """Sizes that nobody can store."""

    name = "internet-scale"
    title = "Order 4 at d = 10⁴ and order 6 at d = 10³, simulated"
    claim = (
        "On the lines of the worst case: N₅₀ as extrapolated from d ≤ 256 (order 4) and d ≤ 128 (order 6), "
        "within a factor 2."
    )
    version = 1
    sizes = ((4, 10_000, (16, 32, 64, 128, 256)), (6, 1_000, (16, 32, 64, 128)))

    def grid(self, scale: Scale) -> list[Params]:
        """Small sizes for the line, the large one to compare, and whole runs there."""
        trials = []
        for order, large, small in self.sizes:
            low = -6 if order == 4 else -8
            budgets = ladder(low, 0, scale == "full")
            seeds = SEEDS[:1] if scale == "quick" else SEEDS
            trials += cells((*small, large), budgets, seeds, order=order, correlation=0.0)
        runs = 2 if scale == "quick" else 6
        return trials + [{"order": 6, "dim": 1000, "kind": "whole", "seed": seed} for seed in range(runs)]

    def cost(self, params: Params) -> float:
        """A whole run takes some ten seconds."""
        return 15.0 if params.get("kind") == "whole" else climb_cost(params)

    def run(self, params: Params) -> dict[str, Any]:
        """A climb, or all three phases with the final blocks drawn."""
        return _whole(params) if params.get("kind") == "whole" else climb(params)

    def laws(self, records: Sequence[Record]) -> dict[int, tuple[PowerLaw, float]]:
        """The line through the small sizes, and N₅₀ at the large one."""
        found = {}
        for order, large, small in self.sizes:
            each = curves(records, order=order, correlation=0.0)
            line = power_law({d: c for d, c in each.items() if d in small}, logarithm(order, 0.0))
            found[order] = (line, each[large].half() if large in each else math.inf)
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Measured over extrapolated."""
        found = []
        for order, large, _ in self.sizes:
            line, measured = self.laws(records)[order]
            ratio = measured / line.at(large) if math.isfinite(line.intercept) else math.nan
            text = f"{measured:.1e} samples, {ratio:.2f} of the line"
            if not math.isfinite(ratio):
                found.append(Finding(f"order {order}, d = {large}", "on the line", "—", Verdict.OPEN))
                continue
            verdict = Verdict.AGREES if 0.5 < ratio < 2 else Verdict.DIFFERS
            found.append(Finding(f"order {order}, d = {large}", f"{line.at(large):.1e} by the line", text, verdict))
        whole = [r.result for r in records if r.params.get("kind") == "whole"]
        if whole:
            worst = min(r["overlap"] for r in whole)
            text = f"smallest overlap {worst:.4f} in {len(whole)} runs of {whole[0]['samples']:.1e} samples"
            verdict = Verdict.AGREES if worst > 0.9 else Verdict.DIFFERS
            found.append(Finding("order 6, d = 1000, all phases", "overlaps above 0.9", text, verdict))
        return found


def _whole(params: Params) -> dict[str, Any]:
    """The whole published algorithm at its own budget, final blocks drawn exactly, top vectors compared."""
    truth = SpikedTensor.random((params["dim"],) * params["order"], 1.0, correlation=0.0, random_state=params["seed"])
    schedule = theorem_schedule(truth, PRESETS["practical"])
    run = SimulatedRun(truth, generator(params["seed"], "internet-scale"), coarse=COARSE)
    run.multi_phase(schedule)
    overlaps = truth.overlaps(run.vectors())
    return {"overlap": float(overlaps.min()), "samples": float(run.samples), "steps": run.steps}
