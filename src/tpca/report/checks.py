"""Is the noise as assumed?  Each check is a test; all together alarm on one or two in a hundred data sets that are.

These look at the scores of all samples, in one more pass; what a fit sees by itself is :mod:`tpca.noise.checks`.  A
check that alarms does not make a result wrong; it says where to look.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, polygamma
from scipy.stats import chi2, f, normaltest

from tpca.noise import Check
from tpca.report.residuals import Residuals
from tpca.tensors.blocks import Array
from tpca.wording import count, number

CHECK_LEVEL = 0.002  # of each of up to six checks
# Samples below which nothing is checked, not how levels of noise compare, and not whether scores are normal: their laws
# are those of many samples.  Of 30 samples that are as assumed, levels differed in 1.2 % of 3000 data sets instead of
# 0.2 %, of 100 in 0.3 %; the other checks alarmed in about 0.2 % or less from 20 on (record of development).
MIN_CHECKED, MIN_LEVELS, MIN_NORMAL = 20, 100, 200
SMALL_CORRELATION, SMALL_RATIO = 0.05, 0.05  # proven, but too small to matter


# What no test rests on any more: a finding, not a doubt.
NOT_ASSUMED = ("normal scores", "steady noise")
# What a fit may have dealt with, and under which name.
DEALT_WITH = {"independent samples": "independent samples", "same noise everywhere": "white noise"}


@dataclass(frozen=True)
class Outlier:
    """A sample whose score is farther off than noise would put any of them."""

    place: int
    direction: str
    score: float
    deviation: float


def run_checks(found: Residuals, shuffled: bool) -> list[Check]:
    """All checks; each allows for the number of directions it looks at (Bonferroni)."""
    if found.n < MIN_CHECKED:
        return [Check("noise", "open", count(found.n, "sample"), f"Not checked: it takes {MIN_CHECKED} samples.")]
    if not np.all(found.variance > 0):
        return [Check("noise", "open", "no noise in some direction", "Not checked: scores that do not vary.")]
    order = "the samples were read in random order, which hides it" if shuffled else ""
    return [
        normality(found),
        outlier_check(found),
        independence(found, order),
        steady_mean(found, order),
        steady_noise(found, order),
        *([same_level(found)] if found.components else []),
    ]


def fitted_checks(summary: dict[str, Any]) -> list[Check]:
    """What the fit saw of the noise by itself."""
    return [Check(**check) for check in summary["checks"]]


def settled(checks: Sequence[Check], fitted: Sequence[Check]) -> list[Check]:
    """Checks with those that alarm, but on what no test assumes or the fit has dealt with, told as such."""
    handled = {check.name for check in fitted if check.state == "handled"}

    def told(check: Check) -> Check:
        if check.state != "bad":
            return check
        if DEALT_WITH.get(check.name) in handled:
            return dataclasses.replace(check, state="handled", meaning="The fit saw that, too, and dealt with it.")
        return dataclasses.replace(check, state="handled") if check.name in NOT_ASSUMED else check

    return [told(check) for check in checks]


def normality(found: Residuals) -> Check:
    """D'Agostino and Pearson's test of skewness and kurtosis, on the samples kept."""
    _, scores = found.kept
    if len(scores) < MIN_NORMAL:
        return Check("normal scores", "open", "—", f"Not checked: it takes {MIN_NORMAL} samples.")
    p = _least([float(normaltest(column).pvalue) for column in scores.T])
    excess = found.kurtosis[int(np.argmax(np.abs(found.kurtosis - 3)))] - 3
    tails = "heavier" if excess > 0 else "lighter"
    return _judged(
        "normal scores",
        p,
        f"p = {number(p, 2)} on {len(scores):,} samples; excess kurtosis up to {number(float(excess), 2)}",
        "Scores of single samples look normal.",
        f"Scores of single samples are not normal (tails {tails} than normal). Claims rest on averages of many "
        "samples, which are closer to normal; with heavy tails they need more samples to become so.",
    )


def outliers(found: Residuals) -> list[Outlier]:
    """Samples farther from the mean than the most extreme of n normal numbers is in 99.8 % of all cases."""
    if found.n < MIN_CHECKED or not np.all(found.variance > 0):
        return []
    bar = outlier_bar(found)
    spread = np.sqrt(found.variance)
    listed = [
        Outlier(place, direction_name(found, column), score, float((score - found.mean[column]) / spread[column]))
        for column, extremes in enumerate(found.extremes)
        for score, place in extremes
    ]
    return sorted((o for o in listed if abs(o.deviation) > bar), key=lambda o: -abs(o.deviation))


def outlier_bar(found: Residuals) -> float:
    """Standard deviations that none of the scores should exceed."""
    return float(-ndtri(CHECK_LEVEL / (2 * found.n * len(found.mean))))


def outlier_check(found: Residuals) -> Check:
    """Whether any sample stands out."""
    listed = outliers(found)
    distinct = len({o.place for o in listed})
    bar = number(outlier_bar(found), 3)
    if not listed:
        return Check("outlier samples", "good", f"none beyond ± {bar} σ", "No sample stands out by its score.")
    worst = listed[0]
    return Check(
        "outlier samples",
        "bad",
        f"{count(distinct, 'sample')} or more beyond ± {bar} σ; sample {worst.place:,} at "
        f"{number(worst.deviation, 3)} σ",
        "Some samples are farther off than noise would put any of them: look at them in the data.",
    )


def independence(found: Residuals, unknown: str) -> Check:
    """Correlation of neighbouring samples: r√n is standard normal if they are independent."""
    if unknown:
        return Check("independent samples", "open", "—", f"Not checked: {unknown}.")
    r = found.neighbours + 1 / found.n
    p = _least([2 * float(ndtr(-abs(x) * math.sqrt(found.n))) for x in r])
    worst = float(r[int(np.argmax(np.abs(r)))])
    measured = f"correlation of neighbours up to {number(worst, 2)}, p = {number(p, 2)}"
    if p < CHECK_LEVEL and abs(worst) < SMALL_CORRELATION:
        small = "Neighbours are related, but so little that it hardly matters."
        return Check("independent samples", "good", measured, small)
    return _judged(
        "independent samples",
        p,
        measured,
        "A sample tells nothing of the noise of the next.",
        "Neighbouring samples share noise. There are fewer independent ones than were counted, and errors, intervals "
        "and the confidence are too optimistic: take every m-th sample, or averages of longer stretches.",
    )


def steady_mean(found: Residuals, unknown: str) -> Check:
    """Analysis of variance of the means of stretches of the stream."""
    middles, counts, means, variances = found.bins()
    if unknown or len(middles) < 4 or counts.min() < 5:
        return Check("steady signal", "open", "—", f"Not checked: {unknown or 'too few samples'}.")
    groups, total = len(counts), float(counts.sum())
    center = (counts @ means) / total
    between = (counts @ (means - center) ** 2) / (groups - 1)
    within = ((counts - 1) @ variances) / (total - groups)
    p = _least([float(f.sf(b / w, groups - 1, total - groups)) for b, w in zip(between, within, strict=True)])
    return _judged(
        "steady signal",
        p,
        f"p = {number(p, 2)} over {groups} stretches of the stream",
        "The mean score is the same all along the stream.",
        "The mean score changes along the stream: the signal drifts, comes and goes, or the data have a trend. The "
        "result is an average over all of it.",
    )


def steady_noise(found: Residuals, unknown: str) -> Check:
    """Whether log variances of stretches differ by more than their own errors, the kurtosis allowed for."""
    middles, counts, _, variances = found.bins()
    unknown = unknown or (f"it takes {MIN_LEVELS} samples" if found.n < MIN_LEVELS else "")
    if unknown or len(middles) < 4 or counts.min() < 10 or not np.all(variances > 0):
        return Check("steady noise", "open", "—", f"Not checked: {unknown or 'too few samples'}.")
    errors = polygamma(1, (counts - 1) / 2)[:, None] * np.maximum((found.kurtosis - 1) / 2, 0.1)
    logs = np.log(variances)
    center = (logs / errors).sum(axis=0) / (1 / errors).sum(axis=0)
    squares = ((logs - center) ** 2 / errors).sum(axis=0)
    p = _least([float(chi2.sf(s, len(counts) - 1)) for s in squares])
    levels = np.sqrt(variances.mean(axis=1))
    return _judged(
        "steady noise",
        p,
        f"p = {number(p, 2)}; level from {number(float(levels.min()))} to {number(float(levels.max()))}",
        "The noise is equally strong all along the stream.",
        "The noise level changes along the stream. Every sample counts alike in a fit, so noisy stretches cost "
        "accuracy; dividing the samples by their level would help.",
    )


def same_level(found: Residuals) -> Check:
    """Noise along the components against noise along random directions: log ratio of variances."""
    if found.n < MIN_LEVELS:
        return Check("same noise everywhere", "open", "—", f"Not checked: it takes {MIN_LEVELS} samples.")
    own, other = found.variance[: found.components], found.variance[found.components :]
    spread = (found.kurtosis - 1) / found.n
    errors = np.sqrt(np.maximum(np.add.outer(spread[: found.components], spread[found.components :]), 1e-12))
    z = np.log(np.divide.outer(own, other)) / errors
    p = _least((2 * ndtr(-np.abs(z))).ravel().tolist())
    ratios = np.sqrt(own / other.mean())
    worst = float(ratios[int(np.argmax(np.abs(np.log(ratios))))])
    measured = f"σ along the components is {number(worst, 3)} times that along random directions, p = {number(p, 2)}"
    if p < CHECK_LEVEL and abs(worst - 1) < SMALL_RATIO:
        small = "The levels differ, but so little that it hardly matters."
        return Check("same noise everywhere", "good", measured, small)
    return _judged(
        "same noise everywhere",
        p,
        measured,
        "The noise along the components is as strong as elsewhere.",
        "The noise along the components is not as strong as elsewhere: the noise is correlated between entries, or the "
        "strength varies from sample to sample.",
    )


def direction_name(found: Residuals, column: int) -> str:
    """What a direction is called."""
    if column >= found.components:
        return f"random direction {column - found.components}"
    return "component" if found.components == 1 else f"component {column}"


def normal_quantiles(values: Array) -> tuple[Array, Array]:
    """Sorted standardised values against the quantiles that normal ones would have."""
    ordered = np.sort((values - values.mean()) / (values.std() or 1.0))
    return np.asarray(ndtri((np.arange(len(ordered)) + 0.5) / len(ordered))), ordered


def _least(values: list[float]) -> float:
    """The least p-value, times how many there are."""
    return min(1.0, len(values) * min(values))


def _judged(name: str, p: float, measured: str, good: str, bad: str) -> Check:
    return Check(name, "good" if p >= CHECK_LEVEL else "bad", measured, good if p >= CHECK_LEVEL else bad)


def states(checks: list[Check]) -> dict[str, Any]:
    """How many checks of each state."""
    return {state: sum(c.state == state for c in checks) for state in ("good", "handled", "bad", "open")}
