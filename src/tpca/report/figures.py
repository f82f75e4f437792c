"""Figures of a result, by matplotlib: one for notebooks and papers, and one picture after another for a page.

An axis of names is a bar chart of its largest entries.  An axis of numbers, times or places is a line with a band of
two standard errors to either side.  Two axes are a map, with the significant entries outlined.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tpca.data.alignment import align, labels_of_rows
from tpca.errors import SampleError
from tpca.report.style import COLOURS, INK, pyplot, settings, unusable_backend
from tpca.report.words import about, effect_of, headline, place_of, several_of_an_effect, strength_of, title_of
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
    """What it is about, what it shows in words, a note, its numbers as a table, and how to draw it into a figure."""

    title: str
    alt: str
    note: str
    table: Table
    draw: Callable[[Any], None]
    height: float = PICTURE[1]

    @property
    def figure(self) -> Any:
        """A figure of its own, for a page."""
        pyplot()  # says what is missing
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PICTURE[0], self.height), layout="constrained")
        self.draw(figure)
        return figure


def overview(result: Result, scores: Any = None, y: Any = None, pair: Sequence[str | int] | None = None) -> Any:
    """A matplotlib figure: axes of every component, a map of two of them, scores; and how many components there are."""
    plt = pyplot()
    each = scores_of(result, scores, y)
    rows = [component_pictures(result, c, each, pair, FEW) for c in range(min(len(result.components), DRAWN))]
    last = evidence_picture(result, upright=False)
    panels, ends = len(rows[0]), int(last is not None)
    columns = max(math.ceil(panels / math.ceil(panels / WIDE)), 1 + ends)
    lines = math.ceil(panels / columns)
    verdict = textwrap.fill(headline(result), 36 * columns)
    height = PANEL[1] * (lines * len(rows) + ends) + 0.3 + 0.2 * len(verdict.splitlines())
    with plt.rc_context(figure_settings()):
        try:
            figure = plt.figure(figsize=(PANEL[0] * columns, height), layout="constrained")
        except ImportError as error:
            raise unusable_backend(error) from error
        grid = figure.add_gridspec(lines * len(rows) + ends, columns)
        figure.suptitle(verdict, x=0.01, ha="left", size=11, weight="bold")
        for c, pictures in enumerate(rows):
            for i, picture in enumerate(pictures):
                # a subfigure for each panel: long names of one take no room from those above and below
                place = figure.add_subfigure(grid[lines * c + i // columns, i % columns])
                picture.draw(place)
                if i == 0:
                    title = title_of(result, c)
                    if len(result.components) > 1 and result.components[c].p_value > 1 - result.confidence:
                        title += " (not significant)"
                    place.axes[0].set_title(textwrap.fill(title, 38), loc="left", size=10)
        if last is not None:
            last.draw(figure.add_subfigure(grid[-1, :]))
    return figure


def figure_settings() -> dict[str, Any]:
    """Names of the data are text, not formulas."""
    return settings() | {"text.parse_math": False, "svg.fonttype": "none", "font.family": "sans-serif"}


def component_pictures(
    result: Result, c: int, each: Scores | None, pair: Sequence[str | int] | None = None, most: int = BARS
) -> list[Picture]:
    """All that is drawn of one component; an axis of names has so many bars at ``most``."""
    pictures = [_axis_picture(result, c, mode, most) for mode in range(len(result.dims))]
    chosen = pair_of(result, pair)
    pictures += [] if chosen is None else [_map_picture(result, c, chosen)]
    return pictures + ([] if each is None else [_scores_picture(result, c, each)])


def _rows(result: Result, modes: Sequence[int], order: Any, *columns: tuple[Array, int]) -> list[list[str]]:
    """Lines of a table: entries in an ``order``, by their names along some axes, with numbers of so many digits."""
    places = np.stack(np.unravel_index(order[:ROWS], columns[0][0].shape), axis=1)
    return [
        [
            *(result.labels.entry(m, int(i)) for m, i in zip(modes, place, strict=True)),
            *(number(float(values[tuple(place)]), digits) for values, digits in columns),
        ]
        for place in places
    ]


# An axis --------------------------------------------------------------------------------------------------------------


def _by_name(result: Result, mode: int) -> bool:
    """Whether entries have names, which lie beside each other; numbers and times have a place along the axis."""
    axis = result.labels.axes[mode]
    return axis.coords is not None and not axis.ordered


def _axis_picture(result: Result, c: int, mode: int, most: int) -> Picture:
    vector, errors, name = result.shown[mode][c], result.errors[mode][c], result.labels.modes[mode]
    known, named, d = bool(np.isfinite(errors).any()), _by_name(result, mode), len(vector)
    order = np.argsort(-np.abs(vector), kind="stable")
    note = f"Largest: {number(float(vector[order[0]]))} at {printable(result.labels.entry(mode, int(order[0])))}."
    if named:
        note += f" The {BARS} largest of {d:,} are drawn." if d > BARS else ""
        note += " Whiskers are two standard errors." if known else ""
    elif d > LINE:
        note += f" {d:,} entries: the band goes from the least to the largest of neighbours."
    elif known:
        note += " The band is two standard errors to either side."
    numbers = [(vector, 4), *([(errors, 2)] if known else [])]
    return Picture(
        name,
        f"{title_of(result, c)}, {name}: {'loading' if result.kind == 'views' else 'entry'} of each.",
        note,
        (
            [name, "value", *(["standard error"] if known else [])],
            _rows(result, [mode], order if named else np.sort(order[:ROWS]), *numbers),
        ),
        partial(_draw_axis, result=result, c=c, mode=mode, most=most),
        max(2.0, 0.9 + 0.21 * min(d, BARS)) if named else PICTURE[1],
    )


def _draw_axis(figure: Any, result: Result, c: int, mode: int, most: int) -> None:
    axes, vector, errors = figure.subplots(), result.shown[mode][c], result.errors[mode][c]
    width = 2 * np.where(np.isfinite(errors), errors, 0.0)
    colour, name = COLOURS[c % len(COLOURS)], cut(result.labels.modes[mode], 2 * LONG)
    value = {"samples": "entry", "views": "loading"}[result.kind]
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


def cut(name: str, most: int = LONG) -> str:
    """A name as an axis has room for it: what differs is at an end."""
    name = printable(name)
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most // 2 :]}"


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


def question_of(result: Result, c: int) -> int:
    """Which covariate a component is of."""
    return list(dict.fromkeys(one.effect for one in result.components)).index(result.components[c].effect)


def _entry_p(result: Result, c: int) -> Array | None:
    """P of every entry, which is of the whole estimate, and so shown with the first component of its question only."""
    entries, question = result.entry_p_values, question_of(result, c)
    if entries is None or result.kind != "samples" or any(question_of(result, b) == question for b in range(c)):
        return None
    return np.asarray(entries[question] if entries.ndim > len(result.dims) else entries)


def pattern_cells(result: Result, c: int, pair: tuple[int, int]) -> tuple[Array, Array | None, str]:
    """A component over two axes in the units of the samples, p of these entries, and where the others are."""
    at, told = _peak(result, c, pair)
    vectors = [v[c] for v in result.vectors]
    scale = result.components[c].strength * math.prod(float(vectors[m][place]) for m, place in at.items())
    cells = (0.0 if math.isnan(scale) else scale) * np.multiply.outer(vectors[pair[0]], vectors[pair[1]])
    entries = _entry_p(result, c)
    return cells, None if entries is None else _at(entries, at, pair), told


def _map_picture(result: Result, c: int, pair: tuple[int, int]) -> Picture:
    cells, p, told = pattern_cells(result, c, pair)
    effect, names = effect_of(result.components[c]), [result.labels.modes[m] for m in pair]
    what = f"The {effect}" if effect else "What the component adds to a sample"
    what = "What one standard deviation of its amplitude adds to a sample" if result.target == "variance" else what
    mask = None if p is None else p <= 1 - result.confidence
    outlined = 0 if mask is None else int(mask.sum())
    lines = f" Outlined: {count(outlined, 'entry', 'entries')} with p ≤ {number(1 - result.confidence)}."
    numbers = [(cells, 4), *([] if p is None else [(p, 2)])]
    reach = float(np.abs(cells).max()) or 1.0
    heading = " ".join(filter(None, (told.strip(), "hatched: not significant" if outlined else "")))
    look = {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}
    return Picture(
        f"{names[0]} × {names[1]}",
        f"Map of {title_of(result, c)} over {names[0]} and {names[1]}.",
        f"{what}{told}, in the units of the data.{lines if outlined else ''}",
        (
            [*names, "value", *([] if p is None else ["p"])],
            _rows(result, pair, np.argsort(-np.abs(cells), axis=None, kind="stable"), *numbers),
        ),
        partial(
            _draw_cells, result=result, cells=cells, pair=pair, mask=mask, bar="units of the samples",
            heading=heading if len(heading) <= 60 else f"{heading[:59]}…", look=look,
        ),
    )  # fmt: skip


def where_picture(result: Result, c: int) -> Picture | None:
    """The p-value of every entry as a map, at the largest entries of the other axes."""
    entries, pair = _entry_p(result, c), pair_of(result, None)
    if entries is None or pair is None or not np.isfinite(entries).any():
        return None
    at, told = _peak(result, c, pair)
    cells = _at(entries, at, pair)
    with np.errstate(divide="ignore"):
        levels = -np.log10(np.where(np.isfinite(cells), cells, 1.0))
    level, effect = 1 - result.confidence, effect_of(result.components[c])
    few = int(np.sum(entries <= level))
    order = np.argsort(np.where(np.isfinite(entries), entries, 2.0), axis=None, kind="stable")
    look = {"cmap": "Blues", "vmin": 0.0, "vmax": max(2.0, float(levels.max()))}
    return Picture(
        f"p of every entry{f', {effect}' if effect else ''}",
        f"Map of p-values; {few} significant.",
        f"Family-wise p of every entry{told}. "
        + (
            f"{count(few, 'entry is', 'entries are')} significant at {percent(level)}, over all axes; outlined on this "
            "map."
            if few
            else f"No single entry is significant at {percent(level)}."
        ),
        ((*result.labels.modes, "p"), _rows(result, range(entries.ndim), order, (entries, 2))),
        partial(_draw_cells, result=result, cells=levels, pair=pair, mask=cells <= level, bar="−log₁₀ p", look=look),
    )


def _draw_cells(
    figure: Any,
    result: Result,
    cells: Array,
    pair: tuple[int, int],
    mask: Any,
    bar: str,
    look: dict[str, Any],
    heading: str = "",
) -> None:
    """Cells by their number, with the names of some; those of ``mask`` outlined, the others hatched."""
    axes = figure.subplots()
    kept = [_kept(result, m, cells.max(axis=1 - i), cells.min(axis=1 - i)) for i, m in enumerate(pair)]
    above = not result.labels.axes[pair[0]].ordered  # names, and rows of an image, are read from above
    shown, origin = cells[np.ix_(*kept)], "upper" if above else "lower"
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
    axes.set_title(heading, size=9, loc="left")
    if mask is not None and mask.any():
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Rectangle

        inside = mask[np.ix_(*kept)]
        axes.add_collection(LineCollection(_borders(inside), colors=OUTLINE, lw=1.2, clip_on=False), autolim=False)
        for i, j in np.argwhere(~inside):  # which side of a line is significant is to be seen
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="///", ec=HATCH, lw=0))
    figure.colorbar(drawn, ax=axes, label=bar)


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


# Scores ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Scores ``(n, rows)`` of samples, of views ``(n, views, rows)``; y ``(n, q)``, a column for every question.

    ``places`` are the coordinates of samples along their axis ``name``: their numbers, where data have no others.
    Samples without a score, ``n_skipped`` of them, are not among them.
    """

    values: Array
    y: Array | None
    places: NDArray[Any]
    name: str
    n_skipped: int = 0


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
    scored = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    n_skipped = int(np.sum(~scored))
    if n_skipped and not scored.any():
        raise SampleError(f"scores are NaN or Inf for all {len(values)} samples: give samples that have a score.")
    name = "sample"
    places: NDArray[Any] = np.arange(len(values))
    if hasattr(scores, "dims") and hasattr(scores, "coords"):  # of xarray, as transform gives them
        name = str(scores.dims[0])
        given = np.asarray(scores.coords[name]) if name in scores.coords else places
        places = given if given.dtype.kind in "fiuM" else places
    y, _ = align("y", y, labels_of_rows(scores))
    told = None if y is None else np.asarray(y)
    if told is None:
        return Scores(values[scored], None, places[scored], name, n_skipped)
    if told.ndim not in (1, 2) or len(told) != len(values):
        raise SampleError(f"y must have a number or label for every sample, ({len(values)},), got {np.shape(y)}.")
    told = told[:, None] if told.ndim == 1 else told
    return Scores(values[scored], told[scored], places[scored], name, n_skipped)


