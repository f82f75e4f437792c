"""One runner for all studies: every core; every trial stored as it finishes, nothing run twice.

And one for the tables of docs/race.md, which are made from seeds of their own.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from research.studies.store import Store, finite, made
from research.studies.study import Params, Scale, Study
from tpca.threads import cores

Finished = Callable[[Study, float], None]
Job = tuple[str, Callable[[Params], dict[str, Any]], Params]
Outcome = tuple[str, Params, dict[str, Any], float]
Rows = Callable[[Callable[..., list[Any]], Sequence[int]], Iterator[tuple[str, dict[str, Any]]]]


def pending_jobs(studies: Sequence[Study], scale: Scale, store: Store) -> list[tuple[Study, Params]]:
    """What is left to do, the longest trials of every study first."""
    jobs = []
    for study in studies:
        trials = store.pending(study, study.grid(scale))
        jobs += [(study, params) for params in sorted(trials, key=study.cost, reverse=True)]
    return jobs


def run_studies(
    studies: Sequence[Study],
    scale: Scale,
    store: Store,
    finished: Finished,
    processes: int | None = None,
) -> int:
    """Run every trial that is not stored; ``finished(study, cost)`` is called after each.  Returns how many ran.

    Trials run in so many ``processes`` of their own, one for every core by default; 0: in this one.
    """
    jobs = pending_jobs(studies, scale, store)
    if not jobs:
        return 0
    by_name = {study.name: study for study in studies}
    tasks = [(study.name, study.run, params) for study, params in jobs]
    outcomes = map(_execute, tasks) if processes == 0 else _shared(tasks, processes)
    for name, params, result, seconds in outcomes:
        study = by_name[name]
        store.add(study, params, result, seconds)
        finished(study, study.cost(params))
    return len(jobs)


def _shared(tasks: Sequence[Job], processes: int | None) -> Iterator[Outcome]:
    """Run trials in processes of this machine."""
    count = min(processes or cores(), len(tasks))
    with multiprocessing.get_context("spawn").Pool(count, initializer=prepare) as pool:
        yield from pool.imap_unordered(_execute, tasks)


def prepare() -> None:
    """One thread of BLAS a process; Ctrl-C is the parent's business, and a worker does not outlive it."""
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End this process when its parent is gone, killed or not: nobody would take its results."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _execute(job: Job) -> Outcome:
    name, run, params = job
    began = time.perf_counter()
    result = run(params)
    return name, params, result, time.perf_counter() - began


def table_command(
    arguments: Sequence[str] | None,
    about: str | None,
    rows: Rows,
    seeds: int,
    markdown: Callable[[dict[str, Any]], str] | None = None,
    fresh: bool = False,
) -> None:
    """The command of a table: run it, print every row as it is done, and write all of them as JSON.

    ``rows(map, seeds)`` yields the name of a table and a row of it; ``map`` runs trials in processes of their own.
    ``fresh`` seeds are taken from the clock, and stored.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("table.json"))
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds per row")
    parser.add_argument("--first-seed", type=int, default=int(time.time()) % 10**8 if fresh else 0)
    parser.add_argument("--processes", type=int, default=None)
    if markdown is not None:
        parser.add_argument("--show", type=Path, default=None, help="print a stored result as Markdown and stop")
    options = parser.parse_args(arguments)
    if markdown is not None and options.show is not None:
        sys.stdout.write(markdown(json.loads(options.show.read_text())) + "\n")
        return
    step = 1000 if fresh else 1  # far apart: trials use the seeds that follow, too
    content: dict[str, Any] = {"seeds": options.seeds, "first_seed": options.first_seed, "versions": made()}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        chosen = [options.first_seed + step * i for i in range(options.seeds)]
        for name, row in rows(functools.partial(pool.map, chunksize=1), chosen):
            content.setdefault(name, []).append(row)
            sys.stdout.write(json.dumps(finite(row)) + "\n")
            sys.stdout.flush()
    options.out.write_text(json.dumps(finite(content), indent=1) + "\n")
