"""How N at 50 % success grows with d: worst case, symmetric case, vectors against matrices, sizes nobody can store."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tpca.randomness import generator
from tpca.simulate import SimulatedRun, simulate_online
from tpca.studies.climbs import COARSE, GOOD, SEEDS, cells, climb, climb_cost, curves, ladder, theorem_climb
from tpca.studies.estimates import Curve, PowerLaw, flat, power_law
from tpca.studies.store import key
from tpca.studies.study import Finding, Params, Record, Scale, Verdict, interval_text

# By order: the values of d of the quick run and of the full one.
Dims = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]


def logarithm(order: int, correlation: float) -> Callable[[float], float]:
    """What the theorem's sum of stages has beyond d² at order 4, where all h* of them cost the same; else nothing."""
    return (lambda dim: theorem_climb(4, int(dim), correlation) / dim**2) if order == 4 else flat


def slope_finding(label: str, law: PowerLaw, predicted: float, reason: str = "", form: str = "") -> Finding:
    """Agreement is that the 95 % interval of the slope contains the prediction."""
    slope = law.slope
    text = f"slope {predicted:g}" + (f" {form}" if form else "")
    measured = interval_text(slope.value, slope.low, slope.high)
    if not math.isfinite(slope.value):
        return Finding(label, text, measured, Verdict.OPEN, "fewer than three values of d reached 50 % success.")
    verdict = Verdict.AGREES if slope.holds(predicted) else Verdict.DIFFERS
    return Finding(label, text, measured, verdict, reason)


