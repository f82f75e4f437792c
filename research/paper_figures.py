"""Pictures for a reader of the paper: alignments through the phases, and curves that collapse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from research.simulate import SimulatedRun
from research.studies.climbs import COARSE, curves
from research.studies.scaling import IDENTICAL, SYMMETRIC, UNCORRELATED, WORST_CASE, Family, logarithm
from research.studies.store import Store
from research.studies.study import Records
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.report.style import COLOURS, INK, drawing
from tpca.solvers.paper.schedule import PRESETS, Schedule, stage_bounds, theorem_schedule
from tpca.tensors.blocks import Array

PIECES = 12  # of a turn, so that a curve has a shape


def trace(truth: SpikedTensor, schedule: Schedule, seed: int) -> tuple[SimulatedRun, dict[str, Array]]:
    """A simulated run, and of the start that is selected |α| (pieces of turns, blocks) in every phase."""
    run = SimulatedRun(truth, generator(seed, "trace"), coarse=COARSE)
    ends = {}
    for phase, cycles in (("I", schedule.stages), ("II", (schedule.ascent,))):
        for legs in cycles:
            for block in reversed(range(len(legs))):
                for piece in np.diff(np.linspace(0, legs[block].steps, PIECES + 1).astype(np.int64)):
                    run.turn(block, legs[block].step_size, int(piece))
        ends[phase] = len(run.history)
    run.select(schedule.selection)
    chosen = run.best
    run.estimate(schedule.estimation)
    climb = np.array([np.abs(a[:, chosen]) for _, a in run.history[: ends["II"]]])
    last = np.array([np.abs(a).max(axis=1) for _, a in run.history[ends["II"] :]])
    return run, {"I": climb[: ends["I"]], "II": climb[ends["I"] :], "III": last}


def draw_alignments(path: Path, order: int = 6, dim: int = 1000, seed: int = 1) -> float:
    """|α_m| through Phases I to III with the bands that the schedule counts on; the smallest overlap at the end."""
    truth = SpikedTensor.random((dim,) * order, 1.0, correlation=0.0, random_state=seed)
    constants = PRESETS["practical"]
    schedule = theorem_schedule(truth, constants)
    run, phases = trace(truth, schedule, seed)
    blocks = len(run.partition)
    with drawing() as plt:
        figure, axis = plt.subplots(figsize=(9, 4.8), layout="constrained")
        for h, (lows, highs) in enumerate(stage_bounds(truth, constants)):
            ends = [h * blocks, (h + 1) * blocks]
            label = "from LB to UB of a cycle" if h == 0 else None
            axis.fill_between(ends, lows[0], highs[0], color=INK, alpha=0.15, lw=0, label=label)
        begin = 0.0
        for name, aligned in phases.items():
            turns = blocks if name == "III" else len(aligned) / PIECES
            xs = begin + turns * np.arange(1, len(aligned) + 1) / len(aligned)
            for m in range(blocks):
                label = f"block {m + 1}" if name == "I" else None
                axis.plot(xs, aligned[:, m], color=COLOURS[m], label=label, lw=1.4)
            axis.text(begin + turns / 2, 1.25, f"Phase {name}", ha="center", va="bottom", fontsize=9)
            begin += turns
            axis.axvline(begin, color=INK, lw=0.7, ls=":")
        axis.set(yscale="log", xlabel="turns of blocks", ylabel="alignment |α| of the selected start", ylim=(None, 1.2))
        axis.set_title(f"order {order}, d = {dim}, λ = 1, uncorrelated: {run.samples:.1e} samples in all", pad=20)
        axis.legend(fontsize=9, loc="lower right")
        figure.savefig(path, dpi=110, transparent=True)
    return float(truth.overlaps(run.vectors()).min())


def draw_collapse(path: Path, store: Store) -> None:
    """Success against N over the form, all d of orders 4, 6 and 8, uncorrelated and identical."""
    with drawing() as plt:
        figure, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained", sharey=True)
        for row, family, study in zip(axes, (UNCORRELATED, IDENTICAL), (WORST_CASE, SYMMETRIC), strict=True):
            for axis, order in zip(row, (4, 6, 8), strict=True):
                _collapse(axis, family, store.records(study), order)
        figure.savefig(path, dpi=110, transparent=True)


def _collapse(axis: Any, family: Family, records: Records, order: int) -> None:
    slope, extra = family.orders[order][0], logarithm(order, family.correlation)
    every = curves(records, order=order)
    shades = np.linspace(0.25, 1.0, max(len(every), 1))
    for shade, (dim, curve) in zip(shades, every.items(), strict=False):
        xs = curve.samples / (extra(dim) * dim**slope)
        axis.plot(xs, curve.wins / curve.runs, color=COLOURS[0], alpha=shade, lw=1.1)
    ends = f"d = {min(every):g} … {max(every):g}" if every else ""
    form = "d² log d" if order == 4 else f"d^{slope}"
    axis.set(xscale="log", xlabel=f"N / ({form})", ylim=(-0.03, 1.03))
    axis.xaxis.set_minor_formatter("")
    axis.set_title(f"order {order}, {'uncorrelated' if family.correlation == 0 else 'identical'}, {ends}", fontsize=9)
    axis.axhline(0.5, color=INK, lw=0.6, ls=":")
