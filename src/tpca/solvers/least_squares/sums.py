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
*ordinal*, the number of samples before it.  Ordinals are cut into *stretches*: eight of s samples, then four each of
2s, 4s, 8s, ... samples.  The samples of a stretch are added one by one to empty bins, and the sums of stretches are
added up from the first on.  So whoever adds whole stretches, in one process or in many, ends with the same sums, and
of n samples there are about four stretches for every doubling of n.

Bins of neighbours are blocks of :math:`\ell 2^j` samples that begin at a multiple of their length.  There are
``neighbours`` at most: whenever there would be more, two blocks become one.  The length at which a sample is added
follows from its ordinal alone.  A stretch has whole blocks: at ordinal o it is longer than o/8, and where there are G
blocks at most each is no longer than 2(o + 1)/G.

=====================  ==========================================================
symbol                 here
=====================  ==========================================================
:math:`M_b, G_b`       :class:`BinSums`, of all bins: moments and Gram matrices
s                      ``Binning.stretch``, a multiple :math:`\ell 2^a`
:math:`\ell`, j        ``Binning.shortest``, the ``level`` of a block
=====================  ==========================================================
"""

from __future__ import annotations

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

SMALLEST_DIGESTS = 4096
"""Different digests that are remembered, to count copies."""
FEWEST_ROWS = 32
"""Bins for which there is room from the first sample on."""
PIECE = 2**20
"""Numbers of samples that are digested and added at a time: they are in the cache when they are added."""


@kept
@dataclass(frozen=True)
class Binning:
    """How samples are dealt into bins; it follows from their shape, columns and the memory, never from their number.

    There are ``dealt`` bins for digests, or units for groups if these are ``grouped``; at most ``neighbours`` blocks of
    at least ``shortest`` samples; 0 where there are none of a kind.  The first stretches have ``stretch`` samples each;
    ``samples`` are kept.  With ``partial``, entries may be missing.
    """

    dealt: int
    neighbours: int
    stretch: int
    samples: int
    shortest: int = 1
    grouped: bool = False
    partial: bool = False

    def level(self, ordinal: int) -> int:
        """The level of blocks when the sample at ``ordinal`` is the last one."""
        return (ordinal // (self.shortest * self.neighbours)).bit_length()

    def stretch_at(self, ordinal: int) -> tuple[int, int]:
        """The ordinals at which the stretch of a sample begins and ends."""
        doublings = max(0, (ordinal // self.stretch).bit_length() - 3)
        length = self.stretch << doublings
        start = ordinal // length * length
        return start, start + length


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
        rows = self.row_of[bins]
        if (rows < 0).any():
            fresh = np.unique(bins[rows < 0])
            self.row_of[fresh] = len(self.bins) + np.arange(len(fresh))
            self.bins = np.concatenate([self.bins, fresh])
            self._make_room(len(self.bins))
            rows = self.row_of[bins]
        return rows

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
    longer = np.zeros((len(array) + more, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@kept
@dataclass
class Stretch:
    """The sums of all samples from ordinal ``start`` to ``stop``: of one stretch, or of all up to one."""

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
        self._bound = np.uint64(2**64 - 1)  # larger ones do not matter
        self._waiting: list[Digests] = []  # that were not sorted in yet
        self._n_waiting = 0

    def add(self, seen: Digests) -> None:
        """Take the digests of some samples."""
        small = seen[seen <= self._bound]
        if not len(small):
            return
        self._waiting.append(small)
        self._n_waiting += len(small)
        if self._n_waiting >= SMALLEST_DIGESTS:
            self.sort_in()

    def sort_in(self) -> None:
        """Count all that were taken."""
        seen = np.concatenate([np.empty(0, np.uint64), *self._waiting])
        self._waiting = []
        self._n_waiting = 0
        self.take_counts(*np.unique(seen, return_counts=True))

    def take_counts(self, seen: Digests, counts: NDArray[np.int64]) -> None:
        """Take digests of which each was seen so often."""
        everything = np.concatenate([self.digests, seen])
        self.digests, places = np.unique(everything, return_inverse=True)
        self.counts = np.bincount(places, np.concatenate([self.counts, counts]), len(self.digests)).astype(np.int64)
        self.digests = self.digests[:SMALLEST_DIGESTS]
        self.counts = self.counts[:SMALLEST_DIGESTS]
        if len(self.digests) == SMALLEST_DIGESTS:
            self._bound = self.digests[-1]

    def merge(self, other: SmallestDigests) -> None:
        """Take those of another one."""
        self.sort_in()
        other.sort_in()
        self.take_counts(other.digests, other.counts)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.digests.nbytes + self.counts.nbytes + 8 * self._n_waiting)

    def copies(self, n: int) -> int:
        """About how many of ``n`` samples are copies of others; exactly, if all digests are known."""
        self.sort_in()
        seen = int(self.counts.sum())
        copies = seen - len(self.digests)
        if len(self.digests) < SMALLEST_DIGESTS:
            return copies
        return round(copies / seen * n)


EMPTY = mixed(np.zeros(1, np.uint64))
"""The digest of a sample of zeros."""


def dealt_digests(digest: Digests, samples: NDArray[Any], ordinal: int) -> Digests:
    """Digests that samples are dealt out by.

    Samples of zeros only are all the same, and there may be many: they are dealt out by their ordinals.
    """
    empty = digest == EMPTY
    if not empty.any():
        return digest
    empty &= ~samples.any(axis=1)
    ordinals = np.arange(ordinal, ordinal + len(samples), dtype=np.uint64)
    return np.where(empty, mixed(ordinals), digest)


@kept
class SampleSums(Accumulator):
    """All that is kept of samples from ordinal ``begin`` on.

    One that ``goes_on`` is filled in turn by whoever reads all samples: round after round they are added to the same
    sums.  Others have whole stretches, and are merged with those before.
    """

    def __init__(self, design: Design, binning: Binning, begin: int = 0, goes_on: bool = False) -> None:
        super().__init__(design, binning, begin, goes_on)
        self.binning = binning  # also of one that comes from a worker, without its question
        self.goes_on = goes_on
        self.begin = begin
        self.end = begin
        self.dims: tuple[int, ...] = ()
        self.stretches: list[Stretch] = []  # in their order; the last may be open
        self.blocks: dict[Block, UnitSum] = {}
        self.kept: dict[tuple[int, int], KeptSample] = {}  # by digest and ordinal
        self.loudest: KeptSample | None = None
        self.largest_energy = -1.0
        self.smallest_digests = SmallestDigests()
        self._kept_bound = 2**64  # digests of all samples that are kept are less, once these are as many as wanted
        self._spare: BinSums | None = None

    def fresh(self) -> SampleSums:
        """These sums, if they go on; else empty ones of the same samples."""
        if self.goes_on:
            return self
        return SampleSums(*self.question)

    def for_worker(self, sum_bytes: int | None) -> SampleSums:  # noqa: ARG002
        """Empty sums of the samples that come next; these sums themselves, where they end inside a stretch."""
        if self.open:
            return self
        design, binning, _, _ = self.question
        return SampleSums(design, binning, self.end)

    @property
    def open(self) -> bool:
        """Whether samples that come next belong to a stretch that has begun."""
        start, _ = self.binning.stretch_at(self.end)
        return start < self.end

    def edges(self, n: int) -> list[int]:
        """Where ``n`` samples that come next may be divided, as numbers of samples from 0 on: at stretches."""
        if self.open:
            return [0, n]
        edges = [0]
        while edges[-1] < n:
            _, stop = self.binning.stretch_at(self.end + edges[-1])
            edges.append(min(n, stop - self.end))
        return edges

    # Adding samples ---------------------------------------------------------------------------------------------------

    def add(self, batch: Any, at: int) -> None:
        """Take the samples of a batch, the first of which is number ``at`` of those that are read for this."""
        self.dims = tuple(batch.dims)
        ordinal = self.end if self.goes_on else self.begin + at
        for rows, samples, seen in batch.stored_pieces(PIECE):
            flat_seen = None if seen is None else seen.reshape(len(samples), -1)
            energies = self._add_piece(
                samples.reshape(len(samples), -1), flat_seen, batch.places[rows], ordinal + rows.start
            )
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
            stretch_start, stretch_stop = self.binning.stretch_at(first)
            stop = min(len(samples), start + stretch_stop - first)
            rows = slice(start, stop)
            if not self.stretches or first == stretch_start:
                self._open_stretch(first, columns.shape[1], samples.shape[1])
            seen_rows = None if seen is None else seen[rows]
            energies[rows] = self._add_run(samples[rows], seen_rows, columns[rows], weights[rows], bins[rows], first)
            self._move_on(ordinal + stop, stretch_stop)
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

    def _open_stretch(self, ordinal: int, columns: int, entries: int) -> None:
        sums = self._spare
        self._spare = None
        if sums is None:
            sums = BinSums(max(1, self.binning.dealt), columns, entries, self.binning.partial)
        self.stretches.append(Stretch(ordinal, ordinal, sums))

    def _blocks_of(self, ordinal: int, count: int, columns: int, entries: int) -> tuple[list[UnitSum], Indices]:
        """The blocks that some samples of one stretch belong to, and which of these each does."""
        blocks = []
        rows = np.empty(count, np.intp)
        start = 0
        while start < count:
            first = ordinal + start
            level = self.binning.level(first)
            length = self.binning.shortest << level
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
        ordinal: int,
    ) -> Array:
        """Add samples of one stretch, the first with that ordinal, to their bins and blocks; their energies."""
        moments = []
        grams = []
        entry_grams = []
        sums = self.stretches[-1].sums
        if self.binning.dealt:
            rows = sums.rows_for(bins)
            np.add.at(sums.counts, rows, 1)
            moments.append(Target(sums.moments, rows))
            grams.append(Target(sums.grams, rows))
            if sums.entry_grams is not None:
                entry_grams.append(Target(sums.entry_grams, rows))
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
        return add_samples(samples, weighted, weights, moments, sums.squares)

    def _move_on(self, end: int, stretch_stop: int) -> None:
        """All samples before ordinal ``end`` are in, of a stretch that ends at ``stretch_stop``."""
        self.end = end
        last = self.stretches[-1]
        last.stop = end
        if self.binning.neighbours:
            self._join_blocks()
        if end == stretch_stop:
            self._join_stretches()
            if self.stretches[-1] is not last:  # its sums are part of others now
                last.sums.clear()
                self._spare = last.sums

    def _keep(
        self, samples: NDArray[Any], seen: NDArray[Any] | None, digest: Digests, places: Indices, ordinal: int
    ) -> None:
        """Keep samples with the smallest digests; of those before, the largest go."""
        candidates = np.arange(len(digest))
        if self._kept_bound < 2**64:
            candidates = np.flatnonzero(digest < np.uint64(self._kept_bound))
            if not len(candidates):
                return
        candidates = candidates[np.argsort(digest[candidates], kind="stable")[: self.binning.samples]]
        for row in candidates:
            key = (int(digest[row]), ordinal + int(row))
            values = samples[row].reshape(self.dims).copy()
            mask = None if seen is None else seen[row].reshape(self.dims).copy()
            self.kept[key] = KeptSample(values, mask, int(places[row]))
        self._thin()

    def _thin(self) -> None:
        keys = sorted(self.kept)
        for key in keys[self.binning.samples :]:
            del self.kept[key]
        if len(keys) >= self.binning.samples:
            self._kept_bound = keys[self.binning.samples - 1][0]

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
        self._join_blocks()
        self.kept |= other.kept
        self._thin()
        if other.largest_energy > self.largest_energy:
            self.largest_energy = other.largest_energy
            self.loudest = other.loudest
        self.smallest_digests.merge(other.smallest_digests)

    def _join_stretches(self) -> None:
        """Add complete stretches to the sums of all samples before them, if those are here."""
        while len(self.stretches) > 1:
            first = self.stretches[0]
            following = self.stretches[1]
            _, complete = self.binning.stretch_at(following.start)
            if first.start > 0 or following.stop < complete:
                return
            first.sums.take(following.sums)
            first.stop = following.stop
            del self.stretches[1]

    def _join_blocks(self) -> None:
        """Make one of two neighbouring blocks that are shorter than those of the last sample, again and again."""
        if not self.blocks:
            return
        target = self.binning.level(self.end - 1)
        for level in range(min(level for level, _ in self.blocks), target):
            numbers = sorted(number for block_level, number in self.blocks if block_level == level)
            for number in numbers:
                right = (level, number + 1)
                if number % 2 == 0 and right in self.blocks:
                    sums = self.blocks.pop((level, number))
                    sums.plus(self.blocks.pop(right))
                    self.blocks[level + 1, number // 2] = sums

    def close(self) -> None:
        """Let go of memory that is not in use."""
        self._spare = None

    def end_here(self) -> None:
        """No sample follows: the last stretch is added as it is."""
        self._spare = None
        while len(self.stretches) > 1:
            following = self.stretches.pop(1)
            self.stretches[0].sums.take(following.sums)
            self.stretches[0].stop = following.stop

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
    def squares(self) -> Array:
        """Q (E,), of all samples; once they have ended."""
        return self.stretches[0].sums.squares

    def digest_sums(self) -> list[UnitSum]:
        """The sums of every bin of digests, or group, that has samples; once they have ended."""
        if not self.binning.dealt:
            return []
        return self.stretches[0].sums.unit_sums(self.dims)

    def neighbour_sums(self) -> list[UnitSum]:
        """The sums of blocks of one length, in their order; a short last one is part of the one before."""
        if not self.blocks:
            return []
        length = self.binning.shortest << self.binning.level(self.end - 1)
        blocks = []
        for block in sorted(self.blocks, key=lambda block: block[1]):
            sums = self.blocks[block]
            entry_grams = None
            if self.binning.partial:
                entry_grams = sums.grams.reshape(*sums.gram.shape, *self.dims)
            blocks.append(UnitSum(sums.moments.reshape(-1, *self.dims), sums.gram, sums.n, entry_grams))
        if len(blocks) > 1 and 2 * blocks[-1].n < length:
            short = blocks.pop()
            blocks[-1] = added(blocks[-1], short)
        return blocks


def added(before: UnitSum, sums: UnitSum) -> UnitSum:
    """Both as one, in new memory."""
    moments = before.moments + sums.moments
    return UnitSum(moments, before.gram + sums.gram, before.n + sums.n, before.grams + sums.grams)
