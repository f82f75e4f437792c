"""Figures of a result, by matplotlib: one for notebooks and papers, and one picture after another for a page.

An axis of names is a bar chart of its largest entries.  An axis of numbers, times or places is a line with a band of
two standard errors to either side.  Two axes are a map, with the significant entries outlined.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.report.style import COLOURS, INK, pyplot, settings
from tpca.report.words import about, effect_of, headline, strength_of, title_of
from tpca.tensors.blocks import Array
from tpca.wording import count, number, percent, printable

if TYPE_CHECKING:
    from tpca.result import Result

DRAWN = 6  # components
BARS, FEW = 20, 12  # entries of an axis of names, in a picture and in a panel
DOTS = 60  # entries of a line that have a mark each
LINE = 2000  # entries that are drawn one by one
CELLS = 400  # entries along an axis of a map; of names as many as BARS
SAMPLES = 4000  # scores that are drawn
ROWS = 200  # of a table
LONG = 20  # letters of a name
WIDE = 3  # panels beside each other
PANEL = (3.4, 2.8)  # inches
PICTURE = (4.7, 3.0)  # inches; wide enough for a phone, and for two beside each other
OUTLINE, HATCH = "#111111", "#777777"
YEAR = 365.2425 * 86400  # seconds
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Picture:
    """A figure of a page: what it is about, what it shows in words, a note, and its numbers as a table."""

    title: str
    figure: Any
    alt: str
    note: str
    table: Table


# One figure -----------------------------------------------------------------------------------------------------------


def overview(result: Result, scores: Any = None, y: Any = None, pair: Sequence[str | int] | None = None) -> Any:
    """A matplotlib figure: axes of every component, a map of two of them, scores; and how many components there are."""
    plt = pyplot()
    each, chosen = scores_of(result, scores, y), pair_of(result, pair)
    rows = min(len(result.components), DRAWN)
    panels = len(result.dims) + (chosen is not None) + (each is not None)
    last = _has_evidence(result) and len(result.components) > 1
    columns = math.ceil(panels / math.ceil(panels / WIDE))
    columns = max(columns, 2) if last else columns
    lines = math.ceil(panels / columns)
    verdict = textwrap.fill(headline(result), 36 * columns)
    height = PANEL[1] * (lines * rows + last) + 0.3 + 0.2 * len(verdict.splitlines())
    with plt.rc_context(figure_settings()):
        figure = plt.figure(figsize=(PANEL[0] * columns, height), layout="constrained")
        grid = figure.add_gridspec(lines * rows + last, columns)
        figure.suptitle(verdict, x=0.01, ha="left", size=11, weight="bold")
        for c in range(rows):
            # a subfigure for each panel: long names of one take no room from those above and below
            places = (figure.add_subfigure(grid[lines * c + i // columns, i % columns]) for i in range(panels))
            for mode in range(len(result.dims)):
                axes = next(places).subplots()
                _draw_axis(axes, result, c, mode, FEW)
                if mode == 0:
                    title = textwrap.fill(title_of(result, c), 38)
                    axes.set_title(title, loc="left", size=10)
            if chosen is not None:
                _draw_map(next(places).subplots(), result, c, chosen)
            if each is not None:
                _draw_scores(next(places).subplots(), result, c, each)
        if last:
            _draw_evidence(figure.add_subfigure(grid[-1, :]), result)
    return figure


def figure_settings() -> dict[str, Any]:
    """Names of the data are text, not formulas."""
    return settings() | {"text.parse_math": False, "svg.fonttype": "none", "font.family": "sans-serif"}


# Pictures of a page ---------------------------------------------------------------------------------------------------


def component_pictures(result: Result, c: int, each: Scores | None) -> Iterator[Picture]:
    """All that is drawn of one component."""
    of = title_of(result, c)
    what = {"samples": "entry", "views": "loading", "table": "entry"}[result.kind]
    for mode, name in enumerate(result.labels.modes):
        vector, errors = result.shown[mode][c], result.errors[mode][c]
        bars = _by_name(result, mode)
        figure, axes = _blank(max(2.0, 0.9 + 0.21 * min(len(vector), BARS)) if bars else PICTURE[1])
        _draw_axis(axes, result, c, mode)
        known = bool(np.isfinite(errors).any())
        note = _axis_note(result, vector, mode, known)
        yield Picture(name, figure, f"{of}, {name}: {what} of each.", note, _entries_table(result, c, mode, known))
    chosen = pair_of(result, None)
    if chosen is not None:
        yield _map_picture(result, c, chosen)
    if each is not None:
        figure, axes = _blank()
        note = _draw_scores(axes, result, c, each)
        yield Picture("Scores", figure, f"Scores of {len(each.values)} samples on {of}.", note, _scores_table(c, each))


def where_picture(result: Result, question: int) -> Picture | None:
    """The p-value of every entry of one question as a map, at the largest entries of the other axes."""
    entries, pair = _entries(result, question), pair_of(result, None)
    if entries is None or pair is None or not np.isfinite(entries).any():
        return None
    figure, axes = _blank()
    c = _first_of(result, question)
    at, told = _peak(result, c, pair)
    cells = _at(entries, at, pair)
    with np.errstate(divide="ignore"):
        levels = -np.log10(np.where(np.isfinite(cells), cells, 1.0))
    top = max(2.0, float(levels.max()))
    drawn = _draw_cells(axes, result, levels, pair, _outlined(result, cells), cmap="Blues", vmin=0.0, vmax=top)
    figure.colorbar(drawn, ax=axes, label="−log₁₀ p")
    level = 1 - result.confidence
    few = int(np.sum(entries <= level))
    note = f"Family-wise p of every entry{told}. " + (
        f"{count(few, 'entry is', 'entries are')} significant at {percent(level)}, over all axes; outlined on this map."
        if few
        else f"No single entry is significant at {percent(level)}."
    )
    order = np.argsort(np.where(np.isfinite(entries), entries, 2.0), axis=None, kind="stable")[:ROWS]
    places = np.stack(np.unravel_index(order, entries.shape), axis=1)
    rows = [
        (*(result.labels.entry(m, int(i)) for m, i in enumerate(place)), number(float(entries[tuple(place)]), 2))
        for place in places
    ]
    effect = effect_of(result.components[c])
    title = f"p of every entry{f', {effect}' if effect else ''}"
    return Picture(title, figure, f"Map of p-values; {few} significant.", note, ((*result.labels.modes, "p"), rows))


def evidence_picture(result: Result) -> Picture | None:
    """How many components: evidence of each, share of the variance, agreement of halves; of views, correlations."""
    if not _has_evidence(result):
        return None
    figure, axes = _blank()
    axes.remove()
    note = _draw_evidence(figure, result, upright=True)
    figure.set_size_inches(PICTURE[0], 0.5 + 1.8 * len(figure.axes))
    heading = ["component", "strength", "p", "significant", "halves agree"]
    rows = [
        [
            title_of(result, c),
            strength_of(result, c),
            number(own.p_value, 2),
            "yes" if own.significant else "no",
            number(own.half_agreement, 2),
        ]
        for c, own in enumerate(result.components)
    ]
    if result.kind == "views":
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    alt = f"{about(result)}: evidence of each component."
    return Picture("How many components", figure, alt, note, (heading, rows))


def _blank(height: float = PICTURE[1]) -> tuple[Any, Any]:
    pyplot()  # says what is missing
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PICTURE[0], height), layout="constrained")
    return figure, figure.add_subplot()


# An axis --------------------------------------------------------------------------------------------------------------


def _by_name(result: Result, mode: int) -> bool:
    """Whether entries have names, which lie beside each other; numbers and times have a place along the axis."""
    axis = result.labels.axes[mode]
    return axis.coords is not None and not axis.ordered


def _draw_axis(axes: Any, result: Result, c: int, mode: int, most: int = BARS) -> None:
    vector, errors = result.shown[mode][c], result.errors[mode][c]
    width = 2 * np.where(np.isfinite(errors), errors, 0.0)
    colour, name = COLOURS[c % len(COLOURS)], cut(result.labels.modes[mode], 2 * LONG)
    value = {"samples": "entry", "views": "loading", "table": "direction"}[result.kind]
    value += " ± 2 s.e." if width.any() else ""
    if _by_name(result, mode):
        order = np.argsort(-np.abs(vector), kind="stable")[:most]
        places = np.arange(len(order))
        error = {"xerr": width[order], "error_kw": {"elinewidth": 1.2, "ecolor": INK}} if width.any() else {}
        axes.barh(places, vector[order], height=0.7, color=colour, **error)
        axes.set_yticks(places, [cut(result.labels.entry(mode, int(i))) for i in order], size=8)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.axvline(0, color=INK, lw=0.8)
        more = f" ({len(order)} largest of {len(vector):,})" if len(vector) > len(order) else ""
        axes.set(xlabel=value, ylabel=f"{name}{more}")
        return
    coords = result.labels.axes[mode].coords
    if coords is not None and coords.dtype.kind == "M":
        years = 1970 + coords.astype("M8[s]").astype(float) / YEAR
        if years.min() < 1000 or years.max() > 3000:  # Matplotlib has no dates before the year 1 and after 9999
            coords, name = years, f"{name} (year)"
    places = np.arange(len(vector)) if coords is None else coords
    axes.axhline(0, color=INK, lw=0.8)
    low, high = vector - width, vector + width
    if len(vector) > LINE:
        starts = np.linspace(0, len(vector), LINE // 4, endpoint=False).astype(int)
        places, low, high = places[starts], np.minimum.reduceat(vector, starts), np.maximum.reduceat(vector, starts)
        axes.fill_between(places, low, high, color=colour, lw=0.5)
    else:
        axes.fill_between(places, low, high, color=colour, alpha=0.3, lw=0)
        axes.plot(places, vector, color=colour, lw=1.3, marker="o" if len(vector) <= DOTS else "", ms=3.5)
    if coords is None or coords.dtype.kind in "iu":
        axes.xaxis.get_major_locator().set_params(integer=True)
    elif coords.dtype.kind == "M":
        axes.tick_params(axis="x", labelrotation=30, labelsize=8)
    axes.set(xlabel=name, ylabel=value)


def _axis_note(result: Result, vector: Array, mode: int, known: bool) -> str:
    top = int(np.argmax(np.abs(vector)))
    largest = f"Largest: {number(float(vector[top]))} at {printable(result.labels.entry(mode, top))}."
    if _by_name(result, mode):
        more = f" The {BARS} largest of {len(vector):,} are drawn." if len(vector) > BARS else ""
        return largest + more + (" Whiskers are two standard errors." if known else "")
    if len(vector) > LINE:
        return f"{largest} {len(vector):,} entries: the band goes from the least to the largest of neighbours."
    return largest + (" The band is two standard errors to either side." if known else "")


def _entries_table(result: Result, c: int, mode: int, known: bool) -> Table:
    vector, errors = result.shown[mode][c], result.errors[mode][c]
    order = np.argsort(-np.abs(vector), kind="stable")[:ROWS]
    if not _by_name(result, mode):
        order = np.sort(order)
    heading = [result.labels.modes[mode], "value", *(["standard error"] if known else [])]
    rows = [
        [
            result.labels.entry(mode, int(i)),
            number(float(vector[i]), 4),
            *([number(float(errors[i]), 2)] if known else []),
        ]
        for i in order
    ]
    return heading, rows


def cut(name: str, most: int = LONG) -> str:
    """A name as an axis has room for it: what differs is at an end."""
    name = printable(name)
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most // 2 :]}"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# Maps -----------------------------------------------------------------------------------------------------------------


def pair_of(result: Result, asked: Sequence[str | int] | None) -> tuple[int, int] | None:
    """Two axes by name or number that a map shows, down and across; by default the two longest; none of one axis."""
    if asked is None:
        if result.kind != "samples" or len(result.dims) < 2:
            return None
        first, second = sorted(np.argsort(-np.asarray(result.dims), kind="stable")[:2].tolist())
        return first, second
    names = result.labels.modes
    known: dict[str | int, int] = {name: i for i, name in enumerate(names)} | {i: i for i in range(len(names))}
    if len(asked) != 2 or len({known.get(one) for one in asked} - {None}) != 2:
        raise SampleError(f"pair must name two of the axes {', '.join(map(repr, names))}, got {asked!r}.")
    return known[asked[0]], known[asked[1]]


def _peak(result: Result, c: int, pair: tuple[int, int]) -> tuple[dict[int, int], str]:
    """Where the other axes of a component are largest, and that in words."""
    at = {m: int(np.argmax(np.abs(v[c]))) for m, v in enumerate(result.vectors) if m not in pair}
    told = ", ".join(f"{result.labels.modes[m]} = {cut(result.labels.entry(m, place))}" for m, place in at.items())
    return at, f" at {told}" if told else ""


def _at(values: Array, at: dict[int, int], pair: tuple[int, int]) -> Array:
    """Two axes of an array, down and across, at places of the others."""
    cells = values[tuple(at.get(m, slice(None)) for m in range(values.ndim))]
    return cells if pair[0] < pair[1] else cells.T


def _entries(result: Result, question: int) -> Array | None:
    """P of every entry of one question."""
    entries = result.entry_p_values
    if entries is None or result.kind != "samples":
        return None
    return np.asarray(entries[question] if entries.ndim > len(result.dims) else entries)


def question_of(result: Result, c: int) -> int:
    """Which covariate a component is of."""
    return list(dict.fromkeys(one.effect for one in result.components)).index(result.components[c].effect)


def _first_of(result: Result, question: int) -> int:
    return next(c for c in range(len(result.components)) if question_of(result, c) == question)


def pattern_cells(result: Result, c: int, pair: tuple[int, int]) -> tuple[Array, Array | None, str]:
    """A component over two axes in the units of the samples, p of these entries, and where the others are.

    p is that of the whole estimate, and so shown with its first component only.
    """
    at, told = _peak(result, c, pair)
    vectors = [v[c] for v in result.vectors]
    scale = result.components[c].strength * math.prod(float(vectors[m][place]) for m, place in at.items())
    cells = (0.0 if math.isnan(scale) else scale) * np.multiply.outer(vectors[pair[0]], vectors[pair[1]])
    question = question_of(result, c)
    entries = _entries(result, question) if c == _first_of(result, question) else None  # p are of the whole estimate
    return cells, None if entries is None else _at(entries, at, pair), told


def _outlined(result: Result, p: Array | None) -> Array | None:
    return None if p is None else np.asarray(p <= 1 - result.confidence)


def _draw_map(axes: Any, result: Result, c: int, pair: tuple[int, int]) -> None:
    cells, p, told = pattern_cells(result, c, pair)
    reach = float(np.abs(cells).max()) or 1.0
    mask = _outlined(result, p)
    drawn = _draw_cells(axes, result, cells, pair, mask, cmap="RdBu_r", vmin=-reach, vmax=reach)
    hatched = "hatched: not significant" if mask is not None and mask.any() else ""
    axes.set_title(_shortened(" ".join(filter(None, (told.strip(), hatched))), 60), size=9, loc="left")
    axes.figure.colorbar(drawn, ax=axes, label="units of the samples")


def _draw_cells(axes: Any, result: Result, cells: Array, pair: tuple[int, int], mask: Array | None, **look: Any) -> Any:
    """Cells by their number, with the names of some; those of ``mask`` outlined, the others hatched."""
    kept = [_kept(result, m, cells.max(axis=1 - i), cells.min(axis=1 - i)) for i, m in enumerate(pair)]
    shown = cells[np.ix_(*kept)]
    above = not result.labels.axes[pair[0]].ordered  # names, and rows of an image, are read from above
    origin = "upper" if above else "lower"
    drawn = axes.imshow(shown, aspect="auto", interpolation="nearest", origin=origin, **look)
    axes.grid(visible=False)
    for axis, m, places, tilted in ((axes.yaxis, pair[0], kept[0], 0), (axes.xaxis, pair[1], kept[1], 45)):
        some = np.arange(len(places))  # every name has its place; of numbers a few will do
        if not _by_name(result, m):
            some = np.unique(np.linspace(0, len(places) - 1, min(len(places), 6)).astype(int))
        names = [_tick(result, m, int(places[i])) for i in some]
        crowded = tilted if sum(map(len, names)) > 24 else 0
        turned = {"rotation": crowded, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        axis.set_ticks(some, names, size=7 if len(some) > FEW else 8, **turned)
    axes.set(xlabel=cut(result.labels.modes[pair[1]], 2 * LONG), ylabel=cut(result.labels.modes[pair[0]], 2 * LONG))
    if mask is not None and mask.any():
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Rectangle

        lines = LineCollection(_borders(mask[np.ix_(*kept)]), colors=OUTLINE, linewidths=1.2, clip_on=False)
        axes.add_collection(lines, autolim=False)
        for i, j in np.argwhere(mask[np.ix_(*kept)] == 0):  # which side of a line is significant is to be seen
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="///", ec=HATCH, lw=0))
    return drawn


def _tick(result: Result, mode: int, place: int) -> str:
    """An entry along a map, in few letters."""
    coords = result.labels.axes[mode].coords
    if coords is not None and coords.dtype.kind == "f":
        return f"{coords[place]:.3g}".replace("-", "−")
    return cut(result.labels.entry(mode, place))


def _kept(result: Result, mode: int, high: Array, low: Array) -> Array:
    """Which entries of an axis a map has room for: the largest names, or places spread evenly."""
    length = len(high)
    if _by_name(result, mode) and length > BARS:
        return np.sort(np.argsort(-np.maximum(np.abs(high), np.abs(low)), kind="stable")[:BARS])
    return np.unique(np.linspace(0, length - 1, min(length, CELLS)).astype(int))


def _borders(mask: Array) -> list[Any]:
    """Segments between cells that are in a mask and those that are not."""
    upright = np.argwhere(np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(int), axis=1))
    level = np.argwhere(np.diff(np.pad(mask, ((1, 1), (0, 0))).astype(int), axis=0))
    return [
        *([(x - 0.5, y - 0.5), (x - 0.5, y + 0.5)] for y, x in upright),
        *([(x - 0.5, y - 0.5), (x + 0.5, y - 0.5)] for y, x in level),
    ]


def _map_picture(result: Result, c: int, pair: tuple[int, int]) -> Picture:
    figure, axes = _blank()
    _draw_map(axes, result, c, pair)
    cells, p, told = pattern_cells(result, c, pair)
    effect, varies = effect_of(result.components[c]), result.target == "variance"
    what = f"The {effect}" if effect else "What the component adds to a sample"
    what = "What one standard deviation of its amplitude adds to a sample" if varies else what
    outlined = 0 if p is None else int(np.sum(p <= 1 - result.confidence))
    lines = f" Outlined: {count(outlined, 'entry', 'entries')} with p ≤ {number(1 - result.confidence)}."
    note = f"{what}{told}, in the units of the data.{lines if outlined else ''}"
    order = np.argsort(-np.abs(cells), axis=None, kind="stable")[:ROWS]
    places = np.stack(np.unravel_index(order, cells.shape), axis=1)
    names = [result.labels.modes[m] for m in pair]
    rows = [
        [
            *(result.labels.entry(m, int(i)) for m, i in zip(pair, place, strict=True)),
            number(float(cells[tuple(place)]), 4),
            *([] if p is None else [number(float(p[tuple(place)]), 2)]),
        ]
        for place in places
    ]
    alt = f"Map of {title_of(result, c)} over {names[0]} and {names[1]}."
    return Picture(
        f"{names[0]} × {names[1]}", figure, alt, note, ([*names, "value", *([] if p is None else ["p"])], rows)
    )


# Scores ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Scores ``(n, rows)`` of samples, of views one for each; y, or a column of it for every component.

    ``places`` are the coordinates of samples along their axis ``name``: their numbers, where data have no others.
    """

    values: Array
    y: Array | None
    columns: Sequence[int]
    places: NDArray[Any]
    name: str

    def of(self, c: int) -> tuple[Array, Array | None]:
        """Scores of one component (of views, ``(n, views)``), and y."""
        own = self.values[:, c] if self.values.ndim == 2 else self.values[:, :, c]
        return own, None if self.y is None else self.y[:, self.columns[c]]


