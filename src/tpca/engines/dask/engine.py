"""The Dask engine: the same accumulators, filled by the workers of a cluster.

Queries travel, data do not.  In every call of ``reduce``

1. what the accumulator asks goes to one worker, and from there to the others (nothing at all where sums of samples come
   back);
2. every worker gets a run of neighbouring groups (:mod:`tpca.engines.groups`), reads their batches from where they
   are stored, the next one while one is in use, and reduces them;
3. what is left of the runs is merged on the workers, eight at a time, until at most eight are left for this process.

A run is a pure function of stored data and accumulator.  If a worker dies its runs are done again by others, with the
same bits; if all die, the whole round is, by those that come.  Between rounds a worker keeps the batch it read last and
reads the one it will probably need next.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tpca.data import open_stream
from tpca.data.base import Layout, NumberedStream
from tpca.engines.base import A
from tpca.engines.dask.cluster import Cluster, WorkersGoneError
from tpca.engines.dask.tasks import (
    Fragment,
    Piece,
    Work,
    count_samples,
    merge_outcomes,
    read_again,
    reduce_groups,
    unpickled,
)
from tpca.engines.groups import Cut, cut_samples, merge_all, sum_bytes
from tpca.engines.local import StreamEngine
from tpca.engines.receipts import Receipt
from tpca.errors import StreamError
from tpca.tensors import Accumulator

COUNTED = 16  # batches that a task counts
STOPS = 5.0  # seconds: a round may be waiting for workers that never come
SMALL = 2**16  # bytes of a stream that go with every task
UNEVEN = 1.1  # times worse shared out is as good as more tasks
FAN = 8  # parts that are merged at once


class DaskEngine(StreamEngine):
    """Reads the next samples of a stored stream on the workers of a Dask ``client``.

    Parameters
    ----------
    client
        A ``distributed.Client``.
    source
        A path that all workers can read (Zarr, HDF5, ``.npy``, a folder), a Dask array, or an open stream or views of
        these.
    patience
        Seconds to wait for a cluster without workers, or for a scheduler that does not answer.
    hold
        Bytes of samples that the workers together hold between passes, for who reads the same data many times.
    """

    stream: NumberedStream
    stops_within = STOPS

    def __init__(self, client: Any, source: Any, patience: float = 60.0, hold: float = 0.0) -> None:
        super().__init__(readable_stream(source))
        self.cluster = Cluster(client, patience)
        self._token = uuid.uuid4().hex[:12]
        # With every task, unless it is long: if all tasks need one worker to have it, all fail when that one dies.
        packed = pickle.dumps(self.stream.for_workers(), protocol=5)
        long = len(packed) > SMALL
        self._remote = self.cluster.submit(unpickled, packed, key=self._key("stream")) if long else packed
        self._cursor = Cursor(self.stream.layout, self._count)
        self._hold = hold
        self._in_place = self.stream.lazy_parts(0) is not None  # data that are in the cluster already
        layout = self.stream.layout
        self._keeps = int(layout.bounds[-1]) * layout.entries * self.stream.dtype.itemsize <= hold
        self._lazy: dict[int, Any] = {}  # blocks of a Dask array, while somebody needs them
        self._reduce_number = itertools.count()
        self._turn = 0  # the worker that begins

    @property
    def n_skipped(self) -> int:
        """Samples that the stream left out, those of later passes not counted again."""
        return self._cursor.n_skipped

    def rewind(self) -> None:
        """Start the next pass."""
        self._cursor.rewind()

    def position(self) -> dict[str, Any]:
        """Where in the stream the next sample is; the same words as those of the local engine."""
        return {**self._cursor.position(), **self._seen()}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a :meth:`position` of this or of a local engine; what was read before must be the same."""
        before = self._see_again(position)
        self._cursor.seek(position)
        if before is not None:
            first, stop = np.searchsorted(self.stream.layout.bounds, [before.begin, before.end])
            now = Receipt(begin=before.begin)
            for found in self._over(read_again, int(first), int(stop)):
                now.add(found)
            before.compare(now)

    def _reduce(self, blank: A, n: int | None) -> A:
        cut = cut_samples(self.stream.layout, self.stream.dtype, blank, self._cursor.place, n)
        fragments = self._cursor.take(n)
        if not fragments:
            return blank.fresh()
        outcomes = self._outcomes(blank, cut, fragments)
        found = [outcome for outcome in outcomes if outcome is not None]
        self.buffer_bytes = max(self.buffer_bytes, *(outcome.buffer_bytes for outcome in found))
        if self._receipt is not None:
            self._receipt.add([one for outcome in found for one in outcome.digests])
        if not self._keeps:  # blocks that nobody needs any more
            last = fragments[-1].number
            self._lazy = {number: parts for number, parts in self._lazy.items() if number == last}
        root: Any = merge_all([None if outcome is None else outcome.part for outcome in outcomes])
        root.question = blank.question
        root.finish()
        merged: A = root
        return merged

    def _outcomes(self, blank: Accumulator, cut: Cut, fragments: Sequence[Fragment]) -> list[Any]:
        """What is left of the groups, in their order, ``None`` where all samples were left out.

        Tasks are meant for certain workers; once those are gone, the same tasks are for anybody.
        """
        for bound in (True, False):
            futures = self._submit(blank, cut, fragments, bound)
            with contextlib.suppress(WorkersGoneError):
                found = iter(self.cluster.gather([future for future in futures if future is not None]))
                return [None if future is None else next(found) for future in futures]
        raise AssertionError("tasks for anybody are not kept for workers that are gone")

    def _submit(self, blank: Accumulator, cut: Cut, fragments: Sequence[Fragment], bound: bool) -> list[Any]:
        """All tasks of a reading; the futures of what is left at its end, in the order of the groups."""
        workers, layout = self.cluster.workers(), self.stream.layout
        runs = cut.leaves if layout.alone else runs_of(cut.leaves, len(workers))
        per_run, at = cut.leaves // runs, 0
        pieces: dict[int, list[Piece]] = {}
        for fragment in fragments:
            group = cut.group(fragment.place)
            pieces.setdefault(group // per_run, []).append(Piece(fragment, group, at))
            at += fragment.stop - fragment.start
        number = next(self._reduce_number)
        homes = {run: (run * len(workers) // runs + self._turn) % len(workers) for run in pieces}
        places: list[str | None] = [*workers] if bound else [None] * len(workers)
        question: Any = pickle.dumps(blank.for_worker(sum_bytes(layout, self.stream.dtype)), protocol=5)
        if len(pieces) > 1:
            first = places[homes[min(pieces)]]
            question = self.cluster.submit(unpickled, question, key=self._key("question", number), worker=first)
        ahead: dict[int, int] = {}
        if not self._in_place and layout.certain:
            firsts = {run: some[0].fragment.number for run, some in pieces.items()}
            ahead = batches_ahead(firsts, homes, fragments[-1].number, layout.count)
        after, hold = None if self._receipt is None else self._receipt.end, self._hold / len(workers)
        tasks: list[Any] = [None] * runs
        for run, some in pieces.items():
            begin, end = some[0].fragment, some[-1].fragment
            tasks[run] = self.cluster.submit(
                reduce_groups,
                self._remote,
                Work(self._token, tuple(some), ahead.get(run), hold, after),
                question,
                self._parts(*(piece.fragment.number for piece in some)),
                key=self._key("run", number, run),
                worker=None if self._in_place else places[homes[run]],
                samples=(
                    int(layout.bounds[begin.number]) + begin.start,
                    int(layout.bounds[end.number]) + end.stop - 1,
                ),
            )
        self._turn = homes[max(pieces)]  # it has the batch that the next samples begin with
        level = 0
        while (fan := merge_fan(len(tasks), len(workers), level)) > 1:
            groups = [tasks[i : i + fan] for i in range(0, len(tasks), fan)]
            tasks = [
                None
                if all(task is None for task in group)
                else self.cluster.submit(merge_outcomes, group, key=self._key("merge", number, level, i))
                for i, group in enumerate(groups)
            ]
            level += 1
        return tasks

    def _parts(self, *numbers: int) -> dict[int, Any]:
        """The blocks of a Dask array that some batches are, wherever they are; nothing for files."""
        for number in numbers:
            if number not in self._lazy and (parts := self.stream.lazy_parts(number)) is not None:
                self._lazy[number] = self.cluster.compute(parts)
        return {number: self._lazy[number] for number in numbers if number in self._lazy}

    def _count(self, first: int, stop: int) -> dict[int, int]:
        """Have some batches counted: samples may be left out of them."""
        return {batch: count for part in self._over(count_samples, first, stop) for batch, count in part.items()}

    def _over(self, work: Any, first: int, stop: int) -> list[Any]:
        """What some work on a few batches at a time gives, for all from ``first`` to ``stop``."""
        windows = [range(a, min(a + COUNTED, stop)) for a in range(first, stop, COUNTED)]
        number = next(self._reduce_number)
        futures = []
        for i, window in enumerate(windows):
            key, parts = self._key("over", number, i), self._parts(*window)
            futures.append(self.cluster.submit(work, self._remote, list(window), parts, key=key))
        return list(self.cluster.gather(futures))

    def _key(self, *what: Any) -> str:
        return "-".join(["tpca", self._token, *map(str, what)])


def readable_stream(source: Any) -> NumberedStream:
    """A stream that workers can read by themselves, or an error that says what to do."""
    stream: Any = open_stream(source)
    if stream.layout is None or not stream.readable_elsewhere:
        raise StreamError(
            f"workers cannot read samples of kind {stream.kind!r} and shape {stream.dims} by themselves; save the "
            "samples as Zarr where all workers can read them (zarr.save, dask.array.to_zarr), or give arrays as "
            "dask.array.from_array(samples, chunks=...).persist()."
        )
    numbered: NumberedStream = stream
    return numbered


# How the groups of a round are shared out among workers; nothing of it changes a bit of the result.


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, count - 1).bit_length()


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


class Cursor:
    """Where in a numbered stream the next sample is, and which parts of which batches come next.

    It knows what :class:`~tpca.engines.LocalEngine` knows from reading, without reading: a position taken from one is
    good for the other.  Batches with all samples left out are part of the next, as in
    :func:`tpca.data.base.without_empty`.  ``count(first, stop)`` tells how many samples some batches have, where that
    is not certain.
    """

    def __init__(self, layout: Layout, count: Callable[[int, int], dict[int, int]]) -> None:
        self._layout, self._count = layout, count
        self._nominal = np.diff(layout.bounds)
        self._lengths = self._nominal.copy() if layout.certain else np.full(layout.count, -1)
        self.skipped, self._skipped_before = 0, 0
        self.ended = False
        self._next = 0  # number of the batch that comes into the hand next
        self._hand: tuple[int, int] | None = None  # the batch in hand: its place, its number
        self._offset = 0

    @property
    def n_skipped(self) -> int:
        """Samples that were left out, those of later passes not counted again."""
        return max(self.skipped, self._skipped_before)

    @property
    def place(self) -> int:
        """Where in the stream the next sample is, as if none had been left out of the batch in hand."""
        bounds = self._layout.bounds
        return int(bounds[self._next]) if self._hand is None else int(bounds[self._hand[0]]) + self._offset

    def rewind(self) -> None:
        """Start the next pass."""
        self.skipped, self._skipped_before = 0, self.n_skipped
        self._hand, self._offset, self._next, self.ended = None, 0, 0, False

    def position(self) -> dict[str, Any]:
        """The part of an engine's position that says where it is."""
        place = self._next if self._hand is None else self._hand[0]
        counted_again = 0 if self._hand is None else self._dropped(*self._hand)
        return {
            "first": int(self._layout.bounds[place]),
            "offset": self._offset,
            "ended": self.ended,
            "skipped": [self.skipped - counted_again, self._skipped_before],
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from there."""
        self.skipped, self._skipped_before = position["skipped"]
        self._next = int(np.searchsorted(self._layout.bounds, int(position["first"])))
        self._hand, self._offset = None, 0
        if position["offset"] or position["ended"]:
            self._advance(int(position["offset"]))
            self._offset = int(position["offset"])
        self.ended = bool(position["ended"])

    def take(self, n: int | None) -> list[Fragment]:
        """The next ``n`` samples, or all there are; fewer at the end of the stream."""
        fragments = []
        n = int(self._layout.bounds[-1]) if n is None else n
        while n > 0:
            if self._hand is not None and (left := self._length(self._hand[1], n) - self._offset) > 0:
                place, number = self._hand
                fragments.append(Fragment(number, self._offset, self._offset + min(n, left), place))
                self._offset += min(n, left)
                n -= min(n, left)
            elif self.ended or not self._advance(n):
                break
        return fragments

    def _advance(self, wanted: int) -> bool:
        """Take the next batch that has samples in hand; false at the end of the stream."""
        if self._next >= self._layout.count:
            self.ended = True
            return False
        place = number = self._next
        while number < self._layout.count - 1 and self._length(number, wanted) == 0:
            number += 1
        self._hand, self._offset, self._next = (place, number), 0, number + 1
        self.skipped += self._dropped(place, number)
        return True

    def _length(self, number: int, wanted: int) -> int:
        if self._lengths[number] < 0:
            stop = int(np.searchsorted(self._layout.bounds, self._layout.bounds[number] + wanted))
            known = self._count(number, min(max(stop, number) + 1, self._layout.count))
            for one, length in known.items():
                self._lengths[one] = length
        return int(self._lengths[number])

    def _dropped(self, place: int, number: int) -> int:
        some = slice(place, number + 1)
        if self._layout.certain:
            return 0
        self._length(number, 0)
        return int(np.sum(self._nominal[some] - self._lengths[some]))
