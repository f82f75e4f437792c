"""The words about a result, the same in a terminal, in a notebook and on a page.

A verdict is one line.  Concerns follow, one line each, with a number and one action.  Every number is the result's own.
Confidence is a property of the method: on noise it claims a signal in at most ``1 - confidence`` of all fits.  It is
not the probability that there is a signal, and the words must not say so.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpca.solvers.estimate import StopReason, Verdict
from tpca.wording import beside, count, number, percent, printable, shape, with_error, within

if TYPE_CHECKING:
    from tpca.result import Component, Result

MAX_ENTRIES, MAX_COMPONENTS = 5, 10  # of a vector, and components, that are told
SOLVERS = {"least_squares": "least squares", "race": "race", "paper": "paper's algorithm", "variation": "variation"}
WIDTH = 80  # columns of a terminal
NO_BREAK = "\u00a0"
LOADINGS = "Numbers of columns are loadings: correlations with the score of their view."
MANY_VIEWS = "With more than two views the correlation is the mean product of all scores; it may exceed 1."


@dataclass(frozen=True)
class Part:
    """One component: what it is, how strong, and for every axis its name and its largest entries."""

    title: str
    strength: str
    axes: Sequence[tuple[str, Sequence[str]]]


class Summary(str):
    """What a fit found: text, which notebooks show as tables."""

    headline: str
    about: str
    parts: Sequence[Part]
    remarks: Sequence[str]

    def __new__(cls, headline: str, about: str, parts: Sequence[Part], remarks: Sequence[str]) -> Summary:
        """One line of verdict, one about the fit, the components, and a line for every remark."""
        lines = [headline, about]
        for part in parts:
            lines += ["", f"{part.title}: {part.strength}"]
            widest = max((len(name) for name, _ in part.axes), default=0)
            for name, entries in part.axes:
                whole = ", ".join(entry.replace(" ", NO_BREAK) for entry in entries)
                lines += _wrapped(f"  {name:<{widest}}  {whole}", " " * min(widest + 4, WIDTH // 2))
        lines += ["", *(line for remark in remarks for line in _wrapped(f"- {remark}", "  "))] if remarks else []
        text = super().__new__(cls, "\n".join(map(printable, lines)))  # what comes from data cannot redraw a terminal
        text.headline, text.about, text.parts, text.remarks = headline, about, parts, remarks
        return text

    def __repr__(self) -> str:
        return str(self)

    def __getnewargs__(self) -> tuple[str, str, Sequence[Part], Sequence[str]]:  # type: ignore[override]
        return self.headline, self.about, self.parts, self.remarks

    def _repr_html_(self) -> str:
        say = html.escape
        body = [f"<p><strong>{say(self.headline)}</strong><br>{say(self.about)}</p>"]
        for part in self.parts:
            rows = [f"<tr><th>{say(name)}</th><td>{say(', '.join(entries))}</td></tr>" for name, entries in part.axes]
            body.append(f"<table><caption>{say(f'{part.title}: {part.strength}')}</caption>{''.join(rows)}</table>")
        remarks = "".join(f"<li>{say(remark)}</li>" for remark in self.remarks)
        return f"<div>{''.join(body)}{f'<ul>{remarks}</ul>' if remarks else ''}</div>"


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines for a terminal; entries are not broken."""
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def summary_of(result: Result) -> Summary:
    """What a result says, in a few lines."""
    shown = range(min(MAX_COMPONENTS, len(result.components)))
    parts = [Part(title_of(result, c), strength_of(result, c), entries_of(result, c)) for c in shown]
    return Summary(headline(result), about(result), parts, [*concerns(result), *reading_hints(result)])


# The verdict ----------------------------------------------------------------------------------------------------------


def headline(result: Result) -> str:
    """The verdict in one line, with the numbers that matter most."""
    p = p_of(result, result.p_value)
    if result.kind == "samples" and p != p_of(result, result.components[0].p_value):
        p += " over all tests"  # those of whitened samples and other covariates, too; a component shows its own
    if result.verdict is Verdict.NOT_TESTED:
        return _untested(result)
    if result.verdict is Verdict.NO_SIGNAL:
        limit = upper_limit(result)
        known = result.kind == "samples" and math.isfinite(limit)
        hidden = f"if there is one, its strength is below {number(limit)} ({percent(result.confidence)} confidence)"
        return f"No signal: {p}{f'; {hidden}' if known else ''}."
    proven = result.n_proven
    rows = len(result.components)
    if rows > 1 and proven:
        return f"Signal: {p}; {proven} of {rows} components {'is' if proven == 1 else 'are'} proven."
    if not proven and result.kind == "samples":
        return f"Signal: {p}; the pattern shown is not itself significant."
    return f"Signal: {strength_of(result, 0).partition(';')[0]}."


