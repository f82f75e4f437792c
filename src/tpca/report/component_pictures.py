"""Pictures of the components, mode by mode, with the errors of their entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.errors import SampleError
from tpca.labels import Labels
from tpca.report.document import Figure
from tpca.report.pictures import COLOURS, DIVERGING, Trace, axis, band, error_bars, layout, line, points, shown
from tpca.results import StoredResult
from tpca.tensors.blocks import Array
from tpca.wording import count, number

BARS = 60  # entries up to which each has a bar of its own
LINES = 500  # entries up to which each is drawn; beyond, groups of them
GROUPS, LARGEST = 250, 40
NAMED, LONG = 40, 18  # names that fit along an axis, and letters of one


def component_figure(
    mode: int, vectors: Array, errors: Array | None, labels: Labels, y: str = "entry of the unit vector"
) -> Figure:
    """All components in one mode, ``vectors`` as rows; a heat map where there are more than can be told apart."""
    components, length = vectors.shape
    if components > len(COLOURS):
        return _heat_map(mode, vectors, labels)
    traces: list[Trace] = []
    for c, vector in enumerate(vectors):
        name = "entry" if components == 1 else f"component {c}"
        draw = _bars if length <= BARS else _line if length <= LINES else _groups
        traces += draw(c, vector, None if errors is None else errors[c], name, mode, labels)
    how = "" if errors is None else " Bars and bands are two standard errors to either side."
    if length > LINES:
        how = (
            f" {length:,} entries are too many to draw: the band goes from the least to the largest entry of each of "
            f"{GROUPS} groups of neighbours, and the {LARGEST} largest entries are drawn by themselves, with two "
            "standard errors to either side."
        )
    return Figure(
        f"mode-{mode}",
        traces,
        layout(_axis(mode, length, labels), axis(y), showlegend=components > 1 or length > BARS),
        f"{labels.modes[mode]}: {length:,} entries of {count(components, 'component')}; "
        f"{_extremes(mode, vectors, labels)}.",
        f"{_extremes(mode, vectors, labels)[:1].upper()}{_extremes(mode, vectors, labels)[1:]}.{how}",
        height=300,
    )


_DOWN = {"range": None, "autorange": "reversed"}  # names and rows of an image are read from above


def map_figure(stored: StoredResult, component: int, labels: Labels) -> Figure:
    """Two modes of a component as a map, in the units of the samples, where all other modes are largest."""
    down, across = pair_of(None, labels, stored.summary["dims"])
    values, where = at_peak(stored, component, labels, (down, across))
    rows, columns = (np.unique(np.linspace(0, n - 1, min(n, LINES)).astype(int)) for n in values.shape)
    thin = values[np.ix_(rows, columns)]
    reach = float(np.abs(values).max())
    y, x = (_places(m, n, labels) for m, n in zip((down, across), values.shape, strict=True))
    trace: Trace = {"type": "heatmap", "z": thin.tolist(), "colorscale": DIVERGING, "zmin": -reach, "zmax": reach}
    trace |= {"x": [x[i] for i in columns], "y": [y[i] for i in rows], "colorbar": {"thickness": 12}}
    trace |= {"hovertemplate": "%{x}, %{y}: %{z:.4g}<extra></extra>"}
    upright = labels.axes[down].ordered
    few = "" if thin.size == values.size else f" Every {math.ceil(values.size / thin.size)}th cell or so is drawn."
    return Figure(
        f"map-{component}",
        [trace],
        layout(_axis(across, len(x), labels), _axis(down, len(y), labels) | (_DOWN if not upright else {})),
        f"Map of component {component} over {labels.modes[across]} and {labels.modes[down]}; the largest cell is "
        f"{number(reach)} in size.",
        f"What the component adds to a sample{f', {where}' if where else ''}, in the units of the data. Blue is "
        f"negative, orange positive, grey zero.{few}",
    )


def _extremes(mode: int, vectors: Array, labels: Labels) -> str:
    """Where the first component is largest."""
    place = int(np.argmax(np.abs(vectors[0])))
    which = "the entry largest in size" if len(vectors) == 1 else "the entry largest in size, of component 0,"
    where = f"entry {place}" if labels.axes[mode].coords is None else labels.entry(mode, place)
    return f"{which} is {number(float(vectors[0][place]))}, at {where}"


def _axis(mode: int, length: int, labels: Labels) -> dict[str, object]:
    name = shown(labels.modes[mode])
    if not by_name(mode, labels):
        return axis(name)
    if length > NAMED:
        return axis(f"{name} (number of the entry)")
    marks = {"tickvals": list(range(length)), "ticktext": [shown(cut(labels.entry(mode, i))) for i in range(length)]}
    return axis("", **marks, showgrid=False, range=[-0.5, length - 0.5])


def by_name(mode: int, labels: Labels) -> bool:
    """Whether entries have names, which lie beside each other; numbers and times have a place along the axis."""
    return labels.axes[mode].coords is not None and not labels.axes[mode].ordered


def _places(mode: int, length: int, labels: Labels) -> list[Any]:
    """Where the entries lie along the axis: at their coordinate, if that is a number or a time, or at their number."""
    coords = labels.axes[mode].coords
    if coords is None or by_name(mode, labels):
        return list(range(length))
    return list(coords.astype("U")) if coords.dtype.kind == "M" else list(coords.tolist())


def cut(name: str) -> str:
    """A name as an axis has room for it; the whole of it is shown with the entry."""
    return name if len(name) <= LONG else f"{name[: LONG - 1]}…"


def pair_of(asked: Sequence[str | int] | None, labels: Labels, dims: Sequence[int]) -> tuple[int, int]:
    """Two modes by name or number that a map shows, down and across; by default the two longest."""
    if asked is None:
        first, second = sorted(np.argsort(-np.asarray(dims), kind="stable")[:2].tolist())
        return first, second
    known: dict[str | int, int] = {name: i for i, name in enumerate(labels.modes)} | {i: i for i in range(len(dims))}
    if len(asked) != 2 or len({known.get(one) for one in asked} - {None}) != 2:
        names = ", ".join(map(repr, labels.modes))
        raise SampleError(f"pair must name two of the modes {names}, got {asked!r}.")
    return known[asked[0]], known[asked[1]]


def at_peak(stored: StoredResult, component: int, labels: Labels, pair: tuple[int, int]) -> tuple[Array, str]:
    """A component over two modes, in the units of the samples, where all others are largest; and where that is."""
    vectors = [own[component] for own in stored.vectors]
    others = {m: int(np.argmax(np.abs(v))) for m, v in enumerate(vectors) if m not in pair}
    scale = (stored.summary["components"][component]["strength"] or 0.0) * math.prod(
        float(vectors[m][place]) for m, place in others.items()
    )
    told = ", ".join(f"{labels.modes[m]} = {labels.entry(m, place)}" for m, place in others.items())
    return scale * np.multiply.outer(vectors[pair[0]], vectors[pair[1]]), f"at {told}" if told else ""


def _hover(mode: int, places: Sequence[int], labels: Labels) -> dict[str, object]:
    texts = [shown(labels.entry(mode, int(i))) for i in places]
    return {"text": texts, "hovertemplate": "%{text}: %{y:.4g}<extra></extra>"}


def _bars(c: int, vector: Array, errors: Array | None, name: str, mode: int, labels: Labels) -> list[Trace]:
    places = _places(mode, len(vector), labels)
    trace = points(places, vector.tolist(), name, c, **_hover(mode, range(len(vector)), labels))
    if not by_name(mode, labels):
        trace |= {"mode": "lines+markers", "line": line([], [], "", c)["line"] | {"width": 1}}
    if errors is not None:
        trace["error_y"] = error_bars((2 * errors).tolist())
    return [trace]


def _line(c: int, vector: Array, errors: Array | None, name: str, mode: int, labels: Labels) -> list[Trace]:
    places = _places(mode, len(vector), labels)
    drawn = [line(places, vector.tolist(), name, c, **_hover(mode, range(len(vector)), labels))]
    if errors is None:
        return drawn
    around = band(places, (vector - 2 * errors).tolist(), (vector + 2 * errors).tolist(), f"{name} ± 2 s.e.", c)
    return [around, *drawn]


def _groups(c: int, vector: Array, errors: Array | None, name: str, mode: int, labels: Labels) -> list[Trace]:
    edges = np.linspace(0, len(vector), GROUPS + 1).astype(int)
    places = _places(mode, len(vector), labels)
    middles = [places[i] for i in (edges[:-1] + edges[1:] - 1) // 2]
    low, high = np.minimum.reduceat(vector, edges[:-1]), np.maximum.reduceat(vector, edges[:-1])
    top = np.sort(np.argsort(-np.abs(vector))[:LARGEST])
    at = [places[i] for i in top]
    largest = points(at, vector[top].tolist(), f"{name}: largest", c, **_hover(mode, top.tolist(), labels))
    if errors is not None:
        largest["error_y"] = error_bars((2 * errors[top]).tolist())
    return [band(middles, low.tolist(), high.tolist(), f"{name}: least to largest", c), largest]


def _heat_map(mode: int, vectors: Array, labels: Labels) -> Figure:
    components, length = vectors.shape
    edges = np.linspace(0, length, min(length, LINES) + 1).astype(int)
    starts = edges[:-1]
    low, high = np.minimum.reduceat(vectors, starts, axis=1), np.maximum.reduceat(vectors, starts, axis=1)
    cells = np.where(np.abs(low) > np.abs(high), low, high)
    reach = float(np.abs(vectors).max())
    names = [f"component {c}" for c in range(components)]
    places = _places(mode, length, labels)
    at = [places[i] for i in starts]
    trace: Trace = {"type": "heatmap", "z": cells.tolist(), "x": at, "y": names, "colorscale": DIVERGING}
    trace |= {"zmin": -reach, "zmax": reach, "hovertemplate": "%{y}, entry %{x}: %{z:.4g}<extra></extra>"}
    thin = f" Each cell is the largest of {length / len(starts):.0f} entries." if length > LINES else ""
    return Figure(
        f"mode-{mode}",
        [trace],
        layout(_axis(mode, length, labels), axis("", autorange="reversed")),
        f"{labels.modes[mode]}: heat map of {components} components with {length:,} entries.",
        f"Blue is negative, orange positive, grey zero.{thin} Errors are in the tables.",
        height=120 + 22 * components,
    )
