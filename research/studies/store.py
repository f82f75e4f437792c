"""The store: one line of JSON per finished trial, appended and flushed to disk before the next is counted.

One runner for all studies uses every core, stores every trial as it finishes, and runs nothing twice.  A line that
a kill cut short, or that is damaged, is passed over when the file is read, and its trial runs again.
"""

from __future__ import annotations

import functools
import json
import math
import multiprocessing
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from research import StudyError
from research.studies.study import Finding, Params, Record, Scale, Study, key
from tpca.errors import check_regular, reading
from tpca.files import replacing
from tpca.threads import cores

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


def run_studies(
    studies: Sequence[Study],
    scale: Scale,
    store: Store,
    finished: Callable[[str], object] = lambda _: None,
    processes: int | None = None,
) -> int:
    """Run every trial that is not stored; ``finished(name of the study)`` is called after each.  How many ran.

    Trials run in so many ``processes`` of their own, one for every core by default; 0: in this one.
    """
    jobs = [(study.name, study.run, p) for study in studies for p in store.pending(study, study.grid(scale))]
    by_name = {study.name: study for study in studies}

    def keep(outcomes: Any) -> None:
        for name, params, result, seconds in outcomes:
            store.add(by_name[name], params, result, seconds)
            finished(name)

    if processes == 0:
        keep(map(_execute, jobs))
    elif jobs:
        with multiprocessing.get_context("spawn").Pool(min(processes or cores(), len(jobs)), prepare) as pool:
            keep(pool.imap_unordered(_execute, jobs))
    return len(jobs)


def prepare() -> None:
    """One thread of BLAS a process; Ctrl-C is the parent's business, and a worker does not outlive it."""
    from threadpoolctl import threadpool_limits

    def follow_parent() -> None:  # killed or not: nobody would take this process's results
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=follow_parent, daemon=True).start()


def _execute(job: tuple[str, Callable[[Params], dict[str, Any]], Params]) -> tuple[str, Params, dict[str, Any], float]:
    name, run, params = job
    began = time.perf_counter()
    result = run(params)
    return name, params, result, time.perf_counter() - began


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


def processor() -> str:
    """The name of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def finite(value: Any, digits: int = 17) -> Any:
    """JSON has no NaN and no infinity: they become null; other floats have so many digits, all of them by default."""
    if isinstance(value, dict):
        return {k: finite(v, digits) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v, digits) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def write_rows(out: Path, content: dict[str, Any]) -> None:
    """JSON with one of its ``rows`` a line."""
    head = json.dumps({name: value for name, value in content.items() if name != "rows"}, ensure_ascii=False)
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in content["rows"])
    with replacing(out) as (draft,):
        draft.write_text(f'{head[:-1]}, "rows": [\n{rows}\n]}}\n', encoding="utf-8")
