"""Figures of a result for notebooks and papers, by matplotlib: what ``plot()`` of an estimator draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.errors import SampleError
from tpca.labels import Labels
from tpca.report.answer import component_title, named, summary_of
from tpca.report.component_pictures import BARS, NAMED, at_peak, by_name, cut, pair_of
from tpca.report.style import COLOURS, pyplot, settings
from tpca.results import StoredResult
from tpca.tensors.blocks import Array

ROWS = 6  # components that are drawn
MEAN = COLOURS[1]  # of the mark at the mean of a label
DOTS = 5000  # samples that are drawn
WIDE = 3  # panels beside each other, at most
SIZE = (3.3, 2.7)  # inches of a panel


def components_figure(
    stored: StoredResult, scores: Array | None = None, y: Any = None, pair: Sequence[str | int] | None = None
) -> Any:
    """A matplotlib figure: some panels for every component, its modes with two standard errors, and two modes as a map.

    The map is in the units of the samples, at the largest entries of all other modes.  With ``scores`` ``(n, C)`` a
    panel of them is added, over the samples or over ``y``.
    """
    plt, labels = pyplot(), named(stored)
    with plt.rc_context(settings()):
        if not stored.vectors:
            return _nothing(plt, stored)
        count, modes = min(len(stored.vectors[0]), ROWS), len(stored.vectors)
        chosen = pair_of(pair, labels, stored.summary["dims"])
        panels = modes + 1 + (scores is not None)
        lines = math.ceil(panels / WIDE)
        columns = math.ceil(panels / lines)
        size = (SIZE[0] * columns, SIZE[1] * lines * count + 0.3)
        figure, axes = plt.subplots(lines * count, columns, figsize=size, layout="constrained", squeeze=False)
        figure.get_layout_engine().set(wspace=0.06, hspace=0.06)
        shared = stored.summary.get("settings", {}).get("target", "mean") == "mean"  # else strengths are no mean scores
        level = [one["strength"] if shared else None for one in stored.summary["components"]]
        for c, row in enumerate(axes.reshape(count, -1)):
            for unused in row[panels:]:
                unused.set_visible(False)
            for mode in range(modes):
                errors = stored.errors[mode][c] if stored.errors else None
                _mode(row[mode], stored.vectors[mode][c], errors, labels, mode, COLOURS[c % len(COLOURS)])
            row[0].set_ylabel("entry ± 2 s.e." if stored.errors else "entry")
            row[0].set_title(component_title(stored, c), loc="left")
            _map(figure, row[modes], stored, c, labels, chosen)
            if scores is not None:
                _scores(row[modes + 1], scores[:, c], y, level[c], COLOURS[c % 6])
        return figure


def loadings_figure(stored: StoredResult) -> Any:
    """A matplotlib figure of a fit of views: a row for every component, a panel for every view."""
    plt, labels = pyplot(), named(stored)
    with plt.rc_context(settings()):
        if not stored.vectors:
            return _nothing(plt, stored)
        drawn = stored.loadings or stored.vectors
        count, views = min(len(drawn[0]), ROWS), len(drawn)
        size = (SIZE[0] * views, SIZE[1] * count + 0.3)
        figure, axes = plt.subplots(count, views, figsize=size, layout="constrained", squeeze=False)
        for c, row in enumerate(axes):
            for view, axis in enumerate(row):
                _mode(axis, drawn[view][c], None, labels, view, COLOURS[c % len(COLOURS)])
            row[0].set_ylabel("loading" if stored.loadings else "weight")
            row[0].set_title(component_title(stored, c), loc="left")
        return figure


def _nothing(plt: Any, stored: StoredResult) -> Any:
    """Nothing was found: say so, and draw no guess that somebody may take for an answer."""
    figure, axis = plt.subplots(figsize=(7, 1.6), layout="constrained")
    axis.axis("off")
    told = summary_of(stored)
    axis.text(0, 0.5, f"{told.headline}\n{told.about}", va="center", wrap=True)
    return figure


def _places(labels: Labels, mode: int, length: int) -> Any:
    """Where entries lie: at their coordinates, if these are numbers or times in order, or at their numbers."""
    coords = labels.axes[mode].coords
    return np.arange(length) if coords is None or by_name(mode, labels) else coords


def _mode(axis: Any, vector: Array, errors: Array | None, labels: Labels, mode: int, colour: str) -> None:
    places, listed = _places(labels, mode, len(vector)), by_name(mode, labels)
    width = np.zeros(len(vector)) if errors is None else 2 * np.where(np.isfinite(errors), errors, 0)
    axis.axhline(0, color="0.5", lw=0.8)
    if len(vector) <= BARS:
        axis.errorbar(places, vector, width, fmt="o" if listed else "o-", ms=4, lw=0.8, elinewidth=1.2, color=colour)
    else:
        axis.fill_between(places, vector - width, vector + width, color=colour, alpha=0.3, lw=0)
        axis.plot(places, vector, color=colour, lw=1.2)
    axis.set_xlabel(labels.modes[mode])
    _ticks(axis.xaxis, labels, mode, len(vector))


def _ticks(axis: Any, labels: Labels, mode: int, length: int) -> None:
    """Names along an axis, as far as they fit; entries without names have whole numbers."""
    if labels.axes[mode].coords is None:
        axis.get_major_locator().set_params(integer=True)
    if not by_name(mode, labels):
        return
    step = math.ceil(length / NAMED)
    _named(axis, range(0, length, step), [cut(labels.entry(mode, i)) for i in range(0, length, step)])


def _named(axis: Any, places: Sequence[int], names: Sequence[str]) -> None:
    """Names at places, upright where they would run into each other."""
    tilted = axis.axis_name == "x" and sum(map(len, names)) + 2 * len(names) > 30
    axis.set_ticks(places, names, rotation=90 if tilted else 0, size=8 if len(names) > 12 else None)


def _map(figure: Any, axis: Any, stored: StoredResult, c: int, labels: Labels, pair: tuple[int, int]) -> None:
    """Two modes of a component as a map, at the largest entries of the others."""
    values, where = at_peak(stored, c, labels, pair)
    down, across = pair
    reach = float(np.abs(values).max()) or 1.0
    x, y = (_places(labels, m, stored.summary["dims"][m]) for m in (across, down))
    drawn = axis.pcolormesh(x, y, values, cmap="RdBu_r", vmin=-reach, vmax=reach, shading="nearest", rasterized=True)
    axis.grid(visible=False)
    axis.set(xlabel=labels.modes[across], ylabel=labels.modes[down], title=where)
    _ticks(axis.xaxis, labels, across, len(x))
    _ticks(axis.yaxis, labels, down, len(y))
    if not labels.axes[down].ordered:
        axis.invert_yaxis()  # names and rows of an image are read from above
    figure.colorbar(drawn, ax=axis, label="units of the samples")


def _scores(axis: Any, scores: Array, y: Any, strength: float | None, colour: str) -> None:
    """The score of every sample, in their order or over ``y``; labels lie beside each other."""
    if y is not None and np.shape(y) != np.shape(scores):
        raise SampleError(f"y must have a number or label for every sample, {np.shape(scores)}, got {np.shape(y)}.")
    few = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), DOTS)).astype(int))
    shown, told = scores[few], None if y is None else np.asarray(y)[few]
    look = {"color": colour, "ms": 2.5, "alpha": 0.5, "ls": "", "marker": "o"}
    if told is None:
        axis.plot(few, shown, **look)
        axis.set_xlabel("sample")
    elif told.dtype.kind in "fiub":
        axis.plot(told, shown, **look)
        axis.set_xlabel("y")
    else:
        names, which = np.unique(told.astype(str), return_inverse=True)
        beside = np.linspace(-0.25, 0.25, len(shown))  # in the order of the samples, from left to right
        axis.plot(which + beside, shown, **look)
        means = [shown[which == i].mean() for i in range(len(names))]
        wide = min(24.0, 110 / len(names))  # points, less than there are from one label to the next
        axis.plot(range(len(names)), means, color=MEAN, marker="_", ms=wide, mew=2, ls="", label="mean")
        _named(axis.xaxis, range(len(names)), [cut(str(name)) for name in names])
        axis.legend(loc="best")
    if told is None and strength is not None:
        axis.axhline(strength, color="0.5", lw=1.2, ls="--")
    axis.set_ylabel("score of a sample")
