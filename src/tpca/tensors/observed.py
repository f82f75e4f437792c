r"""Samples with missing entries, brought to what they estimate without holding a number for every entry.

A sample with its missing entries as 0 has the mean :math:`\rho_e\bar T_e`, with :math:`\rho_e` the rate at which entry
e is observed.  Of every mode m the rates :math:`r_m(a)` of its slices are counted, Σd numbers, and with the rate
:math:`\bar r` of all entries

.. math:: \rho_e \approx \bar r\prod_m \frac{r_m(e_m)}{\bar r}, \qquad
    f_0 = \frac1{r_0}, \quad f_m = \frac{\bar r}{r_m}\ (m > 0), \qquad \tilde T_e = T_e\prod_m f_m(e_m) ,

which is exact where an entry is observed at a rate of product form: some channels less often than others, some times
less often than others.  A slice that was never observed stays 0.  Rates are those of all samples so far, the batch that
is scaled by them included: they depend on what is missing, not on what was measured, and so a test that takes the noise
to be symmetric holds as it does for complete samples.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.tensors.accumulators import Accumulator, added
from tpca.tensors.blocks import Array
from tpca.tensors.dense import DenseBatch, copied
from tpca.tensors.exposure import exposure_sum
from tpca.tensors.namespaces import to_device
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Query
from tpca.tensors.together import Together
from tpca.tensors.wrapped import WrappedBatch

SAME = 1e-12  # rates that differ by less are the same but for rounding


@kept
class SliceCounts:
    """How much the entries of every slice of every mode counted in ``n`` samples; never changed, only made anew."""

    def __init__(self, dims: Sequence[int], n: int = 0, slices: Sequence[Array] | None = None) -> None:
        self.dims, self.n = tuple(dims), n
        self.slices = [np.zeros(d) for d in dims] if slices is None else list(slices)

    @classmethod
    def of(cls, batch: Any, dims: Sequence[int]) -> SliceCounts:
        """Those of a batch."""
        return cls.of_entries(exposure_sum(batch), len(batch), dims)

    @classmethod
    def of_entries(cls, total: Array | None, n: int, dims: Sequence[int]) -> SliceCounts:
        """From how much every entry counted; ``None``: ``n`` times."""
        modes = range(len(dims))
        if total is None:
            return cls(dims, n, [np.full(dims[m], n * math.prod(dims) / dims[m]) for m in modes])
        return cls(dims, n, [total.sum(axis=tuple(i for i in modes if i != m)) for m in modes])

    def plus(self, other: SliceCounts) -> SliceCounts:
        """Those of both."""
        slices = [own + others for own, others in zip(self.slices, other.slices, strict=True)]
        return SliceCounts(self.dims, self.n + other.n, slices)

    @property
    def rates(self) -> tuple[Array, ...]:
        """r_m of every mode: 1 where all entries of a slice were observed in all samples."""
        whole = max(1, self.n) * math.prod(self.dims)
        return tuple(own * (d / whole) for own, d in zip(self.slices, self.dims, strict=True))

    @property
    def share(self) -> float:
        """The rate of all entries together."""
        return float(np.mean(self.rates[0]))

    @property
    def complete(self) -> bool:
        """Whether nothing was missing."""
        return all(bool(np.all(np.abs(rate - 1) <= SAME)) for rate in self.rates)

    def factors(self) -> tuple[Array, ...]:
        """f_m of every mode."""
        share = self.share
        over = [np.where(rate > 0, share / np.where(rate > 0, rate, 1.0), 0.0) for rate in self.rates]
        return (over[0] / share if share > 0 else over[0], *over[1:])

    @property
    def nbytes(self) -> int:
        """The counts."""
        return sum(own.nbytes for own in self.slices)


class Observed(Together):
    """Several accumulators, filled with the same samples, ``scaled`` by the rates of their entries.

    ``before`` are the counts of all samples before; ``counts`` those of the samples that were added.  Where not
    ``scaled`` the samples are handed on as they are, and only counted.
    """

    def __init__(self, parts: Sequence[Accumulator], before: SliceCounts, scaled: bool = True) -> None:
        super().__init__(parts)
        self.question = (tuple(parts), before, scaled)
        self.counts = SliceCounts(before.dims)

    def add(self, batch: Any, at: int) -> None:
        """Hand the scaled samples to every part."""
        assert self.question is not None
        _, before, scaled = self.question
        own = SliceCounts.of(batch, before.dims)
        self.counts = self.counts.plus(own)
        known = before.plus(own)
        if scaled and not known.complete:
            kind: Any = ScaledDense if isinstance(batch, DenseBatch) else ScaledBatch
            batch = kind(batch, known.factors())
        super().add(batch, at)

    def merge(self, other: Together) -> None:
        """Every part takes what its fellow has."""
        assert isinstance(other, Observed)
        super().merge(other)
        self.counts = self.counts.plus(other.counts)

    def for_worker(self, sum_bytes: int | None) -> Observed:
        """What a worker needs of every part, and the counts before."""
        assert self.question is not None
        return Observed([part.for_worker(sum_bytes) for part in self.parts], *self.question[1:])

    @property
    def nbytes(self) -> int:
        """Those of the parts, and the counts."""
        return super().nbytes + self.counts.nbytes


class ScaledDense(DenseBatch):
    """Dense samples times a factor for every slice of every mode."""

    def __init__(self, batch: DenseBatch, factors: Sequence[Array]) -> None:
        super().__init__(batch.samples, batch.first, batch.dropped)
        self._batch, self._factors = batch, factors
        self._scaled: NDArray[Any] | None = None

    @property
    def samples(self) -> NDArray[Any]:
        """The scaled samples, a copy."""
        if self._scaled is None:
            self._scaled = _scaled(copied(self._samples), self._factors)
        return self._scaled

    def __getitem__(self, some: slice) -> ScaledDense:
        return ScaledDense(self._batch[some], self._factors)

    @property
    def measured(self) -> DenseBatch:
        """The samples before they were scaled."""
        return self._batch

    def copied(self) -> ScaledDense:
        """The same samples, in memory of their own."""
        return ScaledDense(self._batch.copied(), self._factors)

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add the samples up, and scale the sum."""
        own = self._batch.add_to(None, weight)
        own = _scaled(own, self._factors)
        summed: NDArray[Any] = added(total, own)
        return summed


