"""The worst case at sizes that nobody can store."""

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
        trials, quick = [], scale == "quick"
        for order, large, small in self.sizes:
            budgets = ladder(-6 if order == 4 else -8, 0, not quick)
            trials += cells((*small, large), budgets, SEEDS[:1] if quick else SEEDS, order=order, correlation=0.0)
        return trials + [{"order": 6, "dim": 1000, "kind": "whole", "seed": s} for s in range(2 if quick else 6)]

    def cost(self, params: Params) -> float:
        """A whole run takes some ten seconds."""
        return 15.0 if params.get("kind") == "whole" else climb_cost(params)

    def run(self, params: Params) -> dict[str, Any]:
        """A climb, or the whole published algorithm at its own budget, the final blocks drawn exactly."""
        if params.get("kind") != "whole":
            return climb(params)
        dims, seed = (params["dim"],) * params["order"], params["seed"]
        truth = SpikedTensor.random(dims, 1.0, correlation=0.0, random_state=seed)
        run = SimulatedRun(truth, generator(seed, "internet-scale"), coarse=COARSE)
        run.multi_phase(theorem_schedule(truth, PRESETS["printed"]))
        overlap = float(truth.overlaps(run.vectors()).min())
        return {"overlap": overlap, "samples": float(run.samples), "steps": run.steps}

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
        found, laws = [], self.laws(records)
        for order, large, _ in self.sizes:
            line, measured = laws[order]
            ratio = measured / line.at(large) if math.isfinite(line.intercept) else math.nan
            if not math.isfinite(ratio):
                found.append(Finding(f"order {order}, d = {large}", "on the line", "—", Verdict.OPEN))
                continue
            text = f"{measured:.1e} samples, {ratio:.2f} of the line"
            told = f"{line.at(large):.1e} by the line"
            found.append(Finding(f"order {order}, d = {large}", told, text, Verdict.of(0.5 < ratio < 2)))
        whole = [r.result for r in records if r.params.get("kind") == "whole"]
        if whole:
            worst = min(r["overlap"] for r in whole)
            text = f"smallest overlap {worst:.4f} in {len(whole)} runs of {whole[0]['samples']:.1e} samples"
            label = "order 6, d = 1000, all phases"
            found.append(Finding(label, "overlaps above 0.9", text, Verdict.of(worst > 0.9)))
        return found
