"""A comparison on disk: ``comparison.json``, rewritten whole after every trial, so that no finished one is lost."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpca.drafts import replacing
from tpca.errors import StudyError, reading
from tpca.fields import COUNT, FLAG, LENGTH, NUMBER, POSITIVE, TEXT, finite, maybe, named, read_json
from tpca.lab.studies.compare import TITLES, Outcome, Setting
from tpca.lab.studies.store import made
from tpca.wording import amount, duration, number

FORMAT = "tpca comparison"
FILE = "comparison.json"
FIELDS = {
    "settings": {"dims": [LENGTH], "strength": NUMBER, "samples": COUNT, "law": FLAG, "methods": [TEXT]},
    "left_out": named(TEXT),
    "trials": [
        {
            "seed": COUNT,
            "outcomes": [
                {"method": TEXT, "success": FLAG, "error": maybe(POSITIVE), "seconds": POSITIVE, "state_bytes": COUNT}
                | {"buffer_bytes": COUNT, "passes": COUNT, "samples": COUNT}
            ],
        }
    ],
}


def settings_of(setting: Setting, methods: Sequence[str]) -> dict[str, Any]:
    """What was compared, as plain values."""
    problem = setting.problem
    about: dict[str, Any] = {"dims": list(problem.dims), "strength": problem.strength, "symmetric": problem.symmetric}
    about |= {"correlation": problem.correlation, "samples": setting.samples, "memory": setting.memory_limit}
    return about | {"law": setting.law, "methods": list(methods)}


@dataclass
class Comparison:
    """Outcomes by seed, what was compared, and why other methods were left out."""

    settings: dict[str, Any]
    left_out: dict[str, str]
    trials: dict[int, list[Outcome]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A summary of every method, the best first."""
        every = [outcome for outcomes in self.trials.values() for outcome in outcomes]
        own = {name: [o for o in every if o.method == name] for name in self.settings["methods"]}
        rows = [_summary(name, outcomes) for name, outcomes in own.items() if outcomes]
        return sorted(rows, key=lambda row: (-row["successes"], row["error"]))


def _summary(name: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "method": name,
        "title": TITLES.get(name, name),
        "successes": sum(o.success for o in outcomes),
        "trials": len(outcomes),
        "error": statistics.fmean(o.error for o in outcomes),
        "seconds": statistics.fmean(o.seconds for o in outcomes),
        "state_bytes": max(o.state_bytes for o in outcomes),
        "buffer_bytes": max(o.buffer_bytes for o in outcomes),
        "passes": statistics.median(o.passes for o in outcomes),
        "samples": max(o.samples for o in outcomes),
    }


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A summary in words, as tables show it."""
    return {
        "method": row["title"],
        "success": f"{row['successes']}/{row['trials']}",
        "error": number(row["error"], 2),
        "time": duration(row["seconds"]),
        "state": amount(row["state_bytes"]),
        "passes": f"{row['passes']:.0f}",
        "buffer": amount(row["buffer_bytes"]),
        "samples": f"{row['samples']:,}",
    }


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write the file, whole or not at all."""
    trials = [{"seed": seed, "outcomes": [asdict(o) for o in found]} for seed, found in comparison.trials.items()]
    about = {"format": FORMAT, "version": 1, "settings": comparison.settings, "left_out": comparison.left_out}
    with replacing(folder / FILE) as (draft,):
        draft.write_text(json.dumps(finite({**about, "made_with": made(), "trials": trials}), indent=1) + "\n")


def read_comparison(folder: Path) -> Comparison:
    """Read what :func:`write_comparison` wrote."""
    failure = f"cannot read a comparison from {str(folder)!r}"
    with reading(failure, "give the folder that `tpca compare --out` wrote", StudyError):
        found = read_json(folder / FILE, FIELDS, FORMAT)
        trials = {t["seed"]: [Outcome(**_known(o)) for o in t["outcomes"]] for t in found["trials"]}
    stray = {o.method for outcomes in trials.values() for o in outcomes} - set(found["settings"]["methods"])
    if stray:
        raise StudyError(f"{failure}: outcomes of {min(stray)!r}, which was not compared; compare again.")
    return Comparison(found["settings"], found["left_out"], trials)


def _known(outcome: dict[str, Any]) -> dict[str, Any]:
    """An error that is not a number was written as null."""
    return {**outcome, "error": float("nan") if outcome["error"] is None else outcome["error"]}


def stored_trials(folder: Path, settings: dict[str, Any]) -> dict[int, list[Outcome]]:
    """Finished trials of the same comparison; refuses a folder that holds another one."""
    if not (folder / FILE).exists():
        return {}
    found = read_comparison(folder)
    if found.settings != settings:
        names = ", ".join(name for name in settings if found.settings.get(name) != settings[name])
        raise StudyError(f"{str(folder)!r} holds another comparison (other {names}); name another folder.")
    return found.trials
