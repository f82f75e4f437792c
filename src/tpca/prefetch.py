"""Read the next item while the present one is worked on."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")

# A reader that hangs (a dead network share) must not hang whoever closes the iterator, too.
JOIN_SECONDS = 10.0


class _End:
    """Says that nothing more comes, and why."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetch(iterator: Iterator[Item]) -> Iterator[Item]:
    """The items of ``iterator``, each read in a thread while the one before it is in use.

    Exactly one item is read ahead, so that two of them are in memory.  An exception of the iterator arrives where its
    item would have.  The thread starts with the first item and is gone when the iterator is exhausted, closed or
    garbage collected.
    """
    ready: queue.SimpleQueue[Item | _End] = queue.SimpleQueue()
    wanted = threading.Semaphore(1)
    stop = threading.Event()
    # The thread is given these four and not the generator: a reference to it would keep it alive for ever.
    reader = threading.Thread(
        target=_read_ahead, args=(iterator, ready, wanted, stop), name="tpca-prefetch", daemon=True
    )
    reader.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            wanted.release()
            yield item
            del item  # else the consumed item would stay in memory while the next one is waited for
    finally:
        stop.set()
        wanted.release()
        # The collector may run this in the reader itself; at exit daemon threads are frozen and cannot be waited for.
        if threading.current_thread() is not reader and not sys.is_finalizing():
            reader.join(JOIN_SECONDS)


def _read_ahead(
    iterator: Iterator[Item],
    ready: queue.SimpleQueue[Item | _End],
    wanted: threading.Semaphore,
    stop: threading.Event,
) -> None:
    """Put an item into ``ready`` whenever one is wanted, until the end, an error, or ``stop``."""
    error: BaseException | None = None
    try:
        while wanted.acquire() and not stop.is_set():
            try:
                ready.put(next(iterator))
            except StopIteration:
                break
    except BaseException as caught:
        error = caught
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()  # a generator must be closed in the thread that runs it
        ready.put(_End(error))