def p_of(result: Result, p: float) -> str:
    """``p = 0.03``; ``p ≤ 0.001`` where none of 999 resamples came as far, and more of them might say less."""
    least = result.n_resamples and p <= (1 + 1e-9) / (result.n_resamples + 1)
    return f"p {'≤' if least else '='} {number(p, 2)}"


def upper_limit(result: Result) -> float:
    """The largest strength that intervals allow."""
    return max((c.strength_interval[1] for c in result.components if c.strength_interval), default=math.nan)


def _untested(result: Result) -> str:
    """Why there was no test, in one line."""
    own = next((line for line in result.advice if line.startswith("Not tested")), None)
    if own is not None:
        return own
    if result.stop_reason == StopReason.STREAM_ENDED_EARLY.name:
        return "Not tested: the samples ended before the schedule did. Give more, or use solver='race'."
    return f"Not tested: the {SOLVERS.get(result.solver, result.solver)} has no test of whether there is a signal."


def about(result: Result) -> str:
    """What was fitted, and how."""
    skipped = f", {result.n_skipped:,} left out" if result.n_skipped else ""
    if result.kind == "views":
        return f"{count(result.n_samples, 'row')} of {len(result.dims)} views, {shape(result.dims)} columns{skipped}"
    each = zip(result.labels.modes, result.dims, strict=True)
    axes = " × ".join(f"{name} {d:,}" for name, d in each) if result.names else shape(result.dims)
    how = [SOLVERS.get(result.solver, result.solver)]
    how += [count(result.n_units, "unit")] if result.n_units and result.solver == "least_squares" else []
    how += [f"{result.n_resamples:,} {'flips' if result.solver == 'least_squares' else 'resamples'}"] * bool(
        result.n_resamples
    )
    return f"{count(result.n_samples, 'sample')} of {axes}{skipped}; {', '.join(how)}"


def concerns(result: Result) -> list[str]:
    """What to know beside the verdict, one line each; of no signal, what would help here."""
    told = [line for line in result.advice if line != headline(result)]
    samples = result.kind == "samples"
    if samples and result.verdict is Verdict.NO_SIGNAL:
        told += _what_helps(result)
    unseen = [(m, int(i)) for m, rates in enumerate(result.observed) for i in np.flatnonzero(rates == 0)]
    if unseen:
        names = ", ".join(f"{result.labels.entry(m, i)} of {result.labels.modes[m]}" for m, i in unseen[:MAX_ENTRIES])
        more = f" and {len(unseen) - MAX_ENTRIES} more" if len(unseen) > MAX_ENTRIES else ""
        told.append(f"Never observed: {names}{more}. Nothing is known of these entries: leave them out.")
    told += _too_many(result)
    rows = len(result.components)
    fewer_advised = any("n_components=" in line for line in told)
    asked_for = result.settings.get("n_components") != "auto"
    if samples and 1 < rows == result.n_proven and asked_for and not fewer_advised:
        more = "'auto'" if result.solver == "least_squares" else f"{2 * rows}"
        told.append(f"All {rows} components are proven: there may be more. Try n_components={more}.")
    if result.stop_reason == StopReason.NOT_ACCURATE.name:
        told.append("The samples ended before the vectors were as accurate as asked for: give more, or a larger tol.")
    return list(dict.fromkeys(told))


def _too_many(result: Result) -> list[str]:
    """What components that are not proven do to those that are."""
    if not fitted_jointly(result):
        return []
    effects = [component.effect for component in result.components]
    proven = [component.effect for component in result.components if component.significant]
    if not any(0 < proven.count(effect) < effects.count(effect) for effect in effects):
        return []
    wanted = len(proven) if len(set(effects)) == 1 else "'auto'"
    return [
        "Components are fitted together: those that are not proven make the others less sure. Use "
        f"n_components={wanted}."
    ]


