"""One runner for all studies: every core; every trial stored as it finishes, nothing run twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from research.studies.store import Store
from research.studies.study import Params, Scale, Study
from tpca.threads import cores

Job = tuple[str, Callable[[Params], dict[str, Any]], Params]


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


def _execute(job: Job) -> tuple[str, Params, dict[str, Any], float]:
    name, run, params = job
    began = time.perf_counter()
    result = run(params)
    return name, params, result, time.perf_counter() - began
