"""Compiled loops: one place that knows how.

The processors at hand, and how many threads linear algebra may use while a solver is at work.

A solver does many small products, decompositions of matrices of a few hundred rows among them.  Threads of BLAS wait
for each other by spinning, so that on small matrices, or beside anything else that wants the cores (a reader that
decompresses, a compiled loop, another process), they make such a product several times slower.
So BLAS gets one thread where samples are small, and keeps what it has where they are large.

The second core is then free for whole pieces of work, cut once and for all: :func:`share`.  One core does not read
memory as fast as two do.  The second thread sleeps while it waits, and what comes out does not depend on whether there
is one.  Who allows BLAS one thread only gets one here, too.

Read the next items, which have numbers, while the present one is worked on.

One ahead or several, by one thread or by several at once, so that all cores decompress; they come in their order all
the same.  A solver that works between two rounds (a look) takes nothing meanwhile, and finds the beginning of the next
round read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar


@functools.cache
def compiled(loop: Callable[..., Any]) -> Any:
    """``loop`` compiled by numba, kept beside the source where that can be written; it holds no lock while it runs.

    Numba takes a third of a second to import, so it is asked for only when a loop is first needed.
    """
    import numba

    try:
        return numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # nowhere to keep it
        return numba.njit(nogil=True)(loop)


# Up to so many entries a sample is small: matrices of at most 1024 rows.  At 32⁴ (200 samples, two cores) a second
# thread made the race eight times slower, and the fit of the mean 1.7 times; of larger samples nothing was measured.
SMALL = 2**20

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_free = False  # whether a second core is free: BLAS was allowed more threads than it has now


@functools.cache
def _helper(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One more thread, of this process: it does not live on in those that are forked from it."""
    return ThreadPoolExecutor(1, "tpca-helper")


def share(work: Callable[[Piece], None], pieces: Iterable[Piece], worth: bool = True) -> None:
    """``work`` on all pieces, each by whichever of two threads is free, while :func:`calm_blas` leaves a core free.

    Waking a thread takes some 50 µs: what takes less is not ``worth`` it.
    What is worked on must not depend on who does it, nor in which order.  Only for a solve in the main thread that is
    the only one: who works in several threads already has given the cores something to do.
    """
    left = deque(pieces)
    alone = _at_work < 2 and threading.current_thread() is threading.main_thread()
    if not (_free and alone and worth and len(left) > 1):
        _work_off(work, left)
        return
    other = _helper(os.getpid()).submit(_work_off, work, left)
    try:
        _work_off(work, left)
    finally:
        left.clear()
        if not other.cancel():
            other.result()


def gathered(work: Callable[[Piece], Result], pieces: Sequence[Piece], worth: bool = True) -> list[Result]:
    """What ``work`` gives of all pieces, in their order, the same way."""
    found = dict[int, Result]()

    def one(number: int) -> None:
        found[number] = work(pieces[number])

    share(one, range(len(pieces)), worth)
    return [found[number] for number in range(len(pieces))]


def _work_off(work: Callable[[Piece], None], left: deque[Piece]) -> None:
    while left:
        try:
            piece = left.popleft()
        except IndexError:  # the other one was quicker
            return
        work(piece)