def fitted_jointly(result: Result) -> bool:
    """Whether there are several components of an effect that change with their number: from three axes on."""
    labels = max((len(component.label_amplitudes or ()) for component in result.components), default=0)
    axes = sum(length > 1 for length in result.dims) + (labels > 2)  # contrasts of several labels are an axis
    return result.solver == "least_squares" and several_of_an_effect(result) and axes > 2


def several_of_an_effect(result: Result) -> bool:
    """Whether an effect, or the mean, has more than one component."""
    return len(result.components) > len({component.effect for component in result.components})


def _what_helps(result: Result) -> list[str]:
    told, level = [], 1 - result.confidence
    entries = result.entry_p_values
    if entries is not None and (few := int(np.sum(entries <= level))):
        told.append(
            f"{count(few, 'entry is', 'entries are')} significant (least {p_of(result, float(np.nanmin(entries)))}): "
            "the signal may be in few entries. Look at entry_p_values_."
        )
    limit = upper_limit(result)
    if math.isfinite(limit):
        told.append(f"Four times as many samples would lower the limit to about {number(limit / 2, 2)}.")
    if result.solver == "race":
        told.append("A larger memory_limit may find a weaker signal.")
    if result.solver == "least_squares" and result.settings.get("whiten", "auto") is None:
        told.append("Where the noise is loud in few directions, whiten='auto' sees a weaker signal.")
    return told


def reading_hints(result: Result) -> list[str]:
    """How to read the numbers, where that is not plain."""
    told = []
    if len(result.components) > MAX_COMPONENTS:
        told.append(f"These are the first {MAX_COMPONENTS} of {count(len(result.components), 'component')}.")
    if result.kind == "views":
        told += [LOADINGS] + [MANY_VIEWS] * (len(result.dims) > 2)
    if result.solver == "least_squares" and several_of_an_effect(result):
        of_effect = " of its effect" if len({component.effect for component in result.components}) > 1 else ""
        together = " They are fitted together: a fit of one is not the first of two." if fitted_jointly(result) else ""
        told.append(f"p of component 2 is that of there being at least 2 components{of_effect}, and so on.{together}")
    if result.target == "variance" and result.found:
        told.append("The test says that entries vary together, no more: correlated noise does so, too.")
    return told


# A component ----------------------------------------------------------------------------------------------------------


def effect_of(component: Component) -> str:
    """``effect of target - standard``, ``effect of dose, per unit``, ``effect between 3 labels``, or nothing."""
    effect = component.effect
    if not effect or effect.startswith("between "):
        return effect and f"effect {effect}"
    return f"effect of {effect}" if " - " in effect else f"effect of {effect}, per unit"


def title_of(result: Result, c: int) -> str:
    """``component 2``, ``effect of dose, per unit``, or both; components of an effect are counted from 1."""
    number_in_effect, count_of_effect = place_of(result, c)
    which = f"component {number_in_effect}" if count_of_effect > 1 else ""
    return ", ".join(filter(None, (which, effect_of(result.components[c])))) or "component"


def place_of(result: Result, c: int) -> tuple[int, int]:
    """Which component of its effect a row is, counted from 1, and how many that effect has."""
    effects = [component.effect for component in result.components]
    return effects[: c + 1].count(effects[c]), effects.count(effects[c])


def strength_of(result: Result, c: int) -> str:
    """How strong a component is, and how surely."""
    own = result.components[c]
    if not any(v[c].any() for v in result.vectors):
        return "nothing is left to fit"
    p = "" if math.isnan(own.p_value) else f", {p_of(result, own.p_value)}"
    if p and not own.significant:
        p += " (not significant)"
    if result.kind == "views":
        return f"correlation {with_error(own.strength, own.correlation_error)} on held-out rows{p}"
    told = f"strength {beside(own.strength, own.strength_interval)}"
    if own.strength_interval is not None and all(map(math.isfinite, own.strength_interval)):
        told += f" ({percent(result.confidence)} interval {within(own.strength_interval)})"
    if not math.isnan(own.variance_ratio):
        told = f"{number(100 * own.variance_ratio, 3)} % of the variance, {told}"
    amplitudes = own.label_amplitudes or {}
    return told + p + (f"; {', '.join(f'{k}: {number(v, 2)}' for k, v in amplitudes.items())}" if amplitudes else "")