def _scores_picture(result: Result, c: int, each: Scores) -> Picture:
    """The score of every sample, over y, by label, or in their order; of views, the second over the first."""
    scores, n = each.values[..., c], len(each.values)
    y = None if each.y is None else each.y[:, min(question_of(result, c), each.y.shape[1] - 1)]
    labels = None if y is None or y.dtype.kind in "fiu" else y.astype(str)
    if scores.ndim == 2:
        note = f"Scores of {cut(result.labels.modes[0])} and {cut(result.labels.modes[1])}, row by row."
    elif y is None:
        note = "The score of a sample is its contraction with the vectors."
        if result.target != "variance" and several_of_an_effect(result):
            note = "The scores of a sample are the strengths of all components that fit it best."
    else:
        note = "Scores over y." if labels is None else "Scores by label; diamonds are means, with two standard errors."
    if each.n_skipped:
        note += f" {count(each.n_skipped, 'sample has', 'samples have')} no score, for NaN or Inf."
    if n > SAMPLES:
        note += f" {SAMPLES:,} of {n:,} samples are drawn."
    whole = scores if scores.ndim == 1 else scores.prod(axis=1)
    groups = {"all samples": whole}
    groups |= {} if labels is None else {str(name): whole[labels == name] for name in np.unique(labels)}
    rows = [[name, f"{len(own):,}", number(_mean(own)[0], 4), number(_mean(own)[1], 2)] for name, own in groups.items()]
    return Picture(
        "Scores",
        f"Scores of {n} samples on {title_of(result, c)}.",
        note,
        (("samples", "number", "mean score", "standard error"), rows),
        partial(_draw_scores, result=result, c=c, scores=scores, y=y if labels is None else labels, each=each),
    )


