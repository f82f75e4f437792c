"""The local engine: samples from a stream, reduced in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tpca.engines.groups import Cut, Groups, cut_samples
from tpca.engines.looks import Looks, Receipt, changed, compare
from tpca.engines.over_stream import StreamEngine
from tpca.engines.protocol import A
from tpca.streams import Stream, open_stream
from tpca.streams.protocol import Layout
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.device_memory import refuse_beyond_memory


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
        self._receipt = Receipt(drawn=self._layout is None and not self.stream.endless)

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
            "digest": None if self._batch is None else self._receipt.of(self._batch),
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a :meth:`position`, with the same batches, so that all sums come out bit by bit the same.

        The batch that was read last is read again, and must be the same.
        """
        self._see_again(position)
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

    def reduce(self, blank: A, n: int | None = None) -> A:
        """The next ``n`` samples, or all to the end of the pass, in an accumulator like ``blank``."""
        cut = cut_samples(self._layout, self.stream.dtype, blank, self._place, n)
        groups, taken = Groups(blank, cut.leaves), 0
        while (batch := self._take(None if n is None else n - taken)) is not None:
            if blank.in_one and self._layout is not None and not cut.closes and n is not None:
                batch = self._with_those_after(batch, n - taken)
            try:
                groups.part_of(self._group(cut)).add(batch, taken)
            except Exception as cause:
                refuse_beyond_memory(cause, batch)
                raise
            taken += len(batch)
            self._note_buffer(self._batch_bytes + groups.nbytes)
        if not taken:
            return blank.fresh()
        part = groups.merged() if cut.closes else groups.part_of(0)
        part.finish()
        self._note_buffer(self._batch_bytes + part.nbytes)
        return part

    @property
    def _place(self) -> int:
        """Where in the stream the next sample is, as if none had been left out of the batch in hand."""
        return self._opened_at if self._batch is None else self._batch.first + self._offset

    def _group(self, cut: Cut) -> int:
        """The group of the batch in hand."""
        if cut.leaves == 1 or self._layout is None or self._batch is None:
            return 0
        return cut.group(int(np.searchsorted(self._layout.bounds, self._batch.first)))

    @property
    def _batch_bytes(self) -> int:
        """The batch in hand, and as many like it as may be read meanwhile."""
        return 0 if self._batch is None else (1 + self.stream.ahead) * self._batch.nbytes

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

    def _with_those_after(self, batch: Batch, n: int) -> Batch:
        """A batch and, if it is all there was in hand, those after it in memory, as one of up to ``n`` samples."""
        while len(batch) < n and isinstance(batch, DenseBatch) and self._offset == len(self._batch or ()):
            if not self._next_batch():
                break
            assert self._batch is not None
            longer = batch.followed_by(self._batch, n - len(batch))
            if longer is None:
                break
            self._offset, batch = len(longer) - len(batch), longer
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
