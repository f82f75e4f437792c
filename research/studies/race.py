"""The race on fresh seeds: its target table, false alarms on pure noise, coverage of its intervals."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from research.studies.estimates import Interval, rate_interval
from research.studies.race_checks import COVERAGE_SETTINGS, NOISE_SETTINGS, claims, covered
from research.studies.race_targets import GOOD, ROWS, run_trial
from research.studies.study import Finding, Params, Records, Scale, Study, Verdict

ENOUGH = 5  # runs below which success proves nothing
FIRST_SEED = 6_000_000  # seeds that no other table has used
QUICK_ROWS = (0, 4, 12)


def _grid(scale: Scale) -> list[Params]:
    """Rows of the target table by number, noise and coverage settings by number."""
    quick = scale == "quick"
    law = [i for i, row in enumerate(ROWS) if row.source == "law"]
    rows = QUICK_ROWS if quick else law
    runs, alarms, coverage = (2, 4, 4) if quick else (6, 15, 20)
    trials: list[Params] = [{"kind": "target", "row": i, "seed": s} for i in rows for s in range(runs)]
    trials += [{"kind": "alarm", "row": i, "seed": s} for i in range(len(NOISE_SETTINGS)) for s in range(alarms)]
    return trials + [
        {"kind": "coverage", "row": i, "seed": s} for i in range(len(COVERAGE_SETTINGS)) for s in range(coverage)
    ]


def _trial(params: Params) -> dict[str, Any]:
    """One run of its kind."""
    seed = FIRST_SEED + 1000 * params["seed"]
    if params["kind"] == "target":
        result = run_trial((ROWS[params["row"]], seed))
        return {name: result[name] for name in ("overlap", "proven_at", "state_bytes")}
    if params["kind"] == "alarm":
        return {"claims": claims((*NOISE_SETTINGS[params["row"]], seed))[1]}
    inside, entries, strength, _ = covered((*COVERAGE_SETTINGS[params["row"]], seed))
    return {"inside": inside, "entries": entries, "strength": strength}


def _targets(records: Records) -> list[Finding]:
    """Every row of the table."""
    found = []
    for i, row in enumerate(ROWS):
        results = [r.result for r in records if r.params["kind"] == "target" and r.params["row"] == i]
        if not results:
            continue
        rate = rate_interval(sum(r["overlap"] > GOOD for r in results), len(results))
        unit = row.dim ** (row.order / 2)
        proven = [r["proven_at"] / unit for r in results if r["proven_at"]]
        median = f", proven at {statistics.median(proven):.2f}·d^{row.order / 2:g}" if proven else ""
        text = f"success {rate.text()}{median}"
        label = f"order {row.order}, d = {row.dim}, {row.kind}, state {row.state:g}·d^{row.power}"
        predicted = f"90 % by {row.factor:g}·d^{row.order / 2:g}"
        enough = len(results) >= ENOUGH or rate.high < 0.9
        verdict = Verdict.of(rate.high >= 0.9) if enough else Verdict.OPEN
        found.append(Finding(label, predicted, text, verdict))
    return found


def _rates(records: Records) -> list[Finding]:
    """False alarms and coverage."""
    found = []
    if alarms := [r.result["claims"] for r in records if r.params["kind"] == "alarm"]:
        rate = rate_interval(sum(alarms), len(alarms))
        text = f"{sum(alarms)} of {len(alarms)}: {rate.text(3)}"
        found.append(Finding("false alarms on pure noise", "at most 5 %", text, Verdict.of(rate.low <= 0.05)))
    if runs := [r.result for r in records if r.params["kind"] == "coverage"]:
        rate = rate_interval(sum(bool(r["strength"]) for r in runs), len(runs))
        text, verdict = f"{rate.text()} of {len(runs)} runs", Verdict.of(rate.high >= 0.95)
        found.append(Finding("coverage of the strength", "at least 0.95", text, verdict))
        shares = np.array([r["inside"] / r["entries"] for r in runs])
        mean, error = float(shares.mean()), 1.96 * float(shares.std() / np.sqrt(len(shares)))
        text, verdict = Interval(mean, mean - error, mean + error).text(3), Verdict.of(mean + error >= 0.95)
        found.append(Finding("coverage of the components", "at least 0.95", text, verdict))
    return found


RACE = Study(
    "race",
    "The race: targets, false alarms, coverage",
    "At the samples and state of the target table 90 % of the runs succeed; at most 5 % of runs on pure noise "
    "claim a signal; 95 % intervals cover 95 %.",
    _grid,
    _trial,
    lambda params: {"target": 6.0, "alarm": 0.4, "coverage": 0.6}[params["kind"]],
    [_targets, _rates],
)
