"""A Dask cluster as the engine sees it: tasks, results, and plain words for everything that can go wrong."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tpca.errors import ClusterError, TpcaError

MESSAGES = 0.001  # seconds
GLANCE = 5.0  # seconds between looks at the cluster while waiting, and for which a list of workers is good


class Cluster:
    """The workers behind a ``distributed.Client``."""

    def __init__(self, client: Any, patience: float = 60.0) -> None:
        self.client, self.patience = client, patience
        self.address = str(getattr(getattr(client, "scheduler", None), "address", "of the client"))
        self._workers: tuple[str, ...] = ()
        self._asked = -float("inf")
        self._samples: dict[str, tuple[int, int]] = {}
        _hurry(client)

    def workers(self) -> tuple[str, ...]:
        """Addresses of all workers that take tasks, in a fixed order; waits for the first one."""
        if time.monotonic() - self._asked > GLANCE or not self._workers:
            deadline = time.monotonic() + self.patience
            while not (found := self._ask()):
                if time.monotonic() > deadline:
                    raise ClusterError(self._idle())
                time.sleep(0.2)
            self._workers, self._asked = found, time.monotonic()
        return self._workers

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        key: str,
        worker: str | None = None,
        samples: tuple[int, int] | None = None,
    ) -> Any:
        """A task, if possible for a certain worker; ``samples`` say what it is about."""
        import dask

        if samples is not None:
            self._samples[key] = samples
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        # Replicas are as large as they are; that they come with the task is what lets them survive a worker.
        with self._telling(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self.client.submit(function, *arguments, key=key, pure=False, **where)

    def compute(self, arrays: Sequence[Any]) -> list[Any]:
        """Futures of some Dask arrays, each as one NumPy array on a worker."""
        with self._telling():
            return list(self.client.compute(list(arrays)))

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """The results; waits as long as there are workers that work on them."""
        from distributed import wait

        idle = time.monotonic()
        with self._telling(), self.client.as_current():
            while True:
                try:
                    wait(list(futures), timeout=GLANCE)  # type: ignore[no-untyped-call]
                    break
                except TimeoutError:
                    self._asked = -float("inf")
                    if self._at_work():
                        idle = time.monotonic()
                    elif time.monotonic() - idle > self.patience:
                        raise ClusterError(self._idle()) from None
            for future in futures:
                if future.status == "error":
                    raise self._failed(future)
            results = list(self.client.gather(list(futures)))
        self._samples.clear()
        return results

    def _failed(self, future: Any) -> BaseException:
        """What to raise for a task that failed."""
        from distributed.scheduler import KilledWorker

        error: BaseException = future.exception()
        if isinstance(error, TpcaError | KilledWorker):
            return error
        return ClusterError(f"a task failed on the cluster at {self.address}: {error!r}.")

    def _ask(self) -> tuple[str, ...]:
        """The workers that take tasks: not those that are paused, above their limit of memory."""
        return tuple(sorted(self._call(self.client.scheduler.ncores_running)))

    def _at_work(self) -> bool:
        """Whether some worker that is not paused is, or may soon be, at work on tasks."""
        if self.client.status != "running" or not (running := self._ask()):
            return False
        busy = [worker for worker, tasks in self._call(self.client.scheduler.processing).items() if tasks]
        return not busy or any(worker in running for worker in busy)

    def _call(self, question: Callable[..., Any]) -> Any:
        """What the scheduler answers, within our patience."""
        with self._telling():
            try:
                return self.client.sync(question, workers=None, callback_timeout=self.patience)
            except TimeoutError as error:
                raise ClusterError(self._lost(error)) from error

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn what Dask raises into errors that say what happened and how to go on."""
        from concurrent.futures import CancelledError

        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        try:
            yield
        except TpcaError:
            raise
        except KilledWorker as error:
            self._asked = -float("inf")
            raise ClusterError(self._killed(error)) from error
        except (CancelledError, CommClosedError, OSError, RuntimeError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise ClusterError(self._lost(error)) from error

    def _killed(self, error: Any) -> str:
        span = self._samples.get(str(error.task))
        what = f"samples {span[0]} to {span[1]} of the stream" if span else f"the task {error.task}"
        last = getattr(error.last_worker, "address", error.last_worker)
        return (
            f"workers died again and again at {what}, the last one at {last}: they do not fit into the memory of a "
            "worker, reading them crashes, or workers are being stopped from outside; look at the worker's log, then "
            "give workers more memory or time, and go on from the last checkpoint with resume=True (--resume)."
        )

    def _lost(self, error: BaseException) -> str:
        return (
            f"the connection to the scheduler at {self.address} is lost ({type(error).__name__}); the last checkpoint, "
            "if one was asked for, is intact: go on with resume=True (--resume), on another cluster or without one."
        )

    def _idle(self) -> str:
        """Why nobody is at work."""
        running, everyone = self._ask(), self._call(self.client.scheduler.ncores)
        paused = f"{len(everyone) - len(running)} of the {len(everyone)} workers"
        waited = f"for {self.patience:.0f} seconds"
        if not everyone:
            why, way = f"has had no worker {waited}", "start some"
        elif not running:
            why = f"has had no worker that takes tasks {waited}: {paused} are paused, above their limit of memory"
            way = "give them more, or restart them"
        else:
            why = f"has waited {waited} for {paused}, which have tasks of this fit and are paused, above their limit "
            why, way = f"{why}of memory", "give them more, or restart them"
        again = "then go on from the last checkpoint with resume=True (--resume)"
        return f"the scheduler at {self.address} {why}; {way}, {again}."


def active_client() -> Any:
    """The Dask client that is active in this process; ``None`` if there is none."""
    if "distributed" not in sys.modules:  # then nobody has made one
        return None
    from distributed import default_client

    try:
        return default_client()  # type: ignore[no-untyped-call]
    except ValueError:
        return None


def _hurry(client: Any) -> None:
    """Have the client's messages sent within a millisecond.

    It collects them for ten, which is right for thousands of tasks; a round has a few, one waiting for the other.
    """
    messages: Any = getattr(client, "scheduler_comm", None)
    if hasattr(messages, "interval"):
        messages.interval = min(messages.interval, MESSAGES)
