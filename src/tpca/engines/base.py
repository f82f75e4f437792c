"""The engine: the one door to data; and what all engines share.

"Here is an accumulator, add the next n samples to it."  Whether they come from memory, a file, other machines or a law
that is simulated, the solver cannot tell; what is kept of them, the engine does not know.

**Groups.**  Sums of floating-point numbers depend on their order.  Samples are therefore cut into K = 2^p groups of
whole batches, each reduced by itself, batch after batch; what is left of the groups is merged in pairs, the pairs in
pairs, and so on.  Groups and tree follow from the place in the stream, the samples asked for and the accumulator, never
from the number of workers: one process that does all groups one after the other and any number of workers that do some
each get the same bits.

How small may a group be?  It costs, beside the reading of its samples, a task and, at the end, what its accumulator
does to close it: the contraction of a sum with all R replicas, about 4R operations an entry.  In a group of
``REPLICA_SAMPLES``·R samples that is 2 operations for every number read: by estimate from arrays in memory (R = 50, one
core) 15 % of the time of a plain ``.npy`` file in the system's cache, 2 % of that of a compressed Zarr store.  Rounds
over arrays in memory, which are read faster still and only here, are not cut; whole passes are.

**Receipts.**  Are data still those that were read, since a checkpoint, and while a fit went on?  Files are told apart
by their names, sizes and times of last change, a store by those of its chunks: their *stamp*.  Nothing of files with
the same stamp is compared.  Where names or sizes differ the data are others.  Where only times do (a copy), or there
are no files (arrays, iterables), what was read before is read again, and digests are compared: the *receipt* of a run
is the sum of those of all batches that it has read, each counted once however many passes there are.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import dataclasses
import hashlib
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from tpca.checkpoint import CheckpointWarning
from tpca.data import Stream
from tpca.data.base import Layout
from tpca.data.places import is_url
from tpca.errors import CheckpointError, StreamError, TpcaError
from tpca.labels import Labels
from tpca.tensors import Accumulator, Batch

GROUP_ENTRIES = 2**22  # numbers read for a group: tens of milliseconds, many times what a task costs
GROUP_SAMPLES = 8  # so that merging is little beside adding up
MAX_GROUPS = 2**14

A = TypeVar("A", bound=Accumulator)
BatchDigest = tuple[int, int | None]  # where a batch ends, and its digest


class Data(Protocol):
    """What a solver must know of the samples before it sees any."""

    dims: tuple[int, ...]
    """Shape of one sample."""
    length: int | None
    """Samples in one pass, where that is known."""
    rereadable: bool
    """Whether there can be a second pass."""
    whole: bool
    """Whether samples come as arrays that are held in full: neither sparse, nor products of views, nor in slabs."""
    labels: Labels | None
    """Names of the modes and of their entries, where the data have them."""

    @property
    def endless(self) -> bool:
        """Whether the samples never end."""

    @property
    def partial(self) -> bool:
        """Whether entries of samples may be missing, those that are there being used."""
        return False


class Engine(Data, Protocol):
    """Reads samples into accumulators."""

    like: Any
    """Of samples on a device: an array there; ``None`` of those of the host."""
    buffer_bytes: int
    """Most bytes held so far for samples in flight."""

    @property
    def stops_within(self) -> float | None:
        """Seconds that a call of ``reduce`` may still take when the user asks to stop; ``None``: until its end."""

    def reduce(self, blank: A, n: int | None = None) -> A:
        """The next ``n`` samples (``None``: all to the end of the pass) in an accumulator like ``blank``, finished.

        Fewer than asked for, or none, at the end of the samples.
        """

    def rewind(self) -> None:
        """Start another pass over the same samples."""

    @property
    def identity(self) -> str:
        """Which data these are: a checkpoint is good for these only."""

    @property
    def n_skipped(self) -> int:
        """Samples left out so far because they could not be used."""

    def keep(self) -> None:
        """Note what is read from here on, so that who goes on from a position can compare it."""

    def check_unchanged(self) -> None:
        """Refuse data that were written to while they were read."""

    def position(self) -> dict[str, Any]:
        """Where the next sample is, as plain values."""

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a position taken before, also in another process."""