def scores_of(result: Result, scores: Any, y: Any) -> Scores | None:
    """What was given, checked."""
    if scores is None:
        if y is not None:
            raise SampleError("y is drawn over scores, and there are none: give the samples, or their scores, too.")
        return None
    values = np.stack(scores, axis=1) if isinstance(scores, list) else np.asarray(scores)  # of views (n, views, rows)
    rows = len(result.components)
    if values.ndim not in (2, 3) or values.shape[-1] != rows:
        raise SampleError(f"scores must have shape (n, {rows}), as transform gives, got {values.shape}.")
    name = "sample"
    places: NDArray[Any] = np.arange(len(values))
    if hasattr(scores, "dims") and hasattr(scores, "coords"):  # of xarray, as transform gives them
        name = str(scores.dims[0])
        given = np.asarray(scores.coords[name]) if name in scores.coords else places
        places = given if given.dtype.kind in "fiuM" else places
    told = None if y is None else np.asarray(y)
    if told is None:
        return Scores(values, None, [0] * rows, places, name)
    if told.ndim not in (1, 2) or len(told) != len(values):
        raise SampleError(f"y must have a number or label for every sample, ({len(values)},), got {np.shape(y)}.")
    told = told[:, None] if told.ndim == 1 else told
    return Scores(values, told, [min(question_of(result, c), told.shape[1] - 1) for c in range(rows)], places, name)


