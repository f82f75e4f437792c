"""From an estimate to a line of the table."""

from __future__ import annotations

import math

from tpca.lab.studies.estimates import PowerLaw
from tpca.lab.studies.study import Finding, Verdict, interval_text


def slope_finding(label: str, law: PowerLaw, predicted: float, reason: str = "", form: str = "") -> Finding:
    """Agreement is that the 95 % interval of the slope contains the prediction."""
    slope = law.slope
    text = f"slope {predicted:g}" + (f", {form} divided out" if form else "")
    measured = interval_text(slope.value, slope.low, slope.high)
    if not math.isfinite(slope.value):
        return Finding(label, text, measured, Verdict.OPEN, "fewer than three values of d reached 50 % success.")
    if slope.holds(predicted):
        return Finding(label, text, measured, Verdict.AGREES, reason)
    trend = f"slope through the larger half of the points {law.upper():.2f}."
    return Finding(label, text, measured, Verdict.DIFFERS, f"{reason} {trend}".strip())
