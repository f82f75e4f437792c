"""The figures of studies, drawn from the store alone: lines of power laws, the phase diagram, state against samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.studies.diagram import CORRELATIONS, DIAGRAM, DIMS, SHOWN, STRENGTHS, boundary, shown, theory_lines
from research.studies.estimates import HALF, NINETY, PowerLaw, Slope, interval_of
from research.studies.memory import MEMORY, points_of
from research.studies.store import Store
from research.studies.study import Records, Study
from tpca.report.style import COLOURS, INK, MARKERS, drawing, save

THEORY = ("--", "-.", (0, (5, 3)), (0, (1, 1)))  # styles of lines


def draw_studies(studies: Sequence[Study], store: Store, folder: Path) -> dict[str, Path]:
    """The figures of all studies that have trials, and anything but rates to draw; where they are."""
    drawn = {}
    for study in studies:
        if not (records := store.records(study)):
            continue
        with store.using(study), drawing() as plt:
            if study is DIAGRAM:
                figure, axes = plt.subplots(len(DIMS), 2, figsize=(10, 14), layout="constrained")
                _diagram(axes, records)
            else:
                laws = _laws(study, records)
                if not laws and study is not MEMORY:
                    continue
                figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
                if study is MEMORY:
                    _memory(axes, records)
                else:
                    _lines(axes, laws, *study.axes)
            figure.suptitle(study.title)
            drawn[study.name] = save(figure, folder / f"{study.name}.png")
    return drawn


def _laws(study: Study, records: Records) -> Mapping[str, PowerLaw]:
    """The lines of the figure, by name."""
    if study.laws is not None:
        return study.laws(records)
    return {s.line: s.measure(records) for s in study.lines if isinstance(s, Slope) and s.line}


def _lines(axis: Any, laws: Mapping[str, PowerLaw], x: str, y: str) -> None:
    """Measured points and fitted lines of several power laws; where they are ratios, a line at 1."""
    for i, (label, law) in enumerate(laws.items()):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        xs = [x for x, y in law.points.items() if math.isfinite(y)]
        slope = f", slope {law.slope.value:.2f}" if math.isfinite(law.slope.value) else ""
        axis.plot(xs, [law.points[x] for x in xs], marker, color=colour, markersize=5, label=label + slope)
        if slope:
            axis.plot(xs, [law.at(x) for x in xs], color=colour, linewidth=1.2, alpha=0.8)
    if y.startswith("ratio"):
        axis.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axis.xaxis.set_minor_formatter("")  # over less than a decade minor labels collide
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _diagram(axes: Any, records: Records) -> None:
    """By order N₅₀ (full) and N₉₀ (dotted) over λ, and over the correlation; theory dashed."""
    for row, (order, dim) in zip(axes, DIMS.items(), strict=True):
        for axis, by in zip(row, ("strength", "correlation"), strict=True):
            for method in shown(order):
                i = SHOWN.index(method)
                curves = boundary(records, order, method, by)
                for rate, style in ((HALF, "-"), (NINETY, ":")):
                    places = {x: interval_of(curve, rate) for x, curve in curves.items()}
                    xs = [x for x, place in places.items() if math.isfinite(place.value)]
                    gaps = [[places[x].value - places[x].low, places[x].high - places[x].value] for x in xs]
                    errors = np.nan_to_num(np.maximum(np.reshape(gaps, (-1, 2)), 0), posinf=0).T
                    ys, label = [places[x].value for x in xs], method if rate == HALF else None
                    look = {"color": COLOURS[i], "marker": MARKERS[i], "ls": style, "label": label, "markersize": 4}
                    axis.errorbar(xs, ys, errors if rate == HALF else None, capsize=2, **look)
            for (name, line), dashes in zip(theory_lines(order, dim).items(), THEORY, strict=False):
                at = STRENGTHS if by == "strength" else CORRELATIONS
                theory = [line(0.0) / x**2 if by == "strength" else line(x) for x in at]
                axis.plot(at, theory, color=INK, ls=dashes, lw=1, label=name)
            axis.set(yscale="log", ylabel="N", title=f"order {order}, d = {dim}")
            axis.set_xlabel("λ, no correlation" if by == "strength" else "correlation inside pairs, λ = 1")
            if by == "strength":
                axis.set_xscale("log")
                axis.set_xticks(STRENGTHS, [f"{x:g}" for x in STRENGTHS])
                axis.xaxis.set_minor_formatter("")
        row[1].legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _memory(axis: Any, records: Records) -> None:
    points = [p for p in points_of(records) if math.isfinite(p.samples.value)]
    orders = sorted({p.order for p in points})
    for i, order in enumerate(orders):
        dim = min(p.dim for p in points if p.order == order)
        mine = sorted((p for p in points if p.order == order and p.dim == dim), key=lambda p: p.state)
        unit = float(dim) ** order
        for kind, marker, style in (("race", "o", "-"), ("other methods", "x", "none"), ("equal vectors", "+", "none")):
            some = [p for p in mine if p.symmetric == (kind == "equal vectors")]
            some = [p for p in some if p.symmetric or (p.method == "race") == (kind == "race")]
            xs, ys = [p.state / dim**2 for p in some], [p.samples.value * dim**2 / unit for p in some]
            label = f"order {order}, d = {dim}: {kind}"
            axis.plot(xs, ys, marker, linestyle=style, color=COLOURS[i], markersize=6, label=label)
    states = [p.state / p.dim**2 for p in points]
    line = np.array([min(states), max(states)])
    axis.plot(line, 1 / line, color=INK, linestyle="--", label="S·N = d^k̄")
    axis.set(xscale="log", yscale="log", xlabel="state S in d² floats", ylabel="samples N in d^(k̄−2)")
    axis.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
