"""The report on a comparison of methods."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tpca.lab.studies.compare import GOOD, TITLES
from tpca.lab.studies.comparison import Comparison, cells, read_comparison
from tpca.lab.studies.estimates import rate_interval
from tpca.report.document import Document, Figure, Safe, Section, Verdict, paragraphs, table
from tpca.report.pictures import SYMBOLS, Axis, names_axis, points
from tpca.wording import amount, count, duration, number, shape

Row = dict[str, Any]


def comparison_document(folder: Path) -> Document:
    """How every method did on the same samples."""
    found = read_comparison(folder)
    rows = found.rows
    sections = [
        Section("success", "Success and error", [_success(rows), _errors(found, rows)]),
        Section("cost", "Memory and time", [_cost(rows)]),
        Section("numbers", "Numbers", _numbers(found, rows)),
    ]
    about = found.settings
    title = f"Methods on {shape(about['dims'])}, strength {about['strength']:g}"
    source = "means of batches were drawn from their law" if about["law"] else "all methods saw the same samples"
    return Document(title, "tpca report · comparison", _verdict(found, rows), sections, f"Of the data: {source}.")


def _verdict(found: Comparison, rows: list[Row]) -> Verdict:
    about, trials = found.settings, len(found.trials)
    if not rows:
        return Verdict("open", "No trial is finished", ["There is nothing to compare yet."])
    best = rows[0]
    most = [row["title"] for row in rows if row["successes"] == best["successes"]]
    shown_, others = most[:4], len(most) - 4
    names = "; ".join(shown_) + (f" and {count(others, 'other')}" if others > 0 else "")
    rate = rate_interval(best["successes"], best["trials"])
    always = best["successes"] == best["trials"]
    headline = f"{len(most)} of {len(rows)} methods succeeded " + ("in every trial" if always else "most often")
    if len(most) == len(rows):
        headline = f"All {len(rows)} methods succeeded equally often" if len(rows) > 1 else "The method succeeded"
    sentences = [
        f"{names}: success in {best['successes']} of {count(best['trials'], 'trial')}"
        f" (95 % interval of the rate: {number(rate.low, 2)} to {number(rate.high, 2)}).",
        f"Success means that every vector overlaps with the planted one by more than {GOOD}. With "
        f"{count(trials, 'trial')}, methods whose intervals overlap cannot be told apart.",
    ]
    return Verdict(
        "good" if best["successes"] else "bad",
        headline if best["successes"] else "No method succeeded",
        sentences,
        [
            ("samples", f"{about['samples']:,}", f"of {shape(about['dims'])}"),
            ("strength", f"{about['strength']:g}", "in units of the noise"),
            ("trials", str(trials), "planted signals"),
            ("least error", number(min(r["error"] for r in rows), 2), "mean squared, of a vector"),
        ],
    )


def _names(rows: list[Row]) -> Axis:
    return names_axis([r["title"] for r in rows], down=True)


def _success(rows: list[Row]) -> Figure:
    rates = [rate_interval(r["successes"], r["trials"]) for r in rows]
    reach = ([r.value - r.low for r in rates], [r.high - r.value for r in rates])
    trace = points([r.value for r in rates], list(range(len(rows))), "success", 0, reach, sideways=True)
    return Figure(
        "success",
        [trace],
        Axis("share of successes", low=-0.03, high=1.03),
        _names(rows),
        "Success: " + ", ".join(f"{r['title']} {r['successes']} of {r['trials']}" for r in rows) + ".",
        "Bars are 95 % intervals of the rate.",
        height=70 + 30 * len(rows),
        legend=False,
    )


def _errors(found: Comparison, rows: list[Row]) -> Figure:
    traces, places = [], {row["title"]: i for i, row in enumerate(rows)}
    for number_, (name, good) in enumerate((("success", True), ("no success", False))):
        own = [
            o for outcomes in found.trials.values() for o in outcomes if o.success is good and math.isfinite(o.error)
        ]
        known = [o for o in own if o.error > 0]
        titles = [TITLES.get(o.method, o.method) for o in known]
        told = [f"{title}: {number(o.error)}" for title, o in zip(titles, known, strict=True)]
        traces.append(points([o.error for o in known], [places[t] for t in titles], name, number_, hover=told))
    return Figure(
        "errors",
        traces,
        Axis("mean squared error", log=True),
        _names(rows),
        "Mean errors: " + ", ".join(f"{r['title']} {number(r['error'], 2)}" for r in rows) + ".",
        "One marker a trial. A vector that has nothing to do with the truth has an error of about 2.",
        height=70 + 30 * len(rows),
    )


def _cost(rows: list[Row]) -> Figure:
    traces = []
    for i, row in enumerate(rows):
        told = f"{row['title']}: {amount(row['state_bytes'])}, {duration(row['seconds'])}, {row['passes']:.0f} passes"
        symbol = SYMBOLS[(i + i // 6) % len(SYMBOLS)]  # another one with every turn of the colours
        at = ([row["state_bytes"]], [row["seconds"]])
        traces.append(points(*at, row["title"], i, hover=[told], size=11, symbol=symbol))
    told = ", ".join(f"{r['title']} {amount(r['state_bytes'])} {duration(r['seconds'])}" for r in rows)
    return Figure(
        "cost",
        traces,
        Axis("state, bytes", log=True),
        Axis("seconds a trial", log=True),
        f"Memory and time: {told}.",
        "Time includes drawing the samples, once for every pass.",
        height=400,
    )


def _numbers(found: Comparison, rows: list[Row]) -> list[Safe | Figure]:
    head = ("method", "success", "error", "time", "state", "buffer", "passes", "samples")
    lines = [tuple(row[name] for name in head) for row in map(cells, rows)]
    parts: list[Safe | Figure] = [table(head, lines, "Every method", 1)]
    left = [(TITLES.get(name, name), reason) for name, reason in found.left_out.items() if reason != "not asked for"]
    if left:
        parts.append(table(("method", "why it was left out"), left, "Left out"))
    about = [(name, str(value)) for name, value in found.settings.items() if name != "methods" and value is not None]
    return [*parts, table(("", ""), [*about, ("seeds", ", ".join(map(str, found.trials)))], "What was compared"),
            paragraphs("Errors, time and passes are means over the trials; memory is the most of any.")]  # fmt: skip
