"""Pictures of how a signal was found: the race, the fit of the mean, the paper's phases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tpca.report.document import Figure
from tpca.report.pictures import BELOW, Axis, Trace, band, level, line, names_axis, points, upright
from tpca.wording import count, number

Records = Sequence[dict[str, Any]]
READ, FINAL = "samples read by this race", "final interval"
MAX_POINTS = 600  # points of a line: rounds grow with the samples, so there are hardly ever more


def read_samples(records: Records) -> list[int]:
    """Samples read up to every record, those of earlier passes included, each counted as long as the first."""
    longest = max((r["samples"] for r in records if r.get("pass", 1) == 1), default=0)
    return [(r.get("pass", 1) - 1) * longest + r["samples"] for r in records]


def evidence_figure(records: Records, number_: int, delta: float) -> Figure | None:
    """Evidence of every strategy's candidate, and what proves a signal."""
    pairs = [(x, r) for x, r in zip(read_samples(records), records, strict=True) if r.get("evidence")]
    if not pairs:
        return None
    pairs = _thinned(pairs)
    names = list(dict.fromkeys(name for _, r in pairs for name in r["evidence"]))
    traces: list[Trace] = []
    for i, name in enumerate(names):
        own = [(x, r["evidence"][name], r.get("pass", 1)) for x, r in pairs if name in r["evidence"]]
        traces.append(line(*_with_gaps(own), f"strategy: {name}", i))
    needed = [(x, r["needed"]) for x, r in pairs if r.get("needed") is not None]
    look: dict[str, Any] = {"colour": "soft", "dash": BELOW, "width": 1.5, "steps": True}
    traces.append(line([x for x, _ in needed], [y for _, y in needed], "needed by the candidate", 0, **look))
    changes = candidate_changes(pairs)
    traces.append(_changes(changes))
    proven = next(((x, r) for x, r in pairs if r.get("found")), None)
    several = any(r.get("pass", 1) > 1 for _, r in pairs)
    passes = " of all passes" if several else ""
    told = "It was never enough." if proven is None else f"It was enough after {count(proven[0], 'sample')}{passes}."
    again = (
        " In later passes the strategies read again what they have seen; evidence comes from the part that is kept "
        "from them."
    )
    traces += [] if proven is None else [upright(proven[0], "good", "2 3")]
    return Figure(
        f"evidence-{number_}",
        traces,
        Axis(READ, log=True),
        Axis("log evidence (natural)"),
        f"Log evidence of {count(len(names), 'strategy', 'strategies')} over the samples read. {told}",
        f"{told} Evidence for a candidate counts only samples that came after it was fixed, so it can be looked at "
        "after every round. Every new candidate (a marker) starts from nothing, and each must reach more than the one "
        f"before: with that, at most {100 * delta:.6g} % of runs on pure noise ever get there."
        f"{again if several else ''}",
    )


def _thinned(pairs: list[Any]) -> list[Any]:
    """At most so many, the last one always."""
    return [*pairs[: -1 : math.ceil(len(pairs) / MAX_POINTS)], pairs[-1]]


def _with_gaps(points_: Sequence[tuple[int, float, int]]) -> tuple[list[float], list[float]]:
    """Points as two lists, with a gap between passes: nothing is known in between."""
    spread: list[tuple[float, float]] = []
    for i, (x, y, pass_) in enumerate(points_):
        if i and points_[i - 1][2] != pass_:
            spread.append((x, math.nan))
        spread.append((x, y))
    return [x for x, _ in spread], [y for _, y in spread]


