"""What the trials of ``make noise-checks`` come to: rates, medians and ratios by setting, and the targets they are for.

``allowed(200)`` is 18: a test of exactly 5 % makes more claims than that in 200 runs with probability 0.006.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tpca.lab.studies.estimates import Estimate, rate_interval
from tpca.lab.studies.study import Finding, Record, Verdict
from tpca.randomness import generator
from tpca.tensors.blocks import Array

Row = dict[str, Any]
Summary = dict[str, list[Row]]

CLAIMS_ALLOWED = 0.05
POOLED = 0.055
MAX_CLIPPED = 1.5  # the same, for entries with heavy tails and the quartiles of white noise
MAX_SAMPLES = 1.3  # times the samples in white noise of the same generalised signal-to-noise ratio
COVERED = (0.93, 0.97)
ENOUGH = 100  # runs of a setting below which a rate that is not off proves nothing
DRAWS = 400
# What a trial was run with, but for its chunk: one row for each.
SETTING = ("law", "set", "form", "vectors", "whiten", "strength", "solver", "dims", "samples")


def allowed(runs: int) -> int:
    """The most claims in so many runs that count as 5 %."""
    from scipy.stats import binom

    return int(binom.isf(0.006, runs, CLAIMS_ALLOWED))


def summarised(records: Iterable[Record]) -> Summary:
    """One row for every setting, in the order in which they were declared."""
    groups: dict[str, dict[str, tuple[Row, list[Record]]]] = {kind: {} for kind in SUMMARISE}
    for record in records:
        setting = {name: record.params[name] for name in SETTING if name in record.params}
        kind = groups[record.params["kind"]]
        kind.setdefault(str(setting), (setting, []))[1].append(record)
    summary = {
        kind: [{**setting, **SUMMARISE[kind](_runs(records))} for setting, records in group.values()]
        for kind, group in groups.items()
    }
    _add_ratios(summary["power"])
    return summary


def _runs(records: Sequence[Record]) -> dict[str, list[Any]]:
    """The runs of all chunks, result by result."""
    names = records[0].result
    return {name: [value for record in records for value in record.result[name]] for name in names}


def _claims(runs: dict[str, list[Any]]) -> Row:
    return {"claims": sum(runs["found"]), "runs": len(runs["found"])}


def _real(runs: dict[str, list[Any]]) -> Row:
    return {**_claims(runs), "samples": runs["samples"][0]}


def _power(runs: dict[str, list[Any]]) -> Row:
    proven = sorted(math.inf if samples is None else samples for samples in runs["proven"])
    return {
        "runs": len(proven),
        "claims": sum(math.isfinite(samples) for samples in proven),
        "right": sum(runs["right"]),
        "limits_held": sum(runs["limit_held"]),
        "proven": [samples if math.isfinite(samples) else None for samples in proven],
        "median": _finite(float(np.median(proven))),
    }


def _coverage(runs: dict[str, list[Any]]) -> Row:
    inside = np.array([share for share in runs["inside"] if share is not None])
    strength = [held for held in runs["strength_inside"] if held is not None]
    row: Row = {"runs": len(runs["right"]), "right": sum(runs["right"]), "judged": len(strength)}
    if not strength:
        return row | {"entries": None, "entries_error": None, "strength_held": 0, "error_ratio": None}
    return row | {
        "entries": float(inside.mean()),
        "entries_error": float(inside.std() / math.sqrt(len(inside))),
        "strength_held": sum(strength),
        "error_ratio": float(np.mean([ratio for ratio in runs["ratio"] if ratio is not None])),
    }


SUMMARISE: dict[str, Callable[[dict[str, list[Any]]], Row]] = {
    "claims": _claims,
    "real": _real,
    "power": _power,
    "coverage": _coverage,
}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _add_ratios(rows: list[Row]) -> None:
    """To every row of the race its median over that of white noise, with a bootstrap interval."""
    for row in rows:
        white = [r for r in rows if r["law"] == "white" and all(r[k] == row[k] for k in ("solver", "dims", "whiten"))]
        if row["solver"] == "race" and white:
            row["ratio"], row["ratio_interval"] = _ratio(row["proven"], white[0]["proven"])


def _ratio(above: list[Any], below: list[Any]) -> tuple[float | None, list[float | None]]:
    """Ratio of medians; a run that never proved its signal took for ever."""
    top, bottom = (np.array([math.inf if p is None else p for p in proven]) for proven in (above, below))
    rng = generator(0, "bootstrap")
    drawn = sorted(_over(rng.choice(top, len(top)), rng.choice(bottom, len(bottom))) for _ in range(DRAWS))
    ends = [_finite(drawn[int(share * (DRAWS - 1))]) for share in (0.025, 0.975)]
    return _finite(_over(top, bottom)), ends


def _over(top: Array, bottom: Array) -> float:
    """Median over median; infinite where the first is."""
    median = float(np.median(top))
    return median / float(np.median(bottom)) if math.isfinite(median) else math.inf


def targets(summary: Summary) -> list[Finding]:
    """Every target, against the worst that was measured."""
    found: list[Finding] = []
    for solver in ("race", "mean"):
        rows = [row for row in summary["claims"] if row["solver"] == solver]
        if rows:
            found += [_worst_law(solver, rows), _pooled(f"claims on noise, {solver}, pooled", rows, POOLED)]
    real = [row for row in summary["real"] if row["solver"] == "race" and row["form"] != "groups"]
    if real:
        found.append(_pooled("claims on sign-flipped real data, race", real, CLAIMS_ALLOWED))
    return [*found, *_samples(summary["power"]), *_covered(summary["coverage"])]


def _verdict(good: bool, runs: int = ENOUGH) -> Verdict:
    """Few runs can show that something is wrong, not that nothing is."""
    if not good:
        return Verdict.DIFFERS
    return Verdict.AGREES if runs >= ENOUGH else Verdict.OPEN


def _worst_law(solver: str, rows: Sequence[Row]) -> Finding:
    worst = max(rows, key=lambda row: (row["claims"] - allowed(row["runs"])) / row["runs"])
    beyond = [row["law"] for row in rows if row["claims"] > allowed(row["runs"])]
    text = f"at most {worst['claims']} of {worst['runs']} ({worst['law']})"
    predicted = f"at most {allowed(worst['runs'])} of {worst['runs']} in each"
    verdict = _verdict(not beyond, worst["runs"])
    reason = f"too many in {len(beyond)} of {len(rows)}: {', '.join(beyond)}" if beyond else ""
    return Finding(f"claims on noise, {solver}, {len(rows)} settings", predicted, text, verdict, reason)


def _pooled(label: str, rows: Sequence[Row], limit: float) -> Finding:
    claims, runs = sum(row["claims"] for row in rows), sum(row["runs"] for row in rows)
    rate = rate_interval(claims, runs)
    text = f"{claims} of {runs}: {rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}]"
    return Finding(label, f"at most {limit:.1%}", text, _verdict(rate.value <= limit))


def _samples(rows: Sequence[Row]) -> list[Finding]:
    """Samples until proven: smooth noise and unequal scales, whitened; heavy tails, clipped."""
    judged = [row for row in rows if row["solver"] == "race" and row["whiten"] == "auto" and row["law"] != "white"]
    heavy = [row for row in judged if row["law"] == "t2.5-entries"]
    others = [row for row in judged if row["law"] != "t2.5-entries"]
    return _worst("whitened", others, MAX_SAMPLES) + _worst("heavy tails, clipped", heavy, MAX_CLIPPED)


def _worst(what: str, judged: Sequence[Row], most: float) -> list[Finding]:
    if not judged:
        return []
    worst = max(judged, key=lambda row: row.get("ratio") or math.inf)
    ratio = worst.get("ratio")
    text = f"at most {ratio:.2f}" if ratio else "never proven in half of the runs"
    text += f" ({worst['law']}, {worst['vectors']} signal, order {len(worst['dims'])})"
    predicted = f"at most {most} × white noise of the same strength"
    return [Finding(f"samples until proven, race, {what}", predicted, text, _verdict((ratio or 9.9) <= most))]


def _covered(rows: Sequence[Row]) -> list[Finding]:
    """Coverage of entries and of the strength, in the settings whose signals were found.

    A setting is off if the 95 % interval of what was measured has nothing in common with what is aimed at.
    """
    found = []
    low, high = COVERED
    for solver in ("race", "mean"):
        cases = [row for row in rows if row["solver"] == solver and row["judged"]]
        for name, share in (("entries", _entries), ("strength", _strength)):
            if cases:
                shares = [share(row) for row in cases]
                text = f"{min(s.value for s in shares):.1%} to {max(s.value for s in shares):.1%}"
                off = [_case(row) for row, s in zip(cases, shares, strict=True) if s.high < low or s.low > high]
                reason = f"off in {', '.join(off)}" if off else ""
                verdict = _verdict(not off, min(row["judged"] for row in cases))
                told = f"{text} over {len(cases)} settings"
                found.append(Finding(f"coverage, {name}, {solver}", "93 % to 97 %", told, verdict, reason))
    return found


def _case(row: Row) -> str:
    return f"{row['law']}, {row['vectors']}"


def _entries(row: Row) -> Estimate:
    share, spread = float(row["entries"]), 1.96 * float(row["entries_error"])
    return Estimate(share, share - spread, share + spread)


def _strength(row: Row) -> Estimate:
    return rate_interval(row["strength_held"], row["judged"])
