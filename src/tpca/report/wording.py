"""Numbers as text, the same everywhere in a report."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "—"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text.replace("-", "−")
    mantissa, exponent = text.split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{power}".replace("-", "−")


def percent(share: float) -> str:
    """A share as ``95 %``, with no more digits than it has."""
    return f"{100 * share:.6g} %"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for limit, unit, name in ((1.0, 1e-3, "ms"), (90.0, 1.0, "s"), (5400.0, 60.0, "min")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 3600:.3g} h"


def shape(dims: Sequence[int]) -> str:
    """Dims as ``12 × 10 × 8``."""
    return " × ".join(f"{d:,}" for d in dims)


def count(number: int, one: str, many: str = "") -> str:
    """``1 sample``, ``2 samples``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def within(interval: Sequence[float | None] | None, digits: int = 3) -> str:
    """``1.95 to 2.07``, or a dash."""
    if not interval:
        return "—"
    low, high = interval
    return f"{number(low, digits)} to {number(high, digits)}"
