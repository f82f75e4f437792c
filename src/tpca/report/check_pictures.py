"""Pictures of the scores of single samples: are they as the noise was assumed to be?"""

from __future__ import annotations

import numpy as np

from tpca.report.checks import direction_name, normal_quantiles, outlier_bar, outliers
from tpca.report.document import Figure
from tpca.report.pictures import BELOW, Axis, level, line, points
from tpca.report.residuals import Residuals
from tpca.wording import count, number

SHOWN = 3  # directions in a picture: the first components, and one random direction


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
