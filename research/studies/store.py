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
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from research.studies.study import Finding, Params, Record, Study, key
from tpca.errors import StudyError, check_regular, reading
from tpca.files import replacing

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
        path, found = self.path(study), dict[str, Record]()
        if not path.exists():
            return []
        check_regular(path, LONGEST)
        for text in path.read_bytes().splitlines():
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):  # cut short by a kill, or damaged
                continue
            whole = isinstance(line, dict) and all(isinstance(line.get(name), kind) for name, kind in TRIAL.items())
            if whole and line["version"] == study.version:
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
        line = {"version": study.version, "params": params, "result": result, "seconds": round(seconds, 3), **made()}
        path = self.path(study)
        torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")  # a kill has cut the last line
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())


def stale(study: Study, records: Sequence[Record]) -> list[Record]:
    """Records with a number of samples that the code of today does not plan."""
    found: list[Record] = []
    plans: dict[str, dict[str, Any]] = {}
    for record in records:
        cell, result = key(record.params, but=("first", "count", "seed")), record.result
        if cell not in plans:  # trials of other seeds have the same plan
            plans[cell] = dict(study.planned(record.params)) if study.planned else {}
        rounding = plans[cell].get("rounding", 0.0)
        for name, planned in plans[cell].items():
            if name == "rounding" or name not in result:
                continue
            slack = rounding * (result["weighted"] / result["samples"] if name == "weighted" else 1.0)
            gaps = np.abs(np.subtract.outer(np.atleast_1d(result[name]), np.atleast_1d(planned)))
            if not (gaps <= slack + 1e-9 * np.atleast_1d(planned)).any(axis=1).all():
                found.append(record)
                break
    return found


@functools.cache
def made() -> dict[str, str]:
    """What a result was made with; the git revision has a + if the source was changed since, or is empty."""
    here = Path(__file__).parent

    def git(*asked: str) -> str:
        return subprocess.run(["git", "-C", str(here), *asked], capture_output=True, text=True, check=True).stdout

    try:
        sources = (str(here.parent), str(here.parents[1] / "src"))
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *sources).strip()
        revision = git("rev-parse", "--short=10", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        revision = ""
    packages = {name: version(name) for name in ("tpca", "numpy")}
    return {**packages, "python": platform.python_version(), "revision": revision}


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_rows(out: Path, content: dict[str, Any]) -> None:
    """JSON with one of its ``rows`` a line."""
    head = json.dumps({name: value for name, value in content.items() if name != "rows"}, ensure_ascii=False)
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in content["rows"])
    with replacing(out) as (draft,):
        draft.write_text(f'{head[:-1]}, "rows": [\n{rows}\n]}}\n', encoding="utf-8")
