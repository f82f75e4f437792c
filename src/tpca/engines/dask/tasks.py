"""What a worker does: read some batches, reduce them group by group, hand back what is left of them.

All tasks are pure functions: run again, on this worker or another, they give the same bits.  That is all that is needed
when a worker dies, so nothing is lost or counted twice.

Memory that a worker frees stays with it, for the next batch.  Dask starts its workers with
``MALLOC_TRIM_THRESHOLD_=65536``: glibc then gives every freed array of some size back to the system at once, and for
the next batch the system clears and maps as many pages again.  For a reader that frees one batch after the other this
is 40 % of all its seconds (benchmarks/dask_scaling.py).  So, in a worker with that setting, up to ``KEPT`` bytes are
kept instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tpca.data.base import NumberedStream
from tpca.engines.base import BatchDigest, Groups, batch_digest, merge_all
from tpca.errors import ClusterError, TpcaError
from tpca.tensors import Accumulator, Batch

DASK, KEPT = "65536", 2**28
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


@dataclass
class Fragment:
    """Samples ``start`` to ``stop`` of batch ``number``: what stands for a batch where only workers read.

    ``first`` is its place in the stream, that of the empty ones before it, if any; ``dropped`` samples were left out.
    """

    number: int
    start: int
    stop: int
    first: int
    dropped: int = 0

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, some: slice) -> Fragment:
        start, stop, _ = some.indices(len(self))
        return dataclasses.replace(self, start=self.start + start, stop=self.start + stop)


@dataclass(frozen=True)
class Piece:
    """A fragment, the group it belongs to, and ``at``, how many samples of the reading come before it."""

    fragment: Fragment
    group: int
    at: int


@dataclass(frozen=True)
class Work:
    """Some neighbouring groups of a reading."""

    token: str
    pieces: tuple[Piece, ...]
    ahead: int | None
    """The batch that this worker will probably need next."""
    hold: float = 0.0
    """Bytes of batches to hold for the next pass."""
    after: int | None = None
    """Where batches begin of which digests are wanted, if any are."""


@dataclass
class Outcome:
    """What is left of some groups, and what was seen on the way."""

    part: Accumulator | None
    buffer_bytes: int
    digests: tuple[BatchDigest, ...] = ()


def unpickled(packed: bytes) -> Any:
    """What was sent as bytes, so that nobody on the way has to understand it."""
    return pickle.loads(packed)


_opened = functools.lru_cache(maxsize=4)(unpickled)  # a stream that comes with every task is opened once for a fit


def reduce_groups(
    stream: NumberedStream | bytes, work: Work, blank: Accumulator | bytes, parts: dict[int, Any]
) -> Outcome:
    """Reduce the groups of ``work``, and merge what is left of them."""
    reader = BatchReader(stream, parts)
    asked: Accumulator = unpickled(blank) if isinstance(blank, bytes) else blank  # bytes: for this task alone
    groups, most = Groups(asked), 0
    found: list[BatchDigest | None] = []
    numbers = list(dict.fromkeys(piece.fragment.number for piece in work.pieces))
    following = dict(zip(numbers, [*numbers[1:], work.ahead], strict=True))
    number, batch = -1, None
    for piece in work.pieces:
        fragment = piece.fragment
        if batch is None or fragment.number != number:
            number = fragment.number
            batch = cache.read(work.token, number, following[number], reader.read, work.hold)
            if work.after is not None:
                found.append(reader.digest(number, batch, work.after))
            batch.first = fragment.first
        part = groups.part_of(piece.group)
        reader.attempt(fragment, part.add, batch[fragment.start : fragment.stop], piece.at)
        most = max(most, 2 * batch.nbytes + groups.nbytes)
    root = groups.merged()
    root.question = ()  # whoever asked has it
    return Outcome(root, most, tuple(one for one in found if one is not None))


def merge_outcomes(outcomes: Sequence[Outcome | None]) -> Outcome:
    """The outcome over the groups of some neighbours."""
    some = [outcome for outcome in outcomes if outcome is not None]
    root = merge_all([None if outcome is None else outcome.part for outcome in outcomes])
    seen = tuple(one for outcome in some for one in outcome.digests)
    return Outcome(root, max(outcome.buffer_bytes for outcome in some), seen)


def look_at(
    stream: NumberedStream | bytes, numbers: Sequence[int], parts: dict[int, Any], digests: bool
) -> list[tuple[int, BatchDigest | None]]:
    """Of some batches: how many samples each has, or its digest, too."""
    reader = BatchReader(stream, parts)
    batches = ((number, reader.read(number)) for number in numbers)
    return [(len(batch), reader.digest(number, batch, -1) if digests else None) for number, batch in batches]


class BatchReader:
    """Reads batches on a worker; what goes wrong is said with the samples, and the worker, that it went wrong with."""

    def __init__(self, stream: NumberedStream | bytes, parts: dict[int, Any]) -> None:
        from distributed import get_worker

        self._stream: NumberedStream = _opened(stream) if isinstance(stream, bytes) else stream
        self._bounds, self._parts = self._stream.layout.bounds, parts
        self._worker = get_worker().address
        keep_freed_pages()

    def read(self, number: int) -> Batch:
        """Batch ``number``."""
        first, stop = map(int, self._bounds[number : number + 2])
        whole = Fragment(number, 0, stop - first, first)
        batch: Batch = self.attempt(whole, self._stream.batch, number, self._parts.get(number))
        return batch

    def attempt(self, fragment: Fragment, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work on some samples."""
        first = int(self._bounds[fragment.number])
        where = f"samples {first + fragment.start} to {first + fragment.stop - 1} of the stream"
        try:
            return work(*arguments)
        except TpcaError as error:
            raise type(error)(f"{error} ({where}, on worker {self._worker})") from error
        except Exception as error:
            raise ClusterError(f"worker {self._worker} failed on {where}: {error!r}.") from error

    def digest(self, number: int, batch: Batch, after: int) -> BatchDigest | None:
        """The digest of a batch behind place ``after``."""
        batch.first = int(self._bounds[number + 1]) - len(batch) - batch.dropped
        return batch_digest(batch, after)


