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

As long as there are no more samples than bins of digests, every sample has a bin of its own.  With one sample more,
those join whose digests are alike modulo the number of bins.  Copies would all be in one bin, which is right for a
measurement that was counted twice, and wrong for samples of a few kinds: answers to a few questions, or many samples
that are a constant.  So digests that were seen twice among these first samples are *common*: their samples are dealt
out by their ordinals, and so are all if more than a tenth of the first ones are copies (:class:`Dealing`).

**The same bits for the same sequence of samples**, in whatever batches, on whatever engine.  A sample is known by its
*ordinal*, the number of samples before it.  Large samples are added eight at a time, from an ordinal that is a multiple
of eight; up to seven wait for those that come next.  Ordinals are cut into *stretches*: eight of s samples, then four
each of 2s, 4s, 8s, ... samples, a *level* each.  The samples of a stretch are added to empty bins; the sums of a
level's stretches are added up one after the other, and levels are, too.  So whoever adds whole stretches, in one
process or in many, ends with the same sums, and whoever has all stretches of a level sends one sum.

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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.inference.design import Design, largest_entry, refuse_extreme_size
from tpca.inference.regression import UnitSum
from tpca.tensors.accumulators import Accumulator
from tpca.tensors.adding import ROWS, SMALL_SAMPLE, Target, add_grams, add_samples, energies_of
from tpca.tensors.blocks import Array
from tpca.tensors.digests import Digests, digests, scrambled

Indices = NDArray[np.intp]
Block = tuple[int, int]  # level and number: samples from number * shortest * 2^level on

SMALLEST_DIGESTS = 4096
"""Different digests that are remembered, to count copies."""
FEWEST_ROWS = 32
"""Bins for which there is room from the first sample on."""
PIECE = 2**20
"""Numbers of samples that are digested and added at a time: they are in the cache when they are added."""
COMMON = 0.1
"""Share of copies among the first samples beyond which all are taken as samples of a few kinds."""
VECTORS = 2**12
"""Numbers of a bin up to which those of all bins are added in one call of NumPy."""


