"""The first page of a report: what was found, in names and units of the data."""

from __future__ import annotations

from typing import Any

from tpca.labels import Labels
from tpca.report.answer import answer_table
from tpca.report.component_pictures import component_figure, map_figure
from tpca.report.document import Figure, Safe, heading, paragraphs
from tpca.report.pictures import Axis, level, points
from tpca.report.residuals import Residuals
from tpca.report.share import Share
from tpca.report.verdict import confidence_of
from tpca.results import StoredResult
from tpca.wording import count, number, percent

MAPS, SHOWN = 3, 3  # components with a map, and with a picture of scores


def component_parts(
    stored: StoredResult, labels: Labels, scores: Residuals | None = None, share: Share | None = None
) -> list[Safe | Figure]:
    """The answer: the largest entries, every mode with its errors, two modes as a map, the scores of the samples."""
    summary = stored.summary
    if not stored.vectors:
        return [paragraphs("No signal was found, so there is no component to show.")]
    parts: list[Safe | Figure] = [*answer_table(stored, labels), paragraphs(*_about(summary, bool(stored.errors)))]
    if share is not None:
        parts.append(paragraphs(share.told))
    if len(summary["components"]) > 1:
        parts.append(_strengths(summary))
    parts += mode_parts(stored, labels, ("entry", "entries"), "entry of the unit vector")
    for c in range(min(len(stored.vectors[0]), MAPS)):
        parts += [heading("Two modes as a map" + (f", component {c}" if len(stored.vectors[0]) > 1 else ""))]
        parts += [map_figure(stored, c, labels)]
    if scores is not None and scores.components:
        parts += [heading("Scores of the samples"), _scores(scores, summary)]
    return parts


def _about(summary: dict[str, Any], errors: bool) -> list[str]:
    """How a component is read, and why there are no more of them."""
    told = (
        "A component is strength × the outer product of one unit vector per mode: a cell of a sample has strength × "
        "the product of its entries. Signs are shared out by convention: flipping the vectors of two modes changes "
        "nothing."
    )
    asked, found = int(summary.get("settings", {}).get("n_components") or 1), len(summary["components"])
    if asked > found:
        more = f"{count(asked, 'component')} were asked for, and no more than {found} could be proven in these samples."
    else:
        more = f"No more than {count(found, 'component')} were looked for (option n_components)." if found > 1 else (
            "One component was looked for; the option n_components looks for more."
        )  # fmt: skip
    return [told, more, *([] if errors else ["This solver gives no standard errors."])]


def _scores(found: Residuals, summary: dict[str, Any]) -> Figure:
    """The amplitude of single samples along the components, in their order."""
    places, kept = found.kept
    shown = min(found.components, SHOWN)
    traces = [
        points(places.tolist(), kept[:, c].tolist(), f"component {c}", c, size=4, opacity=0.6) for c in range(shown)
    ]
    strength = summary["components"][0]["strength"]
    shared = summary.get("settings", {}).get("target", "mean") == "mean"
    if shared and strength is not None and len(places):
        traces.append(level(places.tolist(), strength, "strength, component 0"))
    mean = "; their mean is the strength" if shared else ""
    return Figure(
        "scores",
        traces,
        Axis("sample, in the order it was read"),
        Axis("score"),
        f"Scores of {count(len(places), 'sample')} along {count(shown, 'component')}.",
        f"The score of a sample is its contraction with the vectors of a component, in the units of the data{mean}. "
        f"{len(places):,} of {found.n:,} samples, spread evenly.",
        height=300,
        legend=len(traces) > 1,
    )


def mode_parts(stored: StoredResult, labels: Labels, words: tuple[str, str], y: str) -> list[Safe | Figure]:
    """The vectors of every mode under a heading; ``words`` for its entries, ``y`` for what is drawn of them."""
    parts: list[Safe | Figure] = []
    for mode, vectors in enumerate(stored.loadings or stored.vectors):
        errors = stored.errors[mode] if stored.errors else None
        parts.append(heading(f"{labels.modes[mode]} ({count(vectors.shape[1], *words)})"))
        parts.append(component_figure(mode, vectors, errors, labels, y))
    return parts


def _strengths(summary: dict[str, Any]) -> Figure:
    components = summary["components"]
    ends = [c["strength_interval"] or (None, None) for c in components]
    values = [c["strength"] for c in components]
    errors = None
    if all(None not in pair for pair in ends) and None not in values:
        up = [high - v for (_, high), v in zip(ends, values, strict=True)]
        down = [v - low for (low, _), v in zip(ends, values, strict=True)]
        errors = (down, up)
    return Figure(
        "strengths",
        [points(list(range(len(values))), values, "strength", 0, errors)],
        Axis("component", whole=True),
        Axis("strength", zero=True),
        "Strengths of the components: " + ", ".join(number(v) for v in values) + ".",
        f"With intervals at {percent(confidence_of(summary))} confidence, each by itself.",
        height=260,
        legend=False,
    )
