"""The answer in a few lines: what was found, and the largest entries of every vector by their names, with errors.

One wording for the command, for ``summary()`` of an estimator and for the first page of a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from tpca.labels import Axis, Labels, plain_labels
from tpca.report.document import Safe, paragraphs, table, tag
from tpca.report.verdict import confidence_of
from tpca.results import StoredResult, verdict_of
from tpca.solvers.recovery import headline
from tpca.tensors.blocks import Array
from tpca.wording import count, number, percent, printable, shape, with_error, within

ENTRIES = 5  # of a vector that are told
ENTRIES_TOLD = ("largest entries", "largest entries, ± one standard error")


@dataclass(frozen=True)
class Part:
    """One component: what it is, how strong, and for every mode its name and its largest entries."""

    title: str
    strength: str
    modes: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, repr=False)
class Summary:
    """What a fit found, as text; notebooks show it as a table."""

    headline: str
    about: str
    parts: Sequence[Part]
    remarks: Sequence[str]

    def __str__(self) -> str:
        lines = [self.headline, self.about]
        for part in self.parts:
            lines += ["", f"{part.title}: {part.strength}"]
            widest = max(len(name) for name, _ in part.modes)
            lines += [f"  {name:<{widest}}  {', '.join(entries)}" for name, entries in part.modes]
        return printable_lines([*lines, "", *self.remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = [tag("p", tag("strong", self.headline), tag("br"), self.about)]
        for part in self.parts:
            rows = [(name, ", ".join(entries)) for name, entries in part.modes]
            body.append(table(("", "largest entries"), rows, f"{part.title}: {part.strength}"))
        return str(tag("div", *body, paragraphs(*self.remarks)))


def printable_lines(lines: Sequence[str]) -> str:
    """Lines for a terminal; what comes from data cannot redraw it."""
    return "\n".join(map(printable, lines))


def named(stored: StoredResult) -> Labels:
    """Names of modes and entries, numbers where there are none; views go by their files."""
    dims, views = stored.summary["dims"], stored.summary.get("kind") == "views"
    sources = stored.summary["source"] if views and len(stored.summary["source"]) == len(dims) else ()
    plain = Labels(tuple(Axis(PurePath(str(one)).name) for one in sources)) if sources else plain_labels(dims)
    return plain if stored.labels is None else stored.labels.with_others(plain)


def largest(vector: Array, errors: Array | None, labels: Labels, mode: int, most: int = ENTRIES) -> list[str]:
    """The entries largest in size, ``Pz: 0.69 ± 0.06``, and how many more there are."""
    order = np.argsort(-np.abs(vector), kind="stable")[:most]
    told = [
        f"{labels.entry(mode, int(i))}: {with_error(float(vector[i]), None if errors is None else float(errors[i]))}"
        for i in order
    ]
    return told if len(vector) <= most else [*told, f"… {len(vector) - most:,} more"]


def mode_entries(stored: StoredResult, labels: Labels, component: int) -> list[tuple[str, list[str]]]:
    """For every mode its name, and the largest entries of one component; of views the largest loadings."""
    errors: Sequence[Any] = stored.errors or [None] * len(stored.vectors)
    each = enumerate(zip(stored.loadings or stored.vectors, errors, strict=True))
    return [
        (labels.modes[m], largest(v[component], None if e is None else e[component], labels, m)) for m, (v, e) in each
    ]


def component_title(stored: StoredResult, component: int) -> str:
    """``component 1``, ``effect of dose, per unit`` (of numbers, not of labels), or both."""
    effect = stored.summary["components"][component].get("effect", "")
    number = f"component {component}" if len(stored.summary["components"]) > 1 else ""
    of = f"effect {effect}" if effect.startswith("between ") else f"effect of {effect}" if effect else ""
    if of.startswith("effect of ") and " - " not in effect:
        of += ", per unit"
    return ", ".join(filter(None, (number, of))) or "component"


def summary_of(stored: StoredResult) -> Summary:
    """What a result says, in a few lines."""
    labels, verdict = named(stored), verdict_of(stored.summary)
    against = [check["meaning"] for check in stored.summary.get("checks", ()) if check["state"] == "bad"]
    said = headline(verdict, against)
    handled = [check["meaning"] for check in stored.summary.get("checks", ()) if check["state"] == "handled"]
    parts = [
        Part(component_title(stored, c), _strength(stored.summary, c), mode_entries(stored, labels, c))
        for c in range(len(stored.vectors[0]) if stored.vectors else 0)
    ]
    return Summary(f"{said[0].upper()}{said[1:]}", _about(stored, labels), parts, [*handled, stored.summary["advice"]])


def _about(stored: StoredResult, labels: Labels) -> str:
    summary, views = stored.summary, stored.summary.get("kind") == "views"
    skipped = f", {summary['n_skipped']:,} left out" if summary["n_skipped"] else ""
    if views:
        return f"{summary['n_samples']:,} rows of {len(summary['dims'])} views, {shape(summary['dims'])}{skipped}"
    each = zip(labels.modes, summary["dims"], strict=True)
    modes = shape(summary["dims"]) if stored.labels is None else " × ".join(f"{name} {d:,}" for name, d in each)
    limit = (summary["components"][0]["strength_interval"] or (None, None))[1]
    bound = f"; a signal, if there is one, has a strength below {number(limit)} (95 % confidence)"
    hidden = bound if verdict_of(summary) == "no signal" and limit is not None else ""
    return f"{count(summary['n_samples'], 'sample')} of {modes}{skipped}{hidden}"


def _strength(summary: dict[str, Any], c: int) -> str:
    """How strong a component is, and how surely."""
    component = summary["components"][c]
    if summary.get("kind") == "views":
        told = f"correlation {with_error(component['correlation'], component['correlation_error'])} on held-out rows"
        return f"{told}, p = {number(component['p_value'], 2)}"
    told = f"strength {number(component['strength'])}"
    if component["strength_interval"]:
        told += f" ({percent(confidence_of(summary))} interval {within(component['strength_interval'])})"
    if component["p_value"] is not None:
        told += f", p ≤ {number(component['p_value'], 2)}"
    if "variance_ratio" in component:
        told += f", {number(100 * component['variance_ratio'], 2)} % of all variance"
    amplitudes = component.get("label_amplitudes", {})
    return told + (f"; {', '.join(f'{k}: {number(v, 2)}' for k, v in amplitudes.items())}" if amplitudes else "")


def answer_table(stored: StoredResult, labels: Labels) -> list[Safe]:
    """The largest entries of every component, as tables of a page."""
    return [
        table(
            ("view", "largest loadings") if stored.loadings else ("mode", ENTRIES_TOLD[bool(stored.errors)]),
            [(name, ", ".join(entries)) for name, entries in mode_entries(stored, labels, c)],
            f"{component_title(stored, c).capitalize()}: {_strength(stored.summary, c)}",
        )
        for c in range(len(stored.vectors[0]) if stored.vectors else 0)
    ]
