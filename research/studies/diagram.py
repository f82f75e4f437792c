r"""The phase diagram: success over N and λ, and over the correlation inside pairs, at orders 3 to 6.

The paper's algorithm (from order 4; up to its selection, all alignments above ½), the race, AMP, the unfolding and ALS
(every overlap above 0.9), each on a ladder of N, as in the study of memory, whose trials these are.  The boundary is
N₅₀, and N₉₀ beside it.

What theory says of it: λ²N ~ d^{k̄-2} of the paper's algorithm without correlation (d^{k̄-1} as printed at odd order),
falling to d^{k̄/2}; d^{k̄/2} of whatever unfolds; d^k̄/S for S floats of state (Dudeja & Hsu 2024); and the least λ²N at
which the best rank-one fit of the mean, which ALS ends in, has a maximum near the signal, k̄ d β² with β of
:func:`research.theory.limit_threshold`.
"""

from __future__ import annotations

from collections.abc import Callable

from research.methods import METHODS
from research.studies.estimates import Curve, Interval, Ratio, Slope, interval_of, power_law
from research.studies.memory import DIAL, curve_of, planned_cell, run_cell
from research.studies.study import Finding, Params, Records, Study, chosen
from research.theory import least_samples, limit_threshold

DIMS = {3: 24, 4: 12, 5: 8, 6: 6}
SHOWN = ("paper", "race", "amp", "unfolding", "als")
STRENGTHS = (0.25, 0.5, 1.0, 2.0)
CORRELATIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


def shown(order: int) -> tuple[str, ...]:
    """The methods at an order: the paper's algorithm begins at 4."""
    return SHOWN if order > 3 else SHOWN[1:]


def _trials() -> list[Params]:
    """Every method along λ without correlation, and along the correlation at λ = 1; the limits."""
    trials: list[Params] = []
    for order, dim in DIMS.items():
        for method in shown(order):
            count, memory = (4, DIAL[order][2]) if method == "race" else (8, None)
            cell = {"order": order, "dim": dim, "method": method, "memory": memory, "count": count}
            for strength, inside in [(s, 0.0) for s in STRENGTHS] + [(1.0, c) for c in CORRELATIONS[1:]]:
                place = {**cell, "strength": strength, "correlation": inside}
                trials += [{**place, "first": count * i} for i in range(5)]
    return trials


# ---- conclusions


def boundary(records: Records, order: int, method: str, by: str) -> dict[float, Curve]:
    """Success curves of a method along λ at Cor = 0, or along the correlation at λ = 1."""
    fixed = {"correlation": 0.0} if by == "strength" else {"strength": 1.0}
    mine = chosen(records, order=order, method=method, **fixed)
    return {x: curve_of(chosen(mine, **{by: x})) for x in sorted({r.params[by] for r in mine})}


def _boundaries(records: Records) -> list[Finding]:
    """λ²N is one number, and what correlation saves."""
    slopes, savings = [], []
    for order, method in [(k, method) for k in DIMS for method in shown(k)]:
        dim = DIMS[order]
        label = f"order {order}, d = {dim}, {method}, N₅₀"
        if len(each := boundary(records, order, method, "strength")) > 2:
            slopes += Slope(f"{label} against λ", -2, power_law(each), bound=False)(records)
        each = boundary(records, order, method, "correlation")
        if {0.0, 1.0} <= set(each):
            saved = interval_of(Ratio(each[0.0], each[1.0]))
            told, agrees = _expected(method, order, dim, saved)
            label += " without correlation over that of identical pairs"
            savings.append(Finding(label, told, saved.text(), agrees))
    return slopes + savings


def _expected(method: str, order: int, dim: int, saved: Interval) -> tuple[str, bool]:
    """What theory says that identical pairs save; that of the form is good to a factor 3, as its c₀ is open."""
    if method == "paper":
        odd, dims = order % 2, (dim,) * order
        none, equal = (least_samples(dims, [0.0] * odd + [c] * (order // 2)) for c in (0.0, 1.0))
        return f"{none / equal:.2g} by the form, within a factor 3", saved.low <= 3 * none / equal and (
            saved.high >= none / equal / 3
        )
    if method == "race":
        return "at least 1", saved.high >= 1
    return "1: it knows nothing of pairs", saved.holds(1.0)


DIAGRAM = Study(
    "diagram",
    "The phase diagram: N at 50 and 90 % success over λ and over correlation",
    "λ²N is one number for every method, so that every boundary falls as λ^(−2). The paper's algorithm gains from "
    "correlation inside its pairs as d² max γ⁴ ∏γ⁻² does; AMP, the unfolding and ALS cannot gain.",
    _trials(),
    run_cell,
    [_boundaries],
    planned=planned_cell,
)


def theory_lines(order: int, dim: int) -> dict[str, Callable[[float], float]]:
    """λ²N by theory against the correlation inside pairs, by name."""
    dims, state = (dim,) * order, METHODS["paper"].state((dim,) * order)
    lines: dict[str, Callable[[float], float]] = {
        f"d^{order / 2:g}": lambda _: dim ** (order / 2),
        "best fit exists": lambda _: order * dim * limit_threshold(order) ** 2,
    }
    if order > 3:
        lines["paper's form, c₀ = 1"] = lambda c: least_samples(dims, [0.0] * (order % 2) + [c] * (order // 2))
        lines["d^k̄/S, S of the paper"] = lambda _: float(dim) ** order / state
    return lines
