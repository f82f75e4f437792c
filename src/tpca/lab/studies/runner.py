"""One runner for all studies: every core, or every worker; every trial stored as it finishes, nothing run twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tpca.errors import ClusterError
from tpca.lab.studies.store import Store
from tpca.lab.studies.study import Params, Scale, Study
from tpca.threads import cores

Finished = Callable[[Study, float], None]
Job = tuple[str, Params]
Outcome = tuple[str, Params, dict[str, Any], float]


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
    client: Any = None,
) -> int:
    """Run every trial that is not stored; ``finished(study, cost)`` is called after each.  Returns how many ran.

    Trials run in ``processes`` on this machine, or on the workers of a Dask ``client``.
    """
    jobs = pending_jobs(studies, scale, store)
    if not jobs:
        return 0
    by_name = {study.name: study for study in studies}
    tasks = [(study.name, params) for study, params in jobs]
    outcomes = _here(tasks, processes) if client is None else _there(tasks, client)
    for name, params, result, seconds in outcomes:
        study = by_name[name]
        store.add(study, params, result, seconds)
        finished(study, study.cost(params))
    return len(jobs)


def _here(tasks: Sequence[Job], processes: int | None) -> Iterator[Outcome]:
    """Run trials in processes of this machine."""
    count = min(processes or cores(), len(tasks))
    with multiprocessing.get_context("spawn").Pool(count, initializer=_prepare) as pool:
        yield from pool.imap_unordered(_execute, tasks)


def _there(tasks: Sequence[Job], client: Any) -> Iterator[Outcome]:
    """Run trials on the workers of a cluster; one that dies with its worker is run again by another."""
    from concurrent.futures import CancelledError

    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    with client.as_current():
        futures = client.map(_execute, tasks, pure=False, key="tpca-trial")
        try:
            for future in as_completed(futures):  # type: ignore[no-untyped-call]
                yield future.result()
                future.release()
        except KilledWorker as error:
            raise ClusterError(f"workers died again and again at a trial ({error.task}); give them memory.") from error
        except (CancelledError, OSError) as error:
            raise ClusterError(
                f"the connection to the scheduler is lost ({type(error).__name__}); every finished trial is stored: "
                "the same command goes on from there."
            ) from error
        finally:
            client.cancel(futures)


def _prepare() -> None:
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
    from tpca.lab.studies.catalogue import STUDIES

    name, params = job
    began = time.perf_counter()
    result = STUDIES[name].run(params)
    return name, params, result, time.perf_counter() - began
