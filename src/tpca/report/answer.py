"""The answer in a few lines: what was found, and the largest entries of every vector by their names, with errors.

One wording for the command, for ``summary()`` of an estimator and for the first page of a report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from tpca.labels import Axis, Labels, plain_labels
from tpca.report.document import Safe, paragraphs, table, tag
from tpca.report.verdict import at_least, confidence_of, effect_of
from tpca.results import StoredResult, verdict_of
from tpca.solvers.claim import headline
from tpca.tensors.blocks import Array
from tpca.wording import beside, count, number, percent, printable, shape, with_error, within

MAX_ENTRIES, MAX_COMPONENTS = 5, 10  # of a vector, and components, that are told
LOADINGS = "The numbers of columns are loadings: correlations with the score of their view."
MANY_VIEWS = "Of more than two views the correlation is the mean product of all their scores, and may exceed 1."
ENTRIES_TOLD = ("largest entries", "largest entries, ± one standard error")
KINDS = {"sources": "source", "mixture": "cluster", "topics": "topic"}  # what a component of every model is
READ = {
    "sources": "Directions are columns of the mixing matrix, in the units of the columns.",
    "mixture": "Directions are the means of the clusters, in the units of the columns.",
    "topics": "Directions are the probabilities of the words.",
}

NOTHING = "No component could be proven: give more rows, or the other order of the moment."
UNTESTED = {"not tested": "Whether there is anything was not tested."}


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


def largest(vector: Array, errors: Array | None, labels: Labels, mode: int, most: int = MAX_ENTRIES) -> list[str]:
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
    components = stored.summary["components"]
    which = f"component {component}" if len(components) > 1 else ""
    return ", ".join(filter(None, (which, effect_of(components[component])))) or "component"


def summary_of(stored: StoredResult) -> Summary:
    """What a result says, in a few lines."""
    labels, verdict = named(stored), verdict_of(stored.summary)
    against = [check["meaning"] for check in stored.summary.get("checks", ()) if check["state"] == "bad"]
    said = headline(verdict, against)
    handled = [check["meaning"] for check in stored.summary.get("checks", ()) if check["state"] == "handled"]
    parts = [
        Part(component_title(stored, c), _strength(stored.summary, c), mode_entries(stored, labels, c))
        for c in range(min(MAX_COMPONENTS, len(stored.vectors[0])) if stored.vectors else 0)
    ]
    more = more_components(len(stored.vectors[0])) if stored.vectors else ""
    views = stored.summary.get("kind") == "views" and len(stored.summary["dims"]) > 2 and parts
    told = (more, fewer_components(stored.summary), LOADINGS if stored.loadings else "", MANY_VIEWS if views else "")
    remarks = [*filter(None, told), *handled, stored.summary["advice"]]
    return Summary(_capital(said), _about(stored, labels), parts, remarks)


def _about(stored: StoredResult, labels: Labels) -> str:
    summary, views = stored.summary, stored.summary.get("kind") == "views"
    skipped = f", {summary['n_skipped']:,} left out" if summary["n_skipped"] else ""
    if views:
        return f"{summary['n_samples']:,} rows of {len(summary['dims'])} views, {shape(summary['dims'])}{skipped}"
    each = zip(labels.modes, summary["dims"], strict=True)
    modes = shape(summary["dims"]) if stored.labels is None else " × ".join(f"{name} {d:,}" for name, d in each)
    limit = (summary["components"][0]["strength_interval"] or (None, None))[1]
    bound = f"; a signal, if there is one, has a strength below {number(limit)} (95 % confidence)"
    nothing, effect = verdict_of(summary) == "no signal", effect_of(summary["components"][0])
    asked = f"; looked for: {effect}" if nothing and effect else ""
    hidden = bound if nothing and limit is not None else ""
    return f"{count(summary['n_samples'], 'sample')} of {modes}{skipped}{asked}{hidden}"


def _strength(summary: dict[str, Any], c: int) -> str:
    """How strong a component is, and how surely."""
    component = summary["components"][c]
    if summary.get("kind") == "views":
        told = f"correlation {with_error(component['correlation'], component['correlation_error'])} on held-out rows"
        return f"{told}, p = {number(component['p_value'], 2)}"
    told = f"strength {beside(component['strength'], component['strength_interval'])}"
    if component["strength_interval"]:
        told += f" ({percent(confidence_of(summary))} interval {within(component['strength_interval'])})"
    if component["p_value"] is not None:
        least = " (the least of this test)" if at_least(summary, component) else ""
        told += f", p ≤ {number(component['p_value'], 2)}{least}"
    if "variance_ratio" in component:
        told += f", {number(100 * component['variance_ratio'], 2)} % of all variance"
    amplitudes = component.get("label_amplitudes", {})
    return told + (f"; {', '.join(f'{k}: {number(v, 2)}' for k, v in amplitudes.items())}" if amplitudes else "")


def answer_table(stored: StoredResult, labels: Labels) -> list[Safe]:
    """The largest entries of every component, as tables of a page."""
    return [
        table(
            ("view", "largest loadings") if stored.loadings else ("mode", ENTRIES_TOLD[bool(stored.errors)]),
            [(name, ", ".join(map(_unbroken, entries))) for name, entries in mode_entries(stored, labels, c)],
            f"{_capital(component_title(stored, c))}: {_strength(stored.summary, c)}",
        )
        for c in range(min(MAX_COMPONENTS, len(stored.vectors[0])) if stored.vectors else 0)
    ]


def more_components(found: int) -> str:
    """That only the strongest are told, if there are more."""
    return f"These are the {MAX_COMPONENTS} strongest of {count(found, 'component')}." if found > MAX_COMPONENTS else ""


def fewer_components(summary: dict[str, Any]) -> str:
    """That fewer were proven than were looked for, if it is so and any was."""
    asked, found = int(summary.get("settings", {}).get("n_components") or 1), len(summary["components"])
    if asked <= found or verdict_of(summary) != "signal":
        return ""
    return f"{count(asked, 'component')} were looked for, and no more than {found} could be proven in these samples."


def _unbroken(entry: str) -> str:
    """``Pz: 0.69 ± 0.06`` for a page: no line ends between a name and its number, nor inside of that."""
    name, colon, value = entry.rpartition(": ")
    return f"{name}:\N{NO-BREAK SPACE}{value.replace(' ', chr(0xA0))}" if colon else entry


def _capital(text: str) -> str:
    """With a capital first; names within stay as they are."""
    return f"{text[:1].upper()}{text[1:]}"


def table_summary(fitted: Any, labels: Labels) -> Summary:
    """What a fitted ``MomentPCA`` found; ``labels`` name the columns."""
    verdict, found = str(fitted.verdict_), fitted.n_components_
    skipped = f", {fitted.n_skipped_:,} left out" if fitted.n_skipped_ else ""
    about = f"{count(fitted.n_samples_seen_, 'row')} of {shape([fitted.n_features_in_])} columns{skipped}"
    parts = [
        Part(
            f"{KINDS[fitted.model]} {c}",
            _table_strength(fitted, c),
            [("columns", largest(fitted.directions_[c], fitted.standard_errors_[c], labels, 0))],
        )
        for c in range(min(found, MAX_COMPONENTS))
    ]
    told = (READ[fitted.model] if found else NOTHING, more_components(found), _fewer(fitted), UNTESTED.get(verdict, ""))
    return Summary(f"{verdict[0].upper()}{verdict[1:]}", about, parts, [one for one in told if one])


def _table_strength(fitted: Any, c: int) -> str:
    """Skewness or excess kurtosis of a source, the share of a cluster or topic, and p where there was a test."""
    share, strength, p = fitted.shares_[c], fitted.strengths_[c], fitted.p_values_[c]
    kind = "skewness" if fitted.order == 3 else "excess kurtosis"
    told = f"{kind} {number(strength)}" if math.isnan(share) else f"{number(100 * share)} % of the rows"
    return told if math.isnan(p) else f"{told}, p = {number(p, 2)}"


def _fewer(fitted: Any) -> str:
    if not 0 < fitted.n_components_ < fitted.n_components:
        return ""
    return f"{fitted.n_components} components were looked for, and {fitted.n_components_} could be proven."
