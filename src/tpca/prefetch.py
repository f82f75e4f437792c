"""Read the next items, which have numbers, while the present one is worked on.

One ahead or several, by one thread or by several at once, so that all cores decompress; they come in their order all
the same.  A solver that works between two rounds (a look) takes nothing meanwhile, and finds the beginning of the next
round read.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

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