def later(work: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
    """What somebody gives who may never give it, as a future: a thread waits for it that nobody waits for."""
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(work(*arguments, **options))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="tpca-later", daemon=True).start()
    return answer


class BatchCache:
    """Batches of a worker, by fit and number: those in use, the next one, which is read meanwhile, and some others.

    The last one is kept for the next round, which often begins with it; where there are many passes over the same data,
    as many more as there is room for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[tuple[str, int], Future[Batch]] = {}

    def read(self, token: str, number: int, ahead: int | None, read: Callable[[int], Batch], hold: float) -> Batch:
        """Batch ``number`` of a fit; the one ``ahead`` is read meanwhile.

        Let go of other fits, of batches that are not in use and beyond ``hold`` bytes, and of what failed.
        """
        with self._lock:
            kept, room = {}, hold
            for (owner, own), promise in self._begun.items():
                good = owner == token and not (promise.done() and promise.exception())
                if good and own not in (number, ahead):
                    size = promise.result().nbytes if promise.done() else room + 1
                    good = size <= room
                    room -= size if good else 0
                if good:
                    kept[owner, own] = promise
            for wanted in (number, ahead):
                if wanted is not None and (token, wanted) not in kept:
                    kept[token, wanted] = later(read, wanted)
            self._begun = kept
        return kept[token, number].result()


cache = BatchCache()


@functools.cache
def keep_freed_pages() -> None:
    """Undo Dask's setting in this process, if it is in force and the C library lets us."""
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") == DASK:
        with contextlib.suppress(OSError, AttributeError):  # not glibc
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, 4 * KEPT)
            mallopt(_TRIM_THRESHOLD, KEPT)
