"""What a worker does: read some batches, reduce them group by group, hand back what is left of them.

All functions here are pure: run again, on this worker or another, they give the same bits.  That is all that is needed
when a worker dies, so nothing is lost or counted twice.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tpca.engines.cursor import Fragment
from tpca.engines.dask.cache import cache, keep_freed_pages
from tpca.engines.groups import Groups, merge_all
from tpca.engines.looks import Looks, batch_digest
from tpca.errors import ClusterError, TpcaError
from tpca.prefetch import read_ahead
from tpca.streams.protocol import NumberedStream
from tpca.tensors import Accumulator, Batch


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
    watch: bool
    ahead: int | None
    """The batch that this worker will probably need next."""
    hold: float = 0.0
    """Bytes of batches to hold for the next pass."""


@dataclass
class Outcome:
    """What is left of some groups, and what was seen on the way."""

    part: Accumulator | None
    buffer_bytes: int
    varied: bool
    digests: tuple[bytes, ...]


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
    looks = Looks(work.watch)
    groups, most = Groups(asked, work.leaves), 0
    batches = reader.batches(dict.fromkeys(piece.fragment.number for piece in work.pieces))
    number, batch = -1, None
    for piece in work.pieces:
        fragment = piece.fragment
        if fragment.number != number:
            number, batch = fragment.number, next(batches)
            batch.first = int(stream.layout.bounds[fragment.place])  # as if empty ones before it were part of it
            looks.at(batch)
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
    return Outcome(root, most, looks.varied, tuple(looks.digests))


def merge_outcomes(outcomes: Sequence[Outcome | None]) -> Outcome:
    """The outcome over the groups of some neighbours."""
    some = [outcome for outcome in outcomes if outcome is not None]
    digests = tuple(dict.fromkeys(digest for outcome in some for digest in outcome.digests))
    buffer_bytes = max(outcome.buffer_bytes for outcome in some)
    root = merge_all([None if outcome is None else outcome.part for outcome in outcomes])
    return Outcome(root, buffer_bytes, any(outcome.varied for outcome in some), digests)


def count_samples(stream: NumberedStream | bytes, numbers: Sequence[int], parts: dict[int, Any]) -> dict[int, int]:
    """How many samples some batches have."""
    reader = Reader(opened(stream), "", parts)
    return {number: len(reader.read(number)) for number in numbers}


def digest_of(stream: NumberedStream | bytes, token: str, number: int, parts: dict[int, Any]) -> str | None:
    """A digest of a batch, which stays in the cache if it is there."""
    (batch,) = Reader(opened(stream), token, parts).batches([number])
    cache.keep(token, number, batch)
    return batch_digest(batch)


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
