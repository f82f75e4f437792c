"""N₅₀ against λ, from below the assumption's range to its limit."""

from __future__ import annotations

from collections.abc import Sequence

from tpca.lab.studies.climbs import ClimbStudy, cells, curves, ladder
from tpca.lab.studies.estimates import PowerLaw, power_law, slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale

# Order and d: the limit ∏d^(1/4) is 64 at order 4 and 181 at order 6.
SIZES = ((4, 64, 6), (6, 32, 7))


class Strengths(ClimbStudy):
    """λ²N does not depend on λ."""

    name = "strength"
    title = "Samples at 50 % success against λ"
    claim = (
        "λ²N depends on d alone for Ω(1) ≤ λ ≤ ∏d^(1/4) (Assumption ass-pro): N₅₀ of Phases I and II ~ λ^(−2). Below, "
        "at λ = ¼ and ½, likewise: an average of 1/λ² samples is one of strength 1."
    )

    def grid(self, scale: Scale) -> list[Params]:
        """Powers of two from ¼ to the limit."""
        quick, trials = scale == "quick", []
        for order, dim, last in SIZES:
            budgets = ladder(-8, 2, fine=not quick)
            for j in range(-2, last + 1, 4 if quick else 1):
                fixed = {"order": order, "correlation": 0.0, "strength": 2.0**j}
                trials += cells((dim,), budgets, (10,) if quick else (10, 10), **fixed)
        return trials

    def laws(self, records: Sequence[Record]) -> dict[tuple[int, int], PowerLaw]:
        """N₅₀ of the climb against λ."""
        found = {}
        for order, dim, _ in SIZES:
            found[order, dim] = power_law(curves(records, by="strength", count="climb", order=order, dim=dim))
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The slope, and λ²N₅₀ at every λ."""
        found = []
        for (order, dim), law in self.laws(records).items():
            flat = ", ".join(f"{x * x * y:.2g} at {x:g}" for x, y in sorted(law.points.items()))
            label = f"order {order}, d = {dim}"
            found.append(slope_finding(label, law, -2, f"λ²N₅₀: {flat}."))
        return found