def _draw_scores(figure: Any, result: Result, c: int, scores: Array, y: Any, each: Scores) -> None:
    axes, n, colour = figure.subplots(), len(scores), COLOURS[c % len(COLOURS)]
    few = np.unique(np.linspace(0, n - 1, min(n, SAMPLES)).astype(int))
    names, which = (None, None) if y is None or y.dtype.kind != "U" else np.unique(y, return_inverse=True)
    across, down = each.places, scores
    axes.set(xlabel=cut(each.name, 2 * LONG), ylabel="score of a sample")
    if scores.ndim == 2:
        (across, down), modes = scores[:, :2].T, result.labels.modes
        axes.set(xlabel=f"score of {cut(modes[0])}", ylabel=f"score of {cut(modes[1])}")
    elif which is not None:
        across = which + np.linspace(-0.3, 0.3, n)  # in the order of the samples, from left to right
        axes.set_xlabel("")
    elif y is not None:
        across = y
        axes.set_xlabel(cut(result.components[c].effect or "y", 2 * LONG))
    elif across.dtype.kind == "M":
        axes.tick_params(axis="x", labelrotation=30, labelsize=8)
    size, alpha = (2.6, 0.5) if n > DOTS else (4, 0.9)
    axes.plot(across[few], down[few], color=colour, ls="", marker="o", ms=size, alpha=alpha, mew=0)
    if names is not None:
        means, errors = zip(*(_mean(scores[which == i]) for i in range(len(names))), strict=True)
        places, ends = range(len(names)), [2 * e for e in errors]
        axes.errorbar(places, means, ends, fmt="D", ms=7, mew=1.5, lw=2.5, color=INK, mfc="white")
        tilted = sum(map(len, names)) > 30
        turned = {"rotation": 45 * tilted, "ha": "right" if tilted else "center"}
        axes.set_xticks(places, [cut(str(name)) for name in names], **turned)
        axes.set_xlim(-0.6, len(names) - 0.4)


