r"""One pass: every sample is added to a bin of neighbours and to a bin that its digest chooses.

==========================  ==========================================================================================
digest bins                 have nothing to do with the order of samples: the same in any order, for tests and errors of
                            samples that are exchangeable; with ``groups`` these are the groups
bins of neighbours          samples that follow each other, for tests and errors of a series
squares                     :math:`\sum_i w_iT_i^2`, entry by entry: the level of the noise
kept samples                those with the smallest digests, as they are: for whitening and advice
loudest sample              the one of the largest energy
smallest digests            with how often each was seen: samples that are copies of others
==========================  ==========================================================================================

**The same bits for the same sequence of samples**, in whatever batches, on whatever engine.  A sample is known by its
*ordinal*, the number of samples before it.  Every ``leaf`` consecutive samples are added to empty bins one by one; the
sums of eight leaves that belong together are added up from the left, and so are the sums of all eights.  So whoever
adds whole leaves, in one process or in many, ends with the same sums.

Bins of neighbours are blocks of :math:`s 2^j` samples that begin at a multiple of their length.  There are
``neighbours`` at most: whenever there would be more, two blocks become one.  The length at which a sample is added
follows from its ordinal alone, and never exceeds a leaf.

=====================  ==========================================================
symbol                 here
=====================  ==========================================================
:math:`M_b, G_b`       :class:`BinSums`, of all bins: moments and Gram matrices
s, j                   ``Binning.shortest``, the ``level`` of a block
=====================  ==========================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.errors import StreamError
from tpca.inference.design import Design
from tpca.inference.units import UnitSum
from tpca.tensors.accumulators import Accumulator
from tpca.tensors.adding import Target, add_grams, add_samples
from tpca.tensors.blocks import Array
from tpca.tensors.digests import Digests, digests, mixed

Indices = NDArray[np.intp]
Block = tuple[int, int]  # level and number: samples from number * shortest * 2^level on

LEAVES = 8
"""Leaves whose sums are added up before they are added to those of earlier ones."""
SMALLEST_DIGESTS = 4096
"""Different digests that are remembered, to count copies."""
FEWEST_ROWS = 32
"""Bins for which there is room from the first sample on."""
COPIED = 2**20
"""Numbers of a piece that is added at a time."""


@kept
@dataclass(frozen=True)
class Binning:
    """How samples are dealt into bins; it follows from their shape, columns and the memory, never from their number.

    There are ``dealt`` bins for digests, or units for groups if these are ``grouped``; at most ``neighbours`` blocks of
    at least ``shortest`` samples; 0 where there are none of a kind.  ``leaf`` samples are added one by one, ``samples``
    of them are kept.  With ``partial``, entries may be missing.
    """

    dealt: int
    neighbours: int
    leaf: int
    samples: int
    shortest: int = 1
    grouped: bool = False
    partial: bool = False

    def level(self, ordinal: int) -> int:
        """The level of blocks when the sample at ``ordinal`` is the last one."""
        return max(0, math.ceil(math.log2((ordinal + 1) / (self.shortest * self.neighbours))))

    @property
    def most_level(self) -> int:
        """The level of the longest blocks that samples are added to: those of a leaf."""
        return int(math.log2(self.leaf // self.shortest))


@kept
class BinSums:
    """Sums of bins: ``moments`` (B, c, E), ``grams`` (B, c, c), ``counts`` (B,), and ``squares`` (E,) of all.

    Row ``row_of[b]`` belongs to bin b, -1 to none yet.  ``entry_grams`` (B, c c, E) are Gram matrices entry by entry,
    where entries may be missing.
    """

    def __init__(self, bins: int, columns: int, entries: int, partial: bool) -> None:
        self.row_of = np.full(bins, -1, np.intp)
        self.bins = np.empty(0, np.intp)
        self.moments = np.zeros((0, columns, entries))
        self.grams = np.zeros((0, columns, columns))
        self.counts = np.zeros(0, np.int64)
        self.squares = np.zeros(entries)
        self.entry_grams = np.zeros((0, columns * columns, entries)) if partial else None

    def rows_for(self, bins: Indices) -> Indices:
        """Rows of some bins; those that have none get one."""
        fresh = np.unique(bins[self.row_of[bins] < 0])
        if len(fresh):
            self.row_of[fresh] = len(self.bins) + np.arange(len(fresh))
            self.bins = np.concatenate([self.bins, fresh])
            self._make_room(len(self.bins))
        return self.row_of[bins]

    def _make_room(self, rows: int) -> None:
        held = len(self.moments)
        if rows <= held:
            return
        more = min(max(rows, 2 * held, FEWEST_ROWS), len(self.row_of)) - held
        self.moments = with_rows(self.moments, more)
        self.grams = with_rows(self.grams, more)
        self.counts = with_rows(self.counts, more)
        if self.entry_grams is not None:
            self.entry_grams = with_rows(self.entry_grams, more)

    def take(self, other: BinSums) -> None:
        """Add the sums of samples that come next."""
        rows = self.rows_for(other.bins)
        for row, moments, grams in zip(rows, other.moments, other.grams, strict=False):
            self.moments[row] += moments
            self.grams[row] += grams
        self.counts[rows] += other.counts[: len(rows)]
        self.squares += other.squares
        if self.entry_grams is not None and other.entry_grams is not None:
            for row, entry_grams in zip(rows, other.entry_grams, strict=False):
                self.entry_grams[row] += entry_grams

    def clear(self) -> None:
        """Forget all sums, in the same memory."""
        for sums in (self.moments, self.grams, self.counts, self.squares, self.entry_grams):
            if sums is not None:
                sums[...] = 0
        self.row_of[...] = -1
        self.bins = self.bins[:0]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        entry_grams = 0 if self.entry_grams is None else self.entry_grams.nbytes
        return self.moments.nbytes + self.grams.nbytes + self.squares.nbytes + entry_grams + self.row_of.nbytes

    def unit_sums(self, dims: Sequence[int]) -> list[UnitSum]:
        """The sums of every bin that has samples, in the order of the bins; views, where that can be."""
        sums = []
        for bin_number in np.sort(self.bins):
            row = self.row_of[bin_number]
            columns = len(self.grams[row])
            entry_grams = None
            if self.entry_grams is not None:
                entry_grams = self.entry_grams[row].reshape(columns, columns, *dims)
            moments = self.moments[row].reshape(columns, *dims)
            sums.append(UnitSum(moments, self.grams[row], int(self.counts[row]), entry_grams))
        return sums


def with_rows(array: NDArray[Any], more: int) -> NDArray[Any]:
    """An array with so many more rows of zeros."""
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])


@kept
@dataclass
class Stretch:
    """The sums of all samples from ordinal ``start`` to ``stop``."""

    start: int
    stop: int
    sums: BinSums


@kept
@dataclass
class KeptSample:
    """A sample as it was given, the ``seen`` entries of it if some may be missing, and its place in the data."""

    values: NDArray[Any]
    seen: NDArray[Any] | None
    place: int

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.values.nbytes) + (0 if self.seen is None else int(self.seen.nbytes))


@kept
class SmallestDigests:
    """The smallest different digests, and how often each was seen."""

    def __init__(self) -> None:
        self.digests = np.empty(0, np.uint64)
        self.counts = np.empty(0, np.int64)
        self._waiting: list[Digests] = []  # that were not sorted in yet

    def add(self, seen: Digests) -> None:
        """Take the digests of some samples."""
        self._waiting.append(seen)
        if sum(map(len, self._waiting)) >= SMALLEST_DIGESTS:
            self.sort_in()

    def sort_in(self) -> None:
        """Count all that were taken."""
        seen = np.concatenate([np.empty(0, np.uint64), *self._waiting])
        self._waiting = []
        self.take_counts(*np.unique(seen, return_counts=True))

    def take_counts(self, seen: Digests, counts: NDArray[np.int64]) -> None:
        """Take digests of which each was seen so often."""
        everything = np.concatenate([self.digests, seen])
        self.digests, places = np.unique(everything, return_inverse=True)
        self.counts = np.bincount(places, np.concatenate([self.counts, counts]), len(self.digests)).astype(np.int64)
        self.digests = self.digests[:SMALLEST_DIGESTS]
        self.counts = self.counts[:SMALLEST_DIGESTS]

    def merge(self, other: SmallestDigests) -> None:
        """Take those of another one."""
        self.sort_in()
        other.sort_in()
        self.take_counts(other.digests, other.counts)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.digests.nbytes + self.counts.nbytes + sum(seen.nbytes for seen in self._waiting))

    def copies(self, n: int) -> int:
        """About how many of ``n`` samples are copies of others; exactly, if all digests are known."""
        self.sort_in()
        seen = int(self.counts.sum())
        copies = seen - len(self.digests)
        if len(self.digests) < SMALLEST_DIGESTS:
            return copies
        return round(copies / seen * n)


def dealt_digests(digest: Digests, samples: NDArray[Any], ordinal: int) -> Digests:
    """Digests that samples are dealt out by.

    Samples of zeros only are all the same, and there may be many: they are dealt out by their ordinals.
    """
    empty = digest == mixed(np.zeros(1, np.uint64))
    if not empty.any():
        return digest
    empty &= ~samples.any(axis=1)
    ordinals = np.arange(ordinal, ordinal + len(samples), dtype=np.uint64)
    return np.where(empty, mixed(ordinals), digest)


@kept
class SampleSums(Accumulator):
    """All that is kept of samples from ordinal ``begin`` on; of ``expected`` samples in all, if that is known."""

    def __init__(self, design: Design, binning: Binning, begin: int = 0, expected: int | None = None) -> None:
        super().__init__(design, binning, begin, expected)
        self.binning = binning  # also of one that comes from a worker, without its question
        self.end = begin
        self.expected = expected
        self.dims: tuple[int, ...] = ()
        self.stretches: list[Stretch] = []  # in their order; the last may be an open leaf
        self.blocks: dict[Block, UnitSum] = {}
        self.kept: dict[tuple[int, int], KeptSample] = {}  # by digest and ordinal
        self.loudest: KeptSample | None = None
        self.largest_energy = -1.0
        self.smallest_digests = SmallestDigests()
        self._spare: BinSums | None = None

    @property
    def granule(self) -> int:
        """Samples that nobody may divide."""
        return self.binning.leaf

    # Adding samples ---------------------------------------------------------------------------------------------------

    def add(self, batch: Any, at: int) -> None:
        """Take the samples of a batch, the first of which is number ``at`` of those that are read for this."""
        self.dims = tuple(batch.dims)
        for rows, samples, seen in batch.stored_pieces(COPIED):
            ordinal = self.question[2] + at + rows.start
            flat_seen = None if seen is None else seen.reshape(len(samples), -1)
            energies = self._add_piece(samples.reshape(len(samples), -1), flat_seen, batch.places[rows], ordinal)
            if not np.isfinite(energies).all():
                batch.check()
                raise StreamError("the sum of the samples is not finite; divide them by some power of ten.")
        self.n += len(batch)

    def _add_piece(self, samples: NDArray[Any], seen: NDArray[Any] | None, places: Indices, ordinal: int) -> Array:
        """Add samples (n, E), the first with that ordinal; their energies."""
        design: Design = self.question[0]
        columns, weights = design.rows(places)
        digest = digests(samples)
        deals = dealt_digests(digest, samples, ordinal)
        bins = self._bins(deals, places)
        energies = np.empty(len(samples))
        start = 0
        while start < len(samples):
            first = ordinal + start
            stop = min(len(samples), start + self.binning.leaf - first % self.binning.leaf)
            rows = slice(start, stop)
            leaf = self._open_leaf(first, columns.shape[1], samples.shape[1])
            seen_rows = None if seen is None else seen[rows]
            energies[rows] = self._add_run(
                samples[rows], seen_rows, columns[rows], weights[rows], bins[rows], leaf, first
            )
            self._move_on(ordinal + stop)
            start = stop
        self.smallest_digests.add(digest)
        self._keep(samples, seen, deals, places, ordinal)
        self._note_loudest(samples, seen, energies, places)
        return energies

    def _bins(self, deals: Digests, places: Indices) -> Indices:
        """The bin (n,) of every sample: its group, or what its digest says."""
        design: Design = self.question[0]
        dealt = self.binning.dealt
        if not dealt:
            return np.zeros(len(deals), np.intp)
        if self.binning.grouped:
            assert design.groups is not None
            return design.groups[places] % dealt
        return (deals % np.uint64(dealt)).astype(np.intp)

    def _open_leaf(self, ordinal: int, columns: int, entries: int) -> BinSums:
        """The sums of the leaf that a sample belongs to."""
        if not self.stretches or ordinal % self.binning.leaf == 0:
            sums = self._spare
            self._spare = None
            if sums is None:
                sums = BinSums(max(1, self.binning.dealt), columns, entries, self.binning.partial)
            self.stretches.append(Stretch(ordinal, ordinal, sums))
        return self.stretches[-1].sums

    def _blocks_of(self, ordinal: int, count: int, columns: int, entries: int) -> tuple[list[UnitSum], Indices]:
        """The blocks that some samples of one leaf belong to, and which of these each does."""
        blocks = []
        rows = np.empty(count, np.intp)
        start = 0
        while start < count:
            first = ordinal + start
            level = min(self.binning.level(first), self.binning.most_level)
            length = self.binning.shortest * 2**level
            stop = min(count, start + length - first % length)
            block = (level, first // length)
            if block not in self.blocks:
                grams = np.zeros((columns, columns, entries)) if self.binning.partial else None
                self.blocks[block] = UnitSum(np.zeros((columns, entries)), np.zeros((columns, columns)), 0, grams)
            rows[start:stop] = len(blocks)
            blocks.append(self.blocks[block])
            blocks[-1].n += stop - start
            start = stop
        return blocks, rows

    def _add_run(
        self,
        samples: NDArray[Any],
        seen: NDArray[Any] | None,
        columns: Array,
        weights: Array,
        bins: Indices,
        leaf: BinSums,
        ordinal: int,
    ) -> Array:
        """Add samples of one leaf, the first with that ordinal, to their bins and blocks; their energies."""
        moments = []
        grams = []
        entry_grams = []
        if self.binning.dealt:
            rows = leaf.rows_for(bins)
            np.add.at(leaf.counts, rows, 1)
            moments.append(Target(leaf.moments, rows))
            grams.append(Target(leaf.grams, rows))
            if leaf.entry_grams is not None:
                entry_grams.append(Target(leaf.entry_grams, rows))
        if self.binning.neighbours:
            blocks, rows = self._blocks_of(ordinal, len(samples), columns.shape[1], samples.shape[1])
            moments.append(Target([block.moments for block in blocks], rows))
            grams.append(Target([block.gram.reshape(-1) for block in blocks], rows))
            if self.binning.partial:
                flat_grams = [block.grams.reshape(-1, samples.shape[1]) for block in blocks]
                entry_grams.append(Target(flat_grams, rows))
        weighted = columns * weights[:, None]
        add_grams(columns, weights, grams)
        if entry_grams:
            pairs = (weighted[:, :, None] * columns[:, None, :]).reshape(len(columns), -1)
            observed = np.ones_like(samples) if seen is None else seen
            add_samples(observed, pairs, weights, entry_grams)
        return add_samples(samples, weighted, weights, moments, leaf.squares)

    def _move_on(self, end: int) -> None:
        """All samples before ordinal ``end`` are in."""
        self.end = end
        last = self.stretches[-1]
        last.stop = end
        if end % self.binning.leaf == 0:
            self._join_stretches()
            if self.stretches[-1] is not last:  # its sums are part of others now
                last.sums.clear()
                self._spare = last.sums
        if self.binning.neighbours:
            self._join_blocks()

    def _keep(
        self, samples: NDArray[Any], seen: NDArray[Any] | None, digest: Digests, places: Indices, ordinal: int
    ) -> None:
        """Keep samples with the smallest digests; of those before, the largest go."""
        wanted = self.binning.samples
        candidates = np.argsort(digest, kind="stable")[:wanted]
        if len(self.kept) >= wanted:
            candidates = candidates[digest[candidates] <= np.uint64(max(self.kept)[0])]
        for row in candidates:
            key = (int(digest[row]), ordinal + int(row))
            values = samples[row].reshape(self.dims).copy()
            mask = None if seen is None else seen[row].reshape(self.dims).copy()
            self.kept[key] = KeptSample(values, mask, int(places[row]))
        self._thin()

    def _thin(self) -> None:
        for key in sorted(self.kept)[self.binning.samples :]:
            del self.kept[key]

    def _note_loudest(
        self, samples: NDArray[Any], seen: NDArray[Any] | None, energies: Array, places: Indices
    ) -> None:
        row = int(np.argmax(energies))
        if energies[row] > self.largest_energy:
            self.largest_energy = float(energies[row])
            mask = None if seen is None else seen[row].reshape(self.dims).copy()
            self.loudest = KeptSample(samples[row].reshape(self.dims).copy(), mask, int(places[row]))

    # Joining sums -----------------------------------------------------------------------------------------------------

    def merge(self, other: SampleSums) -> None:
        """Take what another one, of the samples that come next, has."""
        self.n += other.n
        self.end = max(self.end, other.end)
        self.dims = other.dims or self.dims
        self.stretches += other.stretches
        self._join_stretches()
        self.blocks |= other.blocks
        if self.blocks:
            self._join_blocks()
        self.kept |= other.kept
        self._thin()
        if other.largest_energy > self.largest_energy:
            self.largest_energy = other.largest_energy
            self.loudest = other.loudest
        self.smallest_digests.merge(other.smallest_digests)

    def _join_stretches(self) -> None:
        """Add up neighbouring stretches that meet: leaves of the same eight, and all eights from the first on."""
        leaf = self.binning.leaf
        joined: list[Stretch] = []
        for stretch in self.stretches:
            joined.append(stretch)
            while len(joined) > 1 and self._meet(joined[-2], joined[-1], leaf):
                last = joined.pop()
                joined[-1].sums.take(last.sums)
                joined[-1].stop = last.stop
        if self.end == self.expected and joined[0].start == 0:
            for stretch in joined[1:]:
                joined[0].sums.take(stretch.sums)
            joined[0].stop = self.end
            joined = joined[:1]
        self.stretches = joined

    @staticmethod
    def _meet(before: Stretch, after: Stretch, leaf: int) -> bool:
        """Whether the sums of two neighbouring stretches are added up as soon as both are complete."""
        eight = LEAVES * leaf
        length = after.stop - after.start
        if length == leaf and before.start % eight == 0 and after.start // eight == before.start // eight:
            return True
        return length == eight and after.start % eight == 0 and before.start == 0 and before.stop == after.start

    def _join_blocks(self) -> None:
        """Make one of two neighbouring blocks until none is shorter than now wanted; unfinished ones wait."""
        target = self.binning.level(self.end - 1)
        for level in range(min((level for level, _ in self.blocks), default=target), target):
            length = self.binning.shortest * 2**level
            numbers = sorted(number for block_level, number in self.blocks if block_level == level)
            for number in numbers:
                right = (level, number + 1)
                complete = (number + 2) * length <= self.end
                if number % 2 == 0 and right in self.blocks and complete:
                    sums = self.blocks.pop((level, number))
                    sums.plus(self.blocks.pop(right))
                    self.blocks[level + 1, number // 2] = sums

    def close(self) -> None:
        """Let go of memory that is not in use."""
        self._spare = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        spare = 0 if self._spare is None else self._spare.nbytes
        held = spare + sum(stretch.sums.nbytes for stretch in self.stretches)
        held += sum(block.nbytes for block in self.blocks.values())
        held += sum(sample.nbytes for sample in self.kept.values())
        held += 0 if self.loudest is None else self.loudest.nbytes
        return held + self.smallest_digests.nbytes

    # What was found ---------------------------------------------------------------------------------------------------

    @property
    def total(self) -> BinSums:
        """The sums of all samples."""
        if len(self.stretches) > 1:
            first = self.stretches[0]
            for stretch in self.stretches[1:]:
                first.sums.take(stretch.sums)
            first.stop = self.end
            self.stretches = [first]
        return self.stretches[0].sums

    def neighbour_sums(self) -> list[UnitSum]:
        """The sums of blocks of one length, in their order; a short last one is part of the one before."""
        length = self.binning.shortest * 2 ** self.binning.level(self.end - 1)
        joined: dict[int, UnitSum] = {}
        for level, number in sorted(self.blocks, key=lambda block: block[1] * 2 ** block[0]):
            sums = self.blocks[level, number]
            wide_number = number * self.binning.shortest * 2**level // length
            if (wide_number + 1) * length > self.end and 2 * (self.end % length) < length and wide_number > 0:
                wide_number -= 1
            shaped = UnitSum(sums.moments.reshape(-1, *self.dims), sums.gram, sums.n, self._shaped_grams(sums))
            joined[wide_number] = added(joined.get(wide_number), shaped)
        return [joined[number] for number in sorted(joined)]

    def _shaped_grams(self, sums: UnitSum) -> Array | None:
        if not self.binning.partial:
            return None
        return sums.grams.reshape(*sums.gram.shape, *self.dims)


def added(before: UnitSum | None, sums: UnitSum) -> UnitSum:
    """Both as one, in new memory if there are two."""
    if before is None:
        return sums
    moments = before.moments + sums.moments
    return UnitSum(moments, before.gram + sums.gram, before.n + sums.n, before.grams + sums.grams)
