"""The report on a fit of views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.labels import Labels
from tpca.noise import Check
from tpca.report.answer import answer_table
from tpca.report.components_page import mode_parts
from tpca.report.document import Document, Figure, Safe, Section, Verdict, paragraphs, table
from tpca.report.pictures import Axis, points
from tpca.report.recovery_page import check_table, footer, number_parts
from tpca.report.verdict import confidence_of
from tpca.results import StoredResult, verdict_of
from tpca.solvers.options import CLIP
from tpca.tensors.blocks import Array
from tpca.wording import count, duration, number, percent, shape, with_error

MIN_ROWS = 100  # of which a hundredth is one
HEAVY = 0.5  # share of a correlation that a hundredth of the rows may carry before it is said


@dataclass(frozen=True)
class Rows:
    """Standardised scores of rows 0, step, 2·step, ...: one array ``(n, c)`` a view."""

    scores: Sequence[Array]
    step: int = 1


def views_document(stored: StoredResult, run: dict[str, Any], labels: Labels, rows: Rows | str) -> Document:
    """All that is known of a fit of views; ``rows`` are their scores, or why there are none."""
    summary = stored.summary
    sections = [
        Section("components", "Loadings", _loadings(stored, labels)),
        Section("shared", "Correlation", _shared(summary, labels, rows)),
        Section("rows", "Rows", _rows(summary, rows)),
        Section("numbers", "Numbers", _numbers(stored, labels)),
    ]
    names = labels.modes
    plain = list(names) == [f"view {i}" for i in range(len(names))]
    title = f"Fit of {count(len(names), 'view')}" if plain else f"Fit of the views {', '.join(names)}"
    return Document(
        title, "tpca report · tensor canonical correlation", _verdict(summary, run, rows), sections, footer(run)
    )


def _verdict(summary: dict[str, Any], run: dict[str, Any], rows: Rows | str) -> Verdict:
    confidence, components = confidence_of(summary), summary["components"]
    first = components[0]
    held = with_error(first["correlation"], first["correlation_error"])
    told, (value, _, error) = f"{held} (standard error)", held.partition(" ± ")
    meaning = (
        f"At most {percent(1 - confidence)} of fits of unrelated views claim a component. The correlation is the "
        "mean product of the standardised scores of all views; with two views it is the ordinary one, with more it "
        "may exceed 1."
    )
    verdict = verdict_of(summary)
    if verdict == "signal":
        headline = (
            "Signal: a direction shared by all views"
            if len(components) == 1
            else f"Signal: {len(components)} directions shared by all views"
        )
        sentences = [
            f"On rows that were not fitted, the correlation{' of the first' * (len(components) > 1)} is {told}; "
            f"without any relation, as much has a chance of p = {number(first['p_value'], 2)}.",
            meaning,
        ]
    else:
        headline = "No signal: nothing shared was proven"
        sentences = [
            f"On rows that were not fitted, the best direction has a correlation of {told}, p = "
            f"{number(first['p_value'], 2)}: not below {number(1 - confidence)}. That does not prove that nothing is "
            "shared.",
            meaning,
        ]
    facts = [
        ("correlation", value, f"± {error or '—'}, on held-out rows"),
        ("p-value", number(first["p_value"], 2), "chance of as much without relation"),
        ("rows", f"{summary['n_samples']:,}", f"of {len(summary['dims'])} views, {shape(summary['dims'])}"),
    ]
    if not isinstance(rows, str) and len(summary["dims"]) > 2:
        each = _pair_correlations(rows)[np.tril_indices(len(summary["dims"]), -1)]
        reach = f"{number(float(each.min()), 2)} to {number(float(each.max()), 2)}"
        facts.insert(1, ("r of two views", reach, "ordinary correlations of scores, on all rows"))
    if run.get("seconds") is not None:
        facts.append(("time", duration(run["seconds"]), ""))
    tone = "good" if verdict == "signal" else "bad"
    if tone == "good" and not isinstance(rows, str) and (check := row_check(_products(rows))).state == "bad":
        tone, sentences = "open", [*sentences, f"Look at the rows: {check.measured}."]
    return Verdict(tone, headline, sentences, facts)


def _shared(summary: dict[str, Any], labels: Labels, rows: Rows | str) -> list[Safe | Figure]:
    components = summary["components"]
    places = list(range(len(components)))
    errors = [2 * (c["correlation_error"] or 0.0) for c in components]
    held = points(places, [c["correlation"] for c in components], "held-out rows", 0, (errors, errors))
    fitted = points(places, [c["moment"] for c in components], "moment, on the rows fitted", 1)
    return [
        paragraphs(
            "The correlation of the scores of all views, on rows that the fit did not see, and the moment that was "
            "maximised."
        ),
        Figure(
            "correlations",
            [held, fitted],
            Axis("component", whole=True),
            Axis("correlation", zero=True),
            "Correlations on held-out rows: " + ", ".join(number(c["correlation"]) for c in components) + ".",
            "Bars are two standard errors to either side. The moment is too good by what was fitted to noise, and is "
            "of whitened views, so the two are not the same number.",
        ),
        *([] if isinstance(rows, str) else [_pairs(labels, rows)]),
    ]


def _loadings(stored: StoredResult, labels: Labels) -> list[Safe | Figure]:
    if not stored.vectors:
        return [paragraphs("Nothing was proven, so there is nothing to show.")]
    told = (
        "A loading is the correlation of a column with the score of its view, score = (row − mean) · weights. Signs of "
        "two views may be turned together. The weights are in the tables of the last tab: those of columns that are "
        "alike are not determined one by one. Errors are not known."
    )
    parts = mode_parts(stored, labels, ("column", "columns"), "loading" if stored.loadings else "weight")
    return [*answer_table(stored, labels), paragraphs(told), *parts]


def _pairs(labels: Labels, rows: Rows) -> Safe:
    """Ordinary correlations of the scores of the first component, for every pair of views."""
    each = _pair_correlations(rows)
    listed = [
        (labels.modes[i], *(number(float(r), 2) if j < i else "" for j, r in enumerate(each[i][:-1])))
        for i in range(1, len(each))
    ]
    title = "Correlations of the scores of two views, component 0, on all rows"
    return table(("", *labels.modes[:-1]), listed, title, 1)


def _products(rows: Rows) -> Array:
    """Products of the scores of all views, of the first component."""
    return np.asarray(np.prod([s[:, 0] for s in rows.scores], axis=0))


def _pair_correlations(rows: Rows) -> Array:
    return np.corrcoef([scores[:, 0] for scores in rows.scores])


def row_check(products: Array) -> Check:
    """Whether a few rows carry the correlation: the share of the hundredth with the largest products."""
    if len(products) < MIN_ROWS:
        return Check("few rows carry it", "open", "—", f"Not checked: it takes {MIN_ROWS} rows.")
    top = np.sort(np.abs(products))[::-1][: max(1, len(products) // 100)]
    share = float(top.sum() / max(np.abs(products).sum(), 1e-300))
    measured = f"the top 1 % of rows carry {percent(round(share, 3))} of all absolute products"
    if share > HEAVY:
        advice = f"A few rows decide. Look at them, or fit with clip={CLIP}, in the command --clip {CLIP}."
        return Check("few rows carry it", "bad", measured, advice)
    return Check("few rows carry it", "good", measured, "The correlation rests on many rows.")


def _rows(summary: dict[str, Any], rows: Rows | str) -> list[Safe | Figure]:
    """Products of the scores of single rows, of the first component."""
    if isinstance(rows, str):
        return [paragraphs(rows)]
    products = _products(rows)
    listing = np.argsort(-np.abs(products))[:10]
    clip = summary.get("settings", {}).get("clip")
    clipped = "" if clip is None else f" and clipped at {clip:g}"
    which = "" if rows.step == 1 else f", every {rows.step}th of all"
    basis = f"Scores are standardised{clipped}; {len(products):,} rows were read again{which}."
    few = np.unique(np.concatenate([np.linspace(0, len(products) - 1, 1500).astype(int), listing]))
    trace = points((rows.step * few).tolist(), products[few].tolist(), "product", 0, size=4)
    return [
        paragraphs("The correlation is the mean of these products, one for each row. " + basis),
        check_table([row_check(products)], "Does it rest on many rows?"),
        Figure(
            "products",
            [trace],
            Axis("row, in the order it was read"),
            Axis("product of the scores"),
            f"Products of the scores of {count(len(few), 'row')}; the largest is "
            f"{number(float(products[listing[0]]))}.",
            f"{len(few):,} of {len(products):,} rows: spread evenly, and the ten largest. All of the fitted rows are "
            "among them.",
            legend=False,
        ),
        table(
            ("row, counted from 0", "product"),
            [(f"{rows.step * i:,}", number(float(products[i]))) for i in listing],
            "The largest products",
            1,
        ),
    ]


def _numbers(stored: StoredResult, labels: Labels) -> list[Safe | Figure]:
    summary = stored.summary
    rows = []
    for i, c in enumerate(summary["components"]):
        correlation = with_error(c["correlation"], c["correlation_error"])
        rows.append((str(i), correlation, number(c["p_value"], 2), number(c["moment"])))
    about = [
        ("outcome", summary["advice"]),
        ("columns of the views", shape(summary["dims"])),
        ("rows", f"{summary['n_samples']:,}"),
        ("skipped", f"{summary['n_skipped']:,}"),
    ]
    head = ("component", "correlation, held out", "p", "moment, fitted")
    return number_parts(stored, labels, table(head, rows, "Components", 1), about)
