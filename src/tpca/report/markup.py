"""HTML as text that knows whether it is safe: everything is escaped unless it was made here."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

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


def joined(parts: Iterable[str], between: str = "") -> Safe:
    """Several parts as one."""
    return Safe(safe(between).join(map(safe, parts)))


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
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        items = value.tolist() if hasattr(value, "tolist") else value
        return [plain_values(v) for v in items] if isinstance(items, list | tuple) else plain_values(items)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def shown(text: object) -> str:
    """Text for a picture: plotly reads a little HTML in labels, so what looks like it is escaped."""
    return html.escape(str(text), quote=False)
