"""The local oracle: samples from a stream, contracted on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.engines.groups import Cut, Tree, cut_round
from tpca.engines.looks import DigestWatch, Looks
from tpca.engines.protocol import Round
from tpca.engines.receipt import Receipt, changed, compare
from tpca.errors import StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams import Stream, open_stream
from tpca.streams.protocol import Layout
from tpca.tensors import Answer, Batch, DenseBatch, Query, Reduction, SlabBatch, reduction


class LocalOracle:
    """Answers queries over the next samples of a stream; keeps no more than a batch and the reductions of a round."""

    def __init__(self, source: Any) -> None:
        self.stream: Stream = open_stream(source)
        self.buffer_bytes = 0
        self._skipped, self._skipped_before = 0, 0  # in this pass, and at most in one before
        self._layout: Layout | None = getattr(self.stream, "layout", None)
        self._batches: Iterator[Batch] | None = None  # opened by the first question
        self._opened_at = 0
        self._batch: Batch | None = None
        self._offset = 0  # samples of the batch in hand that were taken
        self._ended = False
        self._watch = DigestWatch()
        self._receipt = Receipt(drawn=self._layout is None and not self.stream.endless)

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.stream.dims

    @property
    def endless(self) -> bool:
        """Whether the samples never end."""
        return self.stream.endless

    @property
    def length(self) -> int | None:
        """Samples in one pass, where that is known."""
        return self.stream.length

    @property
    def rereadable(self) -> bool:
        """Whether :meth:`rewind` may be called."""
        return self.stream.rereadable

    @property
    def identity(self) -> str:
        """Which data these are."""
        return self.stream.identity

    @property
    def n_skipped(self) -> int:
        """Samples that the stream left out, those of later passes not counted again."""
        return max(self._skipped, self._skipped_before)

    @property
    def constant(self) -> bool:
        """Whether there were several samples, and all of them the same."""
        return self._watch.constant

    def rewind(self) -> None:
        """Start the next pass over a re-readable stream."""
        self._skipped, self._skipped_before = 0, self.n_skipped
        self._open(0)

    def position(self) -> dict[str, Any]:
        """Where in the stream the next sample is, for :meth:`seek`."""
        first = self._opened_at if self._batch is None else self._batch.first
        counted_again = 0 if self._batch is None else self._batch.dropped
        return {
            "first": first,
            "offset": self._offset,
            "ended": self._ended,
            "skipped": [self._skipped - counted_again, self._skipped_before],
            "buffer_bytes": self.buffer_bytes,
            "seen": self._watch.seen,
            "varied": self._watch.varied,
            "digest": None if self._batch is None else self._receipt.of(self._batch),
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a :meth:`position`, with the same batches, so that all sums come out bit by bit the same.

        The batch that was read last is read again, and must be the same.
        """
        self.buffer_bytes = int(position["buffer_bytes"])
        self._watch = DigestWatch(int(position["seen"]), bool(position["varied"]))
        first, offset = int(position["first"]), int(position["offset"])
        self._open(0 if self._receipt.drawn else first)
        dropped = self._reread(first, position["digest"]) if offset or position["ended"] else 0
        self._offset = offset
        if position["ended"] and self._next_batch():
            raise changed(f"there are more than {first + offset} samples")
        self._skipped, self._skipped_before = position["skipped"][0] + dropped, position["skipped"][1]

    def _reread(self, first: int, digest: str | None) -> int:
        """Take the batch at ``first`` in hand and compare it with the one that was read before; samples left out."""
        while self._next_batch() and self._batch is not None and self._batch.first < first:
            pass
        if self._ended or self._batch is None or self._batch.first != first:
            raise changed(f"no batch begins at sample {first}")
        stop = first + len(self._batch) + self._batch.dropped
        compare(digest, self._receipt.of(self._batch), 0 if self._receipt.drawn else first, stop)
        return self._batch.dropped

    def mean(self, queries: Sequence[Query], n: int, scale: float = 1.0) -> Round:
        """Mean gradients of all queries over the next ``n`` samples, each multiplied by ``scale``."""
        cut = cut_round(self._layout, getattr(self.stream, "dtype", None), queries, self._place, n)
        tree: Tree[Reduction] = Tree(cut.leaves)
        kept: Reduction | None = None
        group = taken = 0
        while taken < n and (batch := self._take(n - taken)) is not None:
            if (here := self._group(cut)) != group and kept is not None:
                tree.put(group, kept.contracted(scale) if cut.contracts else kept)
                kept = None
            group = here
            kept = reduction(batch, queries, scale) if kept is None else kept
            kept.add(batch)
            taken += len(batch)
            self._note_buffer(self._batch_bytes + kept.nbytes + sum(part.nbytes for part in tree.waiting()))
        if kept is not None and cut.leaves > 1:
            tree.put(group, kept.contracted(scale) if cut.contracts else kept)
            kept = tree.root()
        return Round(0, ()) if kept is None else Round(kept.n, kept.answers(scale))

    @property
    def _place(self) -> int:
        """Where in the stream the next sample is, as if none had been left out of the batch in hand."""
        return self._opened_at if self._batch is None else self._batch.first + self._offset

    def _group(self, cut: Cut) -> int:
        """The group of the batch in hand."""
        if cut.leaves == 1 or self._layout is None or self._batch is None:
            return 0
        return cut.group(int(np.searchsorted(self._layout.bounds, self._batch.first)))

    def each(self, query: Query, n: int) -> Round:
        """Up to ``n`` steps with a fresh sample for every replica at every step; fewer when the buffer is full."""
        wanted, taken = each_samples(self.dims, query, n), 0
        parts: list[Batch] = []
        while taken < wanted and (batch := self._take(wanted - taken)) is not None:
            parts.append(batch)
            taken += len(batch)
        answer, whole, nbytes = each_answer(parts, query)
        self._note_buffer(nbytes)
        return Round(0, ()) if answer is None else Round(whole, (answer,))

    @property
    def _batch_bytes(self) -> int:
        """The batch in hand, and one like it if the next is read meanwhile."""
        in_flight = 2 if getattr(self.stream, "reads_ahead", False) else 1
        return 0 if self._batch is None else in_flight * self._batch.nbytes

    def _take(self, n: int) -> Any:
        """Up to ``n`` samples of the batch in hand, or of the next one; ``None`` at the end of the stream."""
        while self._batch is None or self._offset >= len(self._batch):
            if self._ended or not self._next_batch():
                return None
        batch = self._batch[self._offset : self._offset + n]
        self._offset += len(batch)
        return batch

    def _open(self, first: int) -> None:
        self._batches, self._opened_at = self.stream.batches(first), first
        self._batch, self._offset, self._ended = None, 0, False
        self._receipt = Receipt(self._receipt.drawn)

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
        if not self._watch.varied:
            looks = Looks(True)
            looks.at(fresh)
            self._watch.take([looks], fresh.first + len(fresh))
        self._receipt.take(fresh)
        return True

    def _note_buffer(self, nbytes: int) -> None:
        self.buffer_bytes = max(self.buffer_bytes, nbytes)