@functools.cache
def _pools() -> Any:
    """The pools of threads in this process; looking for them takes milliseconds, so that is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _blas_pools() -> list[Any]:
    """Those of BLAS."""
    return [pool for pool in _pools().lib_controllers if pool.user_api == "blas"]


_lock = threading.Lock()
_at_work = 0  # solves of small samples, in whatever threads
_owed: list[int] = []  # threads that the pools had when the first of them began


@contextlib.contextmanager
def calm_blas(entries: int) -> Iterator[None]:
    """One thread for BLAS while samples of so few ``entries`` are worked on; what it had before is given back.

    The number belongs to the process, and sums of products depend on it in their last bits.  So the first solve that
    begins sets it and the last that ends gives it back, whatever threads they are in.  Larger samples have the bits of
    as many threads as BLAS has.
    """
    if entries > SMALL:
        yield
        return
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _at_work, _free
    with _lock:
        _at_work += 1
        if _at_work > 1:
            return
        _owed[:] = [pool.num_threads for pool in _blas_pools()]
        if max(_owed, default=1) > 1:
            _set([1] * len(_owed))
            _free = cores() > 1


def _end() -> None:
    global _at_work, _free
    with _lock:
        _at_work -= 1
        if _at_work:
            return
        _free = False
        _set(_owed)


def _set(threads: Sequence[int]) -> None:
    """Give the pools so many threads.

    threadpoolctl listens to one thread of a process, the first that asks, while that lives.  But the last solve may end
    in another thread than the first began in, so whoever is not heard takes over, and lets go again.
    """
    for pool, number in zip(_blas_pools(), threads, strict=True):
        if pool.num_threads == number:
            continue
        pool.set_num_threads(number)
        if pool.num_threads != number and hasattr(pool, "clear_controlling_thread"):
            pool.clear_controlling_thread(force=True)
            pool.set_num_threads(number)
            pool.clear_controlling_thread()


Item = TypeVar("Item")

# A reader that hangs (a dead network share) must not hang whoever closes the iterator, too.
JOIN_SECONDS = 10.0


# Bytes that are read ahead, where an item is not larger: what a core reads from the system's cache during a short look.
AHEAD_BYTES = 2**26
MAX_AHEAD = 16


class _Failed:
    """Says that an item does not come, and why."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def depth(nbytes: int, count: int) -> int:
    """Items of so many bytes to read ahead, of ``count`` in all; one at least, if there is a second."""
    return min(max(1, min(AHEAD_BYTES // max(1, nbytes), MAX_AHEAD)), count - 1)


class _Job(Generic[Item]):
    """One item to read: its number, and where to put it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reply: queue.SimpleQueue[Item | _Failed] = queue.SimpleQueue()


def read_ahead(
    read: Callable[[int], Item], numbers: Iterable[int], ahead: int = 1, readers: int = 1
) -> Generator[Item]:
    """``read(number)`` of all numbers, in their order, ``ahead`` of them begun while one is in use.

    At most ``ahead`` + 1 items are in memory; ``readers`` threads read them, each one at a time.  An error arrives
    where its item would have, whoever met it first.  The threads start with the first item and are gone when the
    iterator is exhausted, closed or garbage collected; what they are reading then is read to its end and dropped.
    """
    jobs: queue.SimpleQueue[_Job[Item] | None] = queue.SimpleQueue()
    stop = threading.Event()
    # The threads know nothing of the generator: a reference to it would keep it alive for ever.
    threads = [
        threading.Thread(target=_serve, args=(read, jobs, stop), name="tpca-prefetch", daemon=True)
        for _ in range(max(1, min(readers, ahead)))
    ]
    for thread in threads:
        thread.start()
    begun: deque[_Job[Item]] = deque()
    rest = iter(numbers)

    def begin(most: int) -> None:
        while len(begun) < most and (number := next(rest, None)) is not None:
            begun.append(_Job(number))
            jobs.put(begun[-1])

    try:
        begin(ahead + 1)  # nothing is in use yet
        while begun:
            item = begun.popleft().reply.get()
            if isinstance(item, _Failed):
                raise item.error
            begin(ahead)
            yield item
            del item  # else the consumed item would stay in memory while the next one is waited for
    finally:
        stop.set()
        _dismiss(threads, jobs)


def _dismiss(threads: list[threading.Thread], jobs: queue.SimpleQueue[_Job[Item] | None]) -> None:
    """Send the threads home, and wait for them as long as for one that hangs."""
    for _ in threads:
        jobs.put(None)
    if sys.is_finalizing():
        return
    until = time.monotonic() + JOIN_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))


def _serve(read: Callable[[int], Item], jobs: queue.SimpleQueue[_Job[Item] | None], stop: threading.Event) -> None:
    """Do one job after the other, until told to stop."""
    while (job := jobs.get()) is not None and not stop.is_set():
        try:
            job.reply.put(read(job.number))
        except BaseException as caught:
            job.reply.put(_Failed(caught))
        del job  # else the last item would stay in memory for as long as there is nothing to do
