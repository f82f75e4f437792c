"""Sweeps: one pass over all batches of a stream, each added to a tally; the way to the data for views.

An oracle knows one question, that of mean gradients.  Views ask others, too (covariances, scores, products with a
basis), all of one form: every batch adds something to a *tally*, and two tallies merge into one.  Groups and tree are
those of :mod:`tpca.engines.groups`, so that a tally has the same bits here and on any number of workers.
"""

from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self, TypeVar

from tpca.engines.cursor import Fragment
from tpca.engines.dask.cache import shelf
from tpca.engines.dask.cluster import Cluster
from tpca.engines.dask.sharing import merge_fan, readable_stream, runs_of
from tpca.engines.dask.tasks import Reader, unpacked
from tpca.engines.groups import Cut, Tree, cut_batches, least_samples, merge_all
from tpca.prefetch import prefetch
from tpca.streams.protocol import Layout, NumberedStream


class Tally(Protocol):
    """Something that batches add to."""

    asked: Any
    """What is needed to add, and need not come back from a worker."""

    def add(self, batch: Any, /) -> None:
        """Take a batch."""

    def merge(self, other: Self, /) -> None:
        """Take what another one has."""


AnyTally = TypeVar("AnyTally", bound=Tally)


def sweep_cut(layout: Layout | None) -> Cut:
    """The groups of a pass; one, where batches cannot be told apart."""
    if layout is None:
        return Cut((0,), False)
    return Cut(cut_batches(layout, 0, int(layout.bounds[-1]), least_samples(layout, ())), False)


def tally_up(cut: Cut, batches: Iterable[tuple[int, Sequence[Any]]], blank: AnyTally) -> AnyTally:
    """A tally of batches that come with their numbers, each in one or more pieces."""
    if cut.leaves == 1:
        for _, pieces in batches:
            for piece in pieces:
                blank.add(piece)
        return blank
    tree: Tree[AnyTally] = Tree(cut.leaves)
    group, tally = 0, copy.deepcopy(blank)
    for number, pieces in batches:
        if (here := cut.group(number)) != group:
            tree.put(group, tally)
            group, tally = here, copy.deepcopy(blank)
        for piece in pieces:
            tally.add(piece)
    tree.put(group, tally)
    root = tree.root()
    assert root is not None
    return root