def _mean(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


# How many components --------------------------------------------------------------------------------------------------

PANEL_NOTES = {
    "strength": "Correlations on held-out rows, with two standard errors.",
    "p_value": "p says how often pure noise does at least as well as a component more; where a dot is filled, there "
    "are at least so many.",
    "joint_share": "Shares of the estimate, its noise included, that fits of 1, 2, ... components are together.",
    "variance_ratio": "Shares of the variance show where the rest becomes small.",
    "half_agreement": "Agreement is the cosine of the patterns of two halves of the samples: 1 if both show the same, "
    "0 if nothing.",
}
PANEL_AXES = {
    "strength": ("component", "correlation ± 2 s.e."),
    "p_value": ("at least so many components", "p"),
    "joint_share": ("components fitted together", "% of the estimate"),
    "variance_ratio": ("component", "% of the variance"),
    "half_agreement": ("component", "agreement of halves"),
}
"""What lies along both axes of a panel."""


def evidence_picture(result: Result, upright: bool = True) -> Picture | None:
    """How many components: p of there being so many, shares, agreement of halves; of views, correlations.

    Nothing of one component, which has no other to be compared with.  Panels stand side by side, or ``upright`` above
    each other.
    """
    rows = result.components
    tested = result.kind == "samples" and any(math.isfinite(component.p_value) for component in rows)
    if len(rows) == 1 or not (tested or result.kind == "views"):
        return None
    names = ["strength"]
    if tested:
        names = ["p_value"]
        for name in ("joint_share", "variance_ratio", "half_agreement"):
            if any(math.isfinite(getattr(component, name)) for component in rows):
                names.append(name)
    return Picture(
        "How many components",
        f"{about(result)}: evidence of each component.",
        " ".join(PANEL_NOTES[name] for name in names),
        evidence_table(result, tested),
        partial(_draw_evidence, result=result, names=names, upright=upright),
        0.5 + 2.0 * len(names),
    )


def evidence_table(result: Result, tested: bool) -> tuple[list[str], list[list[str]]]:
    """Heading and lines of the table beside the picture."""
    heading = ["component", "strength", "p", "proven"]
    if tested:
        heading.append("halves agree")
    lines = []
    for c, component in enumerate(result.components):
        proven = "yes" if component.significant else "no"
        line = [title_of(result, c), strength_of(result, c), number(component.p_value, 2), proven]
        if tested:
            line.append(number(component.half_agreement, 2))
        lines.append(line)
    return heading, lines


def _draw_evidence(figure: Any, result: Result, names: Sequence[str], upright: bool) -> None:
    rows = result.components
    places = np.arange(1, len(rows) + 1)
    effects = np.array([component.effect for component in rows])
    shape = (len(names), 1) if upright else (1, len(names))
    panels = figure.subplots(*shape, squeeze=False).flat
    for axes, name in zip(panels, names, strict=True):
        values = np.array([getattr(component, name) for component in rows])
        axes.set_xlim(0.4, len(rows) + 0.6)
        some = places if len(places) <= FEW else np.linspace(1, len(rows), 6).astype(int)
        axes.set_xticks(some, [str(place_of(result, place - 1)[0]) for place in some])
        if name == "p_value":
            _draw_p_values(axes, result, places, values)
        elif name == "joint_share":
            for effect in dict.fromkeys(effects):
                of_effect = effects == effect
                axes.plot(places[of_effect], 100 * values[of_effect], "o-", ms=6, lw=1.2, color=COLOURS[0])
            axes.set_ylim(0, 105)
        elif name == "variance_ratio":
            axes.bar(places, 100 * values, width=0.5, color=COLOURS[0])
        elif name == "strength":
            margins = [2 * component.correlation_error for component in rows]
            axes.axhline(0, color=INK, lw=0.8)
            axes.errorbar(places, values, margins, fmt="o", color=COLOURS[0])
        else:
            axes.axhline(0, color=INK, lw=0.8)
            axes.plot(places, values, "s", ms=6, color=COLOURS[0])
            axes.set_ylim(min(-0.05, 1.1 * float(np.nanmin(values))), 1.05)
        along, upwards = PANEL_AXES[name]
        if result.target == "variance":
            along = "component"
        axes.set(xlabel=along, ylabel=upwards)
        _divide_effects(axes, effects)


def _divide_effects(axes: Any, effects: NDArray[Any]) -> None:
    """Lines between the components of several effects, and the names of these above."""
    names = list(dict.fromkeys(effects.tolist()))
    if len(names) < 2:
        return
    room = max(6, 36 // len(names))
    for name in names:
        places = 1 + np.flatnonzero(effects == name)
        if places[0] > 1:
            axes.axvline(places[0] - 0.5, color=INK, lw=0.8, ls=":")
        centre = float(places.mean())
        axes.text(centre, 1.02, cut(name, room), transform=axes.get_xaxis_transform(), ha="center", size=8)


def _draw_p_values(axes: Any, result: Result, places: Any, values: Array) -> None:
    """P of there being at least 1, 2, ... components, on a logarithmic scale that turns downwards."""
    level = 1 - result.confidence
    proven = np.array([component.significant for component in result.components])
    for mask, face, name in ((proven, COLOURS[0], "proven"), (~proven, "none", "not proven")):
        if mask.any():
            axes.plot(places[mask], values[mask], "o", ms=7, mfc=face, mec=COLOURS[0], mew=1.5, label=name)
    axes.axhline(level, color=INK, lw=1, ls="--")
    axes.set_yscale("log")
    smallest = float(np.nanmin(values))
    axes.set_ylim(0.2 * min(smallest, level), 2)  # room for the legend
    axes.invert_yaxis()
    axes.legend(loc="best", fontsize=8, borderaxespad=0.3, handletextpad=0.4)
