"""Numbers of a plan as text."""

from __future__ import annotations


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
