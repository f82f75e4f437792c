"""Figures of a demonstration, how alignment grows with the samples, and of a plan, samples against state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tpca.lab.planning.methods import least_race_bytes, race_size
from tpca.lab.planning.plan import Plan, Row, race_samples
from tpca.lab.studies.demo import Demo
from tpca.report.style import COLOURS, INK, MARKERS, drawing, save
from tpca.wording import shape


def draw_demo(demo: Demo, path: Path) -> None:
    """Both climbs of the demonstration, side by side."""
    truth = demo.truth
    with drawing() as plt:
        figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True, layout="constrained")
        for axis, climb, name, word in zip(
            axes, (demo.race, demo.paper), ("race", "paper's algorithm"), ("mode", "block"), strict=True
        ):
            for i, curve in enumerate(np.array(climb.alignments).T[: len(COLOURS)]):
                label = f"{word} {i if climb is demo.race else i + 1}"
                marker = "o" if len(climb.samples) < 40 else None
                axis.plot(climb.samples, curve, label=label, color=COLOURS[i], marker=marker, markersize=4)
            proven = next((h["samples"] for h in climb.recovery.history if h.get("found")), None)
            if proven is not None:
                axis.axvline(proven, color=INK, linestyle="--", linewidth=1)
                axis.text(1.15 * proven, 0.5, f"proven after {proven:,}")
            axis.set(title=f"{name}: {climb.recovery.n_samples:,} samples", xscale="log", xlabel="samples")
            axis.legend(loc="lower right" if climb is demo.race else "upper left")
        axes[0].set(ylabel="alignment with the planted vectors", ylim=(0, 1.02))
        entries = float(np.prod(truth.dims))
        figure.suptitle(f"{shape(truth.dims)}: {entries:,.0f} entries a sample, strength {truth.strength:g}")
        save(figure, path)


def draw_plan(plan: Plan, path: Path) -> None:
    """Samples against state of every method, the race at every memory, and the lower bound N = ∏d σ²/(λ² S)."""
    with drawing() as plt:
        figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
        rows = [row for row in plan.rows if np.isfinite(row.samples) and row.name != "race"]
        states = [row.state_bytes for row in rows]
        low, high = min(*states, least_race_bytes(plan.problem.dims)) / 3, max(*states, plan.memory_limit) * 3
        axis.plot(*_dial(plan, high), color=COLOURS[0], linewidth=2.5, label="race, by memory")
        ends = np.array([low, high])
        axis.plot(ends, 8 * plan.least_product / ends, color=INK, linestyle="--", label="S·N = bound, one pass")
        for number, row in enumerate(rows):
            _mark(axis, row, number)
        axis.axvline(plan.memory_limit, color=INK, linestyle=":", linewidth=1, label="memory limit")
        if plan.samples is not None:
            axis.axhline(plan.samples, color=INK, linestyle="-.", linewidth=1, label="samples at hand")
        axis.set(xscale="log", yscale="log", xlim=(low, high), xlabel="state (bytes)")
        axis.set(
            ylabel="samples for success in half of all runs",
            title=f"{shape(plan.problem.dims)}, strength {plan.problem.strength:g}",
        )
        axis.set_ylim(bottom=max(1.0, axis.get_ylim()[0]))
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        save(figure, path)


def _dial(plan: Plan, high: float) -> tuple[list[float], list[float]]:
    """Bytes and samples of the race from the least memory to the most."""
    dims = plan.problem.dims
    sizes = [race_size(dims, nbytes) for nbytes in np.geomspace(1.01 * least_race_bytes(dims), high, 60)]
    known = [size for size in sizes if size is not None]
    return [8 * size.floats for size in known], [race_samples(plan.problem, size)[0] for size in known]


def _mark(axis: Any, row: Row, number: int) -> None:
    colour, marker = COLOURS[1 + number % 5], MARKERS[number // 5 % len(MARKERS)]
    impossible = bool(row.obstacle) and not row.endless
    face = "none" if impossible else colour
    passes = f", {row.passes:.0f} passes" if row.passes > 1 else ""
    label = f"{row.title}{passes}" + (" (not possible)" if impossible else "")
    axis.plot(row.state_bytes, row.samples, marker, color=colour, markerfacecolor=face, markersize=8, label=label)