class WorstCase:
    """No correlation inside the pairs."""

    name = "worst-case"
    title = "Samples at 50 % success, uncorrelated pairs"
    claim = (
        "Even order: λ²N ~ d^(k̄−2) times logs (Corollary cor-equal-dim; at order 4 all h* ≈ log 4d stages cost the "
        "same: d² log d). Odd order: the vector block's turn takes d^(k̄−1), the matrix blocks' d^(k̄−2); what the paper "
        "bounds is Σ N_m S_m ~ d^k̄ (Corollary cor-equal-dim-odd)."
    )
    version = 1
    correlation = 0.0
    fit_from = 16
    """Smaller sizes are in the store, but not in the slope."""
    slopes: ClassVar[dict[int, int]] = {4: 2, 5: 4, 6: 4, 8: 6}
    dims: ClassVar[Dims] = {
        4: ((16, 64, 256, 1024), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        5: ((16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)),
        6: ((16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)),
        8: ((16, 24, 32), (8, 16, 24, 32, 48, 64, 96, 128)),
    }
    ladders: ClassVar[dict[int, tuple[int, int]]] = {4: (-6, 0), 5: (-6, 2), 6: (-8, 0), 8: (-12, 0)}
    notes: ClassVar[dict[int, str]] = {
        5: "; the matrix blocks' d³ is still a part of N at these d; what the paper bounds is the last row"
    }

    def grid(self, scale: Scale) -> list[Params]:
        """Every order, d and budget."""
        trials = []
        for order, (quick, full) in self.dims.items():
            every = SEEDS if order < 8 else (10, 10)
            dims, seeds = (quick, every[:1]) if scale == "quick" else (full, every)
            budgets = ladder(*self.ladders[order], fine=scale == "full")
            trials += cells(dims, budgets, seeds, order=order, correlation=self.correlation)
        return trials

    cost = staticmethod(climb_cost)
    run = staticmethod(climb)

    def laws(self, records: Sequence[Record]) -> dict[int, PowerLaw]:
        """N₅₀ against d for every order, the logarithm of order 4 divided out."""
        return {
            order: power_law(self.fitted(records, order), logarithm(order, self.correlation)) for order in self.slopes
        }

    def fitted(self, records: Sequence[Record], order: int, weighted: bool = False) -> dict[float, Curve]:
        """Success curves of the sizes that the line is fitted to."""
        return {d: c for d, c in curves(records, weighted=weighted, order=order).items() if d >= self.fit_from}

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes for every order."""
        found = []
        for order, law in self.laws(records).items():
            note, form = f"d ≥ {self.fit_from}{self.notes.get(order, '')}.", ""
            if order == 4:
                raw = power_law(self.fitted(records, order)).slope
                form = "times log d"
                note = f"the theorem's sum of stages divided out; else {interval_text(raw.value, raw.low, raw.high)}."
            found.append(slope_finding(f"order {order}", law, self.slopes[order], note, form))
        return [*found, *self.further(records)]

    def further(self, records: Sequence[Record]) -> list[Finding]:
        """The quantity that the paper bounds at odd order."""
        weighted = power_law(self.fitted(records, 5, weighted=True))
        return [slope_finding("order 5, Σ N_m S_m", weighted, 5, "every block's samples times its entries; plain.")]


class Symmetric(WorstCase):
    """All vectors the same."""

    name = "symmetric"
    title = "Samples at 50 % success, identical vectors"
    claim = (
        "Even order: λ²N ~ d^(k̄/2), times log d at order 4 (d² max γ⁴ ∏γ⁻² with γ = d^(-1/2) + c₀/d, whose second term "
        "bends the lines below d = 64). Order 5: d³, set by the matrix blocks."
    )
    correlation = 1.0
    fit_from = 64
    slopes: ClassVar[dict[int, int]] = {4: 2, 5: 3, 6: 3, 8: 4}
    dims: ClassVar[Dims] = {
        4: ((64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
        5: ((64, 256, 1024), (8, 16, 32, 64, 128, 256, 512, 1024, 2048)),
        6: ((64, 256, 1024), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        8: ((64, 128, 256), (8, 16, 32, 64, 96, 128, 192, 256, 512)),
    }
    ladders: ClassVar[dict[int, tuple[int, int]]] = {4: (-6, 0), 5: (-4, 6), 6: (-6, 4), 8: (-4, 8)}
    notes: ClassVar[dict[int, str]] = {}

    def further(self, records: Sequence[Record]) -> list[Finding]:  # noqa: ARG002
        """Nothing more."""
        return []


class Parameterisation:
    """One vector a mode against the paper's matrices."""

    name = "parameterisation"
    title = "Exact vectors against matrix blocks"
    claim = (
        "Online SGD on one vector a mode needs d^(k̄−1) (Ben Arous et al. 2021), matrix blocks d^(k̄−2) "
        "(times log d at order 4)."
    )
    version = 1
    vector_dims: ClassVar[Dims] = {
        3: ((16, 64, 256), (16, 32, 64, 128, 256, 512, 1024)),
        4: ((16, 64, 256), (16, 32, 64, 128, 256, 512, 1024)),
        6: ((8, 32, 128), (8, 16, 32, 64, 128, 256)),
    }

    def grid(self, scale: Scale) -> list[Params]:
        """Vectors at factors of d^(k̄−1), matrices at budgets."""
        trials = []
        for order, (quick, full) in self.vector_dims.items():
            dims, seeds = (quick, (50,)) if scale == "quick" else (full, (50, 200))
            factors = ladder(-8, 12, fine=scale == "full")
            for params in cells(dims, factors, seeds, order=order, kind="vector"):
                trials.append(params)
        for order, dims in ((4, (16, 64, 256, 1024)), (6, (16, 32, 64, 128))):
            low = -6 if order == 4 else -8
            trials += cells(
                dims, ladder(low, 0, scale == "full"), SEEDS[:1], order=order, correlation=0.0, kind="matrix"
            )
        return trials

    def cost(self, params: Params) -> float:
        """Vectors cost next to nothing."""
        return climb_cost(params) if params["kind"] == "matrix" else 0.1

    def run(self, params: Params) -> dict[str, Any]:
        """A climb of either kind."""
        return climb(params) if params["kind"] == "matrix" else _online(params)

    def laws(self, records: Sequence[Record]) -> dict[tuple[str, int], PowerLaw]:
        """N₅₀ against d for both kinds."""
        found = {("vector", o): power_law(curves(records, order=o, kind="vector")) for o in self.vector_dims}
        for order in (4, 6):
            law = power_law(curves(records, order=order, kind="matrix"), logarithm(order, 0.0))
            found["matrix", order] = law
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes of both."""
        found = []
        for (kind, order), law in self.laws(records).items():
            predicted = order - 1 if kind == "vector" else order - 2
            form = "times log d" if (kind, order) == ("matrix", 4) else ""
            found.append(slope_finding(f"order {order}, {kind}", law, predicted, form=form))
        return found


def _online(params: Params) -> dict[str, Any]:
    """Simulated online SGD at N = budget · d^(k̄−1)."""
    order, dim = params["order"], params["dim"]
    samples = params["budget"] * dim ** (order - 1)
    cell = {name: value for name, value in params.items() if name not in ("first", "count")}
    wins = 0
    for i in range(params["count"]):
        rng = generator(params["first"] + i, key(cell))
        aligned = simulate_online((dim,) * order, 1.0, samples, rng, coarse=COARSE)
        wins += bool(np.abs(aligned).min() > GOOD)
    return {"wins": wins, "runs": params["count"], "samples": samples}


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
    from tpca.model import SpikedTensor
    from tpca.schedules import PRESETS, theorem_schedule

    truth = SpikedTensor.random((params["dim"],) * params["order"], 1.0, correlation=0.0, seed=params["seed"])
    schedule = theorem_schedule(truth, PRESETS["practical"])
    run = SimulatedRun(truth, generator(params["seed"], "internet-scale"), coarse=COARSE)
    run.multi_phase(schedule)
    overlaps = truth.overlaps(run.vectors())
    return {"overlap": float(overlaps.min()), "samples": float(run.samples), "steps": run.steps}
