"""The store: one line of JSON per finished trial, appended and flushed to disk before the next is counted.

A line that a kill cut short, or that is damaged, is passed over when the file is read, and its trial runs again.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import subprocess
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from research.studies.study import Finding, Params, Record, Study
from tpca.errors import StudyError, check_regular, reading

LONGEST = 2**28  # bytes of a file
TRIAL = {"version": int, "params": dict, "result": dict, "seconds": int | float}


class Store:
    """Finished trials of all studies in one folder, ``<study>.jsonl`` each."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise StudyError(f"the store must be a folder, got the file {str(self.folder)!r}; name another.")

    def path(self, study: Study) -> Path:
        """The file of a study."""
        return self.folder / f"{study.name}.jsonl"

    def records(self, study: Study) -> list[Record]:
        """All finished trials of the study as it is now; of a trial stored twice the first."""
        found: dict[str, Record] = {}
        for line in self._lines(study):
            if line["version"] == study.version:
                record = Record(line["params"], line["result"], float(line["seconds"]))
                found.setdefault(key(record.params), record)
        return list(found.values())

    def findings(self, studies: Sequence[Study]) -> dict[str, list[Finding]]:
        """What the stored trials say; nothing for studies without a trial."""
        found = {}
        for study in studies:
            if records := self.records(study):
                with self.using(study):
                    found[study.name] = study.findings(records)
        return found

    def using(self, study: Study) -> AbstractContextManager[None]:
        """The door for what works with the trials of a study, some of which may be damaged."""
        failure = f"cannot make sense of the trials in {str(self.path(study))!r}"
        return reading(failure, "remove the damaged lines, or the file: they run again", StudyError)

    def pending(self, study: Study, trials: Iterable[Params]) -> list[Params]:
        """Those trials that are not stored yet."""
        done = {key(record.params) for record in self.records(study)}
        return [params for params in trials if key(params) not in done]

    def add(self, study: Study, params: Params, result: dict[str, Any], seconds: float) -> None:
        """Append a finished trial; on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = {"version": study.version, "params": params, "result": result, "seconds": round(seconds, 3)}
        line |= {"digest": digest(study, params), **made()}
        path = self.path(study)
        torn = _torn(path)
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _lines(self, study: Study) -> list[dict[str, Any]]:
        path = self.path(study)
        if not path.exists():
            return []
        check_regular(path, LONGEST)
        lines = []
        for text in path.read_bytes().splitlines():
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):  # cut short by a kill, or damaged
                continue
            if isinstance(line, dict) and all(isinstance(line.get(name), kind) for name, kind in TRIAL.items()):
                lines.append(line)
        return lines


def _torn(path: Path) -> bool:
    """Whether a kill has left the last line without its end."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def key(params: Params) -> str:
    """A trial's name: its parameters in one spelling."""
    return json.dumps(params, sort_keys=True)


def digest(study: Study, params: Params) -> str:
    """What a trial was made from that no chance is in: its parameters, and the samples of its schedule.

    Of numbers six digits count: the last ones depend on the machine.
    """
    planned = study.planned(params) if study.planned else {}
    rounded = {name: [f"{n:.6g}" for n in _listed(value)] for name, value in planned.items()}
    return f"{zlib.crc32(key({'params': params, 'planned': rounded}).encode()):08x}"


def stale(study: Study, records: Sequence[Record]) -> list[Record]:
    """Records with a number of samples that the code of today does not plan."""
    found, plans = [], {}
    for record in records:
        cell = key({name: value for name, value in record.params.items() if name not in ("first", "count", "seed")})
        if cell not in plans:  # trials of other seeds have the same plan
            plans[cell] = dict(study.planned(record.params)) if study.planned else {}
        if _other(plans[cell], record.result):
            found.append(record)
    return found


def _other(planned: Mapping[str, float | Sequence[float]], result: Mapping[str, Any]) -> bool:
    """Whether a number of a result is not one that was planned."""
    for name in (name for name in planned if name != "rounding" and name in result):
        slack = _listed(planned.get("rounding", 0.0))[0]
        slack *= result["weighted"] / result["samples"] if name == "weighted" else 1.0
        for stored in _listed(result[name]):
            if not any(abs(stored - n) <= slack + 1e-9 * n for n in _listed(planned[name])):
                return True
    return False


def _listed(value: float | Sequence[float]) -> Sequence[float]:
    return value if isinstance(value, Sequence) else [value]


@functools.cache
def made() -> dict[str, str]:
    """What a result was made with."""
    return {
        "tpca": version("tpca"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "revision": _revision(),
    }


def _revision() -> str:
    """The git revision of the source, with a + if it was changed since; empty outside a repository."""
    here = Path(__file__).parent
    sources = [str(here.parent), str(here.parents[1] / "src")]
    try:
        ask = ["git", "-C", str(here), "rev-parse", "--short=10", "HEAD"]
        revision = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
        ask = ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no", "--", *sources]
        changed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return revision + ("+" if changed else "")


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