def _draw_scores(axes: Any, result: Result, c: int, each: Scores) -> str:
    """The score of every sample, over y, by label, or in their order; returns a note."""
    scores, y = each.of(c)
    colour = COLOURS[c % len(COLOURS)]
    n = len(scores)
    few = np.unique(np.linspace(0, n - 1, min(n, SAMPLES)).astype(int))
    drawn = "" if len(few) == n else f" {len(few):,} of {n:,} samples are drawn."
    dots = {"ls": "", "marker": "o", "ms": 2.6 if n > DOTS else 4, "alpha": 0.5 if n > DOTS else 0.9, "mew": 0}
    if scores.ndim == 2:  # of views: the second over the first
        axes.plot(scores[few, 0], scores[few, 1], color=colour, **dots)
        first, second = (cut(name) for name in result.labels.modes[:2])
        axes.set(xlabel=f"score of {first}", ylabel=f"score of {second}")
        return f"Scores of {first} and {second}, row by row.{drawn}"
    axes.set_ylabel("score of a sample")
    if y is None:
        axes.plot(each.places[few], scores[few], color=colour, **dots)
        if each.places.dtype.kind == "M":
            axes.tick_params(axis="x", labelrotation=30, labelsize=8)
        axes.set_xlabel(cut(each.name, 2 * LONG))
        return f"The score of a sample is its contraction with the vectors.{drawn}"
    if y.dtype.kind in "fiu":
        axes.plot(y[few], scores[few], color=colour, **dots)
        axes.set_xlabel(cut(result.components[c].effect or "y", 2 * LONG))
        return f"Scores over y.{drawn}"
    names, which = np.unique(y.astype(str), return_inverse=True)
    beside = np.linspace(-0.3, 0.3, n)  # in the order of the samples, from left to right
    axes.plot((which + beside)[few], scores[few], color=colour, **dots)
    means, errors = zip(*(_mean(scores[which == i]) for i in range(len(names))), strict=True)
    axes.errorbar(
        range(len(names)), means, [2 * e for e in errors], fmt="D", ms=7, mew=1.5, lw=2.5, color=INK, mfc="white"
    )
    tilted = sum(map(len, names)) > 30
    axes.set_xticks(
        range(len(names)), [cut(str(name)) for name in names], rotation=45 * tilted, ha="right" if tilted else "center"
    )
    axes.set_xlim(-0.6, len(names) - 0.4)
    return f"Scores by label; diamonds are means, with two standard errors.{drawn}"