@kept
@dataclass(frozen=True)
class Binning:
    """How samples are dealt into bins; it follows from their shape, columns and the memory, never from their number.

    There are ``dealt`` bins for digests, or units for groups if these are ``grouped``; at most ``neighbours`` blocks of
    at least ``shortest`` samples; 0 where there are none of a kind.  The first stretches have ``stretch`` samples each;
    ``samples`` are kept.  With ``partial``, entries may be missing.  One that ``looks`` for copies does so among the
    first samples, where these are many, or so small that copies are likely.
    """

    dealt: int
    neighbours: int
    stretch: int
    samples: int
    shortest: int = 1
    grouped: bool = False
    partial: bool = False
    looks: bool = False

    @property
    def singles(self) -> int:
        """Samples up to which each has a bin of its own."""
        return 0 if self.grouped else self.dealt

    def block_level(self, ordinal: int) -> int:
        """The level of blocks when the sample at ``ordinal`` is the last one."""
        return (ordinal // (self.shortest * self.neighbours)).bit_length()

    def level_at(self, ordinal: int) -> tuple[int, int]:
        """The ordinals at which the level of a sample begins and ends."""
        doublings = self._doublings(ordinal)
        stop = 8 * self.stretch << doublings
        if doublings == 0:
            return 0, stop
        return stop // 2, stop

    def stretch_at(self, ordinal: int) -> tuple[int, int]:
        """The ordinals at which the stretch of a sample begins and ends."""
        length = self.stretch << self._doublings(ordinal)
        start = ordinal // length * length
        return start, start + length

    def _doublings(self, ordinal: int) -> int:
        return max(0, (ordinal // self.stretch).bit_length() - 3)


@kept
@dataclass(frozen=True)
class Dealing:
    """How samples are dealt out, once there are more than bins: by their digests, but for those with ``common`` ones.

    If they are dealt out ``by_place``, all are.
    """

    by_place: bool = False
    common: Digests = field(default_factory=lambda: np.empty(0, np.uint64))

    def numbers(self, digest: Digests, ordinals: Digests) -> Digests:
        """The number (n,) of every sample, of which its bin is the remainder."""
        if self.by_place:
            return scrambled(ordinals)
        if not len(self.common):
            return digest
        return np.where(np.isin(digest, self.common), scrambled(ordinals), digest)


def dealing_after(first: Digests) -> Dealing:
    """How samples are dealt out, of which the first have these digests."""
    seen, counts = np.unique(first, return_counts=True)
    copies = len(first) - len(seen)
    if copies > COMMON * len(first):
        return Dealing(by_place=True)
    return Dealing(common=seen[counts > 1])


@kept
class BinSums:
    """Sums of bins: ``moments`` (B, c, E), ``grams`` (B, c, c), ``counts`` (B,), and ``squares`` (E,) of all.

    Each row belongs to the bin with the number in ``keys``; rows behind those are anything.  The number of a bin is
    that of its samples modulo B.  While samples are ``single``, each has a row, with its number and its ordinal.
    ``entry_grams`` (B, c c, E) are Gram matrices entry by entry, where entries may be missing.
    """

    def __init__(self, bins: int, columns: int, entries: int, partial: bool, single: bool = False) -> None:
        self.single = single
        self.keys = np.empty(0, np.uint64)
        self.ordinals = np.empty(0, np.uint64)
        self.row_of = np.full(bins, -1, np.intp)  # of every bin, -1 of none yet
        self.moments = np.empty((0, columns, entries))
        self.grams = np.empty((0, columns, columns))
        self.counts = np.empty(0, np.int64)
        self.squares = np.zeros(entries)
        self.entry_grams = np.empty((0, columns * columns, entries)) if partial else None

    def rows_for(self, numbers: Digests) -> Indices:
        """Rows of the bins that samples with these numbers belong to; bins that have none get one, of zeros."""
        keys = (numbers % np.uint64(len(self.row_of))).astype(np.intp)
        rows = self.row_of[keys]
        if (rows < 0).any():
            fresh = np.unique(keys[rows < 0])
            self.row_of[fresh] = len(self.keys) + np.arange(len(fresh))
            self._add_rows(fresh.astype(np.uint64))
            rows = self.row_of[keys]
        return rows

    def rows_for_single(self, numbers: Digests, ordinals: Digests) -> Indices:
        """A row of zeros for each of some samples."""
        first = len(self.keys)
        self.ordinals = np.concatenate([self.ordinals, ordinals])
        self._add_rows(numbers)
        return np.arange(first, len(self.keys))

    def _add_rows(self, keys: Digests) -> None:
        first = len(self.keys)
        self.keys = np.concatenate([self.keys, keys])
        self._make_room(len(self.keys))
        for sums in self._arrays():
            sums[first : len(self.keys)] = 0

    def join_single(self, dealing: Dealing) -> None:
        """There are more samples than bins: they are dealt out."""
        if not self.single:
            return
        numbers = dealing.numbers(self.keys, self.ordinals)
        bins = (numbers % np.uint64(len(self.row_of))).astype(np.intp)
        count = len(bins)
        joined = []
        for row, bin_number in enumerate(bins.tolist()):
            first = int(self.row_of[bin_number])
            if first < 0:
                self.row_of[bin_number] = row
                continue
            joined.append(row)
            for sums in self._arrays():
                sums[first] += sums[row]
        for row in reversed(joined):  # the last row takes the place of one that was joined
            count -= 1
            bins[row] = bins[count]
            for sums in self._arrays():
                sums[row] = sums[count]
        self.single = False
        self.ordinals = np.empty(0, np.uint64)
        self.keys = bins[:count].astype(np.uint64)
        self.row_of[bins[:count]] = np.arange(count)

    def _arrays(self) -> list[NDArray[Any]]:
        """All arrays with a row a bin."""
        arrays: list[NDArray[Any]] = [self.moments, self.grams, self.counts]
        if self.entry_grams is not None:
            arrays.append(self.entry_grams)
        return arrays

    def _make_room(self, rows: int) -> None:
        held = len(self.moments)
        if rows <= held:
            return
        wanted = min(max(rows, 2 * held, FEWEST_ROWS), len(self.row_of))
        self.moments = longer(self.moments, wanted)
        self.grams = longer(self.grams, wanted)
        self.counts = longer(self.counts, wanted)
        if self.entry_grams is not None:
            self.entry_grams = longer(self.entry_grams, wanted)

    def take(self, other: BinSums, dealing: Dealing) -> None:
        """Add the sums of samples that come next."""
        if other.single:
            rows = self.rows_for_single(other.keys, other.ordinals)
        else:
            self.join_single(dealing)
            rows = self.rows_for(other.keys)
        for sums, following in zip(self._arrays(), other._arrays(), strict=True):
            following = following[: len(rows)]
            if following[:1].size <= VECTORS:
                sums[rows] += following
                continue
            for row, values in zip(rows, following, strict=True):
                sums[row] += values
        self.squares += other.squares

    def clear(self, single: bool) -> None:
        """Forget all sums; the memory stays, for other samples."""
        self.single = single
        self.squares[...] = 0
        self.row_of[...] = -1
        self.keys = np.empty(0, np.uint64)
        self.ordinals = np.empty(0, np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(sums.nbytes for sums in self._arrays()) + self.squares.nbytes + self.row_of.nbytes

    def unit_sums(self) -> list[UnitSum]:
        """The sums of every bin that has samples, in the order of the bins, copies by their columns; views."""
        units = []
        columns = self.grams[: len(self.keys), 0].T
        for row in np.lexsort((*columns, self.keys)):
            gram = self.grams[row]
            entry_grams = None
            if self.entry_grams is not None:
                entry_grams = self.entry_grams[row].reshape(*gram.shape, -1)
            units.append(UnitSum(self.moments[row], gram, int(self.counts[row]), entry_grams))
        return units


def longer(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """An array with so many rows, the first of which are those given."""
    extended = np.empty((rows, *array.shape[1:]), array.dtype)
    extended[: len(array)] = array
    return extended


@kept
@dataclass
class Stretch:
    """The sums of all samples from ordinal ``start`` to ``stop``: of one stretch, of some of a level, or of levels."""

    start: int
    stop: int
    sums: BinSums


@dataclass(frozen=True)
class Arrivals:
    """Samples (n, E) as they come: what was ``seen`` of them, their ``places`` in the data, their sums of squares."""

    samples: NDArray[Any]
    seen: NDArray[Any] | None
    places: Indices
    energies: Array

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, rows: slice) -> Arrivals:
        seen = None
        if self.seen is not None:
            seen = self.seen[rows]
        return Arrivals(self.samples[rows], seen, self.places[rows], self.energies[rows])


@dataclass(frozen=True)
class DealtRows:
    """Samples (n, E) with all that is known of each: what was ``seen``, ``columns``, ``weights``.

    The ``numbers`` decide which bins they belong to.
    """

    samples: NDArray[Any]
    seen: NDArray[Any] | None
    columns: Array
    weights: Array
    numbers: Digests

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, rows: slice) -> DealtRows:
        seen = None
        if self.seen is not None:
            seen = self.seen[rows]
        return DealtRows(self.samples[rows], seen, self.columns[rows], self.weights[rows], self.numbers[rows])


@kept
class WaitingRows:
    """The first samples of eight that are added together, in memory for eight."""

    def __init__(self, like: Arrivals) -> None:
        self.count = 0
        self.samples = room_for(like.samples)
        self.seen = None if like.seen is None else room_for(like.seen)
        self.places = room_for(like.places)
        self.energies = room_for(like.energies)

    def append(self, some: Arrivals) -> None:
        """Take some more."""
        rows = slice(self.count, self.count + len(some))
        if some.samples.dtype.itemsize > self.samples.dtype.itemsize:
            self.samples = self.samples.astype(some.samples.dtype)
        self.samples[rows] = some.samples
        if self.seen is None and some.seen is not None:
            self.seen = np.ones(self.samples.shape, some.seen.dtype)
        if self.seen is not None:
            self.seen[rows] = 1 if some.seen is None else some.seen
        self.places[rows] = some.places
        self.energies[rows] = some.energies
        self.count = rows.stop

    def arrivals(self) -> Arrivals:
        """All of them."""
        return Arrivals(self.samples, self.seen, self.places, self.energies)[: self.count]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.samples.nbytes + (0 if self.seen is None else self.seen.nbytes)


def room_for(rows: NDArray[Any]) -> NDArray[Any]:
    """Memory for eight rows like these."""
    return np.zeros((ROWS, *rows.shape[1:]), rows.dtype)


@kept
@dataclass
class KeptSample:
    """A sample as it was given, the ``seen`` entries of it if some may be missing, with its columns and weight.

    ``place`` is its number in the data.
    """

    values: NDArray[Any]
    seen: NDArray[Any] | None
    columns: Array
    weight: float
    place: int

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.values.nbytes) + (0 if self.seen is None else int(self.seen.nbytes))


def kept_sample(rows: DealtRows, row: int, place: int) -> KeptSample:
    """A copy of one of some samples."""
    seen = None
    if rows.seen is not None:
        seen = rows.seen[row].copy()
    return KeptSample(rows.samples[row].copy(), seen, rows.columns[row].copy(), float(rows.weights[row]), place)


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


EMPTY = scrambled(np.zeros(1, np.uint64))
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
    return np.where(empty, scrambled(ordinals), digest)


@kept
class SampleSums(Accumulator):
    """All that is kept of samples from ordinal ``begin`` on.

    One that ``goes_on`` is filled in turn by whoever reads all samples: round after round they are added to the same
    sums.  Others have whole stretches, and are merged with those before.  No sample follows the ordinal ``last``, if
    that is known: who has all before it sends one sum.
    """

    def __init__(
        self,
        design: Design,
        binning: Binning,
        begin: int = 0,
        goes_on: bool = False,
        last: int | None = None,
        dealing: Dealing | None = None,
    ) -> None:
        super().__init__(design, binning, begin, goes_on, last, dealing)
        self.binning = binning  # also of one that comes from a worker, without its question
        self.goes_on = goes_on
        self.last = last
        self.dealing = dealing  # None until the first samples have shown it
        if not binning.looks:
            self.dealing = Dealing()
        self.begin = begin
        self.end = begin  # the ordinal of the sample that comes next
        self.stretches: list[Stretch] = []  # in their order; the last may be open
        self.blocks: dict[Block, UnitSum] = {}
        self.waiting: WaitingRows | None = None
        self.kept: dict[int, KeptSample] = {}  # by digest
        self.loudest: KeptSample | None = None
        self.largest_energy = -1.0
        self.weight = 0.0
        self.smallest_digests = SmallestDigests()
        self._kept_bound = 2**64  # digests of all samples that are kept are less, once these are as many as wanted
        self._spare: BinSums | None = None

    def fresh(self) -> SampleSums:
        """These sums, if they go on; else empty ones of the same samples."""
        if self.goes_on:
            return self
        return SampleSums(*self.question)

    def for_worker(self, sum_bytes: int | None) -> SampleSums:  # noqa: ARG002
        """Empty sums of the samples that come next."""
        if self.end >= self.binning.singles:
            self._decide()
        return SampleSums(self.question[0], self.binning, self.end, last=self.last, dealing=self.dealing)

    def _decide(self) -> Dealing:
        """How samples are dealt out, once there are more than bins."""
        if self.dealing is None:
            self.dealing = dealing_after(np.concatenate([one.sums.keys for one in self.stretches]))
        return self.dealing

    def edges(self, n: int) -> list[int]:
        """Where ``n`` samples that come next may be divided, as numbers of samples from 0 on: at stretches."""
        edges = [0]
        while edges[-1] < n:
            _, stop = self.binning.stretch_at(self.end + edges[-1])
            edges.append(min(n, stop - self.end))
        return edges

    # Adding samples ---------------------------------------------------------------------------------------------------

    def add(self, batch: Any, at: int) -> None:
        """Take the samples of a batch, the first of which is number ``at`` of those that are read for this."""
        if not self.n and not self.goes_on:
            self.begin += at
            self.end = self.begin
        for rows, samples, seen in batch.stored_pieces(PIECE):
            flat = samples.reshape(len(samples), -1)
            flat_seen = None
            if seen is not None:
                flat_seen = seen.reshape(flat.shape)
            places = batch.places[rows]
            step = max(ROWS, PIECE // max(1, flat.shape[1]) // ROWS * ROWS)
            for start in range(0, len(flat), step):
                piece = slice(start, start + step)
                piece_seen = None
                if flat_seen is not None:
                    piece_seen = flat_seen[piece]
                energies = energies_of(flat[piece])
                if not np.isfinite(energies).all():
                    batch.check()
                    refuse_extreme_size("samples", largest_entry(flat[piece]))
                self._add_arrivals(Arrivals(flat[piece], piece_seen, places[piece], energies))
        self.n += len(batch)
        if self.end == self.last:
            self._add_waiting()

    def _add_arrivals(self, arrivals: Arrivals) -> None:
        """Add samples; large ones eight at a time, and those that are left wait."""
        begin = self.end
        self.end += len(arrivals)
        if arrivals.samples.shape[1] <= SMALL_SAMPLE:
            self._add_known(arrivals, begin)
            return
        if self.waiting is not None:
            head = arrivals[: ROWS - self.waiting.count]
            self.waiting.append(head)
            if self.waiting.count < ROWS:
                return
            begin += len(head)
            self._add_known(self.waiting.arrivals(), begin - ROWS)
            self.waiting.count = 0
            arrivals = arrivals[len(head) :]
        whole = len(arrivals) // ROWS * ROWS
        if whole:
            self._add_known(arrivals[:whole], begin)
        if whole == len(arrivals):
            self.waiting = None
            return
        if self.waiting is None:
            self.waiting = WaitingRows(arrivals)
        self.waiting.append(arrivals[whole:])

    def _add_waiting(self) -> None:
        """Add those that wait: no sample follows."""
        waiting = self.waiting
        self.waiting = None
        if waiting is not None:
            self._add_known(waiting.arrivals(), self.end - waiting.count)

    def _add_known(self, arrivals: Arrivals, ordinal: int) -> None:
        """Add samples, the first with that ordinal, with all that is known of them."""
        design: Design = self.question[0]
        columns, weights = design.rows(arrivals.places)
        digest = digests(arrivals.samples)
        deals = dealt_digests(digest, arrivals.samples, ordinal)
        numbers = deals
        if self.binning.grouped:
            assert design.groups is not None
            numbers = design.groups[arrivals.places].astype(np.uint64)
        rows = DealtRows(arrivals.samples, arrivals.seen, columns, weights, numbers)
        self.weight += float(weights.sum())
        self.smallest_digests.add(digest)
        self._keep(rows, deals, arrivals.places)
        self._note_loudest(rows, arrivals.energies, arrivals.places)
        self._add_rows(rows, ordinal)

    def add_drawn(self, n: int, draw: Callable[[int], Array], squares: Array) -> None:
        """Take ``n`` samples of which only sums are known: ``draw`` gives that of so many (E,), ``squares`` (E,) are Q.

        For plain designs.  All samples of a block of neighbours belong to one bin.
        """
        stop = self.end + n
        while self.end < stop:
            length = self.binning.shortest << self.binning.block_level(self.end)
            number = self.end // length
            count = min(stop, (number + 1) * length) - self.end
            total = draw(count)
            blocks, _ = self._blocks_of(self.end, count, 1, len(total))
            if not self.stretches:
                self._open_stretch(self.end, 1, len(total))
            sums = self.stretches[0].sums
            sums.join_single(Dealing())
            row = sums.rows_for(np.array([number], np.uint64))[0]
            blocks[0].moments += total
            blocks[0].gram += count
            sums.moments[row] += total
            sums.grams[row] += count
            sums.counts[row] += count
            self.end += count
            self._join_blocks(self.end)
        self.stretches[0].stop = self.end
        self.stretches[0].sums.squares += squares
        self.weight += n
        self.n += n

    def _add_rows(self, rows: DealtRows, ordinal: int) -> None:
        """Add samples, the first with that ordinal, stretch by stretch."""
        start = 0
        while start < len(rows):
            first = ordinal + start
            stretch_start, stretch_stop = self.binning.stretch_at(first)
            stop = min(len(rows), start + stretch_stop - first)
            if not self.stretches or first == stretch_start:
                self._open_stretch(first, rows.columns.shape[1], rows.samples.shape[1])
            if first < self.binning.singles:
                stop = min(stop, start + self.binning.singles - first)
            else:
                self.stretches[-1].sums.join_single(self._decide())
            self._add_run(rows[start:stop], first)
            self._move_on(ordinal + stop, stretch_stop)
            start = stop

    def _open_stretch(self, ordinal: int, columns: int, entries: int) -> None:
        sums = self._spare
        self._spare = None
        single = ordinal < self.binning.singles
        if sums is None:
            sums = BinSums(max(1, self.binning.dealt), columns, entries, self.binning.partial, single)
        else:
            sums.clear(single)
        self.stretches.append(Stretch(ordinal, ordinal, sums))

    def _blocks_of(self, ordinal: int, count: int, columns: int, entries: int) -> tuple[list[UnitSum], Indices]:
        """The blocks that some samples of one stretch belong to, and which of these each does."""
        blocks: list[UnitSum] = []
        rows = np.empty(count, np.intp)
        start = 0
        while start < count:
            first = ordinal + start
            level = self.binning.block_level(first)
            length = self.binning.shortest << level
            stop = min(count, start + length - first % length)
            block = (level, first // length)
            if block not in self.blocks:
                entry_grams = np.zeros((columns, columns, entries)) if self.binning.partial else None
                self.blocks[block] = UnitSum(np.zeros((columns, entries)), np.zeros((columns, columns)), 0, entry_grams)
            rows[start:stop] = len(blocks)
            blocks.append(self.blocks[block])
            blocks[-1].count += stop - start
            start = stop
        return blocks, rows

    def _add_run(self, rows: DealtRows, ordinal: int) -> None:
        """Add samples of one stretch, the first with that ordinal, to their bins and blocks."""
        moments = []
        grams = []
        entry_grams = []
        count, entries = rows.samples.shape
        sums = self.stretches[-1].sums
        if self.binning.dealt:
            ordinals = np.arange(ordinal, ordinal + count, dtype=np.uint64)
            if sums.single:
                bin_rows = sums.rows_for_single(rows.numbers, ordinals)
            else:
                bin_rows = sums.rows_for(self._decide().numbers(rows.numbers, ordinals))
            np.add.at(sums.counts, bin_rows, 1)
            moments.append(Target(sums.moments, bin_rows))
            grams.append(Target(sums.grams, bin_rows))
            if sums.entry_grams is not None:
                entry_grams.append(Target(sums.entry_grams, bin_rows))
        if self.binning.neighbours:
            blocks, block_rows = self._blocks_of(ordinal, count, rows.columns.shape[1], entries)
            moments.append(Target([block.moments for block in blocks], block_rows))
            grams.append(Target([block.gram.reshape(-1) for block in blocks], block_rows))
            if self.binning.partial:
                flat_grams = [np.asarray(block.entry_grams).reshape(-1, entries) for block in blocks]
                entry_grams.append(Target(flat_grams, block_rows))
        weighted = rows.columns * rows.weights[:, None]
        add_grams(rows.columns, rows.weights, grams)
        if entry_grams:
            pairs = (weighted[:, :, None] * rows.columns[:, None, :]).reshape(count, -1)
            observed = rows.seen
            if observed is None:
                observed = np.ones_like(rows.samples)
            add_samples(observed, pairs, rows.weights, entry_grams)
        add_samples(rows.samples, weighted, rows.weights, moments, sums.squares)

    def _move_on(self, end: int, stretch_stop: int) -> None:
        """All samples before ordinal ``end`` are in, of a stretch that ends at ``stretch_stop``."""
        last = self.stretches[-1]
        last.stop = end
        if self.binning.neighbours:
            self._join_blocks(end)
        if end == stretch_stop:
            self._join_stretches()
            if self.stretches[-1] is not last:  # its sums are part of others now
                self._spare = last.sums

    def _keep(self, rows: DealtRows, deals: Digests, places: Indices) -> None:
        """Keep samples with the smallest digests, one of each; of those before, the largest go."""
        candidates = np.arange(len(deals))
        if self._kept_bound < 2**64:
            candidates = np.flatnonzero(deals < np.uint64(self._kept_bound))
            if not len(candidates):
                return
        _, places_of_smallest = np.unique(deals[candidates], return_index=True)
        for row in candidates[places_of_smallest[: self.binning.samples]]:
            digest = int(deals[row])
            if digest not in self.kept:
                self.kept[digest] = kept_sample(rows, int(row), int(places[row]))
        self._thin()

    def _thin(self) -> None:
        digests_kept = sorted(self.kept)
        for digest in digests_kept[self.binning.samples :]:
            del self.kept[digest]
        if len(digests_kept) >= self.binning.samples:
            self._kept_bound = digests_kept[self.binning.samples - 1]

    def _note_loudest(self, rows: DealtRows, energies: Array, places: Indices) -> None:
        row = int(np.argmax(energies))
        if energies[row] > self.largest_energy:
            self.largest_energy = float(energies[row])
            self.loudest = kept_sample(rows, row, int(places[row]))

    # Joining sums -----------------------------------------------------------------------------------------------------

    def merge(self, other: SampleSums) -> None:
        """Take what another one, of the samples that come next, has."""
        assert self.waiting is None, "samples can follow only whole stretches"
        self.n += other.n
        self.end = other.end
        if self.dealing is None:
            self.dealing = other.dealing
        self.waiting = other.waiting
        self.weight += other.weight
        self.stretches += other.stretches
        self._join_stretches()
        self.blocks |= other.blocks
        if self.binning.neighbours and self.blocks:
            held = 0 if self.waiting is None else self.waiting.count
            self._join_blocks(self.end - held)
        self.kept = other.kept | self.kept  # of copies the first one
        self._thin()
        if other.largest_energy > self.largest_energy:
            self.largest_energy = other.largest_energy
            self.loudest = other.loudest
        self.smallest_digests.merge(other.smallest_digests)
        if self.begin == 0 and self.end == self.last:
            self.end_here()

    def _join_stretches(self) -> None:
        """Add up neighbours that are whole: stretches of a level from its first on, and levels from the first on."""
        number = 0
        while number + 1 < len(self.stretches):
            first = self.stretches[number]
            following = self.stretches[number + 1]
            if not self._follows(first, following):
                number += 1
                continue
            first.sums.take(following.sums, self.dealing or Dealing())
            first.stop = following.stop
            del self.stretches[number + 1]
            number = max(0, number - 1)

    def _follows(self, first: Stretch, following: Stretch) -> bool:
        """Whether sums are those that are added to the first ones next."""
        level_start, level_stop = self.binning.level_at(following.start)
        if first.stop != following.start:
            return False
        if following.start == level_start:
            return first.start == 0 and following.stop == level_stop
        _, complete = self.binning.stretch_at(following.start)
        return first.start == level_start and following.stop == complete

    def _join_blocks(self, end: int) -> None:
        """Make one of two neighbouring blocks that are shorter than those of the last sample, again and again."""
        target = self.binning.block_level(end - 1)
        for level in range(min(level for level, _ in self.blocks), target):
            numbers = sorted(number for block_level, number in self.blocks if block_level == level)
            for number in numbers:
                right = (level, number + 1)
                if number % 2 == 0 and right in self.blocks:
                    sums = self.blocks.pop((level, number))
                    sums.add(self.blocks.pop(right))
                    self.blocks[level + 1, number // 2] = sums

    def close(self) -> None:
        """No more samples come in this round."""
        if not self.goes_on:
            self.let_go()

    def let_go(self) -> None:
        """Let go of memory that is not in use."""
        self._spare = None

    def end_here(self) -> None:
        """No sample follows: those that wait are added, and what was begun counts as whole."""
        self._add_waiting()
        self._spare = None
        while len(self.stretches) > 1:
            following = self.stretches.pop()
            self.stretches[-1].sums.take(following.sums, self.dealing or Dealing())
            self.stretches[-1].stop = following.stop

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        spare = 0 if self._spare is None else self._spare.nbytes
        waiting = 0 if self.waiting is None else self.waiting.nbytes
        held = spare + waiting + sum(stretch.sums.nbytes for stretch in self.stretches)
        held += sum(block.nbytes for block in self.blocks.values())
        held += sum(sample.nbytes for sample in self.kept.values())
        held += 0 if self.loudest is None else self.loudest.nbytes
        return held + self.smallest_digests.nbytes

    # What was found ---------------------------------------------------------------------------------------------------

    @property
    def squares(self) -> Array:
        """Q (E,), of all samples; once they have ended."""
        return self.stretches[0].sums.squares

    def kept_samples(self) -> list[KeptSample]:
        """The samples that were kept, in an order of their own."""
        return [self.kept[key] for key in sorted(self.kept)]

    def dealt_units(self) -> list[UnitSum]:
        """The sums of every bin of digests, or group, that has samples; once they have ended."""
        if not self.binning.dealt or not self.stretches:
            return []
        return self.stretches[0].sums.unit_sums()

    def neighbour_units(self) -> list[UnitSum]:
        """The sums of blocks of one length, in their order; a short last one is part of the one before."""
        if not self.blocks:
            return []
        length = self.binning.shortest << self.binning.block_level(self.end - 1)
        units = []
        for block in sorted(self.blocks, key=lambda block: block[1]):
            units.append(self.blocks[block])
        if len(units) > 1 and 2 * units[-1].count < length:
            units[-2:] = [added(units[-2], units[-1])]
        return units


def added(first: UnitSum, following: UnitSum) -> UnitSum:
    """Both as one, in new memory."""
    entry_grams = None
    if first.entry_grams is not None and following.entry_grams is not None:
        entry_grams = first.entry_grams + following.entry_grams
    moments = first.moments + following.moments
    return UnitSum(moments, first.gram + following.gram, first.count + following.count, entry_grams)