def entries_of(result: Result, c: int) -> list[tuple[str, list[str]]]:
    """For every axis its name, the largest entries of a component, ``Pz: 0.69 ± 0.06``, and how many more there are.

    Along an axis of numbers or times, an entry beside a larger one says the same again: of each sign, a tenth of the
    axis to either side is left out.  Nothing is told of a component that could not be had.
    """
    told: list[tuple[str, list[str]]] = []
    if not any(v[c].any() for v in result.vectors):
        return told
    for mode, (axis, rows, errors) in enumerate(zip(result.labels.axes, result.shown, result.errors, strict=True)):
        vector, chosen = rows[c], list[int]()
        apart = len(vector) // 10 if axis.ordered else 0
        for i in np.argsort(-np.abs(vector), kind="stable").tolist():
            new = all(abs(i - other) > apart or vector[i] * vector[other] < 0 for other in chosen)
            chosen += [i] if new and len(chosen) < MAX_ENTRIES else []
        each = [f"{axis.entry(i)}: {with_error(float(vector[i]), float(errors[c][i]))}" for i in chosen]
        each += [f"… {len(vector) - len(chosen):,} more"] if len(vector) > len(chosen) else []
        told.append((result.labels.modes[mode], each))
    return told


# A paper's methods ----------------------------------------------------------------------------------------------------


def methods_of(result: Result) -> str:
    """A paragraph for a paper."""
    level = percent(result.confidence)
    by = f"with tpca {result.tpca_version}"
    if result.kind == "views":
        told = [
            f"Directions shared by {len(result.dims)} views of {count(result.n_samples, 'row')} were fitted by tensor "
            f"canonical correlation analysis {by}.",
            "Correlations are means of products of standardised scores on rows that were held out; p-values come from "
            "permuting these rows.",
        ]
        return " ".join(told)
    rows = len(result.components)
    what = "a rank-one pattern" if rows == 1 else f"{rows} rank-one patterns"
    data = f"{count(result.n_samples, 'sample')} of {shape(result.dims)} entries"
    of = {"mean": f"the mean of {data}", "variance": f"the variation of {data} about their mean"}
    effects = dict.fromkeys(component.effect or "y" for component in result.components)
    of["effect"] = f"the effect of {' and of '.join(effects)} in {data}"
    told = [f"We fitted {what} to {of.get(result.target, data)} {by}."]
    if result.solver == "least_squares":
        told += _least_squares_methods(result, level)
    elif result.solver == "variation":
        told.append(
            "The pattern is the one of largest variance, found by alternating eigenproblems. The test compares its "
            f"variance with that of {result.n_resamples:,} copies in which every centred entry has a random sign."
        )
        told.append(f"Standard errors and {level} intervals are from a jackknife over groups of samples.")
    elif result.solver == "race":
        told.append(
            "Samples were read in a stream. Evidence against noise was gathered by bets on samples not seen before; it "
            "is valid whenever one stops, and p is the inverse of the largest e-value."
        )
    else:
        told.append("This method gives neither a test nor errors.")
    return " ".join(told)


def _least_squares_methods(result: Result, level: str) -> list[str]:
    told = ["The estimate is the best rank-one fit of the least-squares solution, in the units of the data."]
    if several_of_an_effect(result):
        told = [
            "The components are the joint least-squares fit (CP, by damped Gauss-Newton steps from many starts) of the "
            "least-squares solution, in the units of the data. The p-value of component c is that of there being at "
            "least c: it is tested on what the fit of c - 1 leaves, without the tangent space of that fit."
        ]
    if result.n_resamples and not math.isnan(result.p_value):
        statistic = "The statistic is the length of the best rank-one fit"
        more = "" if result.settings.get("whiten", "auto") is None else (
            "; the smallest p-value of this length before and after whitening is compared with its own null "
            "distribution (Westfall and Young)"
        )  # fmt: skip
        told.append(
            f"p-values come from {result.n_resamples:,} random sign flips of {result.n_units:,} independent units of "
            f"samples. {statistic}{more}."
        )
        told.append("p-values of single entries are family-wise, by the largest |t| over all entries of a flip.")
    if result.inflation > 1.05:
        told.append(f"Correlation of neighbouring units was allowed for (variance inflation {result.inflation:.2f}).")
    told.append(f"Standard errors and {level} intervals are from the scatter of samples or units about the fit.")
    return told
