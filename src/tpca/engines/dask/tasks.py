"""How the groups of a round are shared out among workers; nothing of it changes a bit of the result.

The batch cache of a worker: the batch it read last, which the next round often begins with, and one read ahead.

Where there are many passes over the same data, also as many of them as there is room for.

Memory that a worker frees stays with it, for the next batch.  Dask starts its workers with
``MALLOC_TRIM_THRESHOLD_=65536``: glibc then gives every freed array of some size back to the system at once, and for
the next batch the system clears and maps as many pages again.  For a reader that frees one batch after the other this
is 40 % of all its seconds (benchmarks/dask_scaling.py).  So, in a worker with that setting, up to ``KEPT`` bytes are
kept instead.

What a worker does: read some batches, reduce them group by group, hand back what is left of them.

All functions here are pure: run again, on this worker or another, they give the same bits.  That is all that is needed
when a worker dies, so nothing is lost or counted twice.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tpca.data import open_stream
from tpca.data.base import NumberedStream
from tpca.engines.cursor import Fragment
from tpca.engines.groups import Groups, merge_all
from tpca.engines.receipts import Read, read
from tpca.errors import ClusterError, StreamError, TpcaError
from tpca.tensors import Accumulator, Batch
from tpca.threads import read_ahead

UNEVEN = 1.1  # times worse shared out is as good as more tasks
FAN = 8  # replicas are passed on to so many, and as many parts are merged at once


def runs_of(leaves: int, workers: int) -> int:
    """Tasks of a round: about one for each worker, or two or four where that is much better shared out.

    Each takes the scheduler and the wires some milliseconds, in which a worker waits.
    """
    if workers == 1:
        return 1
    choices = [power_of_two(workers) * more for more in (1, 2, 4)]
    uneven = [-(-runs // workers) * workers / runs for runs in choices]  # the worker that has most, to the average
    enough = next(runs for runs, own in zip(choices, uneven, strict=True) if own <= UNEVEN * min(uneven))
    return min(leaves, enough)


def merge_fan(parts: int, workers: int, level: int) -> int:
    """How many parts to merge at once on the workers: first those of one worker; 1 when the rest goes to the client."""
    if parts <= min(FAN, power_of_two(workers)):
        return 1
    return min(FAN, max(2, parts // power_of_two(workers))) if level == 0 else FAN


def batches_ahead(firsts: Mapping[int, int], homes: Mapping[int, int], last: int, count: int) -> dict[int, int]:
    """The batch to read ahead after every run: that of the worker's next run, or of its place in the next round.

    ``firsts`` are the batches that runs begin with, ``homes`` their workers; the round ends with ``last`` of ``count``.
    """
    ahead: dict[int, int] = {}
    for run, home in homes.items():
        if later := [other for other in firsts if other > run and homes[other] == home]:
            ahead[run] = firsts[min(later)]
    if last + 1 < count:
        ahead.setdefault(max(firsts), last + 1)
    return ahead


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, count - 1).bit_length()


def readable_stream(source: Any) -> NumberedStream:
    """A stream that workers can read by themselves, or an error that says what to do."""
    stream: Any = open_stream(source)
    way_out = "save the samples as Zarr where all workers can read them (zarr.save, dask.array.to_zarr)"
    if stream.layout is None:
        raise StreamError(f"workers cannot read samples from {stream.kind} data by themselves; {way_out}.")
    if not stream.readable_elsewhere:
        if stream.kind == "dask":
            raise StreamError(
                f"samples of shape {stream.dims} are too large to be taken from a Dask array whole; {way_out}."
            )
        raise StreamError(
            f"workers cannot read samples from the memory of this process (kind {stream.kind!r}); {way_out}, "
            "or give dask.array.from_array(samples, chunks=...).persist()."
        )
    numbered: NumberedStream = stream
    return numbered


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


@dataclass(frozen=True)
class Piece:
    """A fragment, its leaf in the tree over some neighbouring groups, and how many samples were read before it."""

    fragment: Fragment
    leaf: int
    at: int


@dataclass(frozen=True)
class Work:
    """Some neighbouring groups of a reading."""

    token: str
    pieces: tuple[Piece, ...]
    leaves: int
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
    read: tuple[Read, ...] = ()


def unpacked(packed: bytes) -> Any:
    """What was sent as bytes, so that nobody on the way has to understand it."""
    return pickle.loads(packed)


def opened(stream: NumberedStream | bytes) -> NumberedStream:
    """The stream; one that came with the task is opened once for all tasks of a fit."""
    return _opened(stream) if isinstance(stream, bytes) else stream


@functools.lru_cache(maxsize=4)
def _opened(packed: bytes) -> NumberedStream:
    stream: NumberedStream = pickle.loads(packed)
    return stream


def relayed(payload: Any) -> Any:
    """The same again: a worker that has it can pass it on to others."""
    return payload


def reduce_groups(
    stream: NumberedStream | bytes, work: Work, blank: Accumulator | bytes, parts: dict[int, Any]
) -> Outcome:
    """Reduce the groups of ``work``, and merge what is left of them."""
    stream = opened(stream)
    asked: Accumulator = unpacked(blank) if isinstance(blank, bytes) else blank  # bytes: for this task alone
    reader = Reader(stream, work.token, parts, work.hold)
    groups, most = Groups(asked, work.leaves), 0
    batches = reader.batches(dict.fromkeys(piece.fragment.number for piece in work.pieces))
    number, batch = -1, None
    found: list[Read | None] = []
    for piece in work.pieces:
        fragment = piece.fragment
        if fragment.number != number:
            number, batch = fragment.number, next(batches)
            batch.first = int(stream.layout.bounds[fragment.place])  # as if empty ones before it were part of it
            if work.after is not None:
                found.append(_read(stream, number, batch, work.after))
        assert batch is not None
        part = groups.part_of(piece.leaf)
        reader.attempt(fragment, part.add, batch[fragment.start : fragment.stop], piece.at)
        most = max(most, 2 * batch.nbytes + groups.nbytes)
    batches.close()
    cache.keep(work.token, number, batch)
    if work.ahead is not None:
        cache.read_ahead(work.token, stream, work.ahead)
    root = groups.merged()
    root.forget()
    return Outcome(root, most, tuple(one for one in found if one is not None))


def merge_outcomes(outcomes: Sequence[Outcome | None]) -> Outcome:
    """The outcome over the groups of some neighbours."""
    some = [outcome for outcome in outcomes if outcome is not None]
    buffer_bytes = max(outcome.buffer_bytes for outcome in some)
    root = merge_all([None if outcome is None else outcome.part for outcome in outcomes])
    seen = tuple(one for outcome in some for one in outcome.read)
    return Outcome(root, buffer_bytes, seen)


def count_samples(stream: NumberedStream | bytes, numbers: Sequence[int], parts: dict[int, Any]) -> dict[int, int]:
    """How many samples some batches have."""
    reader = Reader(opened(stream), "", parts)
    return {number: len(reader.read(number)) for number in numbers}


def read_again(stream: NumberedStream | bytes, numbers: Sequence[int], parts: dict[int, Any]) -> list[Read]:
    """The digests of some batches."""
    stream = opened(stream)
    reader = Reader(stream, "", parts)
    found = (_read(stream, number, reader.read(number), -1) for number in numbers)
    return [one for one in found if one is not None]


def _read(stream: NumberedStream, number: int, batch: Batch, after: int) -> Read | None:
    """The digest of a batch, which may begin with the place of empty ones before it."""
    batch.first = int(stream.layout.bounds[number + 1]) - len(batch) - batch.dropped
    return read(batch, after)


class Reader:
    """Reads batches on a worker; what goes wrong is said with the samples, and the worker, that it went wrong with."""

    def __init__(self, stream: NumberedStream, token: str, parts: dict[int, Any], hold: float = 0.0) -> None:
        self._stream, self._token, self._parts, self._hold = stream, token, parts, hold
        self._worker = _worker()
        keep_freed_pages()

    def batches(self, numbers: Iterable[int]) -> Generator[Batch]:
        """The batches, the next one read while one is in use."""
        return read_ahead(self._taken_or_read, numbers)

    def read(self, number: int) -> Batch:
        """Batch ``number``."""
        first, stop = self._stream.layout.bounds[number : number + 2]
        fragment = Fragment(number, 0, int(stop - first), number)
        batch: Batch = self.attempt(fragment, self._stream.batch, number, self._parts.get(number))
        return batch

    def attempt(self, fragment: Fragment, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do some work on some samples."""
        first = int(self._stream.layout.bounds[fragment.number])
        where = f"samples {first + fragment.start} to {first + fragment.stop - 1} of the stream"
        try:
            return work(*arguments)
        except TpcaError as error:
            raise type(error)(f"{error} ({where}, on worker {self._worker})") from error
        except Exception as error:
            raise ClusterError(f"worker {self._worker} failed on {where}: {error!r}.") from error

    def _taken_or_read(self, number: int) -> Batch:
        batch = cache.held(self._token, number) or cache.take(self._token, number)
        if batch is None:
            batch = self.read(number)
        if self._hold:
            cache.hold(self._token, number, batch, self._hold)
        return batch


def _worker() -> str:
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # not on a worker
        return "of this process"