class StreamEngine:
    """Walks through the batches of a stream: those themselves, or stand-ins for what workers read."""

    stream: Stream
    stops_within: float | None = None
    remote = False
    """Whether sums come back from other processes, so that rounds should be few."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.dims, self.length, self.endless = stream.dims, stream.length, stream.endless
        self.rereadable, self.whole, self.partial = stream.rereadable, stream.whole, stream.partial
        self.labels, self.like = stream.labels, stream.like
        self.buffer_bytes = 0
        self._stamp = stamp(stream.files)
        self._receipt: Receipt | None = None
        self._skipped, self._skipped_before = 0, 0  # in this pass, and at most in one before
        self._batches: Iterator[Any] | None = None  # opened when the first samples are wanted
        self._opened_at = 0
        self._batch: Any = None
        self._offset = 0  # samples of the batch in hand that were taken
        self._ended = False

    def reduce(self, blank: A, n: int | None = None) -> A:
        """The next ``n`` samples, or all to the end of the pass, in an accumulator like ``blank``.

        If that fails because somebody writes to the files, the error says so.
        """
        try:
            return self._reduce(blank, n)
        except TpcaError as error:
            self.check_unchanged(error)
            raise

    def _reduce(self, blank: A, n: int | None) -> A:
        raise NotImplementedError

    def read_ahead_within(self, nbytes: int) -> None:
        """Read no more than so many bytes ahead."""
        self.stream = self.stream.reading_ahead_within(nbytes)

    @property
    def n_skipped(self) -> int:
        """Samples that the stream left out, those of later passes not counted again."""
        return max(self._skipped, self._skipped_before)

    def rewind(self) -> None:
        """Start the next pass over a re-readable stream."""
        self._skipped, self._skipped_before = 0, self.n_skipped
        self._open(0)

    def keep(self) -> None:
        """Have a receipt of all that is read from here on, for positions to be compared by."""
        self._receipt = Receipt(self.endless)

    def check_unchanged(self, failure: TpcaError | None = None) -> None:
        """Refuse files that were written to since this engine was made, which may be the cause of a ``failure``."""
        if how := difference(self._stamp, stamp(self.stream.files)):
            raise StreamError(
                f"the data have changed while they were read: {how}; what was found belongs to neither the old nor the "
                "new ones. Fit again when nobody writes to them (--restart)."
            ) from failure

    @property
    def identity(self) -> str:
        """Which data these are."""
        return self.stream.identity

    def position(self) -> dict[str, Any]:
        """Where in the stream the next sample is, and what was seen so far: the same words for all engines."""
        return {
            "first": self._opened_at if self._batch is None else self._batch.first,
            "offset": self._offset,
            "ended": self._ended,
            "skipped": [self._skipped, self._skipped_before],
            "buffer_bytes": self.buffer_bytes,
            "files": self._stamp,
            "read": None if self._receipt is None else dataclasses.asdict(self._receipt),
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a :meth:`position`, with the same batches, so that all sums come out bit by bit the same.

        What was read before, unless it is in files that nobody has written to, is read again and must be the same.
        """
        before = None if position["read"] is None else Receipt(**position["read"])
        files: Any = position["files"]
        now: Any = self._stamp
        how = difference(files, now)
        if how and files["sizes"] != now["sizes"]:
            raise changed(how)
        self.buffer_bytes, self._batch = int(position["buffer_bytes"]), None
        if before is not None and before.end > before.begin and (how or files is None or now is None):
            before.compare(self._read_again(before))
        self._receipt = before
        first, offset = int(position["first"]), int(position["offset"])
        if self._batch is None or self._batch.first != first:
            self._open(first)
        inside = offset > 0 or position["ended"]
        if inside and ((self._batch is None and not self._next_batch()) or self._place != first):
            raise changed(f"no batch begins at sample {first}")
        self._offset = offset
        if position["ended"] and self._next_batch():
            raise changed(f"there are more than {first + offset} samples")
        self._skipped, self._skipped_before = position["skipped"]

    def _read_again(self, before: Receipt) -> Receipt:
        """The receipt of what was read before, as it is now; the last batch of it may be in hand then."""
        raise NotImplementedError

    @property
    def _place(self) -> int:
        """Where in the stream the next sample is, as if none had been left out of the batch in hand."""
        return self._opened_at if self._batch is None else int(self._batch.first + self._offset)

    def _take(self, n: int | None) -> Any:
        """Up to ``n`` samples of the batch in hand, or of the next one; ``None`` for no more."""
        if n == 0:
            return None
        while self._batch is None or self._offset >= len(self._batch):
            if self._ended or not self._next_batch():
                return None
        whole = self._offset == 0 and (n is None or n >= len(self._batch))
        batch = self._batch if whole else self._batch[self._offset : None if n is None else self._offset + n]
        self._offset += len(batch)
        return batch

    def _open(self, first: int) -> None:
        self._batches, self._opened_at = self._batches_from(first), first
        self._batch, self._offset, self._ended = None, 0, False

    def _batches_from(self, first: int) -> Iterator[Any]:
        return self.stream.batches(first)

    def _next_batch(self) -> bool:
        """Take the next batch in hand; false, and the last one kept as a place, at the end of the stream."""
        if self._batches is None:
            self._open(0)
            assert self._batches is not None
        fresh = next(self._batches, None)
        if fresh is None:
            self._ended = True
            return False
        self._batch, self._offset = fresh, 0
        self._skipped += fresh.dropped
        return True


