r"""Second moments about the mean of every sub-batch: how samples vary, whatever they have in common.

A reading is cut at ``edges``, known before.  In a sub-batch of m samples the products of
:mod:`tpca.solvers.variance.products` are summed about its own mean, :math:`\sum_j q(T_j - \bar T)`, which has m − 1
degrees of freedom: neither a background nor what drifts more slowly than a sub-batch is in it.  Two parts of one
sub-batch, of m and n samples, are put together as

.. math:: q_1 + q_2 + \frac{mn}{m + n}\,q(\bar T_2 - \bar T_1) ,

since q is quadratic; so the means of sub-batches that are not complete are held, those of others are not.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.errors import StreamError
from tpca.solvers.variance.products import Contraction, SecondMoments
from tpca.tensors import Accumulator, Batch, DenseBatch
from tpca.tensors.blocks import Array

AT_ONCE = 2**20  # entries of samples that are worked on at once


@dataclass
class Part:
    """Some samples of one sub-batch: how many, their mean, and the products about it."""

    n: int
    mean: Array
    moments: SecondMoments


class Variances(Accumulator):
    """Second moments of samples with ``queries``, about the means of sub-batches: ``moments``, of ``freedom`` degrees.

    ``queries[i]`` is (R, d_i), ``known[i]`` (C, d_i), of which number ``spared`` is left in; ``edges`` begin with 0 and
    end with the samples asked for.  ``by_part`` are, of the first query, those of every sub-batch, with ``freedoms``.
    """

    def __init__(
        self,
        queries: Sequence[Array],
        known: Sequence[Array],
        edges: Sequence[int],
        grams: bool = False,
        spared: int | None = None,
        rotations: Sequence[Array] = (),
        pairs: bool = False,
    ) -> None:
        super().__init__(list(queries), list(known), tuple(edges), grams, spared, list(rotations), pairs)
        # It stays with every part, small as it is: two of one sub-batch are put together with it, wherever they are.
        self._asked = (list(queries), list(known), spared, grams, list(rotations), pairs)
        self._edges = tuple(edges)
        self.moments: SecondMoments | None = None
        self.freedom = 0
        self._open: dict[int, Part] = {}
        self._closed: dict[int, tuple[int, SecondMoments]] = {}
        self._contraction: Contraction | None = None

    @property
    def _ready(self) -> Contraction:
        if self._contraction is None:
            self._contraction = Contraction(*self._asked)
        return self._contraction

    def add(self, batch: Batch, at: int) -> None:
        """Take the samples, sub-batch after sub-batch."""
        if not isinstance(batch, DenseBatch):
            raise StreamError(
                f"target='variance' needs samples that come whole, got a {type(batch).__name__}; give dense arrays."
            )
        place, end = at, at + len(batch)
        while place < end:
            j = min(bisect.bisect_right(self._edges, place), len(self._edges) - 1) - 1
            stop = end if j == len(self._edges) - 2 else min(end, self._edges[j + 1])
            self._put(j, self._part(batch.samples[place - at : stop - at]))
            place = stop
        self.n += len(batch)

    def _part(self, samples: Any) -> Part:
        """Samples about their own mean, a few at once."""
        mean = samples.mean(axis=0, dtype=np.float64)
        step = max(1, AT_ONCE // max(1, mean.size))
        pieces = [self._ready.of(samples[j : j + step] - mean) for j in range(0, len(samples), step)]
        for piece in pieces[1:]:
            pieces[0].add(piece)
        return Part(len(samples), mean, pieces[0])

    def _put(self, j: int, part: Part) -> None:
        """Put more samples of sub-batch ``j`` to those there are; a complete one is closed."""
        if (own := self._open.pop(j, None)) is not None:
            apart = part.mean - own.mean
            weight = own.n * part.n / (own.n + part.n)
            own.moments.add(part.moments)
            own.moments.add(self._ready.of(apart[None]), weight)
            part = Part(own.n + part.n, own.mean + apart * (part.n / (own.n + part.n)), own.moments)
        if part.n == self._edges[j + 1] - self._edges[j]:
            self._close(j, part)
        else:
            self._open[j] = part

    def _close(self, j: int, part: Part) -> None:
        if part.n < 2:
            return
        self._closed[j] = (part.n - 1, part.moments.of_first())
        self._count(part.n - 1, part.moments)

    def _count(self, freedom: int, moments: SecondMoments) -> None:
        self.freedom += freedom
        if self.moments is None:
            self.moments = moments
        else:
            self.moments.add(moments)

    def merge(self, other: Variances) -> None:
        """Take the samples that come next; a sub-batch may have some in both."""
        self._closed |= other._closed
        if other.moments is not None:
            self._count(other.freedom, other.moments)
        for j, part in other._open.items():
            self._put(j, part)
        self.n += other.n

    def finish(self) -> None:
        """Close what is left open at the end of the samples; sums become means."""
        for j in sorted(self._open):
            self._close(j, self._open[j])
        self._open = {}
        if self.moments is not None:
            self.moments.divide(self.freedom)
        for freedom, moments in self._closed.values():
            moments.divide(freedom)

    @property
    def by_part(self) -> list[SecondMoments]:
        """Of the first query, for every sub-batch of two samples or more."""
        return [self._closed[j][1] for j in sorted(self._closed)]

    @property
    def freedoms(self) -> Array:
        """Degrees of freedom of those."""
        return np.array([float(self._closed[j][0]) for j in sorted(self._closed)])

    @property
    def nbytes(self) -> int:
        """The sums, and the means of sub-batches that are not complete."""
        held = 0 if self.moments is None else self.moments.nbytes
        held += sum(moments.nbytes for _, moments in self._closed.values())
        return held + sum(part.mean.nbytes + part.moments.nbytes for part in self._open.values())

    def __getstate__(self) -> dict[str, Any]:
        """What travels: not what only contractions need."""
        return {**self.__dict__, "_contraction": None}
