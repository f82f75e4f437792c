"""The report on a fit of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.labels import Labels
from tpca.noise import Check
from tpca.report.checks import fitted_checks, outliers
from tpca.report.components_page import component_parts
from tpca.report.cost import cost_parts
from tpca.report.document import Document, Figure, Safe, Section, heading, paragraphs, safe, table, tag
from tpca.report.race_pictures import (
    error_figure,
    evidence_figure,
    mean_figure,
    paper_figure,
    proofs_figure,
    strength_figure,
)
from tpca.report.residuals import Residuals
from tpca.report.score_pictures import check_figures
from tpca.report.share import Share
from tpca.report.verdict import confidence_of, verdict_on
from tpca.results import StoredResult, verdict_of
from tpca.wording import amount, beside, number, percent, shape, within

ROWS = 100  # entries of a vector in a table
MARKS = {"good": "✓ as assumed", "handled": "· dealt with", "bad": "! look at it", "open": "– not checked"}


@dataclass(frozen=True)
class Checked:
    """What the checks say, and what they rest on; none, where there is only ``why`` there are none.

    ``residuals`` are the scores of the samples, if these could be read again, and ``share`` the part of their mean that
    the components explain; ``y`` is a number or label for every sample, over which scores are drawn.
    """

    checks: Sequence[Check]
    basis: str
    residuals: Residuals | None = None
    why: str = ""
    share: Share | None = None
    y: np.ndarray[Any, Any] | None = None

    @classmethod
    def open(cls, reason: str, residuals: Residuals | None = None) -> Checked:
        """Nothing was checked, and why."""
        return cls([Check("noise", "open", "—", f"Not checked: {reason}.")], "", residuals, reason)


def recovery_document(stored: StoredResult, run: dict[str, Any], labels: Labels, checked: Checked) -> Document:
    """All that is known of a fit."""
    summary = stored.summary
    seconds = run.get("seconds")
    sections = [
        Section(
            "components", "Components", component_parts(stored, labels, checked.residuals, checked.share, checked.y)
        ),
        Section("finding", TITLES.get(summary["solver"], "Race"), _finding(summary)),
        Section("noise", "Noise", check_parts(checked, fitted_checks(summary), summary["solver"])),
        Section("cost", "Memory and time", cost_parts(summary, run)),
        Section("numbers", "Numbers", _numbers(stored, labels)),
    ]
    return Document(
        f"Fit of {summary['source']}",
        "tpca report · tensor PCA on a stream",
        verdict_on(summary, checked.checks, seconds),
        sections,
        footer(run),
    )


def footer(run: dict[str, Any]) -> str:
    """What the result was made with."""
    made = run.get("made_with") or {}
    names = ("tpca", "numpy", "python", "revision")
    known = ", ".join(f"{name} {made[name]}" for name in names if made.get(name))
    return f"Fitted with {known}. This file needs no network." if known else "This file needs no network."


TITLES = {"mean": "Fit", "paper": "Phases", "baseline": "Method", "variance": "Search"}
INTROS = {
    "baseline": "A method of tpca.lab.baselines ran to its end.",
    "mean": "All samples were averaged, and the best rank-one fit to their mean was searched for.",
    "paper": "The three phases of the paper's algorithm, with the strength it was told.",
    "race": "Strategies search on all samples; what each of them proposes becomes its candidate, and only samples that "
    "come later count as evidence for it. When a signal is proven, the refinement uses all further samples to make the "
    "vectors more accurate.",
    "variance": "Patterns whose amplitudes vary from sample to sample were searched for on some of the samples; only "
    "samples that a candidate had not seen count as evidence that it varies by more than noise would. What was proven "
    "was refined on all samples. The strength is the standard deviation of the amplitudes.",
}

CONTRASTS = (
    "Samples were compared within blocks of neighbours, so that what all share cancels, and the best rank-one fit to "
    "the mean of these contrasts was searched for."
)
ASSUMED = (
    "The confidence holds for samples, or blocks of them, that are independent, with a fixed signal and noise that is "
    "symmetric about zero; it need neither be white nor Gaussian."
)
ASSUMED_BY = {
    "variance": "The confidence holds for noise whose covariance is a product of one for every mode; it need neither "
    "be white nor Gaussian, and its level may change. Noise that is a sum of several such parts varies by itself along "
    "the leading pattern of each, which is then found."
}


def _finding(summary: dict[str, Any]) -> list[Safe | Figure]:
    """How the signal was found, or not."""
    solver, history = summary["solver"], [r for r in summary.get("history", []) if "samples" in r]
    reason = summary.get("settings", {}).get("solver_reason")
    chosen = reason and reason != "asked for" and solver != "variance"  # which is the only one for its target
    why = f" It was chosen because {reason}." if chosen else ""
    drawn: list[Safe | Figure | None]
    if solver == "mean":
        drawn = [mean_figure(summary["components"][0]["evidence"], confidence_of(summary))]
    elif solver == "variance":
        drawn = [proofs_figure(summary["components"], confidence_of(summary))]
    elif solver == "paper":
        drawn = [paper_figure(history)]
    elif solver == "baseline":
        drawn = []  # every one keeps records of its own kind
    else:
        drawn = _race(summary, history)
    figures = [part for part in drawn if part is not None]
    none = paragraphs("There is nothing to draw: too few samples, or a result without a record of its rounds.")
    effect = solver == "mean" and "effect" in summary["components"][0]
    intro = CONTRASTS if effect else INTROS.get(solver, INTROS["race"])
    return [paragraphs(intro + why), *(figures or [none])]


def _race(summary: dict[str, Any], history: Sequence[dict[str, Any]]) -> list[Safe | Figure | None]:
    """The race for every component."""
    drawn: list[Safe | Figure | None] = []
    for c, component in enumerate(summary["components"]):
        own = [r for r in history if r.get("component", 0) == c]
        if len(summary["components"]) > 1 and own:
            drawn.append(heading(f"Component {c}"))
        drawn += [
            evidence_figure(own, c, 1 - confidence_of(summary)),
            strength_figure(own, c, component["strength_interval"] if verdict_of(summary) == "signal" else None),
            error_figure(own, c),
        ]
    return drawn


def check_table(checks: Sequence[Check], caption: str) -> Safe:
    """Checks with their marks."""
    rows = [(c.name, tag("span", MARKS[c.state], class_=f"mark {c.state}"), c.measured, c.meaning) for c in checks]
    return table(("check", "result", "measured", "meaning"), rows, caption)


def check_parts(checked: Checked, fitted: Sequence[Check], solver: str) -> list[Safe | Figure]:
    """The checks as tables, those of the fit itself first, and what they looked at."""
    parts: list[Safe | Figure] = [
        paragraphs(f"{ASSUMED_BY.get(solver, ASSUMED)} {checked.basis}"),
        *([check_table(fitted, "What the fit saw of the noise, and what it did about it")] if fitted else []),
        paragraphs(*(check.meaning for check in checked.checks)) if checked.why else check_table(
            checked.checks,
            "Is the noise as assumed? If it is, there still is an alarm in one or two of a hundred reports.",
        ),
    ]  # fmt: skip
    if checked.residuals is None or checked.why:
        return parts
    titles = ("Are scores normal?", "Is the signal steady? Which samples stand out?", "Is the noise steady?")
    for title, figure in zip(titles, check_figures(checked.residuals), strict=False):
        parts += [heading(title), figure]
    listed = outliers(checked.residuals)
    if listed:
        lines = [(f"{o.place:,}", o.direction, number(o.score), number(o.deviation)) for o in listed[:20]]
        head = ("sample, counted from 0", "direction", "score", "standard deviations off")
        parts.append(table(head, lines, "Samples that stand out, in the order read; skipped samples not counted", 2))
    return parts


def _numbers(stored: StoredResult, labels: Labels) -> list[Safe | Figure]:
    summary = stored.summary
    rows = []
    for c, component in enumerate(summary["components"]):
        errors = component["error"] or [None] * len(summary["dims"])
        told = ", ".join(number(e, 2) for e in errors)
        interval = component["strength_interval"]
        rows.append((str(c), beside(component["strength"], interval, 3), within(interval, 3), told))
    verdict = verdict_of(summary)
    bounds = "limit, 95 %" if verdict == "no signal" else f"interval, {percent(confidence_of(summary))}"
    head = ("component", "strength", bounds, "errors, by mode")
    about = [
        ("solver", summary["solver"]),
        ("verdict", str(verdict)),
        ("stop reason", summary["advice"]),
        ("shape of a sample", shape(summary["dims"])),
        ("samples", f"{summary['n_samples']:,}"),
        ("passes", str(summary["n_passes"])),
        ("skipped", f"{summary['n_skipped']:,}"),
        ("state", amount(summary["state_bytes"])),
        ("buffer", amount(summary["buffer_bytes"])),
    ]
    return number_parts(stored, labels, table(head, rows, "Components", 1), about)


def number_parts(
    stored: StoredResult, labels: Labels, components: Safe, about: list[tuple[str, str]]
) -> list[Safe | Figure]:
    """The components as a table, the fit with its options, and the entries of every mode."""
    given = {name: value for name, value in stored.summary.get("settings", {}).items() if value is not None}
    about += [(f"option {name}", str(value)) for name, value in given.items() if not name.startswith("solver")]
    errors: Sequence[Any] = stored.errors or [None] * len(stored.vectors)
    each = [entries_table(i, v, e, labels) for i, (v, e) in enumerate(zip(stored.vectors, errors, strict=True))]
    return [components, table(("", ""), about, "The fit"), *each]


def entries_table(
    mode: int, vectors: np.ndarray[Any, Any], errors: np.ndarray[Any, Any] | None, labels: Labels
) -> Safe:
    """The entries of all components in one mode; the largest, where there are many."""
    components, length = vectors.shape
    chosen = np.sort(np.argsort(-np.abs(vectors).max(axis=0))[:ROWS])
    rows = []
    for place in chosen:
        cells = []
        for c in range(components):
            error = "" if errors is None else f" ± {number(float(errors[c][place]), 2)}"
            cells.append(f"{number(float(vectors[c][place]), 3)}{error}")
        rows.append((labels.entry(mode, int(place)), *cells))
    few = f"{length:,} entries" if length <= ROWS else f"the {ROWS} largest of {length:,} entries"
    head = ("entry", *(f"component {c}" for c in range(components)))
    title = f"{labels.modes[mode]}: {few}" + ("" if errors is None else ", ± one standard error")
    return tag("details", tag("summary", safe(title)), table(head, rows, title, 1))