def candidate_changes(pairs: Sequence[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """The records in which another candidate is ahead than in the one before."""
    changes, before = [], None
    for x, record in pairs:
        now = (record.get("candidate"), record.get("attempt"))
        if now != before and record.get("attempt"):
            changes.append((x, record))
        before = now
    return changes


def _changes(changes: Sequence[tuple[int, dict[str, Any]]]) -> Trace:
    texts = [f"{r.get('candidate')}, attempt {r['attempt']}, after {x:,} samples" for x, r in changes]
    at, heights = [x for x, _ in changes], [r.get("log_evidence") for _, r in changes]
    return points(at, heights, "new candidate", 3, hover=texts, colour="ink", symbol="diamond", open=True, size=9)


def strength_figure(records: Records, number_: int, interval: Sequence[float | None] | None) -> Figure | None:
    """Strength with two standard errors on either side."""
    both = zip(read_samples(records), records, strict=True)
    pairs = [(x, r) for x, r in both if None not in (r.get("strength_error"), r.get("strength"))]
    if len({x for x, _ in pairs}) < 2:
        return None
    pairs = _thinned(pairs)
    xs, ys = [x for x, _ in pairs], [r["strength"] for _, r in pairs]
    halves = [2 * r["strength_error"] for _, r in pairs]
    low, high = [y - h for y, h in zip(ys, halves, strict=True)], [y + h for y, h in zip(ys, halves, strict=True)]
    traces = [band(xs, low, high, "± 2 standard errors", 0), line(xs, ys, "strength of the candidate", 0)]
    if interval and None not in interval:
        traces += [level(xs, float(end or 0), name, "2 3") for end, name in zip(interval, (FINAL, ""), strict=True)]
    late = [max(abs(a), abs(b)) for a, b in zip(low[len(low) // 3 :], high[len(high) // 3 :], strict=True)]
    late += [float(interval[1] or 0)] if interval and None not in interval else []
    top = 1.15 * max(late)  # the first rounds know nothing, and would flatten all others
    return Figure(
        f"strength-{number_}",
        traces,
        Axis(READ, log=True),
        Axis("strength", low=min(0.0, 1.1 * min(low[len(low) // 3 :])), high=top),
        f"Strength over the samples read; at the end {number(ys[-1])} ± {number(halves[-1], 2)}.",
        "While a candidate is on trial this is its mean reward: the strength times how well it overlaps with the "
        "signal, so it climbs as the candidate gets better. In the refinement it is the strength itself.",
    )


def error_figure(records: Records, number_: int) -> Figure | None:
    """Root mean squared error of the least certain vector during the refinement."""
    pairs = [(x, r["error"]) for x, r in zip(read_samples(records), records, strict=True) if r.get("error")]
    if len(pairs) < 3:
        return None
    xs, ys = [x for x, _ in pairs], [e for _, e in pairs]
    return Figure(
        f"error-{number_}",
        [line(xs, ys, "error of the least certain vector", 0)],
        Axis(READ, log=True),
        Axis("root mean squared error", log=True),
        f"Error of the least certain vector over the samples; at the end {number(ys[-1], 2)}.",
        "As the refinement estimates it. It falls as one over the root of the samples: four times as many halve it. "
        "Where it jumps, another component was found, and all sums began anew without it.",
        height=300,
    )


def mean_figure(evidence: dict[str, Any] | None, confidence: float) -> Figure | None:
    """How far the best fit to the mean reaches, what it must exceed, and the same fit to noise alone if it was made."""
    if evidence is None or evidence["value"] is None or evidence["needed"] is None:
        return None
    noise, fit, needed = evidence["noise"], evidence["value"], evidence["needed"]
    rows = ["the samples", "noise alone"] if noise else ["the samples"]
    traces = [points([fit], [0], "the samples", 0, size=12)]
    traces += [points(noise, [1] * len(noise), "noise alone", 1)] if noise else []
    traces += [upright(needed, "soft", BELOW)]
    how = (
        f"; the same fit to noise alone: {number(min(noise))} to {number(max(noise))}"
        if noise
        else "; it is so far beyond that noise alone was not fitted"
    )
    mixed = (
        "The same search was made on sums in which half of the samples have their sign changed, so that a signal "
        "cancels and only noise is left. "
    )
    return Figure(
        "mean",
        traces,
        Axis("length of the best fit", low=0.0, high=1.08 * max(fit, needed, *noise)),
        names_axis(rows, down=True),
        f"Best fit to the mean of the samples: {number(fit)}; needed: {number(needed)}{how}.",
        f"{mixed if noise else ''}Beyond the dashed line noise alone would reach in at most "
        f"{100 * (1 - confidence):.6g} % of all fits.",
        height=200 if noise else 150,
        legend=False,
    )


def proofs_figure(components: Sequence[dict[str, Any]], confidence: float) -> Figure | None:
    """Log evidence of every component, and what proves one; where all is decided at one look."""
    proofs = [c["evidence"] for c in components if c.get("evidence") and c["evidence"]["value"] is not None]
    if not proofs or any(one["needed"] is None for one in proofs):
        return None
    values, needed = [one["value"] for one in proofs], max(one["needed"] for one in proofs)
    rows = ["the component"] if len(proofs) == 1 else [f"component {c}" for c in range(len(proofs))]
    return Figure(
        "proofs",
        [points(values, list(range(len(values))), "log evidence", 0, size=12), upright(needed, "soft", BELOW)],
        Axis("log evidence (natural)", low=min(0.0, *values), high=1.08 * max(*values, needed)),
        names_axis(rows, down=True),
        f"Log evidence: {', '.join(map(number, values))}; needed: {number(needed)}.",
        f"Beyond the dashed line noise alone would get in at most {100 * (1 - confidence):.6g} % of all fits.",
        height=100 + 40 * len(rows),
        legend=False,
    )


def paper_figure(records: Records) -> Figure | None:
    """Mean reward after every turn of the paper's algorithm, by phase."""
    known = [r for r in records if r.get("reward") is not None]
    if not known:
        return None
    phases = list(dict.fromkeys(str(r.get("phase")) for r in known))
    traces = []
    for i, phase in enumerate(phases):
        own = [r for r in known if str(r.get("phase")) == phase]
        traces.append(points([r["samples"] for r in own], [r["reward"] for r in own], f"phase {phase}", i))
    return Figure(
        "paper",
        traces,
        Axis("samples used", log=True),
        Axis("mean reward of the best start"),
        f"Mean reward over the samples used, in {count(len(phases), 'phase')}; at the end "
        f"{number(known[-1]['reward'])}.",
        "The reward of the best start in the second half of each turn. At the end it is the strength times the "
        "overlaps.",
    )
