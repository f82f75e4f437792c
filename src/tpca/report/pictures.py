"""How interactive pictures look: series told apart by colour, by dash and by marker; colours that follow the page."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

# Colours are those of the page (page.css): Okabe and Ito's hues, darker on light ground and lighter on dark.
COLOURS = tuple(f"@c{i}" for i in range(6))
FILLS = tuple(f"@f{i}" for i in range(6))
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
# From one colour over grey to another, told apart by everybody.
DIVERGING = [[0.0, "#0072B2"], [0.5, "#9aa3ab"], [1.0, "#D55E00"]]

Trace = dict[str, Any]


def shown(text: object) -> str:
    """Text for a picture: plotly reads a little HTML in labels, so what looks like it is escaped."""
    return html.escape(str(text), quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    plain: dict[str, Any] = {"gridcolor": "@line", "zerolinecolor": "@line", "linecolor": "@line", "automargin": True}
    return {"title": {"text": title, "standoff": 8}, **plain, **more}


def log_axis(title: str, values: Iterable[float], **more: Any) -> dict[str, Any]:
    """A logarithmic axis over some values, marked at 1, 2 and 5 of every decade, or only at decades."""
    known = [float(v) for v in values if v is not None and v > 0 and math.isfinite(v)] or [1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    step = max(1, math.ceil((high - low) / 6))
    digits = (1, 2, 5) if high - low <= 2 else (1,)
    ticks = [d * 10.0**power for power in range(low - step, high + step + 1, step) for d in digits]
    return axis(title, type="log", tickvals=ticks, ticktext=[_short(t) for t in ticks], **more)


def _short(value: float) -> str:
    """20, 500, 2k, 10M, 0.05."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 0.999 * unit <= value < 1000 * unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A layout without a title: headings are the page's."""
    hover = {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink"}}
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": "@ink"}}
    plain: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 13},
        "margin": {"l": 56, "r": 16, "t": 30, "b": 48},
        "hoverlabel": hover,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@soft", "activecolor": "@ink"},
        "legend": legend,
        "xaxis": x,
        "yaxis": y,
    }
    return {**plain, **more}


def line(x: Sequence[float], y: Sequence[float], name: str, number: int, **more: Any) -> Trace:
    """A line; its ``number`` gives colour and dash."""
    look = {"color": COLOURS[number % len(COLOURS)], "dash": DASHES[number % len(DASHES)], "width": 2}
    return {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "name": shown(name), "line": look, **more}


def points(x: Sequence[Any], y: Sequence[Any], name: str, number: int, **more: Any) -> Trace:
    """Markers; their ``number`` gives colour and symbol."""
    look = {"color": COLOURS[number % len(COLOURS)], "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 7}
    trace = {"type": "scatter", "mode": "markers", "x": list(x), "y": list(y), "name": shown(name), "marker": look}
    return {**trace, **more}


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], name: str, number: int) -> Trace:
    """The area between two lines."""
    outline = {"x": [*x, *reversed(list(x))], "y": [*high, *reversed(list(low))]}
    look = {"fill": "toself", "fillcolor": FILLS[number % len(FILLS)], "line": {"width": 0}}
    return {"type": "scatter", "mode": "lines", "name": shown(name), "hoverinfo": "skip", **outline, **look}


def level(x: Sequence[float], y: float, name: str, dash: str = "dash") -> Trace:
    """A level that something is to be compared with, in the ink of the page."""
    ends = [min(x), max(x)]
    look = {"color": "@soft", "dash": dash, "width": 1.5}
    return {"type": "scatter", "mode": "lines", "x": ends, "y": [y, y], "name": shown(name), "line": look}


def error_bars(lengths: Sequence[float], below: Sequence[float] | None = None) -> dict[str, Any]:
    """Bars of these half lengths, thin; with ``below`` other ones to the other side."""
    bars = {"type": "data", "array": list(lengths), "visible": True, "thickness": 1, "width": 2}
    return bars if below is None else {**bars, "arrayminus": list(below), "thickness": 1.5, "width": 4}


def upright(x: float, colour: str, dash: str) -> dict[str, Any]:
    """A shape: an upright line across the picture."""
    look = {"color": colour, "width": 1.5, "dash": dash}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": look}
