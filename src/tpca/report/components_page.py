"""The first page of a report: what was found, in names and units of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.labels import Labels
from tpca.report.answer import answer_table, fewer_components, more_components
from tpca.report.component_pictures import component_figure, map_figure
from tpca.report.document import Figure, Safe, heading, paragraphs
from tpca.report.pictures import Axis, points
from tpca.report.residuals import Residuals
from tpca.report.score_pictures import scores_figure, scores_over
from tpca.report.share import Share
from tpca.report.verdict import confidence_of, effect_of
from tpca.results import StoredResult
from tpca.wording import count, number, percent

MAPS = 3  # components with a map


def component_parts(
    stored: StoredResult,
    labels: Labels,
    scores: Residuals | None = None,
    share: Share | None = None,
    y: np.ndarray[Any, Any] | None = None,
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
        drawn = scores_figure(scores, summary) if y is None else scores_over(scores, y, summary)
        parts += [heading("Scores of the samples"), drawn]
    return parts


def _about(summary: dict[str, Any], errors: bool) -> list[str]:
    """How a component is read, and why there are no more of them."""
    told = f"{_read(summary)} Signs are shared out by convention: flipping the vectors of two modes changes nothing."
    found = len(summary["components"])
    several = f"No more than {count(found, 'component')} were looked for (option n_components)."
    one = "One component was looked for; the option n_components looks for more."
    more = fewer_components(summary) or (several if found > 1 else one)
    strongest = more_components(found)
    return [*filter(None, (strongest,)), told, more, *([] if errors else ["This solver gives no standard errors."])]


def _read(summary: dict[str, Any]) -> str:
    """What a component says of a cell of a sample."""
    product = "the outer product of one unit vector per mode"
    if summary["solver"] == "variance":
        return (
            f"A component is an amplitude, which differs from sample to sample, × {product}. The strength is the "
            "standard deviation of the amplitude."
        )
    effect = effect_of(summary["components"][0])
    if effect:
        said = f"{effect}," if "," in effect else effect
        return f"The {said} is strength × {product}: a cell changes by strength × the product of its entries."
    return f"A component is strength × {product}: a cell of a sample has strength × the product of its entries."


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
