r"""The phase diagram: success over N and λ, and over the correlation inside pairs, at orders 3 to 6.

The paper's algorithm (from order 4; up to its selection, all alignments above ½), the race, AMP, the unfolding and ALS
(every overlap above 0.9), each on a ladder of N, as in the study of memory, whose trials these are.  The boundary is
N₅₀, and N₉₀ beside it.

What theory says of it: λ²N ~ d^{k̄-2} of the paper's algorithm without correlation (d^{k̄-1} as printed at odd order),
falling to d^{k̄/2}; d^{k̄/2} of whatever unfolds; d^k̄/S for S floats of state (Dudeja & Hsu 2024); and the least λ²N at
which the best rank-one fit of the mean, which ALS ends in, has a maximum near the signal, k̄ d β² with β of
:func:`research.theory.limit_threshold`.  That fit is measured against the random-matrix limit on its own, at growing d:
it is a property of the data, so its climb may begin at the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from research.methods import METHODS
from research.studies.climbs import cell_of
from research.studies.estimates import Curve, Interval, Ratio, Slope, interval_of, power_law
from research.studies.memory import DIAL, curve_of, planned_cell, run_cell
from research.studies.study import Finding, Params, Records, Study, chosen
from research.theory import least_samples, limit_alignment, limit_threshold, noise_norm
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.rank_one import along, alternate
from tpca.tensors.blocks import unit

DIMS = {3: 24, 4: 12, 5: 8, 6: 6}
SHOWN = ("paper", "race", "amp", "unfolding", "als")
STRENGTHS = (0.25, 0.5, 1.0, 2.0)
CORRELATIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
BETAS = (1.3, 1.5, 2.0, 3.0, 5.0)
LIMITS = {3: (20, 40, 60), 4: (10, 16, 22)}  # d at which the best rank-one fit is measured
STARTS = 50  # of the best fit of noise


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
    for order, dim in [(order, dim) for order, dims in LIMITS.items() for dim in dims]:
        few = {"order": order, "count": 20, "first": 0, "dim": dim}
        trials += [*({**few, "kind": "fit", "beta": beta} for beta in BETAS), {**few, "kind": "noise"}]
    return trials


def _trial(params: Params) -> dict[str, Any]:
    """A cell; or overlaps of the best rank-one fit near the signal, or lengths of the best fit of noise, over √d."""
    if "kind" not in params:
        return run_cell(params)
    order, dim, found = params["order"], params["dim"], []
    for i in range(params["count"]):
        rng = generator(params["first"] + i, cell_of(params))
        tensor, starts = rng.standard_normal((dim,) * order), rng.standard_normal((STARTS, order, dim))
        if params["kind"] == "noise":
            climbs = (alternate(partial(along, tensor), [unit(v) for v in start], 300, 1e-9)[1] for start in starts)
            found.append(float(max(climbs)) / math.sqrt(dim))
        else:
            strength = params["beta"] * math.sqrt(order * dim)
            truth = SpikedTensor.random((dim,) * order, strength, random_state=int(rng.integers(2**31)))
            fitted, _ = alternate(partial(along, tensor + truth.signal()), truth.vectors, 300, 1e-9)
            found.append(float(truth.overlaps(fitted).mean()))
    return {"values": found}


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


def _limits(records: Records) -> list[Finding]:
    """The best rank-one fit at the largest d, and how it comes there."""
    found = []
    for order, beta in [(order, beta) for order in LIMITS for beta in (*BETAS, None)]:
        mine = chosen(records, order=order, kind="noise" if beta is None else "fit", beta=beta)
        if not mine:
            continue
        each = {r.params["dim"]: np.array(r.result["values"]) for r in mine}
        dim, values = max(each.items())
        mean, error = float(values.mean()), 1.96 * float(values.std(ddof=1) / math.sqrt(len(values)))
        growing = ", ".join(f"{each[d].mean():.4f} at {d}" for d in sorted(each))
        note = f"d growing: {growing}; {len(values)} tensors each, the interval is that at d = {dim}."
        if beta is None:
            told, label = noise_norm(order), f"order {order}, best rank-one fit of noise over √d"
            note += f" {STARTS} starts may miss the best."
        else:
            told, label = limit_alignment(order, beta), f"order {order}, overlap of the best fit, β = {beta:g}"
        agrees, measured = abs(mean - told) <= max(0.05 * told, 3 * error), Interval(mean, mean - error, mean + error)
        found.append(Finding(label, f"{told:.4f} as d grows", measured.text(4), agrees, note))
    return found


DIAGRAM = Study(
    "diagram",
    "The phase diagram: N at 50 and 90 % success over λ and over correlation",
    "λ²N is one number for every method, so that every boundary falls as λ^(−2). The paper's algorithm gains from "
    "correlation inside its pairs as d² max γ⁴ ∏γ⁻² does; AMP, the unfolding and ALS cannot gain. The best rank-one "
    "fit of the mean, which ALS ends in, has the random-matrix limit u^(k̄−2)(1 − u) = 1/(k̄β²), u its squared overlap "
    f"and β = λ√N/√(k̄d), from β = {limit_threshold(3):.3f} on at order 3; that of noise is {noise_norm(3):.3f}√d and "
    f"{noise_norm(4):.3f}√d long at orders 3 and 4.",
    _trials(),
    _trial,
    [_boundaries, _limits],
    planned=lambda params: {} if "kind" in params else planned_cell(params),
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
