"""Engines of this process: samples pulled from a stream, or handed in (``partial_fit``), batch after batch of any size.

Samples that are handed in and do not fill a round yet wait as an accumulator, never as samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

import numpy as np

from tpca.data import Stream, open_stream
from tpca.data.base import Layout
from tpca.engines.base import A
from tpca.engines.groups import Groups, cut_samples
from tpca.engines.receipts import Receipt, changed, check_unchanged, same_files, stamp
from tpca.errors import TpcaError
from tpca.labels import Labels
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.dense import refuse_beyond_memory


class StreamEngine:
    """Reads the samples of a stream."""

    stream: Stream
    stops_within: float | None = None

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.dims, self.length, self.endless = stream.dims, stream.length, stream.endless
        self.rereadable, self.whole, self.partial = stream.rereadable, stream.whole, stream.partial
        self.labels, self.like = stream.labels, stream.like
        self.buffer_bytes = 0
        self._stamp = stamp(stream.files)
        self._receipt: Receipt | None = None

    def keep(self) -> None:
        """Have a receipt of all that is read from here on, for positions to be compared by."""
        self._receipt = Receipt(self.endless)

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

    def check_unchanged(self, failure: TpcaError | None = None) -> None:
        """Refuse files that were written to since this engine was made, which may be the cause of a ``failure``."""
        check_unchanged(self._stamp, stamp(self.stream.files), failure)

    @property
    def identity(self) -> str:
        """Which data these are."""
        return self.stream.identity

    def _seen(self) -> dict[str, Any]:
        """What was seen so far, for a position."""
        read = None if self._receipt is None else self._receipt.position()
        return {"buffer_bytes": self.buffer_bytes, "files": self._stamp, "read": read}

    def _see_again(self, position: dict[str, Any]) -> Receipt | None:
        """Take up what had been seen at a position; what must be read again and compared, if anything."""
        self._receipt = None if position["read"] is None else Receipt.of(position["read"], self.endless)
        self.buffer_bytes = int(position["buffer_bytes"])
        return None if same_files(position["files"], self._stamp) else self._receipt


class LocalEngine(StreamEngine):
    """Reads the next samples of a stream; holds no more than a batch and the accumulators of a few groups."""

    def __init__(self, source: Any) -> None:
        super().__init__(source if isinstance(source, Stream) else open_stream(source))
        self._skipped, self._skipped_before = 0, 0  # in this pass, and at most in one before
        self._layout: Layout | None = self.stream.layout
        self._batches: Iterator[Batch] | None = None  # opened when the first samples are wanted
        self._opened_at = 0
        self._batch: Batch | None = None
        self._offset = 0  # samples of the batch in hand that were taken
        self._ended = False

    @property
    def n_skipped(self) -> int:
        """Samples that the stream left out, those of later passes not counted again."""
        return max(self._skipped, self._skipped_before)

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
            **self._seen(),
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a :meth:`position`, with the same batches, so that all sums come out bit by bit the same.

        What was read before, unless it is in files that nobody has written to, is read again and must be the same.
        """
        before, self._batch = self._see_again(position), None
        first, offset = int(position["first"]), int(position["offset"])
        if before is not None and before.end > before.begin:
            self._compare(before)
        if self._batch is None or self._batch.first != first:
            self._open(first)
        inside = offset > 0 or position["ended"]
        if inside and ((self._batch is None and not self._next_batch()) or self._place != first):
            raise changed(f"no batch begins at sample {first}")
        self._offset = offset
        if position["ended"] and self._next_batch():
            raise changed(f"there are more than {first + offset} samples")
        dropped = self._batch.dropped if inside and self._batch is not None else 0
        self._skipped, self._skipped_before = position["skipped"][0] + dropped, position["skipped"][1]

    def _compare(self, before: Receipt) -> None:
        """Read again what was read before; the last batch of it is in hand then."""
        self._open(before.begin)
        self._receipt = Receipt(before.endless, before.begin, before.begin)
        while self._receipt.end < before.end and self._next_batch():
            pass
        before.compare(self._receipt)
        self._receipt = before

    def _reduce(self, blank: A, n: int | None) -> A:
        cut = cut_samples(self._layout, self.stream.dtype, blank, self._place, n)
        groups, taken = Groups(blank), 0
        while (batch := self._take(None if n is None else n - taken)) is not None:
            try:
                number = 0
                if cut.leaves > 1 and self._layout is not None and self._batch is not None:
                    number = cut.group(int(np.searchsorted(self._layout.bounds, self._batch.first)))
                groups.part_of(number).add(batch, taken)
            except Exception as cause:
                refuse_beyond_memory(cause, batch)
                raise
            taken += len(batch)
            self._note_buffer(groups.nbytes)
        if not taken:
            return blank.fresh()
        part = groups.merged() if cut.closes else groups.part_of(0)
        part.finish()
        self._note_buffer(part.nbytes)
        return part

    def _note_buffer(self, held: int) -> None:
        """What is held of sums, with the batch in hand, and as many like it as may be read meanwhile."""
        batches = 0 if self._batch is None else (1 + self.stream.ahead) * self._batch.nbytes
        self.buffer_bytes = max(self.buffer_bytes, batches + held)

    @property
    def _place(self) -> int:
        """Where in the stream the next sample is, as if none had been left out of the batch in hand."""
        return self._opened_at if self._batch is None else self._batch.first + self._offset

    def _take(self, n: int | None) -> Batch | None:
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
        self._batches, self._opened_at = self.stream.batches(first), first
        self._batch, self._offset, self._ended = None, 0, False

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
        if self._receipt is not None:
            self._receipt.take(fresh)
        return True


class PushEngine(Generic[A]):
    """Takes samples as they come, and says when as many as were asked for are there."""

    length, endless, rereadable, whole = None, False, False, True

    def __init__(self, dims: tuple[int, ...], labels: Labels | None = None, partial: bool = False) -> None:
        self.dims, self.labels, self.partial = dims, labels, partial
        self.buffer_bytes = self.n_skipped = 0
        self.pending: A | None = None

    def accept(self, batch: Batch) -> None:
        """Look at a batch before any of it is used: what is refused must leave no trace in the sums."""
        if isinstance(batch, DenseBatch):
            batch.check()
        self.n_skipped += batch.dropped

    def push(self, batch: Batch, blank: A, n: int) -> A | None:
        """Add a batch, of no more samples than are missing, to those of ``n``; the accumulator when all are there."""
        part = blank.fresh() if self.pending is None else self.pending
        try:
            part.add(batch, part.n)
        except Exception as cause:
            refuse_beyond_memory(cause, batch)
            raise
        self.buffer_bytes = max(self.buffer_bytes, batch.nbytes + part.nbytes)
        self.pending = None if part.n >= n else part
        if self.pending is not None:
            return None
        part.finish()
        return part

    @property
    def waiting(self) -> int:
        """Samples of a round that is not complete."""
        return 0 if self.pending is None else self.pending.n
