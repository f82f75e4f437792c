"""Pictures of the components, mode by mode, with the errors of their entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tpca.errors import SampleError
from tpca.labels import Labels
from tpca.report.document import Figure
from tpca.report.pictures import COLOURS, Axis, Trace, band, colour_map, line, names_axis, points
from tpca.report.verdict import effect_of
from tpca.results import StoredResult
from tpca.tensors.blocks import Array
from tpca.wording import count, number

BARS = 60  # entries up to which each has a bar of its own
LINES = 500  # entries up to which each is drawn; beyond, groups of them
GROUPS, LARGEST = 250, 40
MAX_CELLS = 10_000  # of a heat map of many components
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
        _axis(mode, length, labels),
        Axis(y),
        f"{labels.modes[mode]}: {length:,} entries of {count(components, 'component')}; "
        f"{_extremes(mode, vectors, labels)}.",
        f"{_extremes(mode, vectors, labels)[:1].upper()}{_extremes(mode, vectors, labels)[1:]}.{how}",
        height=300,
        legend=components > 1 or length > BARS,
    )


def map_figure(stored: StoredResult, component: int, labels: Labels) -> Figure:
    """Two modes of a component as a map, in the units of the samples, where all other modes are largest."""
    down, across = pair_of(None, labels, stored.summary["dims"])
    values, where = at_peak(stored, component, labels, (down, across))
    rows, columns = (np.unique(np.linspace(0, n - 1, min(n, LINES)).astype(int)) for n in values.shape)
    reach = float(np.abs(values).max())
    y, x = (_places(m, n, labels) for m, n in zip((down, across), values.shape, strict=True))
    top = np.unravel_index(np.argmax(np.abs(values)), values.shape)  # a map of rank one is a column times a row
    factors = {"down": values[rows, top[1]], "across": values[top[0], columns] / (values[top] or 1.0)}
    trace = colour_map([x[i] for i in columns], [y[i] for i in rows], reach, **factors)
    upright = labels.axes[down].ordered
    drawn = len(rows) * len(columns)
    few = "" if drawn == values.size else f" Every {math.ceil(values.size / drawn)}th cell or so is drawn."
    return Figure(
        f"map-{component}",
        [trace],
        _axis(across, len(x), labels),
        replace(_axis(down, len(y), labels), down=not upright),
        f"Map of component {component} over {labels.modes[across]} and {labels.modes[down]}; the largest cell is "
        f"{number(reach)} in size.",
        f"{_adds(stored, component)}{f', {where}' if where else ''}, in the units of the data. Blue is negative, "
        f"orange positive, grey zero.{few}",
        legend=False,
    )


def _adds(stored: StoredResult, component: int) -> str:
    """What a map of a component shows."""
    if stored.summary["solver"] == "variance":
        return "What the component adds to a sample in which its amplitude is one standard deviation"
    effect = effect_of(stored.summary["components"][component])
    return f"The {effect}{',' * (',' in effect)} on a sample" if effect else "What the component adds to a sample"


def _extremes(mode: int, vectors: Array, labels: Labels) -> str:
    """Where the first component is largest."""
    place = int(np.argmax(np.abs(vectors[0])))
    which = "the entry largest in size" if len(vectors) == 1 else "the entry largest in size, of component 0,"
    where = f"entry {place}" if labels.axes[mode].coords is None else labels.entry(mode, place)
    return f"{which} is {number(float(vectors[0][place]))}, at {where}"


def _axis(mode: int, length: int, labels: Labels) -> Axis:
    name, coords = labels.modes[mode], labels.axes[mode].coords
    if coords is not None and coords.dtype.kind == "M":
        marks = [(place, labels.entry(mode, i)) for i, place in enumerate(_places(mode, length, labels))]
        return Axis(name, ticks=marks, sparse=True)
    if not by_name(mode, labels):
        return Axis(name, whole=coords is None)
    if length > NAMED:
        return Axis(f"{name} (number of the entry)", whole=True)
    return names_axis([cut(labels.entry(mode, i)) for i in range(length)])


def by_name(mode: int, labels: Labels) -> bool:
    """Whether entries have names, which lie beside each other; numbers and times have a place along the axis."""
    return labels.axes[mode].coords is not None and not labels.axes[mode].ordered


def _places(mode: int, length: int, labels: Labels) -> list[float]:
    """Where the entries lie along the axis: at their coordinate, if that is a number or a time, or at their number.

    Times count in seconds, with the first at 0.
    """
    coords = labels.axes[mode].coords
    if coords is None or by_name(mode, labels):
        return list(range(length))
    numbers = (coords - coords[0]) / np.timedelta64(1, "s") if coords.dtype.kind == "M" else coords
    return list(numbers.tolist())


def cut(name: str) -> str:
    """A name as an axis has room for it; the whole of it is shown with the entry."""
    return name if len(name) <= LONG else f"{name[: LONG // 2]}…{name[1 - LONG // 2 :]}"  # what differs is at an end


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


def _hover(mode: int, places: Sequence[int], vector: Array, errors: Array | None, labels: Labels) -> list[str]:
    """What is said of entries: the whole name, the value, and its standard error where that is known."""
    around = [""] * len(vector) if errors is None else [f" ± {number(float(e), 2)}" for e in errors]
    return [f"{labels.entry(mode, int(i))}: {number(float(vector[i]))}{around[i]}" for i in places]


def _bars(c: int, vector: Array, errors: Array | None, name: str, mode: int, labels: Labels) -> list[Trace]:
    hover = _hover(mode, range(len(vector)), vector, errors, labels)
    reach = None if errors is None else ((2 * errors).tolist(), (2 * errors).tolist())
    joined = {} if by_name(mode, labels) else {"joined": True}
    return [points(_places(mode, len(vector), labels), vector.tolist(), name, c, reach, hover, **joined)]


def _line(c: int, vector: Array, errors: Array | None, name: str, mode: int, labels: Labels) -> list[Trace]:
    places = _places(mode, len(vector), labels)
    drawn = [line(places, vector.tolist(), name, c, _hover(mode, range(len(vector)), vector, errors, labels))]
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
    hover = _hover(mode, top.tolist(), vector, errors, labels)
    reach = None if errors is None else ((2 * errors[top]).tolist(), (2 * errors[top]).tolist())
    largest = points(at, vector[top].tolist(), f"{name}: largest", c, reach, hover)
    return [band(middles, low.tolist(), high.tolist(), f"{name}: least to largest", c), largest]


def _heat_map(mode: int, vectors: Array, labels: Labels) -> Figure:
    components, length = vectors.shape
    edges = np.linspace(0, length, min(length, LINES, MAX_CELLS // components) + 1).astype(int)
    starts = edges[:-1]
    low, high = np.minimum.reduceat(vectors, starts, axis=1), np.maximum.reduceat(vectors, starts, axis=1)
    cells = np.where(np.abs(low) > np.abs(high), low, high)
    reach = float(np.abs(vectors).max())
    places = _places(mode, length, labels)
    trace = colour_map([places[i] for i in starts], list(range(components)), reach, z=cells)
    thin = f" Each cell is the largest of up to {math.ceil(length / len(starts))} entries." * (length > len(starts))
    return Figure(
        f"mode-{mode}",
        [trace],
        _axis(mode, length, labels),
        names_axis([f"component {c}" for c in range(components)], down=True),
        f"{labels.modes[mode]}: heat map of {components} components with {length:,} entries.",
        f"Blue is negative, orange positive, grey zero.{thin} Errors are in the tables.",
        height=120 + 22 * components,
        legend=False,
    )
