"""How N at 50 % success grows with d: the worst case, and equal vectors.

The budget of a climb multiplies the paper's own T: a slope tests whether its schedule suffices uniformly in d, not what
the algorithm needs at least.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from research.studies.climbs import SEEDS, Cells, climb, half_law, planned_climb, theorem_climb, together
from research.studies.estimates import PowerLaw, Slope, flat, spread
from research.studies.study import Finding, Line, Records, Study

Dims = tuple[int, ...]


def logarithm(order: int, correlation: float) -> Callable[[float], float]:
    """What the theorem's sum of stages has beyond d² at order 4, where all h* of them cost the same; else nothing."""
    return (lambda dim: theorem_climb(4, int(dim), correlation) / dim**2) if order == 4 else flat


@dataclass(frozen=True)
class Family:
    """Climbs of one correlation: by order the exponent, quick and all values of d, and the ladder of budgets."""

    correlation: float
    since: int
    """Smaller sizes are in the store, but not in the slope."""
    orders: dict[int, tuple[int, Dims, Dims, tuple[int, int]]]
    notes: dict[int, str] = field(default_factory=dict)

    def law(self, order: int, count: str = "samples") -> Callable[[Records], PowerLaw]:
        """N₅₀ against d, the logarithm of order 4 divided out."""
        correction = logarithm(order, self.correlation)
        return half_law(count=count, since=self.since, correction=correction, order=order)

    def slope(self, order: int) -> Slope:
        """The slope of an order; at order 4 also that without the logarithm."""

        def note(_: PowerLaw, records: Records) -> str:
            if order == 4:
                plain = half_law(since=self.since, order=4)(records)
                return f"the theorem's sum of stages divided out; else {plain.slope.text()}."
            return f"d ≥ {self.since}{self.notes.get(order, '')}."

        form = "log d" if order == 4 else ""
        return Slope(f"order {order}", self.orders[order][0], self.law(order), note, form, line=f"order {order}")

    def collapsed(self, order: int, records: Records) -> list[Finding]:
        """Whether N₅₀ over the form is one number for all d, within the ladder's √2 to both sides."""
        slope = self.orders[order][0]
        low, high = spread(self.law(order)(records), slope, self.since)
        form = f"d^{slope}" + (" log d" if order == 4 else "")
        told = f"curves of all d ≥ {self.since} collapse against N/({form}), within a factor 2"
        agrees = high / low <= 2 if math.isfinite(high / low) else None
        note = "the matrix blocks' d³ is a part of N at small d." if order == 5 and self.correlation == 0 else ""
        return [Finding(f"order {order}, collapse", told, f"N₅₀/({form}) from {low:.3g} to {high:.3g}", agrees, note)]

    def study(self, name: str, title: str, claim: str, *more: Line) -> Study:
        """Every order, d and budget; slopes, and how the curves collapse."""
        parts = []
        for order, (_, quick, full, rungs) in self.orders.items():
            fixed = {"order": order, "correlation": self.correlation}
            parts.append(Cells(quick, full, rungs, SEEDS if order < 8 else (10, 10), fixed, fine=order < 8))
        lines: list[Line] = [
            *map(self.slope, self.orders),
            *more,
            *(functools.partial(self.collapsed, o) for o in self.orders),
        ]
        return Study(name, title, claim, together(*parts), climb, lines, planned=planned_climb)


UNCORRELATED = Family(
    0.0,
    16,
    {
        4: (2, (16, 64, 256, 1024), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000), (-6, 0)),
        5: (4, (16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256), (-6, 2)),
        6: (4, (16, 32, 64, 128), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1000), (-8, 0)),
        8: (6, (16, 32, 64), (8, 16, 24, 32, 48, 64, 96, 128), (-12, 0)),
    },
    {
        5: "; the printed schedule: with the vector block idle the slope is 3 (odd-order); what the paper bounds is "
        "Σ N_m S_m"
    },
)
IDENTICAL = Family(
    1.0,
    64,
    {
        4: (2, (64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192), (-6, 0)),
        5: (3, (64, 128, 512, 2048), (8, 16, 32, 64, 128, 256, 512, 1024, 2048), (-4, 6)),
        6: (3, (64, 256, 1024, 4096), (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096), (-6, 4)),
        8: (4, (64, 96, 128), (8, 16, 32, 64, 96, 128, 192, 256, 512), (-4, 8)),
    },
)
WEIGHTED = Slope(
    "order 5, Σ N_m S_m",
    5,
    half_law(count="weighted", since=UNCORRELATED.since, order=5),
    "every block's samples times its entries; plain.",
)

WORST_CASE = UNCORRELATED.study(
    "worst-case",
    "Samples at 50 % success, uncorrelated pairs",
    "Even order: λ²N ~ d^(k̄−2) times logs (Corollary cor-equal-dim; at order 4 all h* ≈ log 4d stages cost the "
    "same: d² log d). Odd order, the printed schedule: the vector block's turn takes d^(k̄−1), the matrix blocks' "
    "d^(k̄−2); what the paper bounds is Σ N_m S_m ~ d^k̄ (Corollary cor-equal-dim-odd). These are upper bounds. "
    "Every success curve against N over that form is the same: they collapse. A budget multiplies the T of the paper, "
    "so the slopes test whether its schedule suffices uniformly in d, not what the algorithm needs.",
    WEIGHTED,
)
SYMMETRIC = IDENTICAL.study(
    "symmetric",
    "Samples at 50 % success, identical vectors",
    "Even order: λ²N ~ d^(k̄/2), times log d at order 4 (d² max γ⁴ ∏γ⁻² with γ = d^(-1/2) + c₀/d, whose second term "
    "bends the lines below d = 64). Order 5: d³, set by the matrix blocks.",
)
