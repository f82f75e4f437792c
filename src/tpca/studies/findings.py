"""From an estimate to a line of the table."""

from __future__ import annotations

import math

from tpca.studies.estimates import PowerLaw
from tpca.studies.study import Finding, Verdict, interval_text


def slope_finding(label: str, law: PowerLaw, predicted: float, reason: str = "", form: str = "") -> Finding:
    """Agreement is that the 95 % interval of the slope contains the prediction."""
    slope = law.slope
    text = f"slope {predicted:g}" + (f" {form}" if form else "")
    measured = interval_text(slope.value, slope.low, slope.high)
    if not math.isfinite(slope.value):
        return Finding(label, text, measured, Verdict.OPEN, "fewer than three values of d reached 50 % success.")
    verdict = Verdict.AGREES if slope.holds(predicted) else Verdict.DIFFERS
    return Finding(label, text, measured, verdict, reason)
