"""A Dask cluster as the engine sees it: tasks, results, and plain words for everything that can go wrong.

A task may be meant for a certain worker, which has the batch already.  If that worker dies, Dask gives its tasks to
others; but if nobody is there at that moment, Dask keeps them for the dead worker, whoever comes later.  So whoever
waits here looks at the cluster from time to time: where tasks are meant for workers that are gone, and nobody does any,
it raises :class:`WorkersGoneError`, and the round is asked for once more, for anybody to do.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any

from tpca import __version__
from tpca.engines.dask.tasks import later
from tpca.errors import ClusterError, TpcaError, one_line

LOOK = 1.0  # seconds between looks at the cluster while waiting
FRESH = 5.0  # seconds for which a list of workers is good
ANSWER = 10.0  # seconds that new workers have to say their version; a busy one is asked and not waited for
AGAIN = "go on from the last checkpoint with resume=True (--resume)"
_NEVER = -float("inf")


class WorkersGoneError(Exception):
    """Tasks are kept for workers that are gone."""


class Cluster:
    """The workers behind a ``distributed.Client``."""

    def __init__(self, client: Any, patience: float = 60.0) -> None:
        self.client, self.patience = client, patience
        self.address = "of the client"
        self._workers: tuple[str, ...] = ()
        self._asked = _NEVER
        self._versions: dict[str, Any] = {}  # of every worker so far: the task that looks at it
        self._homes: dict[str, str | None] = {}  # tasks since the last results, and whom they are meant for

    def workers(self) -> tuple[str, ...]:
        """Addresses of all workers that take tasks, in a fixed order; waits for the first one."""
        if time.monotonic() - self._asked > FRESH or not self._workers:
            deadline = time.monotonic() + self.patience
            while not (found := self._running(self._everyone())):
                if time.monotonic() > deadline:
                    raise self._idle()
                time.sleep(0.2)
            self._check_versions(found)
            self._workers, self._asked = found, time.monotonic()
        return self._workers

    def submit(self, function: Callable[..., Any], *arguments: Any, key: str, worker: str | None = None) -> Any:
        """A task, if possible for a certain worker."""
        import dask

        self._homes[key] = worker
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        # Replicas are as large as they are; that they come with the task is what lets them survive a worker.
        with self._telling(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self.client.submit(function, *arguments, key=key, pure=False, **where)

    def compute(self, arrays: Sequence[Any]) -> list[Any]:
        """Futures of some Dask arrays, each as one NumPy array on a worker."""
        with self._telling():
            return list(self.client.compute(list(arrays)))

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """The results; waits as long as somebody works, or may come within our patience.

        The cluster is looked at until they are here, not only until tasks are done: a worker may die with its results.
        """
        results, at_work, lost = later(self.client.gather, list(futures)), time.monotonic(), 0
        try:
            with self._telling():
                while not wait([results], LOOK).done:
                    self._asked = _NEVER
                    everyone, tasks = self._everyone(), self._call(self.client.processing)
                    running = self._running(everyone)
                    if any(tasks.get(worker) for worker in running):
                        at_work = time.monotonic()
                    elif time.monotonic() - at_work > self.patience:
                        raise self._idle()
                    # Are tasks of this round meant for workers that are gone, and does nobody do any of this round?
                    doing = {str(key) for some in tasks.values() for key in some}
                    waiting = running and doing.isdisjoint(self._homes)
                    lost = lost + 1 if waiting and not {None, *everyone}.issuperset(self._homes.values()) else 0
                    if lost > 1:  # and not just on the way from one to the other
                        self._call(self.client.cancel, list(futures))  # nobody waits for them any more
                        raise WorkersGoneError
                for future in futures:
                    if future.status == "error":
                        raise self._failed(future)
                return list(results.result())
        finally:
            self._homes.clear()

    # -- who is there -------------------------------------------------------------------------------------------------

    def _everyone(self) -> dict[str, Any]:
        """All workers, and what the scheduler knows of them."""
        about = self._call(self.client.scheduler_info, n_workers=-1)
        if "address" not in about:  # what a client says whose scheduler is gone
            raise self._lost(OSError("the scheduler does not answer"))
        self.address = about["address"]
        return dict(about["workers"])

    def _running(self, everyone: dict[str, Any]) -> tuple[str, ...]:
        """Those that take tasks: not those that are paused, above their limit of memory."""
        return tuple(sorted(worker for worker, about in everyone.items() if about["status"] == "running"))

    def _check_versions(self, workers: Sequence[str]) -> None:
        """Refuse workers without tpca, or with another version.

        They are asked in words that all understand: a function of ours could not be read without tpca.  Another version
        is an error there: unlike a result, that need not be fetched from a worker, which may die before.
        """
        import distributed

        words = f"import tpca\nif tpca.__version__ != {__version__!r}: raise LookupError(tpca.__version__)"
        with self._telling():
            for worker in workers:
                if worker not in self._versions:
                    self._versions[worker] = self.client.submit(exec, words, workers=[worker], pure=False, priority=1)
            told = {worker: self._versions[worker] for worker in workers}
            with self.client.as_current(), contextlib.suppress(TimeoutError):
                distributed.wait(list(told.values()), timeout=min(ANSWER, self.patience))  # type: ignore[no-untyped-call]
            for worker, future in told.items():
                if future.status != "error":
                    continue
                error, ours = future.exception(), __version__
                if type(error) is LookupError:
                    why, way = f"tpca {error}, and this process {ours}", "install the same version there"
                else:
                    why, way = f"no tpca that works ({one_line(error)})", f"install tpca {ours} there"
                raise ClusterError(f"the worker at {worker} has {why}; {way}, or close that worker, then {AGAIN}.")

    def _call(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What the scheduler answers, within our patience: it may have been stopped."""
        with self._telling():
            try:
                return later(question, *arguments, **options).result(self.patience)
            except TimeoutError as error:
                raise self._lost(error) from error

    # -- what went wrong ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn what Dask raises into errors that say what happened and how to go on."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            yield
        except TpcaError:
            raise
        except KilledWorker as error:
            self._asked = _NEVER
            last = getattr(error.last_worker, "address", error.last_worker)
            what = str(error.task).rpartition("-")[2]
            raise ClusterError(
                f"workers died again and again at {what}, the last one at {last}: they do not fit into the memory of a "
                "worker, reading them crashes, or workers are being stopped from outside; look at the worker's log, "
                f"then give workers more memory or time, and {AGAIN}."
            ) from error
        except (CancelledError, OSError, RuntimeError) as error:
            raise self._lost(error) from error

    def _failed(self, future: Any) -> BaseException:
        """What to raise for a task that failed."""
        from distributed import KilledWorker

        error: BaseException = future.exception()
        if isinstance(error, TpcaError | KilledWorker):
            return error
        self._check_versions(self._running(self._everyone()))  # of those that came meanwhile
        return ClusterError(f"a task failed on the cluster at {self.address}: {error!r}.")

    def _lost(self, error: BaseException) -> ClusterError:
        return ClusterError(
            f"the connection to the scheduler at {self.address} is lost ({type(error).__name__}); the last checkpoint, "
            "if one was asked for, is intact: go on with resume=True (--resume), on another cluster or without one."
        )

    def _idle(self) -> ClusterError:
        """Why nobody is at work."""
        everyone = self._everyone()
        paused = len(everyone) - len(self._running(everyone))
        return ClusterError(
            f"the scheduler at {self.address} has {len(everyone)} workers, {paused} of them paused (above their limit "
            f"of memory), and none has worked for {self.patience:.0f} seconds; start some, give them more memory, or "
            f"restart the cluster, then {AGAIN}."
        )


def active_client() -> Any:
    """The Dask client that is active in this process; ``None`` if there is none."""
    if "distributed" not in sys.modules:  # then nobody has made one
        return None
    from distributed import default_client

    try:
        return default_client()  # type: ignore[no-untyped-call]
    except ValueError:
        return None
