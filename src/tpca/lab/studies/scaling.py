"""How N at 50 % success grows with d: the worst case, the symmetric one, vectors against matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tpca.lab.simulate import simulate_online
from tpca.lab.studies.climbs import (
    COARSE,
    GOOD,
    SEEDS,
    ClimbStudy,
    cell_of,
    cells,
    climb,
    climb_cost,
    curves,
    ladder,
    theorem_climb,
)
from tpca.lab.studies.estimates import Curve, PowerLaw, flat, power_law, slope_finding, spread
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.randomness import generator

# By order: the values of d of the quick run and of the full one.
Dims = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]


def logarithm(order: int, correlation: float) -> Callable[[float], float]:
    """What the theorem's sum of stages has beyond d² at order 4, where all h* of them cost the same; else nothing."""
    return (lambda dim: theorem_climb(4, int(dim), correlation) / dim**2) if order == 4 else flat


class WorstCase(ClimbStudy):
    """No correlation inside the pairs."""

    name = "worst-case"
    title = "Samples at 50 % success, uncorrelated pairs"
    claim = (
        "Even order: λ²N ~ d^(k̄−2) times logs (Corollary cor-equal-dim; at order 4 all h* ≈ log 4d stages cost the "
        "same: d² log d). Odd order, the printed schedule: the vector block's turn takes d^(k̄−1), the matrix blocks' "
        "d^(k̄−2); what the paper bounds is Σ N_m S_m ~ d^k̄ (Corollary cor-equal-dim-odd). These are upper bounds. "
        "Every success curve against N over that form is the same: they collapse."
    )
    correlation = 0.0
    fit_from = 16
    """Smaller sizes are in the store, but not in the slope."""
    slopes: ClassVar[dict[int, int]] = {4: 2, 5: 4, 6: 4, 8: 6}
    dims: ClassVar[Dims] = {
        4: ((16, 64, 256, 1024), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        5: ((16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)),
        6: ((16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)),
        8: ((16, 32, 64), (8, 16, 24, 32, 48, 64, 96, 128)),
    }
    ladders: ClassVar[dict[int, tuple[int, int]]] = {4: (-6, 0), 5: (-6, 2), 6: (-8, 0), 8: (-12, 0)}
    notes: ClassVar[dict[int, str]] = {
        5: "; the printed schedule: with the vector block idle the slope is 3 (odd-order); what the paper bounds is "
        "Σ N_m S_m"
    }

    def grid(self, scale: Scale) -> list[Params]:
        """Every order, d and budget."""
        trials = []
        for order, (quick, full) in self.dims.items():
            every = SEEDS if order < 8 else (10, 10)
            dims, seeds = (quick, every[:1]) if scale == "quick" else (full, every)
            budgets = ladder(*self.ladders[order], fine=scale == "full" or order < 8)
            trials += cells(dims, budgets, seeds, order=order, correlation=self.correlation)
        return trials

    def laws(self, records: Sequence[Record]) -> dict[int, PowerLaw]:
        """N₅₀ against d for every order, the logarithm of order 4 divided out."""
        return {o: power_law(self.fitted(records, o), logarithm(o, self.correlation)) for o in self.slopes}

    def fitted(self, records: Sequence[Record], order: int, count: str = "samples") -> dict[float, Curve]:
        """Success curves of the sizes that the line is fitted to."""
        return {d: c for d, c in curves(records, count=count, order=order).items() if d >= self.fit_from}

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes for every order; of the worst case also the quantity that the paper bounds at odd order."""
        found = []
        for order, law in self.laws(records).items():
            note, form = f"d ≥ {self.fit_from}{self.notes.get(order, '')}.", ""
            if order == 4:
                raw = power_law(self.fitted(records, order)).slope
                note, form = f"the theorem's sum of stages divided out; else {raw.text()}.", "log d"
            found.append(slope_finding(f"order {order}", law, self.slopes[order], note, form))
        if self.correlation == 0:
            weighted = power_law(self.fitted(records, 5, count="weighted"))
            note = "every block's samples times its entries; plain."
            found.append(slope_finding("order 5, Σ N_m S_m", weighted, 5, note))
        return found + [self._collapsed(order, law) for order, law in self.laws(records).items()]

    def _collapsed(self, order: int, law: PowerLaw) -> Finding:
        """Whether N₅₀ over the form is one number for all d, within the ladder's √2 to both sides."""
        low, high = spread(law, self.slopes[order], self.fit_from)
        form = f"d^{self.slopes[order]}" + (" log d" if order == 4 else "")
        text = f"N₅₀/({form}) from {low:.3g} to {high:.3g}"
        told = f"curves of all d ≥ {self.fit_from} collapse against N/({form}), within a factor 2"
        verdict = Verdict.of(high / low <= 2) if math.isfinite(high / low) else Verdict.OPEN
        if order == 5 and self.correlation == 0:
            return Finding("order 5, collapse", told, text, verdict, "the matrix blocks' d³ is a part of N at small d.")
        return Finding(f"order {order}, collapse", told, text, verdict)


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
        5: ((64, 128, 512, 2048), (8, 16, 32, 64, 128, 256, 512, 1024, 2048)),
        6: ((64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        8: ((64, 96, 128), (8, 16, 32, 64, 96, 128, 192, 256, 512)),
    }
    ladders: ClassVar[dict[int, tuple[int, int]]] = {4: (-6, 0), 5: (-4, 6), 6: (-6, 4), 8: (-4, 8)}
    notes: ClassVar[dict[int, str]] = {}


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
        trials, full = [], scale == "full"
        for order, dims in self.vector_dims.items():
            seeds = (50, 200) if full else (50,)
            trials += cells(dims[full], ladder(-8, 12, fine=full), seeds, order=order, kind="vector")
        for order, sizes, low in ((4, (16, 64, 256, 1024), -6), (6, (16, 32, 64, 128), -8)):
            fixed = {"order": order, "correlation": 0.0, "kind": "matrix"}
            trials += cells(sizes, ladder(low, 0, full), SEEDS[:1], **fixed)
        return trials

    def cost(self, params: Params) -> float:
        """Vectors cost next to nothing."""
        return climb_cost(params) if params["kind"] == "matrix" else 0.1

    def run(self, params: Params) -> dict[str, Any]:
        """A climb of the matrices, or simulated online SGD of vectors at N = budget · d^(k̄−1)."""
        if params["kind"] == "matrix":
            return climb(params)
        order, dim = params["order"], params["dim"]
        samples, wins = params["budget"] * dim ** (order - 1), 0
        for i in range(params["count"]):
            rng = generator(params["first"] + i, cell_of(params))
            aligned = simulate_online((dim,) * order, 1.0, samples, rng, coarse=COARSE)
            wins += bool(np.abs(aligned).min() > GOOD)
        return {"wins": wins, "runs": params["count"], "samples": samples}

    def laws(self, records: Sequence[Record]) -> dict[tuple[str, int], PowerLaw]:
        """N₅₀ against d for both kinds."""
        found = {("vector", o): power_law(curves(records, order=o, kind="vector")) for o in self.vector_dims}
        for o in (4, 6):
            found["matrix", o] = power_law(curves(records, order=o, kind="matrix"), logarithm(o, 0.0))
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Slopes of both."""
        found = []
        for (kind, order), law in self.laws(records).items():
            predicted = order - 1 if kind == "vector" else order - 2
            form = "log d" if (kind, order) == ("matrix", 4) else ""
            found.append(slope_finding(f"order {order}, {kind}", law, predicted, form=form, bound=kind == "matrix"))
        return found
