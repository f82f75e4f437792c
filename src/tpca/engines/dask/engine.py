"""The Dask engine: the same accumulators, filled by the workers of a cluster.

Queries travel, data do not.  In every call of ``reduce``

1. what the accumulator asks goes to one worker, and from there to the others (nothing at all where sums of samples come
   back);
2. every worker gets a run of neighbouring groups (:mod:`tpca.engines.base`), reads their batches from where they
   are stored, the next one while one is in use, and reduces them;
3. what is left of the runs is merged on the workers, eight at a time, until at most eight are left for this process.

An accumulator that goes on (:class:`~tpca.tensors.Accumulator`) is divided at edges of its own, one run for every
worker; all runs are merged on the workers, and one part comes back.

A run is a pure function of stored data and accumulator.  If a worker dies its runs are done again by others, with the
same bits; if all die, the whole round is, by those that come.  Between rounds a worker keeps the batch it read last and
reads the one it will probably need next.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tpca.data import open_stream
from tpca.data.base import NumberedStream, without_empty
from tpca.engines.base import A, Cut, Receipt, StreamEngine, cut_samples, merge_all, sum_bytes
from tpca.engines.dask.cluster import Cluster, WorkersGoneError
from tpca.engines.dask.tasks import Fragment, Piece, Work, look_at, merge_outcomes, reduce_groups, unpickled
from tpca.errors import StreamError
from tpca.tensors import Accumulator

COUNTED = 16  # batches that a task counts
STOPS = 5.0  # seconds: a round may be waiting for workers that never come
SMALL = 2**16  # bytes of a stream that go with every task
FAN = 8  # parts that are merged at once
BLOCKS_HELD = 2**28  # bytes of a Dask array's blocks that are made for each worker at a time


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
    remote = True

    def __init__(self, client: Any, source: Any, patience: float = 60.0, hold: float = 0.0) -> None:
        stream: Any = open_stream(source)
        if stream.layout is None or not stream.readable_elsewhere:
            raise StreamError(
                f"workers cannot read samples of kind {stream.kind!r} and shape {stream.dims} by themselves; save the "
                "samples as Zarr where all workers can read them (zarr.save, dask.array.to_zarr), or give arrays as "
                "dask.array.from_array(samples, chunks=...).persist()."
            )
        super().__init__(stream)
        self.cluster = Cluster(client, patience)
        self._token = uuid.uuid4().hex[:12]
        # With every task, unless it is long: if all tasks need one worker to have it, all fail when that one dies.
        packed = pickle.dumps(self.stream.for_workers(), protocol=5)
        long = len(packed) > SMALL
        self._remote = self.cluster.submit(unpickled, packed, key=self._key("stream")) if long else packed
        layout = self.stream.layout
        self._lengths = np.diff(layout.bounds) if layout.certain else np.full(layout.count, -1)  # -1: not counted yet
        self._wanted = 0
        self._hold = hold
        self._in_place = self.stream.lazy_parts(0) is not None  # data that are in the cluster already
        self._keeps = int(layout.bounds[-1]) * layout.entries * self.stream.dtype.itemsize <= hold
        self._lazy: dict[int, Any] = {}  # blocks of a Dask array, while somebody needs them
        self._reduce_number = itertools.count()
        self._turn = 0  # the worker that begins

    def _batches_from(self, first: int) -> Iterator[Any]:
        """Stand-ins for the batches; how many samples have some that may be left out is counted, all wanted at once."""

        def fragments() -> Iterator[Any]:
            bounds, lengths = self.stream.layout.bounds, self._lengths
            for number in range(int(np.searchsorted(bounds, first)), self.stream.layout.count):
                if lengths[number] < 0:
                    stop = int(np.searchsorted(bounds, bounds[number] + self._wanted, side="right"))
                    found = self._look_at(number, min(stop, self.stream.layout.count), digests=False)
                    lengths[number : number + len(found)] = [length for length, _ in found]
                begin, length = int(bounds[number]), int(lengths[number])
                yield Fragment(number, 0, length, begin, int(bounds[number + 1]) - begin - length)

        return without_empty(fragments())

    def _read_again(self, before: Receipt) -> Receipt:
        first, stop = np.searchsorted(self.stream.layout.bounds, [before.begin, before.end])
        now = Receipt(begin=before.begin)
        now.add([digest for _, digest in self._look_at(int(first), int(stop), digests=True) if digest is not None])
        return now

    def _reduce(self, blank: A, n: int | None) -> A:
        layout = self.stream.layout
        cut = cut_samples(layout, self.stream.dtype, blank, self._place, n)
        self._wanted = int(layout.bounds[-1]) if n is None else n
        edges = [0, self._wanted]
        if blank.goes_on:
            edges = blank.edges(self._wanted)
        pieces = self._pieces(edges, cut)
        if not pieces:
            return blank.fresh()
        if blank.goes_on:
            for some in self._readings(pieces):
                blank.merge(self._read(blank, cut, some))
            return blank
        root: Any = self._read(blank, cut, pieces)
        root.question = blank.question
        root.finish()
        merged: A = root
        return merged

    def _readings(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        """The pieces that are read together; of data in the cluster those that workers may hold, in whole groups.

        Blocks of a Dask array that is not persisted are made for a task before it begins.
        """
        if not self._in_place:
            yield list(pieces)
            return
        sample_bytes = self.stream.layout.entries * self.stream.dtype.itemsize
        most = max(1, BLOCKS_HELD * len(self.cluster.workers()) // sample_bytes)
        together: list[Piece] = []
        start = 0
        for _, members in itertools.groupby(pieces, key=lambda piece: piece.group):
            group = list(members)
            stop = group[-1].at + len(group[-1].fragment)
            if together and stop - start > most:
                yield together
                together = []
                start = group[0].at
            together += [Piece(piece.fragment, piece.group, piece.at - start) for piece in group]
        yield together

    def _read(self, blank: Accumulator, cut: Cut, pieces: Sequence[Piece]) -> Any:
        """What is left of some pieces, merged."""
        outcomes = self._outcomes(blank, cut, pieces)
        reached = [outcome for outcome in outcomes if outcome is not None]
        self.buffer_bytes = max(self.buffer_bytes, *(outcome.buffer_bytes for outcome in reached))
        if self._receipt is not None:
            by_end = {stop: digest for outcome in reached for stop, digest in outcome.digests}  # two may read a batch
            self._receipt.add(list(by_end.items()))
        if not self._keeps:  # blocks that nobody needs any more
            last = pieces[-1].fragment.number
            self._lazy = {number: parts for number, parts in self._lazy.items() if number == last}
        return merge_all([None if outcome is None else outcome.part for outcome in outcomes])

    def _pieces(self, edges: Sequence[int], cut: Cut) -> list[Piece]:
        """All samples up to the last edge, in pieces that belong to one batch, and lie between two edges.

        The group of a piece is that of its batch, or the number of its edge where there are several.
        """
        pieces = []
        taken = 0
        for number, stop in enumerate(edges[1:]):
            while taken < stop and (fragment := self._take(stop - taken)) is not None:
                group = number
                if len(edges) == 2:
                    group = cut.group(fragment.first)
                pieces.append(Piece(fragment, group, taken))
                taken += len(fragment)
        return pieces

    def _outcomes(self, blank: Accumulator, cut: Cut, pieces: Sequence[Piece]) -> list[Any]:
        """What is left of the groups, in their order, ``None`` where all samples were left out.

        Tasks are meant for certain workers; once those are gone, the same tasks are for anybody.
        """
        for bound in (True, False):
            futures = self._submit(blank, cut, pieces, bound)
            with contextlib.suppress(WorkersGoneError):
                results = iter(self.cluster.gather([future for future in futures if future is not None]))
                return [None if future is None else next(results) for future in futures]
        raise AssertionError("tasks for anybody are not kept for workers that are gone")

    def _submit(self, blank: Accumulator, cut: Cut, pieces: Sequence[Piece], bound: bool) -> list[Any]:
        """All tasks of a reading; the futures of what is left at its end, in the order of the groups."""
        workers = self.cluster.workers()
        layout = self.stream.layout
        if blank.goes_on:
            runs = shared_out(pieces, len(workers))
        else:
            runs = runs_of_groups(pieces, cut, layout.alone, len(workers))
        number = next(self._reduce_number)
        count = len(runs)
        present = [run for run in range(count) if runs[run]]
        homes = {run: (run * len(workers) // count + self._turn) % len(workers) for run in present}
        places: list[str | None] = [None] * len(workers)
        if bound:
            places = [*workers]
        question: Any = pickle.dumps(blank.for_worker(sum_bytes(layout, self.stream.dtype)), protocol=5)
        if len(present) > 1:
            home = places[homes[present[0]]]
            question = self.cluster.submit(unpickled, question, key=self._key("question", number), worker=home)
        after = None if self._receipt is None else self._receipt.end
        tasks: list[Any] = [None] * count
        for run in present:
            begin = runs[run][0].fragment
            end = runs[run][-1].fragment
            first = int(layout.bounds[begin.number]) + begin.start
            last = int(layout.bounds[end.number]) + end.stop - 1
            # The last worker goes on with what comes next, if it knows by itself which batch that is.
            goes_on = run == present[-1] and not self._in_place and layout.certain and end.number + 1 < layout.count
            tasks[run] = self.cluster.submit(
                reduce_groups,
                self._remote,
                Work(self._token, runs[run], end.number + 1 if goes_on else None, self._hold / len(workers), after),
                question,
                self._parts(*(piece.fragment.number for piece in runs[run])),
                key=self._key(f"samples {first} to {last}", number, run),
                worker=None if self._in_place else places[homes[run]],
            )
        self._turn = homes[present[-1]]  # it has the batch that the next samples begin with
        level = 0
        while (fan := merge_fan(len(tasks), len(workers), level, blank.goes_on)) > 1:
            groups = [tasks[start : start + fan] for start in range(0, len(tasks), fan)]
            tasks = [self._merged(group, number, level, place) for place, group in enumerate(groups)]
            level += 1
        return tasks

    def _merged(self, tasks: Sequence[Any], *numbers: int) -> Any:
        """A task that merges what some leave; ``None`` where all are missing."""
        if all(task is None for task in tasks):
            return None
        return self.cluster.submit(merge_outcomes, list(tasks), key=self._key("merge", *numbers))

    def _parts(self, *numbers: int) -> dict[int, Any]:
        """The blocks of a Dask array that some batches are, wherever they are; nothing for files."""
        for number in numbers:
            if number not in self._lazy and (parts := self.stream.lazy_parts(number)) is not None:
                self._lazy[number] = self.cluster.compute(parts)
        return {number: self._lazy[number] for number in numbers if number in self._lazy}

    def _look_at(self, first: int, stop: int, digests: bool) -> list[Any]:
        """What :func:`look_at` says of the batches from ``first`` to ``stop``, a few in every task."""
        number, futures = next(self._reduce_number), []
        for i in range(first, stop, COUNTED):
            some = range(i, min(i + COUNTED, stop))
            key, parts = self._key("look", number, i), self._parts(*some)
            futures.append(self.cluster.submit(look_at, self._remote, list(some), parts, digests, key=key))
        return [one for some in self.cluster.gather(futures) for one in some]

    def _key(self, what: str, *numbers: int) -> str:
        """The name of a task; it ends with what is said of it if its workers die."""
        return "-".join(["tpca", self._token, *map(str, numbers), what])


# How the groups of a round are shared out among workers; nothing of it changes a bit of the result.


def runs_of_groups(pieces: Sequence[Piece], cut: Cut, alone: bool, workers: int) -> list[tuple[Piece, ...]]:
    """The pieces of every task: those of as many neighbouring groups."""
    count = cut.leaves
    if not alone:
        count = runs_of(cut.leaves, workers)
    per_run = cut.leaves // count
    runs: list[list[Piece]] = [[] for _ in range(count)]
    for piece in pieces:
        runs[piece.group // per_run].append(piece)
    return [tuple(run) for run in runs]


def shared_out(pieces: Sequence[Piece], workers: int) -> list[tuple[Piece, ...]]:
    """The pieces of every task, one for each worker, of about as many samples; pieces of a group stay together."""
    total = sum(len(piece.fragment) for piece in pieces)
    runs: list[list[Piece]] = [[] for _ in range(workers)]
    for _, members in itertools.groupby(pieces, key=lambda piece: piece.group):
        group = list(members)
        middle = group[0].at + sum(len(piece.fragment) for piece in group) / 2
        runs[min(int(middle * workers / total), workers - 1)] += group
    return [tuple(Piece(piece.fragment, 0, piece.at) for piece in run) for run in runs]


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, count - 1).bit_length()


def runs_of(leaves: int, workers: int) -> int:
    """Tasks of a round: one for each worker, or, where that would be uneven, four for each or less.

    Each takes the scheduler and the wires some milliseconds, in which a worker waits.
    """
    runs = power_of_two(workers)
    return min(leaves, runs if runs == workers else 4 * runs)


def merge_fan(parts: int, workers: int, level: int, to_one: bool = False) -> int:
    """How many parts to merge at once on the workers: first those of one worker; 1 when the rest goes to the client.

    That is one part, if it is ``to_one``.
    """
    if to_one:
        return min(FAN, parts)
    if parts <= min(FAN, power_of_two(workers)):
        return 1
    return min(FAN, max(2, parts // power_of_two(workers))) if level == 0 else FAN
