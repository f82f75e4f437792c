"""The processors at hand, and how many threads linear algebra may use while a solver is at work.

A solver does many small products, decompositions of matrices of a few hundred rows among them.  Threads of BLAS wait
for each other by spinning, so that on small matrices, or beside anything else that wants the cores (a reader that
decompresses, a compiled loop, another process), they make such a product several times slower.
So BLAS gets one thread where samples are small, and keeps what it has where they are large.

The second core is then free for whole pieces of work, cut once and for all: :func:`share`.  One core does not read
memory as fast as two do.  The second thread sleeps while it waits, and what comes out does not depend on whether there
is one.  Who allows BLAS one thread only gets one here, too.
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
_before: list[int] = []  # what the pools had when the first of them began


@contextlib.contextmanager
def calm_blas(entries: int) -> Iterator[None]:
    """One thread for BLAS while samples of so few ``entries`` are worked on; what it had before is given back.

    The number belongs to the process, and sums of products depend on it in their last bits.  So the first solve that
    begins sets it and the last that ends gives it back, whatever threads they are in: a fit beside others has the bits
    of one by itself.  Larger samples have the bits of as many threads as BLAS has.
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
        pools = _blas_pools()
        _before[:] = [pool.num_threads for pool in pools]
        for pool, threads in zip(pools, _before, strict=True):
            if threads != 1:  # to set and restore takes as long as a small fit
                _set(pool, 1)
        _free = max(_before, default=1) > 1 and cores() > 1


def _end() -> None:
    global _at_work, _free
    with _lock:
        _at_work -= 1
        if _at_work:
            return
        _free = False
        for pool, threads in zip(_blas_pools(), _before, strict=True):
            if threads != 1:
                _set(pool, threads)


def _set(pool: Any, threads: int) -> None:
    """For the whole process, whoever asks; threadpoolctl would listen only to the thread that asked before."""
    getattr(pool, "_real_set_num_threads", pool.set_num_threads)(threads)
