"""What the study of memory concludes: N at 50 % success of every method, the bound, and the race's memory dial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.lab.planning.methods import race_size
from tpca.lab.studies.estimates import Curve, Estimate
from tpca.lab.studies.memory_methods import METHODS
from tpca.lab.studies.study import Finding, Record, Verdict
from tpca.randomness import generator

BOUND = 0.1


@dataclass(frozen=True)
class Point:
    """A method at one size: floats of state, passes, N₅₀ with its interval, and S·K·N over d^k̄."""

    method: str
    order: int
    dim: int
    memory: float | None
    state: float
    passes: float
    samples: Estimate
    runs: int

    @property
    def product(self) -> float:
        """S K N / d^k̄."""
        return self.state * self.passes * self.samples.value / float(self.dim) ** self.order

    @property
    def symmetric(self) -> bool:
        """Whether the method was given equal vectors."""
        return self.method == "race, equal" or (self.method in METHODS and METHODS[self.method].symmetric)


def point(records: Sequence[Record]) -> Point:
    """One method at one size, from all its trials."""
    rows: list[tuple[float, int, int]] = []
    for record in records:
        rows += zip(record.result["samples"], record.result["wins"], record.result["levels"], strict=True)
    params, curve = records[0].params, Curve.gather(rows)
    rng = generator(0, "memory bootstrap")
    draws = [curve.redrawn(rng) for _ in range(100)]
    low, high = np.quantile(draws, [0.025, 0.975], method="nearest")
    return Point(
        params["method"],
        params["order"],
        params["dim"],
        params["memory"],
        max(record.result["state"] for record in records),
        float(np.median([record.result["passes"] for record in records])),
        Estimate(curve.half(), float(low), float(high)),
        sum(record.params["count"] for record in records),
    )


def bound_finding(order: int, points: Sequence[Point]) -> Finding | None:
    """The smallest S·K·N of methods that use no structure."""
    plain = [p for p in points if not p.symmetric]
    if not plain:
        return None
    least = min(plain, key=lambda p: p.product)
    text = f"smallest {least.product:.2g}·d^{order} ({least.method}, d = {least.dim}) of {len(plain)} points"
    told, verdict = f"at least {BOUND:g}·d^{order}", Verdict.of(least.product >= BOUND)
    return Finding(f"order {order}, S·K·N", told, text, verdict, "S in floats of 64 bits.")


def symmetric_finding(order: int, points: Sequence[Point]) -> Finding | None:
    """The smallest S·K·N of methods for equal vectors, size by size: it falls with d from order 5 on."""
    symmetric = [p for p in points if p.symmetric]
    dims = sorted({p.dim for p in symmetric})
    if len(dims) < 2:
        return None
    least = [min((p for p in symmetric if p.dim == d), key=lambda p: p.product) for d in dims]
    text = ", ".join(f"{p.product:.2g}·d^{order} (d = {p.dim}, {p.method})" for p in least)
    slope = math.log(least[-1].product / least[0].product) / math.log(dims[-1] / dims[0])
    predicted = 2 - order / 2
    verdict = Verdict.of(abs(slope - predicted) <= 1)
    told = f"S·K·N/d^{order} ~ d^{predicted:g}, ±1 at such sizes"
    reason = f"measured d^{slope:.1f}; S ~ d² and N ~ d^{order / 2:g}, which the bound does not cover."
    return Finding(f"order {order}, equal vectors", told, text, verdict, reason)


def dial_finding(order: int, dim: int, points: Sequence[Point]) -> Finding | None:
    """Slopes of log N against log S over the whole dial, and over its lower and upper half."""
    line = sorted(points, key=lambda p: p.state)
    if len(line) < 3:
        return None
    middle = line[len(line) // 2]
    whole, lower, upper = _slope(line[0], line[-1]), _slope(line[0], middle), _slope(middle, line[-1])
    unit = dim ** (order / 2)
    ends = [f"{p.samples.value / unit:.2g} at {p.state / dim**2:.0f}·d²" for p in (line[0], line[-1])]
    text = f"slope {whole:.2f} ({lower:.2f}, then {upper:.2f}); N/d^{order / 2:g} = {', '.join(ends)}"
    verdict = Verdict.of(-1.1 <= whole <= 0 and upper > lower)
    reason = "at small d a part of the state is fixed, which makes the lower end steeper." if lower < -1.1 else ""
    last = race_size((dim,) * order, 8 * (line[-1].memory or 0) * dim**2)
    if upper <= lower and last is not None and last.strategy == "whole":
        reason = "the upper end is where the sum of all samples fits: another strategy, not only more columns."
    return Finding(
        f"order {order}, d = {dim}, memory of the race", "slope from −1 to 0, flattening", text, verdict, reason
    )


def _slope(first: Point, last: Point) -> float:
    """Of log N against log S, from one point to another."""
    return math.log(last.samples.value / first.samples.value) / math.log(last.state / first.state)
