"""Threads: how many linear algebra may use while a solver is at work, and a second one for large pieces of work.

A solver does many small products, decompositions of matrices of a few hundred rows among them.  Threads of BLAS wait
for each other by spinning, so that on small matrices, or beside anything else that wants the cores (a reader that
decompresses, another process), they make such a product several times slower.  So BLAS gets one thread while a solver
is at work (:func:`calm_blas`).  With two of them (two cores, on which other processes worked, too) the race took eight
times as long at 32⁴, and two to twelve times at 128³; the fit of the mean 1.7 times at 32⁴, and four to seven times at
128³.  Where both cores were idle, samples of 48⁴ took the half; how idle they are nobody knows before.

The second core is then free for whole pieces of work (:func:`share`): one core does not read memory as fast as two do.
The second thread sleeps while it waits, and what comes out does not depend on whether there is one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Piece = TypeVar("Piece")


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_lock = threading.Lock()
_at_work = 0  # solves, in whatever threads
_owed: list[int] = []  # threads that the pools had when the first of them began, if any had more than one
_free = False  # whether a second core is free: BLAS was allowed more threads than it has now


def share(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """``work`` on all pieces, each by whichever of two threads is free, while :func:`calm_blas` leaves a core free.

    Waking a thread takes some 50 µs: give one piece of what takes less.  What comes out must not depend on who does it,
    nor in which order.  Only a solve in the main thread that is the only one has a second thread: who works in several
    threads already has given the cores something to do.
    """
    left = deque(pieces)

    def work_off() -> None:
        while True:
            try:
                piece = left.popleft()
            except IndexError:  # all are done, or the other one was quicker
                return
            work(piece)

    alone = _at_work < 2 and threading.current_thread() is threading.main_thread()
    if not (_free and alone and len(left) > 1):
        work_off()
        return
    other = _helper(os.getpid()).submit(work_off)
    try:
        work_off()
    finally:
        left.clear()
        if not other.cancel():
            other.result()


@functools.cache
def _helper(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One more thread, of this process: it does not live on in those that are forked from it."""
    return ThreadPoolExecutor(1, "tpca-helper")


@contextlib.contextmanager
def calm_blas() -> Iterator[None]:
    """One thread for BLAS while a solver is at work; what it had before is given back.

    The number belongs to the process, and sums of products depend on it in their last bits.  So the first solve that
    begins sets it and the last that ends gives it back, whatever threads they are in.
    """
    global _at_work, _free
    with _lock:
        _at_work += 1
        if _at_work == 1:
            _owed[:] = [pool.num_threads for pool in _blas_pools()]
            if max(_owed, default=1) == 1:
                _owed.clear()
            else:
                _set([1] * len(_owed))
                _free = cores() > 1
    try:
        yield
    finally:
        with _lock:
            _at_work -= 1
            if not _at_work and _owed:
                _free = False
                _set(_owed)


@functools.cache
def _blas_pools() -> list[Any]:
    """The pools of threads of BLAS in this process; looking for them takes milliseconds, so that is done once."""
    from threadpoolctl import ThreadpoolController

    return [pool for pool in ThreadpoolController().lib_controllers if pool.user_api == "blas"]


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
