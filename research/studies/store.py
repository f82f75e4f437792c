"""The store: one line of JSON per finished trial, appended and flushed to disk before the next is counted.

A line that a kill cut short, or that is damaged, is passed over when the file is read, and its trial runs again.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from research.fields import LONGEST, POSITIVE, fits
from research.studies.study import AnyStudy, Finding, Params, Record
from tpca.errors import StudyError, check_regular, reading

TRIAL = {"params": {}, "result": {}, "seconds": POSITIVE}


class Store:
    """Finished trials of all studies in one folder, ``<study>.jsonl`` each."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise StudyError(f"the store must be a folder, got the file {str(self.folder)!r}; name another.")

    def path(self, study: AnyStudy) -> Path:
        """The file of a study."""
        return self.folder / f"{study.name}.jsonl"

    def records(self, study: AnyStudy) -> list[Record]:
        """All finished trials of the study as it is now; of a trial stored twice the first."""
        found: dict[str, Record] = {}
        for line in self._lines(study):
            if line.get("version") == study.version and fits(line, TRIAL):
                record = Record(line["params"], line["result"], float(line["seconds"]))
                found.setdefault(key(record.params), record)
        return list(found.values())

    def findings(self, studies: Sequence[AnyStudy]) -> dict[str, list[Finding]]:
        """What the stored trials say; nothing for studies without a trial."""
        found = {}
        for study in studies:
            if records := self.records(study):
                with self.using(study):
                    found[study.name] = study.findings(records)
        return found

    def using(self, study: AnyStudy) -> AbstractContextManager[None]:
        """The door for what works with the trials of a study, some of which may be damaged."""
        failure = f"cannot make sense of the trials in {str(self.path(study))!r}"
        return reading(failure, "remove the damaged lines, or the file: they run again", StudyError)

    def pending(self, study: AnyStudy, trials: Iterable[Params]) -> list[Params]:
        """Those trials that are not stored yet."""
        done = {key(record.params) for record in self.records(study)}
        return [params for params in trials if key(params) not in done]

    def add(self, study: AnyStudy, params: Params, result: dict[str, Any], seconds: float) -> None:
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

    def _lines(self, study: AnyStudy) -> list[dict[str, Any]]:
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
            if isinstance(line, dict):
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


def digest(study: AnyStudy, params: Params) -> str:
    """What a trial was made from that no chance is in: its parameters, and the samples of its schedule.

    A line whose digest is another today was made by other code, whatever its version says.
    """
    planned = getattr(study, "planned", None)
    return f"{zlib.crc32(key({'params': params, 'planned': planned(params) if planned else {}}).encode()):08x}"


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
    try:
        ask = ["git", "-C", str(here), "rev-parse", "--short=10", "HEAD"]
        revision = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
        ask = ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no", "--", str(here.parent)]
        changed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return revision + ("+" if changed else "")