# -- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """The groups of one reading: group g has the batches from place ``edges[g]`` on, the last one all that follow."""

    edges: tuple[int, ...]
    closes: bool
    """Whether groups are closed; not where all samples are one group that nobody else can read."""

    @property
    def leaves(self) -> int:
        """Leaves of the tree over the groups: as many, or the next power of two."""
        return 1 << (len(self.edges) - 1).bit_length()

    def group(self, first: int) -> int:
        """The group of the batch that begins at place ``first``."""
        return max(0, bisect.bisect_right(self.edges, first) - 1)


def cut_samples(layout: Layout | None, dtype: Any, blank: Accumulator, place: int, n: int | None) -> Cut:
    """How to cut ``n`` samples from place ``place`` of a stream on; one group where no worker could read it anyway.

    2^p groups of whole batches, about equal; batches that stay alone are a group each.
    """
    if layout is None or blank.goes_on or (layout.private and n is not None):
        return Cut((0,), False)
    end = int(layout.bounds[-1])
    stop = end if n is None else min(place + n, end)
    least = max(GROUP_SAMPLES, -(-GROUP_ENTRIES // layout.entries), blank.least_samples(sum_bytes(layout, dtype)))
    first = max(0, int(np.searchsorted(layout.bounds, place, side="right")) - 1)
    batches = max(1, int(np.searchsorted(layout.bounds, stop, side="left")) - first)
    count = min(batches, MAX_GROUPS)
    if not layout.alone:
        most = max(1, stop - place if n is None else n) // least
        count = 2 ** (max(1, min(count, most)).bit_length() - 1)
    return Cut(tuple(int(layout.bounds[first + g * batches // count]) for g in range(count)), True)


def sum_bytes(layout: Layout, dtype: Any) -> int | None:
    """Bytes of a sum of samples; ``None`` where they do not come whole."""
    return layout.entries * np.dtype(dtype).itemsize if layout.summable else None


class Groups(Generic[A]):
    """The groups of a reading, in their order, each an accumulator like ``blank``; those that are over are merged.

    No more than one part a level of the tree is held.
    """

    def __init__(self, blank: A) -> None:
        self._blank = blank
        self._parts: list[tuple[int, A]] = []  # the last one is open

    def part_of(self, group: int) -> A:
        """The accumulator of a group; those before it are over, and some may have had no samples."""
        if not self._parts or self._parts[-1][0] != group:
            if self._parts:
                self._parts[-1][1].close()
                _merge(self._parts, group)
            self._parts.append((group, self._blank.fresh()))
        return self._parts[-1][1]

    @property
    def nbytes(self) -> int:
        """Of all that is held."""
        return sum(part.nbytes for _, part in self._parts)

    def merged(self) -> A:
        """All groups, of which there is at least one."""
        self._parts[-1][1].close()
        _merge(self._parts)
        return self._parts[0][1]


def merge_all(parts: Sequence[A | None]) -> A | None:
    """The root over some leaves, which are not changed themselves; ``None`` where all are missing."""
    held: list[tuple[int, A]] = []
    for leaf, part in enumerate(parts):
        if part is not None:
            _merge(held, leaf)
            held.append((leaf, copy.deepcopy(part)))
    _merge(held)
    return held[0][1] if held else None


def _merge(held: list[tuple[int, A]], following: int | None = None) -> None:
    """Merge neighbours, each with one of its leaves, that meet in the tree before leaf ``following`` meets them.

    Leaves a and b of a complete binary tree meet at the level of the highest bit in which their numbers differ.
    """
    while len(held) > 1:
        (left, own), (right, other) = held[-2:]
        if following is not None and (left ^ right) > (right ^ following):
            return
        own.merge(other)
        held[-2:] = [(left, own)]


# -- receipts ---------------------------------------------------------------------------------------------------------


@dataclass
class Receipt:
    """The digest of everything that was read from place ``begin`` to ``end``; of samples that never end, of the last.

    ``None`` once there was a batch of a user's own that does not say what it holds.
    """

    endless: bool = False
    begin: int = 0
    end: int = 0
    digest: int | None = 0

    def take(self, batch: Batch) -> None:
        """A batch was read; one that was read before does not count."""
        if (found := batch_digest(batch, self.end)) is not None:
            if self.endless:
                self.begin, self.digest = batch.first, 0
            self.add([found])

    def add(self, found: Sequence[BatchDigest]) -> None:
        """Some batches were read."""
        for stop, own in found:
            self.end = max(self.end, stop)
            self.digest = None if self.digest is None or own is None else (self.digest + own) % 2**64

    def compare(self, now: Receipt) -> None:
        """Refuse to go on with samples that are not those of this receipt."""
        if self.digest is None or now.digest is None:
            warnings.warn(
                "the data cannot be compared with those of the checkpoint: their batches have no content(); make sure "
                "that they are the same.",
                CheckpointWarning,
                stacklevel=2,
            )
        elif (self.end, self.digest) != (now.end, now.digest):
            raise changed(f"samples {self.begin} to {self.end - 1} differ")


def batch_digest(batch: Batch, after: int) -> BatchDigest | None:
    """Where a batch ends, and its digest; ``None`` of an empty one, and of one that is not behind place ``after``."""
    stop = batch.first + len(batch) + batch.dropped
    if not len(batch) or stop <= after:
        return None
    content = batch.content()
    if content is None:
        return stop, None
    found = hashlib.blake2b(str(stop).encode(), digest_size=8)
    for array in content:
        # A checksum of all entries takes a sixth of the time of a cryptographic digest: nobody forges here.
        found.update(f" {array.dtype.str} {array.shape} {zlib.crc32(np.ascontiguousarray(array).data)}".encode())
    return stop, int.from_bytes(found.digest())


def changed(how: str) -> CheckpointError:
    """The error for data that are not those of the checkpoint."""
    return CheckpointError(
        f"the data have changed since the checkpoint: {how}; resume with the same data, or start afresh (--restart)."
    )


def stamp(places: Sequence[str]) -> dict[str, Any] | None:
    """Of files, folders and URLs, by names inside of these; ``None`` where there are none, or they cannot be listed."""
    if not places:
        return None
    count, size = 0, 0
    sizes, times = hashlib.sha256(), hashlib.sha256()
    try:
        for number, place in enumerate(places):
            for name, length, when in sorted(_listed(place)):
                count, size = count + 1, size + length
                sizes.update(f"{number}/{name} {length}\n".encode())
                times.update(f"{when}\n".encode())
    except Exception:  # file systems of all sorts
        return None
    named = f"{places[0]!r}{f' and {len(places) - 1} more' if len(places) > 1 else ''}"
    held = f"{size:,} bytes in {count:,} file{'' if count == 1 else 's'}"
    return {"place": named, "held": held, "sizes": sizes.hexdigest(), "times": times.hexdigest()}


def _listed(place: str) -> Iterator[tuple[str, int, str]]:
    """Name, size and time of last change of every file."""
    if is_url(place):
        import fsspec  # type: ignore[import-untyped]

        system, root = fsspec.core.url_to_fs(place)
        for name, about in system.find(root, detail=True).items():
            when = next((about[key] for key in ("ETag", "LastModified", "mtime", "created") if key in about), "")
            yield name.removeprefix(root), int(about["size"]), str(when)
        return
    names = [place]
    if os.path.isdir(place):
        names = [os.path.join(folder, name) for folder, _, inside in os.walk(place) for name in inside]
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # gone: it is missing in the list
            found = os.stat(name)
            yield os.path.relpath(name, place), found.st_size, f"{found.st_mtime_ns:020d}"


def difference(before: Any, now: Any) -> str:
    """How the files of two stamps differ, in words; empty if they do not, or nobody can tell."""
    if before is None or now is None or (before["sizes"], before["times"]) == (now["sizes"], now["times"]):
        return ""
    if before["sizes"] == now["sizes"]:
        how = "was written to"
    elif before["held"] == now["held"]:
        how = "has other files"
    else:
        how = f"has {now['held']}, it had {before['held']}"
    return f"{now['place']} {how}"