class LocalSweep:
    """Passes over a stream in this process."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.cut = sweep_cut(getattr(stream, "layout", None))

    def over(self, stream: Any) -> LocalSweep:
        """Passes over another stream, of the same batches."""
        return LocalSweep(stream)

    def numbered(self) -> Iterable[tuple[int, Any]]:
        """All batches, with their numbers."""
        layout = getattr(self.stream, "layout", None)
        if layout is None:
            return ((0, batch) for batch in self.stream.batches())
        read = ((number, self.stream.batch(number)) for number in range(layout.count))
        return prefetch(read) if self.stream.reads_ahead else read

    def total(self, blank: AnyTally) -> AnyTally:
        """The tally of all batches."""
        return tally_up(self.cut, ((number, (batch,)) for number, batch in self.numbered()), blank)

    def first(self, blank: AnyTally) -> AnyTally:
        """The tally of the first batch that has samples."""
        batch = next((batch for _, batch in self.numbered() if len(batch)), None)
        if batch is not None:
            blank.add(batch)
        return blank


class DaskSweep:
    """Passes over a stream on the workers of a cluster; each keeps what it has read, up to ``memory`` bytes."""

    def __init__(self, client: Any, stream: Any, memory: float = 0.0) -> None:
        self.stream: NumberedStream = readable_stream(stream)
        self.cluster = Cluster(client)
        self.cut = sweep_cut(self.stream.layout)
        self.memory = memory
        self._token = uuid.uuid4().hex[:12]
        packed = pickle.dumps(self.stream.for_workers())
        self._remote = self.cluster.submit(unpacked, packed, key=f"tpca-{self._token}-stream")
        self._passes = 0
        self._in_place = self.stream.lazy_parts(0) is not None  # data that are in the cluster already
        layout = self.stream.layout
        self._keeps = int(layout.bounds[-1]) * layout.entries * self.stream.dtype.itemsize <= memory
        self._blocks: dict[int, list[Any]] = {}

    def over(self, stream: Any) -> DaskSweep:
        """Passes over another stream, of the same batches, on the same cluster."""
        return DaskSweep(self.cluster.client, stream, self.memory)

    def total(self, blank: AnyTally) -> AnyTally:
        """The tally of all batches."""
        self._passes += 1
        workers = self.cluster.workers()
        runs = runs_of(self.cut.leaves, len(workers))
        per_run = self.cut.leaves // runs
        packed, budget = pickle.dumps(blank), self.memory / len(workers)
        numbers: dict[int, list[tuple[int, int]]] = {}
        for number in range(self.stream.layout.count):
            leaf = self.cut.group(number)
            numbers.setdefault(leaf // per_run, []).append((number, leaf % per_run))
        tasks = [
            self.cluster.submit(
                tally_run,
                self._remote,
                (self._token, some, per_run, budget),
                packed,
                self._parts(number for number, _ in some),
                key=f"tpca-{self._token}-{self._passes}-run-{run}",
                worker=None if self._in_place else workers[run * len(workers) // runs],
            )
            for run, some in numbers.items()
        ]
        level = 0
        while (fan := merge_fan(len(tasks), len(workers), level)) > 1:
            tasks = [
                self.cluster.submit(
                    merge_tallies, tasks[i : i + fan], key=f"tpca-{self._token}-{self._passes}-merge-{level}-{i}"
                )
                for i in range(0, len(tasks), fan)
            ]
            level += 1
        merged: AnyTally = self._merged(blank, self.cluster.gather(tasks))
        return merged

    def first(self, blank: AnyTally) -> AnyTally:
        """The tally of the first batch that has samples."""
        for number in range(self.stream.layout.count):
            some = (self._token, [(number, 0)], 1, 0.0)
            parts = self._parts([number])
            key = f"tpca-{self._token}-first-{number}"
            ((tally, seen),) = self.cluster.gather(
                [self.cluster.submit(tally_first, self._remote, some, pickle.dumps(blank), parts, key=key)]
            )
            if seen:
                found: AnyTally = tally
                return found
        return blank

    def _parts(self, numbers: Iterable[int]) -> dict[int, Any]:
        """The blocks of Dask arrays that some batches are made of; nothing for files."""
        if not self._in_place:
            return {}
        found = {}
        for number in numbers:
            found[number] = self._blocks.get(number) or self.cluster.compute(self.stream.lazy_parts(number) or [])
            if self._keeps:
                self._blocks[number] = found[number]
        return found

    def _merged(self, blank: AnyTally, parts: list[AnyTally]) -> AnyTally:
        root = merge_all(parts, copy.deepcopy)
        assert root is not None
        root.asked = blank.asked
        return root


Run = tuple[str, list[tuple[int, int]], int, float]


def tally_run(stream: NumberedStream, run: Run, packed: bytes, parts: dict[int, Any]) -> Any:
    """On a worker: the tally of some neighbouring groups."""
    token, numbers, leaves, budget = run
    reader, blank = Reader(stream, token, parts), pickle.loads(packed)
    missing = [number for number, _ in numbers if shelf.held(token, number) is None]
    fresh = reader.batches(missing)
    tree: Tree[Any] = Tree(leaves)
    group, tally = 0, copy.deepcopy(blank)
    for number, leaf in numbers:
        batch = shelf.held(token, number)
        if batch is None:
            batch = next(fresh)
            shelf.hold(token, number, batch, budget)
        if leaf != group:
            tree.put(group, tally)
            group, tally = leaf, copy.deepcopy(blank)
        reader.attempt(Fragment(number, 0, len(batch), number), tally.add, batch)
    fresh.close()
    tree.put(group, tally)
    root: Any = tree.root()
    root.asked = None
    return root


def tally_first(stream: NumberedStream, run: Run, packed: bytes, parts: dict[int, Any]) -> tuple[Any, int]:
    """On a worker: the tally of one batch, and how many samples it has."""
    token, ((number, _),), _, _ = run
    tally, reader = pickle.loads(packed), Reader(stream, token, parts)
    batch = reader.read(number)
    if len(batch):
        tally.add(batch)
    return tally, len(batch)


def merge_tallies(parts: Sequence[Any]) -> Any:
    """On a worker: the tally over some neighbours."""
    return merge_all(list(parts), copy.deepcopy)
