"""The Dask engine: the same accumulators, filled by the workers of a cluster.

Queries travel, data do not.  In every call of ``reduce``

1. what the accumulator asks goes to one worker, and from there to the others (nothing at all where sums of samples come
   back);
2. every worker gets a run of neighbouring groups (:mod:`tpca.engines.groups`), reads their batches from where they
   are stored, the next one while one is in use, and reduces them;
3. what is left of the runs is merged on the workers, eight at a time, until at most eight are left for this process to
   merge.

A run is a pure function of stored data and accumulator.  If a worker dies its runs are done again by others, with the
same bits; if all die, the whole round is, by those that come.  Between rounds a worker keeps the batch it read last and
reads the one it will probably need next.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpca.data.base import NumberedStream
from tpca.engines.base import A
from tpca.engines.cursor import Cursor, Fragment
from tpca.engines.dask.cluster import Cluster, WorkersGoneError
from tpca.engines.dask.tasks import (
    FAN,
    Outcome,
    Piece,
    Work,
    batches_ahead,
    count_samples,
    merge_fan,
    merge_outcomes,
    read_again,
    readable_stream,
    reduce_groups,
    relayed,
    runs_of,
    unpacked,
)
from tpca.engines.groups import Cut, cut_samples, merge_all, sum_bytes
from tpca.engines.local import StreamEngine
from tpca.engines.receipts import Receipt
from tpca.tensors import Accumulator

COUNTED = 16  # batches that a task counts
STOPS = 5.0  # seconds: a round may be waiting for workers that never come
SMALL = 2**16  # bytes of a stream that go with every task


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
        self._remote = self.cluster.submit(unpacked, packed, key=self._key("stream")) if long else packed
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
            bounds = self.stream.layout.bounds
            first, stop = np.searchsorted(bounds, [before.begin, before.end])
            now = Receipt(begin=before.begin)
            for found in self._over(read_again, int(first), int(stop)):
                now.add(found)
            before.compare(now)

    def _reduce(self, blank: A, n: int | None) -> A:
        cut = cut_samples(self.stream.layout, self.stream.dtype, blank, self._cursor.place, n)
        fragments = self._cursor.take(n)
        if not fragments:
            return blank.fresh()
        outcomes = self._gathered(lambda bound: self._submit(blank, cut, fragments, bound))
        self._note([outcome for outcome in outcomes if outcome is not None], fragments)
        root: Any = merge_all([None if outcome is None else outcome.part for outcome in outcomes])
        root.recall(blank)
        root.finish()
        merged: A = root
        return merged

    # -- reduce -------------------------------------------------------------------------------------------------------

    def _gathered(self, submit: Callable[[bool], list[Any]]) -> list[Any]:
        """Results of tasks that are meant for certain workers; once those are gone, of the same tasks for anybody."""
        for bound in (True, False):
            futures = submit(bound)
            with contextlib.suppress(WorkersGoneError):
                found = iter(self.cluster.gather([future for future in futures if future is not None]))
                return [None if future is None else next(found) for future in futures]  # none: all samples left out
        raise AssertionError("tasks for anybody are not kept for workers that are gone")

    def _submit(self, blank: Accumulator, cut: Cut, fragments: Sequence[Fragment], bound: bool) -> list[Any]:
        """All tasks of a reading; the futures of what is left at its end, in the order of the groups."""
        workers = self.cluster.workers()
        runs = cut.leaves if self.stream.layout.alone else runs_of(cut.leaves, len(workers))
        per_run, at = cut.leaves // runs, 0
        pieces: dict[int, list[Piece]] = {}
        for fragment in fragments:
            leaf = cut.group(fragment.place)
            pieces.setdefault(leaf // per_run, []).append(Piece(fragment, leaf % per_run, at))
            at += fragment.stop - fragment.start
        number = next(self._reduce_number)
        homes = {run: (run * len(workers) // runs + self._turn) % len(workers) for run in pieces}
        packed = pickle.dumps(blank.for_worker(sum_bytes(self.stream.layout, self.stream.dtype)), protocol=5)
        places: list[str | None] = [*workers] if bound else [None] * len(workers)
        copies = [packed] if len(pieces) == 1 else self._send(packed, number, places, homes[min(pieces)])
        ahead: dict[int, int] = {}
        if not self._in_place and self.stream.layout.certain:
            firsts = {run: some[0].fragment.number for run, some in pieces.items()}
            ahead = batches_ahead(firsts, homes, fragments[-1].number, self.stream.layout.count)
        tasks: list[Any] = [None] * runs
        for run, some in pieces.items():
            hold = self._hold / len(workers)
            after = None if self._receipt is None else self._receipt.end
            tasks[run] = self.cluster.submit(
                reduce_groups,
                self._remote,
                Work(self._token, tuple(some), per_run, ahead.get(run), hold, after),
                copies[homes[run] % len(copies)],
                self._parts(*(piece.fragment.number for piece in some)),
                key=self._key("run", number, run),
                worker=None if self._in_place else places[homes[run]],
                samples=self._span([piece.fragment for piece in some]),
            )
        self._turn = homes[max(pieces)]  # it has the batch that the next samples begin with
        return self._merge(tasks, number, len(workers))

    def _merge(self, tasks: list[Any], number: int, workers: int) -> list[Any]:
        """Merge neighbours: first those of one worker, then eight at a time, until at most eight are left."""
        level = 0
        while (fan := merge_fan(len(tasks), workers, level)) > 1:
            groups = [tasks[i : i + fan] for i in range(0, len(tasks), fan)]
            tasks = [
                None
                if all(task is None for task in group)
                else self.cluster.submit(merge_outcomes, group, key=self._key("merge", number, level, i))
                for i, group in enumerate(groups)
            ]
            level += 1
        return tasks

    def _send(self, packed: bytes, number: int, places: Sequence[str | None], first: int) -> list[Any]:
        """What is asked, sent to one worker and passed on by those that have it; for many workers, several copies."""
        copies = [self.cluster.submit(unpacked, packed, key=self._key("question", number), worker=places[first])]
        while len(places) > FAN * len(copies):
            have, want = len(copies), min(len(places), FAN * len(copies))
            copies += [
                self.cluster.submit(relayed, copies[i % have], key=self._key("relay", number, i), worker=places[i])
                for i in range(have, want)
            ]
        return copies

    def _parts(self, *numbers: int) -> dict[int, Any]:
        """The blocks of a Dask array that some batches are, wherever they are; nothing for files."""
        for number in numbers:
            if number not in self._lazy and (parts := self.stream.lazy_parts(number)) is not None:
                self._lazy[number] = self.cluster.compute(parts)
        return {number: self._lazy[number] for number in numbers if number in self._lazy}

    def _note(self, outcomes: Sequence[Outcome], fragments: Sequence[Fragment]) -> None:
        """Take note of what was seen, and let go of blocks that nobody needs any more."""
        self.buffer_bytes = max(self.buffer_bytes, *(outcome.buffer_bytes for outcome in outcomes))
        if self._receipt is not None:
            self._receipt.add([one for outcome in outcomes for one in outcome.read])
        last = fragments[-1]
        if not self._keeps:
            self._lazy = {number: parts for number, parts in self._lazy.items() if number == last.number}

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

    def _span(self, fragments: Sequence[Fragment]) -> tuple[int, int]:
        """First and last sample of some fragments."""
        bounds, first, last = self.stream.layout.bounds, fragments[0], fragments[-1]
        return int(bounds[first.number]) + first.start, int(bounds[last.number]) + last.stop - 1
