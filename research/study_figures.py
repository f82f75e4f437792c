"""One figure for every study, drawn from the store alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.studies.accuracy import CONVERGENCE, phase_laws
from research.studies.climbs import kind_of
from research.studies.diagram import CORRELATIONS, DIAGRAM, DIMS, SHOWN, STRENGTHS, boundary, shown, theory_lines
from research.studies.estimates import HALF, NINETY, Interval, PowerLaw, interval_of, rate_interval
from research.studies.memory import MEMORY, points_of
from research.studies.race_targets import GOOD, ROWS
from research.studies.starts import INITIALISATION, selection_rates, start_rates
from research.studies.store import Store
from research.studies.study import Records, Study
from tpca.report.style import COLOURS, INK, MARKERS, drawing, save

Figure = Callable[[Any, Any, Records], None]


def draw_studies(studies: Sequence[Study], store: Store, folder: Path) -> dict[str, Path]:
    """The figures of all studies that have trials, as PNG and SVG; where the PNGs are."""
    drawn = {}
    for study in studies:
        records = store.records(study)
        if not records:
            continue
        with drawing() as plt:
            wide = study.name in (MEMORY.name, CONVERGENCE.name, INITIALISATION.name)
            size, panels = ((10, 14), (len(DIMS), 2)) if study is DIAGRAM else ((9 if wide else 7.5, 4.6), (1, 1))
            figure, axes = plt.subplots(*panels, figsize=size, layout="constrained")
            with store.using(study):
                FIGURES[study.name](axes, study, records)
            figure.suptitle(study.title)
            drawn[study.name] = save(figure, folder / f"{study.name}.png")
            save(figure, folder / f"{study.name}.svg")
    return drawn


def _laws(y: str = "samples at 50 % success", x: str = "d", flat: bool = False) -> Figure:
    """The figure of a study of power laws; ``flat``: with a line at 1."""

    def draw(axis: Any, study: Study, records: Records) -> None:
        _lines(axis, study.laws(records), x, y)
        if flat:
            axis.axhline(1, color=INK, linewidth=0.8, linestyle=":")

    return draw


def _lines(axis: Any, laws: Mapping[str, PowerLaw], x: str, y: str) -> None:
    """Measured points and fitted lines of several power laws."""
    for i, (label, law) in enumerate(laws.items()):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        xs = [x for x, y in law.points.items() if math.isfinite(y)]
        slope = f", slope {law.slope.value:.2f}" if math.isfinite(law.slope.value) else ""
        axis.plot(xs, [law.points[x] for x in xs], marker, color=colour, markersize=5, label=label + slope)
        if slope:
            axis.plot(xs, [law.at(x) for x in xs], color=colour, linewidth=1.2, alpha=0.8)
    axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axis.xaxis.set_minor_formatter("")  # over less than a decade minor labels collide
    if laws:
        axis.legend(fontsize=9)


def _initialisation(axis: Any, _study: Study, records: Records) -> None:
    rates = start_rates(records)
    for i, (order, starts, correlation) in enumerate(sorted({place[:3] for place in rates})):
        place = (order, starts, correlation)
        mine = {found[3]: rate_interval(*counts) for found, counts in rates.items() if found[:3] == place}
        label = f"order {order}, {starts}, {kind_of(correlation)}"
        _rates(axis, mine, i, label)
    axis.set(xscale="log", ylim=(-0.03, 1.03), xlabel="c₂", ylabel="success")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _chances(axis: Any, _study: Study, records: Records) -> None:
    for i, ((order, budget), mine) in enumerate(selection_rates(records).items()):
        _rates(axis, mine, i, f"order {order}, budget {budget:g}")
    axis.set(xscale="log", ylim=(-0.03, 1.03), xlabel="N₀", ylabel="a good start is selected, if there is one")
    axis.legend(fontsize=9)


def _rates(axis: Any, rates: Mapping[Any, Interval], i: int, label: str) -> None:
    """A line of success rates with their intervals."""
    xs = sorted(rates)
    errors = np.array([[rates[x].value - rates[x].low, rates[x].high - rates[x].value] for x in xs]).T
    colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
    axis.errorbar(xs, [rates[x].value for x in xs], errors, marker=marker, color=colour, capsize=2, label=label)


def _convergence(axis: Any, _study: Study, records: Records) -> None:
    laws = {f"Phase III, {kind}, d = {d}": law for (kind, d), law in phase_laws(records).items()}
    _lines(axis, laws, "samples T₃", "squared error")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _race(axis: Any, _study: Study, records: Records) -> None:
    labels: list[str] = []
    for i, row in enumerate(ROWS):
        good = [r.result["overlap"] > GOOD for r in records if r.params["kind"] == "target" and r.params["row"] == i]
        if good:
            rate, place = rate_interval(sum(good), len(good)), len(labels)
            errors = [[rate.value - rate.low], [rate.high - rate.value]]
            axis.errorbar(rate.value, place, xerr=errors, fmt="o", color=COLOURS[0], ecolor=INK, capsize=3)
            labels.append(f"order {row.order}, d {row.dim}, {row.kind}, {row.factor:g}·d^{row.order / 2:g}")
    axis.axvline(0.9, color=COLOURS[1], linewidth=1, linestyle="--")
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set(xlim=(0, 1.03), xlabel="success at the table's samples (dashed: the target), 95 % interval")
    axis.invert_yaxis()


def _phases(axis: Any, _study: Study, records: Records) -> None:
    rates: dict[str, dict[str, tuple[int, int]]] = {}
    for r in records:
        place = rates.setdefault(f"order {r.params['order']}, d = {r.params['dim']}", {})
        wins, runs = place.get(r.params["without"] or "nothing", (0, 0))
        place[r.params["without"] or "nothing"] = (wins + r.result["wins"], runs + r.result["runs"])
    for i, (label, mine) in enumerate(sorted(rates.items())):
        _rates(axis, {phase: rate_interval(*counts) for phase, counts in mine.items()}, i, label)
    axis.set(ylim=(-0.03, 1.03), xlabel="phase left out", ylabel="success at the schedule's own N")
    axis.legend(fontsize=9)


def _diagram(axes: Any, _study: Study, records: Records) -> None:
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


def _memory(axis: Any, _study: Study, records: Records) -> None:
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


THEORY = ("--", "-.", (0, (5, 3)), (0, (1, 1)))  # styles of lines
FORM = "predicted form  d² max γ⁴ ∏γ⁻²  (Cor = 1 left, 0 right)"
RATIO = "ratio of N at 50 % success: {}"
FIGURES: dict[str, Figure] = {
    "worst-case": _laws(),
    "symmetric": _laws(),
    "odd-order": _laws(),
    "adaptivity": _laws(x=FORM),
    "unequal": _laws(x="d, or of unequal dims max D γ⁴ ∏γ⁻²"),
    "block-sizes": _laws(),
    "convergence": _convergence,
    "accuracy": _laws("squared error × N, or × T₃/log T₃"),
    "stages": _laws(RATIO.format("Phase I, one go / stages"), flat=True),
    "initialisation": _initialisation,
    "chances": _chances,
    "paper-noise": _laws(),
    "memory": _memory,
    "race": _race,
    "empirical-schedule": _laws(RATIO.format("climb, empirical / theorem"), flat=True),
    "phases": _phases,
    "diagram": _diagram,
}
