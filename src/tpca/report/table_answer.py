"""The answer of a fit of a table in a few lines: what ``MomentPCA.summary()`` gives."""

from __future__ import annotations

import math
from typing import Any

from tpca.labels import Labels
from tpca.report.answer import MOST, Part, Summary, largest, more_components
from tpca.wording import count, number, shape

KINDS = {"sources": "source", "mixture": "cluster", "topics": "topic"}  # what a component of every model is
READ = {
    "sources": "Directions are columns of the mixing matrix, in the units of the columns.",
    "mixture": "Directions are the means of the clusters, in the units of the columns.",
    "topics": "Directions are the probabilities of the words.",
}

NOTHING = "No component could be proven: give more rows, or the other order of the moment."
UNTESTED = {"not tested": "Whether there is anything was not tested."}


def table_summary(fitted: Any, labels: Labels) -> Summary:
    """What a fitted ``MomentPCA`` found; ``labels`` name the columns."""
    verdict, found = str(fitted.verdict_), fitted.n_components_
    skipped = f", {fitted.n_skipped_:,} left out" if fitted.n_skipped_ else ""
    about = f"{count(fitted.n_samples_seen_, 'row')} of {shape([fitted.n_features_in_])} columns{skipped}"
    parts = [
        Part(
            f"{KINDS[fitted.model]} {c}",
            _strength(fitted, c),
            [("columns", largest(fitted.directions_[c], fitted.standard_errors_[c], labels, 0))],
        )
        for c in range(min(found, MOST))
    ]
    told = (READ[fitted.model] if found else NOTHING, more_components(found), _fewer(fitted), UNTESTED.get(verdict, ""))
    return Summary(f"{verdict[0].upper()}{verdict[1:]}", about, parts, [one for one in told if one])


def _strength(fitted: Any, c: int) -> str:
    """Skewness or excess kurtosis of a source, the share of a cluster or topic, and p where there was a test."""
    share, strength, p = fitted.shares_[c], fitted.strengths_[c], fitted.p_values_[c]
    kind = "skewness" if fitted.order == 3 else "excess kurtosis"
    told = f"{kind} {number(strength)}" if math.isnan(share) else f"{number(100 * share)} % of the rows"
    return told if math.isnan(p) else f"{told}, p = {number(p, 2)}"


def _fewer(fitted: Any) -> str:
    if not 0 < fitted.n_components_ < fitted.n_components:
        return ""
    return f"{fitted.n_components} components were looked for, and {fitted.n_components_} could be proven."
