"""The batch cache of a worker: the batch it read last, which the next round often begins with, and one read ahead.

Where there are many passes over the same data, also as many of them as there is room for.

Memory that a worker frees stays with it, for the next batch.  Dask starts its workers with
``MALLOC_TRIM_THRESHOLD_=65536``: glibc then gives every freed array of some size back to the system at once, and for
the next batch the system clears and maps as many pages again.  For a reader that frees one batch after the other this
is 40 % of all its seconds (benchmarks/dask_scaling.py).  So, in a worker with that setting, up to ``KEPT`` bytes are
kept instead.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future

from tpca.streams.protocol import NumberedStream
from tpca.tensors import Batch

MAX_BATCHES = 3  # batches in the cache of a process, whatever is going on there
DASK = "65536"
KEPT = 2**28
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


class BatchCache:
    """A few batches by their number and the fit that they belong to; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: OrderedDict[tuple[str, int], Future[Batch | None]] = OrderedDict()
        self._held: dict[tuple[str, int], Batch] = {}

    def take(self, token: str, number: int) -> Batch | None:
        """The batch, if it is here or about to be."""
        with self._lock:
            waiting = self._batches.pop((token, number), None)
        return None if waiting is None else waiting.result()

    def keep(self, token: str, number: int, batch: Batch | None) -> None:
        """Put a batch into the cache."""
        if batch is not None:
            self._slot(token, number).set_result(batch)

    def read_ahead(self, token: str, stream: NumberedStream, number: int) -> None:
        """Begin to read a batch, unless it is here already."""
        with self._lock:
            if (token, number) in self._batches:
                return
        slot = self._slot(token, number)
        threading.Thread(target=_fill, args=(slot, stream, number), name="tpca-read-ahead", daemon=True).start()

    def held(self, token: str, number: int) -> Batch | None:
        """A batch that is held for the next pass, if it is."""
        with self._lock:
            return self._held.get((token, number))

    def hold(self, token: str, number: int, batch: Batch, most: float) -> None:
        """Hold a batch for the next pass, if there is room for it; those of other fits make room."""
        with self._lock:
            for key in [key for key in self._held if key[0] != token]:
                del self._held[key]
            if (token, number) not in self._held and sum(
                other.nbytes for other in self._held.values()
            ) + batch.nbytes <= most:
                self._held[token, number] = batch

    def _slot(self, token: str, number: int) -> Future[Batch | None]:
        slot: Future[Batch | None] = Future()
        with self._lock:
            self._batches[token, number] = slot
            while len(self._batches) > MAX_BATCHES:
                self._batches.popitem(last=False)
        return slot


def _fill(slot: Future[Batch | None], stream: NumberedStream, number: int) -> None:
    """Read; what goes wrong here goes wrong again, and is told, when the batch is needed."""
    try:
        slot.set_result(stream.batch(number))
    except Exception:
        slot.set_result(None)


cache = BatchCache()


@functools.cache
def keep_freed_pages() -> bool:
    """Undo Dask's setting in this process, if it is in force and the C library lets us; whether it did."""
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != DASK:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 4 * KEPT)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
