"""The processors at hand, and how many threads linear algebra may use while a solver is at work.

A solver does many small products, decompositions of matrices of a few hundred rows among them.  Threads of BLAS wait
for each other by spinning, so that on small matrices, or beside anything else that wants the cores (a reader that
decompresses, a compiled loop, another process), they make such a product several times slower.
So BLAS gets one thread where samples are small, and keeps what it has where they are large.

Reading is another matter: one core does not read memory as fast as two do.  While a fit has :func:`helping` on, pieces
of a long sum are shared with a second thread (:func:`share`), which waits without spinning and is gone at the end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

# Up to so many entries a sample is small: matrices of at most 1024 rows.  At 32⁴ (200 samples, two cores) a second
# thread made the race eight times slower, and the fit of the mean 1.7 times; of larger samples nothing was measured.
SMALL = 2**20

Piece = TypeVar("Piece")


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pools() -> Any:
    """The pools of threads in this process; looking for them takes milliseconds, so that is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _blas_pools() -> list[Any]:
    """Those of BLAS."""
    return [pool for pool in _pools().lib_controllers if pool.user_api == "blas"]


@contextlib.contextmanager
def calm_blas(entries: int) -> Iterator[None]:
    """One thread for BLAS while samples of so few ``entries`` are worked on; what it had before is given back.

    Only in the main thread: the number belongs to the process, two threads that set and restore it in turns would
    leave it wrong, and OpenBLAS takes it from the main thread only.
    """
    if entries > SMALL or threading.current_thread() is not threading.main_thread():
        yield
        return
    pools = _blas_pools()
    before = [pool.num_threads for pool in pools]
    if all(threads == 1 for threads in before):  # to set and restore takes as long as a small fit
        yield
        return
    try:
        for pool in pools:
            pool.set_num_threads(1)
        yield
    finally:
        for pool, threads in zip(pools, before, strict=True):
            pool.set_num_threads(threads)


class _Helper(threading.local):
    """The thread that helps this one; none before it is wanted, and none where nobody said so."""

    wanted = False
    pool: ThreadPoolExecutor | None = None


_helper = _Helper()


@contextlib.contextmanager
def helping() -> Iterator[None]:
    """Have a second thread for :func:`share` meanwhile, where there are two cores; it starts when first needed."""
    if _helper.wanted:
        yield
        return
    _helper.wanted = True
    try:
        yield
    finally:
        pool, _helper.wanted, _helper.pool = _helper.pool, False, None
        if pool is not None:
            pool.shutdown()


def share(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """``work`` on all pieces, each by whichever of two threads is free; here alone where there is no second one.

    What is worked on must not depend on who does it, nor in which order.
    """
    left = deque(pieces)
    if not (_helper.wanted and len(left) > 1 and cores() > 1):
        _work_off(work, left)
        return
    if _helper.pool is None:
        _helper.pool = ThreadPoolExecutor(1, "tpca-helper")
    other = _helper.pool.submit(_work_off, work, left)
    try:
        _work_off(work, left)
    finally:
        left.clear()
        other.cancel() or other.result()


def _work_off(work: Callable[[Piece], None], left: deque[Piece]) -> None:
    while left:
        try:
            piece = left.popleft()
        except IndexError:  # the other one was quicker
            return
        work(piece)