class ScaledBatch(WrappedBatch):
    """Samples in whatever form they come: queries and answers are scaled, never the samples."""

    def __init__(self, batch: Batch, factors: Sequence[Array]) -> None:
        super().__init__(batch)
        self._factors = factors

    def __getitem__(self, some: slice) -> ScaledBatch:
        return ScaledBatch(self._batch[some], self._factors)

    @property
    def dense(self) -> ScaledDense:
        """The same samples, each in full."""
        return ScaledDense(in_full(self._batch), self._factors)

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add the samples up, and scale the sum."""
        own = self._batch.add_to(None, weight)
        own = _scaled(own, self._factors)
        summed: NDArray[Any] = added(total, own)
        return summed

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Ask with scaled replicas, and scale the answers."""
        asked = [self._query(query) for query in queries]
        found = [{m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in asked]
        self._batch.add_gradients(asked, found)
        for query, own, gradients in zip(queries, sums, found, strict=True):
            for m, gradient in gradients.items():
                own[m] += gradient * self._of_block(query, m)

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients of every sample."""
        (block,) = query.blocks
        return self._batch.sample_gradients(self._query(query), at) * self._of_block(query, block)

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward of every sample with every rank-one component."""
        return self._batch.scores([v * f for v, f in zip(vectors, self._factors, strict=True)])

    def _query(self, query: Query) -> Query:
        replicas = tuple(np.asarray(w * self._of_block(query, m), dtype=w.dtype) for m, w in enumerate(query.replicas))
        return dataclasses.replace(query, replicas=replicas, traced=(), deflate=())

    def _of_block(self, query: Query, block: int) -> Array:
        """The factors of the modes of a block, in its shape."""
        own = [self._factors[n] for n in query.partition.groups[block]]
        return np.asarray(functools.reduce(np.multiply.outer, own))


def in_full(sample: Any) -> DenseBatch:
    """One sample in whatever form it comes as an array."""
    if isinstance(sample, ScaledBatch):
        return sample.dense
    exposure = exposure_sum(sample)
    return DenseBatch(np.asarray(sample.add_to(None))[None], exposure=None if exposure is None else exposure[None])


def _scaled(out: Any, factors: Sequence[Array]) -> Any:
    """Some tensors times the factors of their modes, which come last; in place where that is possible."""
    for mode, factor in enumerate(factors):
        out *= to_device(factor.reshape(-1, *[1] * (len(factors) - 1 - mode)), out)
    return out
