"""The figure of a plan: samples against state for every method, the race at every memory, and the lower bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tpca.drafts import replacing
from tpca.errors import OutputError
from tpca.lab.planning.plan import Plan, Row, race_samples
from tpca.lab.planning.race_size import least_race_bytes, race_size
from tpca.report.style import COLOURS, MARKERS, pyplot

GREY = "#808080"  # readable on light and dark grounds, as are the colours


def draw_plan(plan: Plan, path: Path) -> None:
    """Write the figure, on a transparent ground."""
    plt = pyplot()
    with plt.rc_context(_TEXT):
        figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
        rows = [row for row in plan.rows if np.isfinite(row.samples) and row.name != "race"]
        states = [row.state_bytes for row in rows]
        low, high = min(*states, least_race_bytes(plan.problem.dims)) / 3, max(*states, plan.memory_limit) * 3
        _dial(axis, plan, high)
        _bound(axis, plan, low, high)
        for number, row in enumerate(rows):
            _mark(axis, row, number)
        axis.axvline(plan.memory_limit, color=GREY, linestyle=":", linewidth=1, label="memory")
        if plan.samples is not None:
            axis.axhline(plan.samples, color=GREY, linestyle="-.", linewidth=1, label="samples at hand")
        axis.set(
            xscale="log", yscale="log", xlim=(low, high), xlabel="state (bytes)", ylabel="samples, half of all runs"
        )
        axis.set_ylim(bottom=max(1.0, axis.get_ylim()[0]))
        axis.set_title(f"dims {plan.problem.dims}, strength {plan.problem.strength:g}")
        axis.grid(alpha=0.25)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
        form = path.suffix.removeprefix(".").lower()
        try:
            if form not in figure.canvas.get_supported_filetypes():
                raise OutputError(
                    f"cannot write the figure {str(path)!r}: no format {form!r}; give a .png or .svg file."
                )
            with replacing(path) as (draft,):
                figure.savefig(draft, dpi=140, transparent=True, format=form)
        finally:
            plt.close(figure)


_TEXT: Any = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color"), GREY
)


def _dial(axis: Any, plan: Plan, high: float) -> None:
    """The race from the least memory to the most."""
    dims = plan.problem.dims
    line = []
    for nbytes in np.geomspace(1.01 * least_race_bytes(dims), high, 60):
        found = race_size(dims, nbytes)
        if found is not None:
            line.append((8 * found.floats, race_samples(plan.problem, found)[0]))
    axis.plot(*zip(*line, strict=True), color=COLOURS[0], linewidth=2.5, label="race, by memory")


def _bound(axis: Any, plan: Plan, low: float, high: float) -> None:
    """N = ∏d σ²/(λ² S), one pass."""
    states = np.array([low, high])
    axis.plot(states, plan.least_product / (states / 8), color=GREY, linestyle="--", label="S·N = bound, one pass")


def _mark(axis: Any, row: Row, number: int) -> None:
    colour, marker = COLOURS[1 + number % 5], MARKERS[number // 5 % len(MARKERS)]
    impossible = bool(row.obstacle) and not row.endless
    face = "none" if impossible else colour
    passes = f", {row.passes:.0f} passes" if row.passes > 1 else ""
    label = f"{row.title}{passes}" + (" (not possible)" if impossible else "")
    axis.plot(row.state_bytes, row.samples, marker, color=colour, markerfacecolor=face, markersize=8, label=label)
