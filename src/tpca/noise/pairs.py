r"""Covariances of the modes from pairs of neighbouring samples, all pairs of a batch at once.

:math:`\Delta_j = (T_{2j+1} - T_{2j})/\mathrm{rms}`: whatever all samples have in common, the signal above all, is gone
from them; of derived samples, which hold unequal shares s of it, from :math:`s_{2j}T_{2j+1} - s_{2j+1}T_{2j}`.  Their
mode-i Gram matrices are

.. math:: C_i = \frac{d_i}{D}\,\frac1n\sum_j \Delta_{j(i)}\Delta_{j(i)}^\top, \qquad \mathrm{tr}\,C_i = d_i .

Of large samples a part of the columns says enough: with ``step`` only every step-th slice of another mode is looked at,
of the first mode for all but itself, for which it is the second.

*Missing entries* are 0, and a signal does not cancel where one of a pair is missing: what is learnt is the covariance
of samples with such zeros.  Tails are judged by entries that both samples have.  With c how much an entry counts (one,
or of a derived sample what it has of the covariate), its mean is cμ and its variance cσ², and

.. math:: \frac{c_2T_1 - c_1T_2}{\sqrt{c_1c_2(c_1 + c_2)}}

has neither μ nor c left in it.  Of n such entries y of a pair :math:`(n + 2)\sum y^4/(\sum y^2)^2` is the kurtosis: 3
on average of Gaussian ones, however few they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.noise.differences import Gram, every_other, gram, kurtoses, mean_fourth, rms, unit_size
from tpca.noise.whitening import Whitening
from tpca.tensors import Accumulator, Batch, DenseBatch, in_full
from tpca.tensors.blocks import Array
from tpca.threads import gathered

SHARED = 2**17  # entries, from which the modes of pairs are worth a second thread
AT_ONCE = 2**17  # entries of differences that are worked on at a time; one pair's where that is more


class PairSums:
    """Gram matrices of all modes over pairs, in two halves: ``grams[half][i]``, sums over ``counts[half]`` pairs."""

    counts: list[int]
    grams: list[list[Gram]]
    fourth: float
    """The sum of the mean fourth powers of the pairs' entries."""
    tails: float
    """The sum of the kurtoses of the pairs' entries, each as many times as there are entries in both samples."""
    seen: int
    """How many these are."""

    def begin_pairs(self) -> None:
        """There is none yet."""
        self.counts, self.grams, self.fourth = [0, 0], [[], []], 0.0
        self.tails, self.seen = 0.0, 0

    def add_pairs(self, other: PairSums) -> None:
        """Add those of other pairs."""
        for half in (0, 1):
            _add_matrices(self.grams[half], other.grams[half])
            self.counts[half] += other.counts[half]
        self.fourth += other.fourth
        self.tails += other.tails
        self.seen += other.seen

    @property
    def pairs(self) -> int:
        """Pairs that differ: those of equal samples say nothing."""
        return sum(self.counts)

    @property
    def gram_bytes(self) -> int:
        """Bytes of the matrices."""
        return sum(gram.nbytes for half in self.grams for gram in half)


