"""Pictures of the scores of single samples: in their order, over what is known of them, and as noise should be."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.report.checks import direction_name, normal_quantiles, outlier_bar, outliers
from tpca.report.component_pictures import cut
from tpca.report.document import Figure
from tpca.report.pictures import BELOW, Axis, Trace, level, line, names_axis, points
from tpca.report.residuals import Residuals
from tpca.report.verdict import effect_of
from tpca.wording import count, number

SHOWN = 3  # components whose scores are drawn; one less where a random direction is beside them


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


def check_figures(found: Residuals) -> list[Figure]:
    """Normal quantiles, scores over the stream, noise level over the stream."""
    if found.n < 10 or not np.all(found.variance > 0):
        return []
    columns = [*range(min(found.components, SHOWN - 1)), found.components]
    return [_quantiles(found, columns), _over_stream(found, columns), _levels(found, columns)]


def _quantiles(found: Residuals, columns: list[int]) -> Figure:
    _, kept = found.kept
    traces = []
    for i, column in enumerate(columns):
        normal, seen = normal_quantiles(kept[:, column])
        evenly, each = np.linspace(0, len(seen) - 1, 200).astype(int), np.arange(len(seen))
        few = np.unique(np.concatenate([evenly, each[:20], each[-20:]]))  # the ends, where tails show, in full
        name = direction_name(found, column)
        traces.append(points(normal[few].tolist(), seen[few].tolist(), name, i, size=5))
    ends = [-3.5, 3.5]
    traces.append(line(ends, ends, "normal", 0, colour="soft", dash=BELOW, width=1.5))
    return Figure(
        "quantiles",
        traces,
        Axis("quantile of a normal number"),
        Axis("score, in standard deviations"),
        f"Scores of {count(len(kept), 'sample')} against normal quantiles; points on the diagonal are normal.",
        f"On the dashed line, scores are normal; ends that bend away from it are heavy tails. {len(kept):,} samples "
        "spread evenly over the stream.",
    )


def _over_stream(found: Residuals, columns: list[int]) -> Figure:
    """Means of stretches with two standard errors; outliers by themselves."""
    middles, counts, means, variances = found.bins()
    traces = []
    for i, column in enumerate(columns):
        errors = (2 * np.sqrt(variances[:, column] / np.maximum(counts, 1))).tolist()
        name = f"mean, {direction_name(found, column)}"
        traces.append(points(middles.tolist(), means[:, column].tolist(), name, i, (errors, errors)))
    listed = outliers(found)
    if listed:
        at, scores = [o.place for o in listed], [o.score for o in listed]
        told = [f"sample {o.place:,}, {o.direction}: {number(o.deviation)} σ" for o in listed]
        traces.append(points(at, scores, "outlier sample", 5, hover=told, symbol="x", size=10, colour="bad"))
    bar = number(outlier_bar(found))
    return Figure(
        "stream",
        traces,
        Axis("sample, in the order it was read"),
        Axis("score"),
        f"Mean score of {count(len(middles), 'stretch', 'stretches')} of the stream; outlier samples: {len(listed)}.",
        f"Each point is a mean over {count(int(counts.max()) if len(counts) else 0, 'sample')}, with two standard "
        f"errors to either side. A level line is a steady signal. Crosses are single samples beyond ± {bar} standard "
        "deviations.",
    )


def _levels(found: Residuals, columns: list[int]) -> Figure:
    middles, _, _, variances = found.bins()
    traces = []
    for i, column in enumerate(columns):
        name = direction_name(found, column)
        traces.append(line(middles.tolist(), np.sqrt(variances[:, column]).tolist(), f"σ, {name}", i))
    whole = float(np.sqrt(found.variance[found.components :].mean()))
    if len(middles):
        traces.append(level(middles.tolist(), whole, "σ of all random directions"))
    return Figure(
        "levels",
        traces,
        Axis("sample, in the order it was read"),
        Axis("standard deviation", zero=True),
        f"Standard deviation of the scores along the stream; over all of it {number(whole)}.",
        "Level lines at the same height are noise that is equally strong at all times and in all directions.",
        height=300,
    )