def each_samples(dims: tuple[int, ...], query: Query, n: int) -> int:
    """Samples for up to ``n`` steps of every replica, no more than a buffer holds."""
    count = len(query.replicas[0])
    return count * max(1, min(n, BATCH_ENTRIES // (count * math.prod(dims))))


def each_answer(batches: Sequence[Batch], query: Query) -> tuple[Answer | None, int, int]:
    """Gradients with a sample of its own for every replica and step; samples used; bytes held for it."""
    parts = [_samples(batch) for batch in batches]
    taken = sum(map(len, parts))
    whole = taken - taken % len(query.replicas[0])
    if whole == 0:
        return None, 0, 0
    samples = parts[0] if len(parts) == 1 else np.concatenate(parts)
    answer = DenseBatch(samples[:whole]).each(query)
    copied = samples.nbytes if len(parts) > 1 else 0
    return answer, whole, sum(part.nbytes for part in parts) + copied + answer.nbytes


def _samples(batch: Batch) -> NDArray[Any]:
    """The samples of a batch in full, for an algorithm that looks at one after the other."""
    if isinstance(batch, DenseBatch):
        return batch.samples
    if isinstance(batch, SlabBatch):
        return batch.samples()
    raise StreamError(
        f"PaperSolver needs samples one by one, which a {type(batch).__name__} never builds; use RaceSolver."
    )
