"""Pictures of the scores of single samples, in their order or over what is known of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.report.component_pictures import cut
from tpca.report.document import Figure
from tpca.report.pictures import Axis, Trace, level, names_axis, points
from tpca.report.residuals import Residuals
from tpca.report.verdict import effect_of
from tpca.wording import count, number

SHOWN = 3  # components whose scores are drawn


def scores_figure(found: Residuals, summary: dict[str, Any]) -> Figure:
    """The amplitude of single samples along the components, in their order."""
    places, kept = found.kept
    shown = min(found.components, SHOWN)
    traces = [
        points(places.tolist(), kept[:, c].tolist(), f"component {c}" if shown > 1 else "score", c, size=4, opacity=0.6)
        for c in range(shown)
    ]
    strength = summary["components"][0]["strength"]
    shared = summary.get("settings", {}).get("target", "mean") == "mean"
    if shared and strength is not None and len(places):
        traces.append(level(places.tolist(), strength, "strength" + (" of component 0" if shown > 1 else "")))
    varies = summary["solver"] == "variance"
    mean = "; their mean is the strength" if shared else "; noise adds to how much they vary" if varies else ""
    drawn = "All" if len(places) == found.n else f"{len(places):,} of {found.n:,}"
    return Figure(
        "scores",
        traces,
        Axis("sample, in the order it was read"),
        Axis("score"),
        f"Scores of {count(len(places), 'sample')} along {count(shown, 'component')}.",
        f"The score of a sample is its contraction with the vectors of a component, in the units of the data{mean}. "
        f"{drawn} samples are drawn{'' if drawn == 'All' else ', spread evenly'}.",
        height=300,
        legend=len(traces) > 1,
    )


def scores_over(found: Residuals, y: np.ndarray[Any, Any], summary: dict[str, Any]) -> Figure:
    """The scores of the first component over a number, or beside each other by label, with the mean of each."""
    places, kept = found.kept
    told, scores = y[places], kept[:, 0]
    of = "the effect" if effect_of(summary["components"][0]) else "component 0"
    note = f"The score of a sample is its contraction with the vectors of {of}, in the units of the data."
    if told.dtype.kind in "fiu":
        traces, across = [points(told.tolist(), scores.tolist(), "score", 0, size=4, opacity=0.6)], Axis("y")
        said = f"Scores of {count(len(places), 'sample')} over y."
    else:
        traces, across, said = _by_label(told.astype(str), scores)
        note += " Marks are the means of the labels, with two standard errors."
    return Figure("scores", traces, across, Axis("score"), said, note, height=320, legend=False)


def _by_label(labels: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> tuple[list[Trace], Axis, str]:
    names, which = np.unique(labels, return_inverse=True)
    beside = np.linspace(-0.25, 0.25, len(scores))  # in the order of the samples, from left to right
    own = [scores[which == i] for i in range(len(names))]
    means = [float(one.mean()) for one in own]
    errors = [2 * float(one.std(ddof=1)) / len(one) ** 0.5 if len(one) > 1 else 0.0 for one in own]
    dots = points((which + beside).tolist(), scores.tolist(), "score", 0, size=4, opacity=0.5)
    marks = points(list(range(len(names))), means, "mean", 1, (errors, errors), size=9)
    said = "Mean scores: " + ", ".join(f"{name} {number(mean)}" for name, mean in zip(names, means, strict=True)) + "."
    return [dots, marks], names_axis([cut(str(name)) for name in names]), said
