"""Numbers as text, the same in messages, on screens and in reports."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence


def printable(text: str) -> str:
    """Text from outside for a terminal: control characters, which may redraw the screen, are written out."""
    return "".join(repr(c)[1:-1] if unicodedata.category(c)[0] == "C" else c for c in text)


def amount(nbytes: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} PB"


def approximately(value: float) -> str:
    """Two digits: more would be pretence."""
    if value < 1e6:
        digits = max(0, len(str(int(value))) - 2)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.1e}"


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "—"
    text = f"{value:.{digits}g}"
    if 1000 <= abs(value) < 1e6:
        text = f"{float(text):,.0f}"
    if "e" not in text:
        return text.replace("-", "−")
    mantissa, exponent = text.split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{power}".replace("-", "−")


def with_error(value: float | None, error: float | None) -> str:
    """``0.69 ± 0.06``: as many decimals as the error has, two at least; the value alone where no error is known."""
    if value is None or error is None or not math.isfinite(error) or not math.isfinite(value) or error <= 0:
        plain = value is None or not 1e-3 <= abs(value) < 1000
        return number(value, 3) if plain else f"{value:#.3g}".removesuffix(".").replace("-", "−")
    decimals = min(8, max(2, -math.floor(math.log10(error))))
    if max(abs(value), error) < 1e-6 or max(abs(value), error) >= 1e6:
        return f"{number(value, 3)} ± {number(error, 1)}"
    return f"{value:.{decimals}f} ± {error:.{decimals}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share as ``95 %``, with no more digits than it has."""
    return f"{100 * share:.6g} %"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, from milliseconds to years."""
    for limit, unit, name in (
        (1.0, 1e-3, "ms"), (90, 1, "s"), (5400, 60, "min"), (2 * 86400, 3600, "h"), (730 * 86400, 86400, "days")
    ):  # fmt: skip
        if seconds < limit:
            return f"{seconds / unit:.{2 if seconds < 10 * unit else 3}g} {name}"
    return f"{approximately(seconds / 365.25 / 86400)} years"


def shape(dims: Sequence[int]) -> str:
    """Dims as ``12 × 10 × 8``."""
    return " × ".join(f"{d:,}" for d in dims)


def count(number: int, one: str, many: str = "") -> str:
    """``1 sample``, ``2 samples``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def within(interval: Sequence[float | None] | None, digits: int = 2) -> str:
    """``0.85 to 1.20``, both ends with the decimals in which the width has so many digits; or a dash."""
    if not interval:
        return "—"
    low, high = interval
    return f"{beside(low, interval, digits)} to {beside(high, interval, digits)}"


def beside(value: float | None, interval: Sequence[float | None] | None, digits: int = 2) -> str:
    """A number with as many decimals as the ends of its interval have (:func:`within`)."""
    low, high = interval or (None, None)
    known = None not in (value, low, high) and all(math.isfinite(one or 0.0) for one in (value, low, high))
    width = (high or 0.0) - (low or 0.0) if known else 0.0
    largest = max(abs(value or 0.0), abs(low or 0.0), abs(high or 0.0))
    if width <= 0 or not 1e-4 <= largest < 1e4 or width < 1e-6 * largest:
        return number(value, digits + 1)
    decimals = max(0, digits - 1 - math.floor(math.log10(width)))
    return f"{value or 0.0:,.{decimals}f}".replace("-", "−")
