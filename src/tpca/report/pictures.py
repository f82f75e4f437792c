"""Pictures of a page as data, which its script (``assets/draw.js``) draws, with values under the pointer.

Series are told apart by colour, by dash and by marker.  Colours are names of the page (``page.css``), Okabe and Ito's
hues, darker on light ground and lighter on dark, so that pictures change with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COLOURS = tuple(f"c{i}" for i in range(6))
DASHES = ("", "7 4", "2 3", "7 3 2 3", "12 4", "12 3 2 3")
SYMBOLS = ("circle", "square", "triangle", "diamond", "wedge", "plus")
BELOW = "5 4"  # the dash of levels and limits

Trace = dict[str, Any]
Values = Sequence[float | None]


@dataclass(frozen=True)
class Axis:
    """An axis, in the units of what is drawn; names are ``ticks`` at places."""

    title: str = ""
    log: bool = False
    low: float | None = None
    high: float | None = None
    zero: bool = False  # zero is on it
    whole: bool = False  # marked at whole numbers only
    down: bool = False  # counted from above
    ticks: Sequence[tuple[float, str]] | None = None
    sparse: bool = False  # some ticks may be left out: those between are understood


def names_axis(names: Sequence[str], down: bool = False) -> Axis:
    """An axis with a name at 0, 1, ..., from above if ``down``."""
    return Axis(low=-0.5, high=len(names) - 0.5, down=down, ticks=list(enumerate(names)))


def line(x: Values, y: Values, name: str, number: int, hover: Sequence[str] | None = None, **look: Any) -> Trace:
    """A line; its ``number`` gives colour and dash; ``hover`` is said of its points."""
    usual = {"colour": COLOURS[number % len(COLOURS)], "dash": DASHES[number % len(DASHES)], "width": 2}
    return {"kind": "line", "x": list(x), "y": list(y), "name": name, **usual, **_told(hover), **look}


def points(
    x: Values,
    y: Values,
    name: str,
    number: int,
    errors: tuple[Values, Values] | None = None,
    hover: Sequence[str] | None = None,
    **look: Any,
) -> Trace:
    """Markers; their ``number`` gives colour and symbol; ``errors`` reach so far below and above, or ``sideways``."""
    usual = {"colour": COLOURS[number % len(COLOURS)], "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 7}
    bars: Trace = {"sideways": False}
    bars |= {} if errors is None else {"below": list(errors[0]), "above": list(errors[1])}
    return {"kind": "points", "x": list(x), "y": list(y), "name": name, **usual, **bars, **_told(hover), **look}


def _told(hover: Sequence[str] | None) -> Trace:
    return {} if hover is None else {"hover": list(hover)}


def band(x: Values, low: Values, high: Values, name: str, number: int) -> Trace:
    """The area between two lines."""
    ends = {"x": list(x), "low": list(low), "high": list(high)}
    return {"kind": "band", **ends, "name": name, "colour": COLOURS[number % len(COLOURS)]}


def level(x: Sequence[float], y: float, name: str, dash: str = BELOW) -> Trace:
    """A level that something is to be compared with, in the ink of the page."""
    return line([min(x), max(x)], [y, y], name, 0, colour="soft", dash=dash, width=1.5)


def upright(x: float, colour: str, dash: str) -> Trace:
    """An upright line across the picture."""
    return {"kind": "upright", "x": [x], "colour": colour, "dash": dash}


def bars(values: Sequence[float], texts: Sequence[str]) -> Trace:
    """Bars to the right, one above the other, with a text each."""
    return {"kind": "bars", "x": list(values), "y": list(range(len(values))), "text": list(texts), "colour": COLOURS[0]}


def colour_map(x: Sequence[float], y: Sequence[float], reach: float, **values: Any) -> Trace:
    """Cells coloured from −reach to reach, with the values ``z``, or the products of those ``down`` and ``across``."""
    return {"kind": "map", "x": list(x), "y": list(y), "reach": reach, **values}