def _mean(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _scores_table(c: int, each: Scores) -> Table:
    scores, y = each.of(c)
    one = scores if scores.ndim == 1 else scores.prod(axis=1)
    groups = {"all samples": one}
    if y is not None and y.dtype.kind not in "fiu":
        groups |= {str(name): one[y.astype(str) == name] for name in np.unique(y.astype(str))}
    rows = []
    for name, own in groups.items():
        mean, error = _mean(own)
        rows.append([name, f"{len(own):,}", number(mean, 4), number(error, 2)])
    return ("samples", "number", "mean score", "standard error"), rows


# How many components --------------------------------------------------------------------------------------------------


def _has_evidence(result: Result) -> bool:
    tested = result.null_distribution is not None and result.null_distribution.size > 0
    return result.kind == "views" or (tested and result.kind == "samples")


def _draw_evidence(figure: Any, result: Result, upright: bool = False) -> str:
    """Evidence of every component beside its null band, its share of the variance, and how far halves agree.

    Of views, correlations with two standard errors.  Panels stand side by side, or ``upright`` above each other.
    """
    rows, places = result.components, np.arange(1, len(result.components) + 1)
    drawn: list[tuple[Callable[..., str], Array]] = []
    if result.kind == "views":
        drawn = [(_draw_correlations, np.array([c.strength for c in rows]))]
    else:
        drawn = [(_draw_statistics, np.array([c.statistic for c in rows]))]
        shares, agreements = (
            np.array([getattr(c, name) for c in rows]) for name in ("variance_ratio", "half_agreement")
        )
        drawn += [(_draw_shares, shares)] * bool(np.isfinite(shares).any())
        drawn += [(_draw_agreements, agreements)] * bool(np.isfinite(agreements).any())
    grid = (len(drawn), 1) if upright else (1, len(drawn))
    notes = []
    for axes, (draw, values) in zip(figure.subplots(*grid, squeeze=False, sharex=True).flat, drawn, strict=True):
        axes.set_xlim(0.4, len(rows) + 0.6)
        axes.set_xticks(places if len(places) <= FEW else np.linspace(1, len(rows), 6).astype(int))
        notes.append(draw(axes, result, places, values))
        if not upright or axes.get_subplotspec().is_last_row():
            axes.set_xlabel("component")
    return " ".join(notes)


def _draw_correlations(axes: Any, result: Result, places: Array, values: Array) -> str:
    errors = [2 * c.correlation_error if math.isfinite(c.correlation_error) else 0.0 for c in result.components]
    axes.axhline(0, color=INK, lw=0.8)
    axes.errorbar(places, values, errors, fmt="o", color=COLOURS[0])
    axes.set_ylabel("correlation ± 2 s.e.")
    return "Correlations on held-out rows, with two standard errors."


def _draw_statistics(axes: Any, result: Result, places: Array, values: Array) -> str:
    null, level = result.null_distribution, percent(result.confidence)
    top = np.quantile(null, result.confidence, axis=1)
    top = np.where(top > 0, top, 1.0)
    low = np.quantile(null, 1 - result.confidence, axis=1) / top
    band = f"noise, {percent(1 - result.confidence)} to {level}"
    axes.bar(places, 1 - low, bottom=low, width=0.5, color=INK, alpha=0.35, label=band)
    proven = np.array([c.significant for c in result.components])
    for mask, face, name in ((proven, COLOURS[0], "significant"), (~proven, "none", "not significant")):
        if mask.any():
            axes.plot(places[mask], values[mask] / top[mask], "o", ms=7, mfc=face, mec=COLOURS[0], mew=1.5, label=name)
    axes.set_ylim(0, 1.5 * float(np.max((values / top)[np.isfinite(values)], initial=1.0)))
    axes.set_ylabel("statistic (noise: below 1)")
    axes.legend(loc="upper right", fontsize=8, borderaxespad=0.0, handletextpad=0.4)
    return (
        f"The statistic is divided by the {level} point of noise: a component above 1 is more than noise, given those "
        "before it."
    )


def _draw_shares(axes: Any, result: Result, places: Array, values: Array) -> str:  # noqa: ARG001
    axes.bar(places, 100 * values, width=0.5, color=COLOURS[0])
    axes.set_ylabel("% of the variance")
    return "Shares of the variance show where the rest becomes small."


def _draw_agreements(axes: Any, result: Result, places: Array, values: Array) -> str:  # noqa: ARG001
    axes.axhline(0, color=INK, lw=0.8)
    axes.plot(places, values, "s", ms=6, color=COLOURS[0])
    axes.set_ylim(min(-0.05, 1.1 * float(np.nanmin(values))), 1.05)
    axes.set_ylabel("agreement of halves")
    return (
        "Agreement is the cosine of the patterns of two halves of the samples: 1 if both show the same, 0 if nothing."
    )