class ModeCovariances(PairSums, Accumulator):
    """Gram matrices of all modes over differences of neighbours.

    Samples 2j and 2j + 1 of a reading are a pair, however it is cut into batches and groups; a sample whose neighbour
    has not come yet is held until it does.  ``pairs_before`` is the number of pairs of readings before this one: it
    says whose turn it is, of the two halves.  With a ``whitening`` the differences are whitened first.
    """

    of_few = True

    def __init__(self, whitening: Whitening | None = None, pairs_before: int = 0, step: int = 1) -> None:
        super().__init__(whitening, pairs_before, step)
        self.begin_pairs()
        self._whitening, self._before, self._step = whitening, pairs_before, step  # merging needs them later
        # What is looked at of an odd sample whose neighbour is in the part before, and of an even one whose neighbour
        # has not come yet.
        self._first: list[DenseBatch] | None = None
        self._last: list[DenseBatch] | None = None
        self._place = 0  # of the latter

    def add(self, batch: Batch, at: int = 0) -> None:
        """Take the pairs of a batch; of samples that come in full, many at once."""
        count, j = len(batch), 0
        if isinstance(batch, DenseBatch):
            batch.check()  # now: every other sample would be told by another number
        while j < count:
            place, pairs = at + j, (count - j) // 2
            if isinstance(batch, DenseBatch) and place % 2 == 0 and pairs:
                step = min(pairs, max(1, AT_ONCE // math.prod(batch.dims)))
                even, odd = batch[j : j + 2 * step : 2], batch[j + 1 : j + 2 * step : 2]
                self._pairs(self._looked_at(even), self._looked_at(odd), place // 2)
                j += 2 * step
            else:
                self._take(batch[j : j + 1], place)
                j += 1
        self.n += count

    def merge(self, other: ModeCovariances) -> None:
        """Take the pairs of the samples that come next, and the one that lies across."""
        self.add_pairs(other)
        if self._last is not None and other._first is not None:
            self._pairs(self._last, other._first, self._place // 2)
        self._last, self._place = other._last, other._place
        self.n += other.n

    def finish(self) -> None:
        """A sample without a neighbour is left out."""
        self._first = self._last = None

    @property
    def nbytes(self) -> int:
        """The matrices, and the samples that wait for their neighbours."""
        return self.gram_bytes + sum(int(part.nbytes) for part in (*(self._first or ()), *(self._last or ())))

    def _take(self, sample: Batch, place: int) -> None:
        """Take one sample; what is held is in memory of its own."""
        looked_at = self._looked_at(sample if isinstance(sample, DenseBatch) else in_full(sample))
        if place % 2 == 0:
            self._last, self._place = [part.copied() for part in looked_at], place
        elif self._last is not None:
            self._pairs(self._last, looked_at, place // 2)
            self._last = None
        else:
            self._first = [part.copied() for part in looked_at]

    def _looked_at(self, batch: DenseBatch) -> list[DenseBatch]:
        """Every step-th slice of the first mode, and of the second; all, where whitened or where some are missing."""
        whole = self._step == 1 or self._whitening is not None or batch.measured.exposure is not None
        return [batch] if whole else self._slices(batch)

    def _slices(self, batch: DenseBatch) -> list[DenseBatch]:
        thinned = batch.samples[:, :: self._step, ...], batch.samples[:, :, :: self._step, ...]
        return [DenseBatch(samples, shares=batch.shares) for samples in thinned]

    def _pairs(self, evens: list[DenseBatch], odds: list[DenseBatch], number: int) -> None:
        """Add the Gram matrices of the differences of some pairs, the first of which is pair ``number``."""
        partly = any(one.measured.exposure is not None for one in (evens[0], odds[0]))
        if len(evens) != len(odds):  # of the one with missing entries no more than was kept of the other
            evens, odds = (self._slices(some[0]) if len(some) == 1 else some for some in (evens, odds))
        elif partly:
            self._count(*kurtoses(evens[0].measured, odds[0].measured))
        even, odd = ([one.samples for one in some] for some in (evens, odds))
        shares = _shares(odds[0], evens[0])
        every = [unit_size(others, some, shares) for some, others in zip(even, odd, strict=True)]
        if len(every) == 1:
            ((whole, places),) = every
            whole = self._whitened(whole)
            every = [(whole, places), (whole, places)]
            if self._step > 1:
                every = [(whole[:, :: self._step, ...], places), (whole[:, :, :: self._step, ...], places)]
        for first in range(min(2, odd[0].shape[0])):
            half = (number + first + self._before) % 2
            parts = [every_other(some, places, first) for some, places in every]
            if not (count := parts[0].shape[0]):
                continue
            large = isinstance(even[0], np.ndarray) and even[0].size > SHARED
            grams = gathered(functools.partial(_gram_of, parts), range(even[0].ndim - 1), worth=large)
            _add_matrices(self.grams[half], grams)
            self.counts[half] += count
            size, powers = math.prod(parts[0].shape[1:]), mean_fourth(parts[0])
            self.fourth += powers
            if not partly:
                self._count((size + 2) * powers, size * count)

    def _count(self, tails: float, seen: int) -> None:
        self.tails += tails
        self.seen += seen

    def _whitened(self, differences: Any) -> Any:
        if self._whitening is None or not differences.shape[0]:
            return differences
        differences = self._whitening.tensor(differences)
        return differences / rms(differences)


def _gram_of(parts: Sequence[Any], mode: int) -> Gram:
    """The Gram matrix of a mode: of slices of the second mode for the first, else of those of the first."""
    return gram(parts[mode == 0], mode)


def _shares(odd: DenseBatch, even: DenseBatch) -> tuple[Array, Array] | None:
    """How much of the signal both samples of every pair hold, where that may differ."""
    return None if odd.shares is None or even.shares is None else (odd.shares, even.shares)


def slices_apart(dims: Sequence[int], columns: int) -> int:
    """One slice in how many is to be looked at, for about so many columns of the longest mode."""
    return int(min(min(dims), max(1, math.prod(dims) // (columns * max(dims)))))


def _add_matrices(own: list[Gram], others: Sequence[Gram]) -> None:
    """Add matrices to sums that may not have begun."""
    if not own:
        own += [matrix.copy() for matrix in others]
        return
    for total, matrix in zip(own, others, strict=bool(others)):
        total += matrix
