"""The figure of docs/noise.md: claims by law, samples until proven, coverage; before and now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpca.lab.studies.estimates import rate_interval
from tpca.lab.studies.noise_laws import LAWS
from tpca.lab.studies.noise_summary import CLAIMS_ALLOWED, COVERED, Row
from tpca.lab.studies.noise_tables import Content, pick, rows_of
from tpca.lab.studies.noise_trials import COVERAGE, PLANTED, RACE_POWER
from tpca.report.style import COLOURS, INK, drawing, save

SOLVERS = {"race": (COLOURS[0], "o", -0.16), "mean": (COLOURS[1], "s", 0.16)}


def draw(content: Content, path: Path) -> None:
    """All three panels."""
    with drawing() as plt:
        figure = plt.figure(figsize=(11, 9), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1))
        _claims(figure.add_subplot(grid[:, 0]), content)
        _power(figure.add_subplot(grid[0, 1]), content)
        _coverage(figure.add_subplot(grid[1, 1]), content)
        save(figure, path)


def _points(
    axis: Any, rows: Sequence[tuple[float, Row | None]], colour: str, marker: str, label: str, new: bool
) -> None:
    """Rates with 95 % intervals; what was before is hollow and without them."""
    shown = [(y, rate_interval(row["claims"], row["runs"])) for y, row in rows if row is not None]
    if not shown:
        return
    if new:
        for y, rate in shown:
            axis.plot([rate.low, rate.high], [y, y], color=colour, linewidth=1.2)
    axis.plot(
        [rate.value for _, rate in shown], [y for y, _ in shown], marker,
        color=colour, markerfacecolor=colour if new else "none", markersize=5, label=label, clip_on=False,
    )  # fmt: skip


def _claims(axis: Any, content: Content) -> None:
    for solver, (colour, marker, shift) in SOLVERS.items():
        for when in ("before", "now"):
            rows = [r for r in rows_of(content, when, "claims") if len(r["dims"]) == 3]
            found = [(i + shift, pick(rows, law=law, solver=solver)) for i, law in enumerate(LAWS)]
            _points(axis, found, colour, marker, f"{solver}, {when}", when == "now")
    axis.axvline(CLAIMS_ALLOWED, color=INK, linestyle="--", linewidth=1.2, label="5 %, what is promised")
    axis.set_yticks(range(len(LAWS)), list(LAWS), fontsize=9)
    axis.set(xlim=(-0.02, 1.02), ylim=(len(LAWS) - 0.4, -0.6), xlabel="share of runs without a signal that claim one")
    axis.set_title("false claims, 8×8×8, 400 samples")
    axis.legend(fontsize=9, loc="lower right")


def _power(axis: Any, content: Content) -> None:
    """Share of runs that have proven the right signal, against the samples."""
    dims, most = RACE_POWER[0]["dims"], RACE_POWER[0]["samples"]
    for i, (law, vectors) in enumerate(PLANTED):
        for when, whiten, style in (("before", None, ":"), ("now", "auto", "-")):
            chosen = {"law": law, "vectors": vectors, "solver": "race", "dims": dims, "whiten": whiten}
            row = pick(rows_of(content, when, "power"), **chosen)
            if row is not None:
                steps = [samples for samples in row["proven"] if samples is not None]
                shares = [(j + 1) / row["runs"] for j in range(len(steps))]
                last = shares[-1] if shares else 0.0
                axis.step(
                    [0, *steps, most], [0, *shares, last], style,
                    where="post", color=COLOURS[i], label=f"{law}, {vectors}: {row['right']} right, {when}",
                )  # fmt: skip
    axis.set(xlabel="samples", ylabel="share of runs with a claim", ylim=(-0.03, 1.03), xlim=(0, most))
    axis.set_title("planted signals, 12×12×12, λ' = 1")
    axis.legend(
        fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2
    )  # there are lines all over the panel


def _coverage(axis: Any, content: Content) -> None:
    axis.axvspan(*COVERED, color=INK, alpha=0.2, linewidth=0)
    for solver, (colour, marker, shift) in SOLVERS.items():
        for when in ("before", "now"):
            rows = rows_of(content, when, "coverage")
            found = []
            for i, (law, vectors, _) in enumerate(COVERAGE):
                row = pick(rows, law=law, vectors=vectors, solver=solver)
                judged = row if row and row["judged"] else None
                found.append((i + shift, judged and {"claims": judged["strength_held"], "runs": judged["judged"]}))
            _points(axis, found, colour, marker, f"{solver}, {when}", when == "now")
    axis.set_yticks(range(len(COVERAGE)), [f"{law}, {vectors}" for law, vectors, _ in COVERAGE], fontsize=9)
    axis.set(xlim=(0.38, 1.02), ylim=(len(COVERAGE) - 0.4, -0.6), xlabel="share of intervals that hold the strength")
    axis.set_title("nominal 95 % intervals of the strength")
    axis.legend(fontsize=8, loc="lower left")
