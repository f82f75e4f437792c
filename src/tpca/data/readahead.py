"""Reading ahead: the next items, which have numbers, are read while the present one is worked on.

One ahead or several, by one thread or by several at once, so that all cores decompress; they come in their order all
the same.  A solver that works between two rounds takes nothing meanwhile, and finds the beginning of the next round
read.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")

# Bytes that are read ahead, where an item is not larger: what a core reads from the system's cache during a short look.
AHEAD_BYTES = 2**26
MAX_AHEAD = 16
JOIN_SECONDS = 10.0  # a reader that hangs (a dead network share) must not hang whoever closes the iterator, too


def depth(nbytes: int, count: int) -> int:
    """Items of so many bytes to read ahead, of ``count`` in all; one at least, if there is a second."""
    return min(max(1, min(AHEAD_BYTES // max(1, nbytes), MAX_AHEAD)), count - 1)


def read_ahead(
    read: Callable[[int], Item], numbers: Iterable[int], ahead: int = 1, readers: int = 1
) -> Generator[Item]:
    """``read(number)`` of all numbers, in their order, ``ahead`` of them begun while one is in use.

    At most ``ahead`` + 1 items are in memory; ``readers`` threads read them, each one at a time.  An error arrives
    where its item would have, whoever met it first.  The threads start with the first item and are gone when the
    iterator is exhausted, closed or garbage collected; what they are reading then is read to its end and dropped.
    """
    jobs: queue.SimpleQueue[tuple[int, Future[Item]] | None] = queue.SimpleQueue()
    stop = threading.Event()
    # The threads are daemons, which those of a pool are not, and know nothing of the generator: a reference to it would
    # keep it alive for ever.
    threads = [
        threading.Thread(target=_serve, args=(read, jobs, stop), name="tpca-prefetch", daemon=True)
        for _ in range(max(1, min(readers, ahead)))
    ]
    for thread in threads:
        thread.start()
    begun: deque[Future[Item]] = deque()
    rest = iter(numbers)

    def begin(most: int) -> None:
        while len(begun) < most and (number := next(rest, None)) is not None:
            begun.append(Future())
            jobs.put((number, begun[-1]))

    try:
        begin(ahead + 1)  # nothing is in use yet
        while begun:
            item = begun.popleft().result()
            begin(ahead)
            yield item
            del item  # else the consumed item would stay in memory while the next one is waited for
    finally:
        stop.set()
        for _ in threads:
            jobs.put(None)
        until = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            if thread is not threading.current_thread() and not sys.is_finalizing():
                thread.join(max(0.0, until - time.monotonic()))


def _serve(
    read: Callable[[int], Item], jobs: queue.SimpleQueue[tuple[int, Future[Item]] | None], stop: threading.Event
) -> None:
    while (job := jobs.get()) is not None and not stop.is_set():
        number, promise = job
        try:
            promise.set_result(read(number))
        except BaseException as caught:
            promise.set_exception(caught)
        del job, promise  # else the last item would stay in memory for as long as there is nothing to do
