"""How N at 50 % success grows with d: the worst case and the symmetric one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from tpca.lab.studies.climbs import SEEDS, cells, climb, climb_cost, curves, ladder, theorem_climb
from tpca.lab.studies.estimates import Curve, PowerLaw, flat, power_law
from tpca.lab.studies.findings import slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale, interval_text

# By order: the values of d of the quick run and of the full one.
Dims = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]


def logarithm(order: int, correlation: float) -> Callable[[float], float]:
    """What the theorem's sum of stages has beyond d² at order 4, where all h* of them cost the same; else nothing."""
    return (lambda dim: theorem_climb(4, int(dim), correlation) / dim**2) if order == 4 else flat


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
        8: ((16, 32, 64), (8, 16, 24, 32, 48, 64, 96, 128)),
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
            budgets = ladder(*self.ladders[order], fine=scale == "full" or order < 8)
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
                form = "log d"
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
        5: ((64, 128, 512, 2048), (8, 16, 32, 64, 128, 256, 512, 1024, 2048)),
        6: ((64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        8: ((64, 128, 256, 512), (8, 16, 32, 64, 96, 128, 192, 256, 512)),
    }
    ladders: ClassVar[dict[int, tuple[int, int]]] = {4: (-6, 0), 5: (-4, 6), 6: (-6, 4), 8: (-4, 8)}
    notes: ClassVar[dict[int, str]] = {}

    def further(self, records: Sequence[Record]) -> list[Finding]:  # noqa: ARG002
        """Nothing more."""
        return []
