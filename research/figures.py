"""Figures: of studies, drawn from the store alone, and for a reader of the paper.

Of studies: lines of power laws, the phase diagram, state against samples.  Of the paper: alignments through the phases,
and curves that collapse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.simulate import SimulatedRun
from research.studies.climbs import COARSE, curves
from research.studies.diagram import CORRELATIONS, DIAGRAM, DIMS, SHOWN, STRENGTHS, boundary, shown, theory_lines
from research.studies.estimates import HALF, NINETY, PowerLaw, Slope, interval_of
from research.studies.memory import MEMORY, points_of
from research.studies.scaling import IDENTICAL, SYMMETRIC, UNCORRELATED, WORST_CASE, logarithm
from research.studies.store import Store
from research.studies.study import Records, Study
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.report.style import COLOURS, INK, MARKERS, drawing, save
from tpca.solvers.paper.schedule import PRESETS, Schedule, stage_bounds, theorem_schedule
from tpca.tensors.blocks import Array

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
                slopes = [line for line in study.lines if isinstance(line, Slope) and line.line]
                own = study.laws(records) if study.laws else None
                laws = own or {slope.line: slope.measure(records) for slope in slopes}
                if not laws and study is not MEMORY:
                    continue
                figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
                if study is MEMORY:
                    _memory(axes, records)
                else:
                    _lines(axes, laws, *study.axes)
            figure.suptitle(study.title)
            drawn[study.name] = save(figure, folder / f"{study.name}.png", overwrite=True)
    return drawn


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


# ---- the paper

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
            records, kind = store.records(study), "uncorrelated" if family.correlation == 0 else "identical"
            for axis, order in zip(row, (4, 6, 8), strict=True):
                (slope, dims, _), extra = family.orders[order], logarithm(order, family.correlation)
                every = curves(records, order=order)
                for shade, (dim, curve) in zip(np.linspace(0.25, 1.0, len(every)), every.items(), strict=True):
                    xs = curve.samples / (extra(dim) * dim**slope)
                    axis.plot(xs, curve.wins / curve.runs, color=COLOURS[0], alpha=shade, lw=1.1)
                form = "d² log d" if order == 4 else f"d^{slope}"
                axis.set(xscale="log", xlabel=f"N / ({form})", ylim=(-0.03, 1.03))
                axis.xaxis.set_minor_formatter("")
                axis.set_title(f"order {order}, {kind}, d = {dims[0]} … {dims[-1]}", fontsize=9)
                axis.axhline(0.5, color=INK, lw=0.6, ls=":")
        figure.savefig(path, dpi=110, transparent=True)
