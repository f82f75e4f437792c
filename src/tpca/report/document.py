"""The one template: a verdict on top, tabs below, pictures by its own script, all in one file that needs no network.

HTML is text that knows whether it is safe: everything is escaped unless it was made here.
"""

from __future__ import annotations

import functools
import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tpca.drafts import check_folder, replacing
from tpca.errors import OutputError
from tpca.report.pictures import Axis, Trace

VOID = {"br", "meta"}


class Safe(str):
    """Text that is HTML already."""

    __slots__ = ()


def safe(part: str) -> Safe:
    """``part`` as HTML, escaped unless it is that already."""
    return part if isinstance(part, Safe) else Safe(html.escape(part, quote=True))


def tag(name: str, /, *children: str, **attributes: str | bool | None) -> Safe:
    """An element; ``class_`` stands for ``class``, ``aria_label`` for ``aria-label``, ``None`` leaves one out."""
    given = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        given.append(f" {word}" if value is True else f' {word}="{html.escape(str(value), quote=True)}"')
    opened = f"<{name}{''.join(given)}>"
    return Safe(opened if name in VOID else f"{opened}{''.join(map(safe, children))}</{name}>")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str, numbers: int = 0) -> Safe:
    """A table; columns from ``numbers`` on are set flush right.

    Where it is too wide a table of numbers scrolls by itself, and one of text has its cells below each other.
    """
    head = tag("tr", *(tag("th", h, scope="col", class_="number" if i >= numbers > 0 else None)
                       for i, h in enumerate(headings)))  # fmt: skip
    body = []
    for row in rows:
        first, *others = row
        cells = [tag("th", first, scope="row")]
        cells += [tag("td", c, class_="number" if i >= numbers > 0 else None) for i, c in enumerate(others, start=1)]
        body.append(tag("tr", *cells))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag(
        "div", whole, class_="wide" if numbers else "wide stack", tabindex="0", role="region", aria_label=caption
    )


def script_json(value: Any) -> Safe:
    """JSON that may stand inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(plain_values(value), separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Safe(text)


def plain_values(value: Any) -> Any:
    """Lists, dicts, text and finite numbers only: six digits are enough for a picture, and NaN is a gap."""
    if isinstance(value, dict):
        return {str(k): plain_values(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


@dataclass(frozen=True)
class Figure:
    """A picture: what is drawn between two axes, what it shows in words, and a note below it."""

    name: str
    traces: Sequence[Trace]
    x: Axis
    y: Axis
    alt: str
    note: str = ""
    height: int = 340
    legend: bool = True

    @property
    def drawn(self) -> dict[str, Any]:
        """What the script of the page needs."""
        more = {"height": self.height, "legend": self.legend}
        return {"traces": self.traces, "x": vars(self.x), "y": vars(self.y), **more}


@dataclass(frozen=True)
class Section:
    """What is behind one tab."""

    name: str
    title: str
    parts: Sequence[Safe | Figure]


@dataclass(frozen=True)
class Verdict:
    """The answer in words: ``tone`` is good, bad or open; ``facts`` are the few numbers that matter most."""

    tone: str
    headline: str
    sentences: Sequence[str]
    facts: Sequence[tuple[str, str, str]] = ()
    """Name, value, and a line of explanation."""


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    subject: str
    verdict: Verdict
    sections: Sequence[Section]
    footer: str


# Nothing is loaded from anywhere, and nothing sent: scripts and styles are those of the page (a map is an image).
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'none'; base-uri 'none'"
)
SIGNS = {"good": "✓", "bad": "✕", "open": "?"}


def write_document(path: Path, document: Document) -> None:
    """Write the file, whole or not at all."""
    check_folder(path)
    text = render(document)
    try:
        with replacing(path) as (draft,):
            draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OutputError as error:
        raise OutputError(f"cannot write the report {str(path)!r}: {error}") from error


def render(document: Document) -> str:
    """The document as text."""
    figures = {part.name: part for s in document.sections for part in s.parts if isinstance(part, Figure)}
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", document.title),
        tag("style", Safe(_asset("page.css"))),
    ]
    body = [
        tag("header", tag("p", document.subject, class_="subject"), tag("h1", document.title)),
        tag("main", _verdict(document.verdict), _tabs(document.sections), *map(_section, document.sections)),
        tag("footer", document.footer),
    ]
    if figures:
        data = {name: figure.drawn for name, figure in figures.items()}
        body.append(tag("script", script_json(data), type="application/json", id="figures"))
        body.append(tag("script", Safe(_asset("draw.js"))))
    body.append(tag("script", Safe(_asset("page.js"))))
    page = tag("html", tag("head", *head), tag("body", *body), lang="en")
    return f"<!doctype html>\n{page}\n"


def _verdict(verdict: Verdict) -> Safe:
    sign = tag("span", SIGNS[verdict.tone], class_="sign", aria_hidden="true")
    facts = [
        tag("div", tag("dt", name), tag("dd", tag("strong", value), tag("span", note)))
        for name, value, note in verdict.facts
    ]
    return tag(
        "section",
        tag("h2", sign, verdict.headline),
        *(tag("p", sentence) for sentence in verdict.sentences),
        tag("dl", *facts) if facts else Safe(""),
        class_=f"verdict {verdict.tone}",
        aria_label="verdict",
    )


def _tabs(sections: Sequence[Section]) -> Safe:
    """Buttons that become tabs when the script runs; without it all sections are simply there."""
    buttons = [
        tag("button", s.title, type="button", role="tab", id=f"tab-{s.name}", aria_controls=s.name) for s in sections
    ]
    return tag("div", *buttons, role="tablist", aria_label="parts of the report", hidden=True)


def _section(section: Section) -> Safe:
    parts = [_figure(part) if isinstance(part, Figure) else part for part in section.parts]
    named = f"tab-{section.name}"
    return tag(
        "section",
        tag("h2", section.title),
        *parts,
        id=section.name,
        role="tabpanel",
        aria_labelledby=named,
        tabindex="0",
    )


def _figure(figure: Figure) -> Safe:
    picture = tag(
        "div", class_="plot", id=f"plot-{figure.name}", data_figure=figure.name, role="img", aria_label=figure.alt,
        style=f"min-height:{figure.height}px",
    )  # fmt: skip
    note = tag("figcaption", figure.note) if figure.note else Safe("")
    return tag("figure", picture, note)


@functools.cache
def _asset(name: str) -> str:
    return (files("tpca.report") / "assets" / name).read_text(encoding="utf-8")


def paragraphs(*texts: str) -> Safe:
    """Several paragraphs."""
    return Safe("".join(tag("p", text) for text in texts))


def heading(text: str) -> Safe:
    """A heading inside a section."""
    return tag("h3", text)
