"""Derived streams: every block of samples as one, by the weights of a plan (:mod:`tpca.streams.contrasts`).

What comes out is an ordinary stream, whose mean is the effect asked for: all solvers and engines read it as they read
any other.  Stored samples are read in the order of the plan, by whoever reads them, also by workers.  Samples that pass
by once are summed up as they come (:mod:`tpca.streams.running`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError
from tpca.streams.checks import all_finite, to_floats, usable
from tpca.streams.plan import Plan
from tpca.streams.protocol import Layout, NumberedStream
from tpca.streams.slabs import cut
from tpca.streams.stored import SLAB_ENTRIES, SLAB_SAMPLES, StoredStream, even_edges
from tpca.tensors import Batch, DenseBatch, SlabBatch
from tpca.tensors.blocks import Array
from tpca.tensors.dense import missing
from tpca.tensors.digest import digest

Run = tuple[int, int]


class DerivedBatch(DenseBatch):
    """Derived samples; the ones that they were made of count as held, too, where they had to be read for it."""

    def __init__(
        self,
        samples: NDArray[Any],
        first: int,
        dropped: int,
        read_bytes: int,
        shares: Array | None = None,
        exposure: Array | None = None,
    ) -> None:
        super().__init__(samples, first, dropped, shares=shares, exposure=exposure)
        self._read_bytes = read_bytes

    def __getitem__(self, some: slice) -> DerivedBatch:
        shares, exposure = self.shares_of(some), self.exposure_of(some)
        return DerivedBatch(self._samples[some], 0, 0, self._read_bytes, shares, exposure)

    @property
    def nbytes(self) -> int:
        """Bytes of the derived samples, and of those they were made of."""
        return super().nbytes + self._read_bytes


class DerivedStream(NumberedStream):
    """Stored samples, block by block of a plan; may be read again, in any order, by anyone who can read the samples."""

    rereadable = True

    def __init__(self, stream: StoredStream, plan: Plan) -> None:
        if stream.shuffle is not None:
            raise StreamError(
                "shuffle=True is for the mean of all samples; with y, groups or sample_weight they are put into blocks "
                "by what is known of them: leave it out."
            )
        if not stream.whole and stream.nan_policy != "raise":
            raise StreamError(
                f"nan_policy={stream.nan_policy!r} with y, groups or sample_weight is for samples that can be held "
                f"whole, these have {math.prod(stream.dims):,} entries; fill in what is missing first."
            )
        self._stream, self._plan = stream, plan
        self.dims = stream.dims if plan.basis is None else (plan.weights.shape[1], *stream.dims)
        self.dtype, self.kind, self.length = stream.dtype, stream.kind, len(plan)
        self.whole, self.ahead = stream.whole, int(stream.kind != "array" and stream.whole)
        self.labels = stream.labels if plan.basis is None else None
        self.readable_elsewhere, self.nan_policy = stream.readable_elsewhere, stream.nan_policy
        certain, private = stream.nan_policy == "raise", stream.kind == "array"
        bounds = even_edges(len(plan), self._step)
        alone = stream.layout.alone
        self.layout = Layout(bounds, certain, math.prod(self.dims), self.whole, alone, private)

    @cached_property
    def identity(self) -> str:
        """Which samples, and which blocks of them with which weights."""
        plan = self._plan
        order = plan.starts if plan.order is None else plan.order
        return f"{self._stream.identity} blocks {digest([plan.starts, plan.stops, order, plan.weights])}"

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Batch:
        """Derived samples ``number``; it may be empty, where samples are missing."""
        first, stop = self._range(number)
        if not self.whole:
            return self._slab_batch(np.arange(first, stop), first)
        places = slice(int(self._plan.starts[first]), int(self._plan.stops[stop - 1]))
        rows = self._rows(places, parts)
        derived = [self._derived(block, rows, places.start) for block in range(first, stop)]
        found = [one for one in derived if one is not None]
        samples, exposure = self._stacked(found)
        shares = self._plan.shares[first:stop][[one is not None for one in derived]] if exposure is None else None
        held = 0 if self.kind == "array" and self._plan.order is None else rows.nbytes
        return DerivedBatch(samples, first, len(derived) - len(found), held, shares, exposure)

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The samples of a batch as Dask arrays, one for every run of neighbours, if they are in one."""
        if self.kind != "dask":
            return None
        first, stop = self._range(number)
        places = slice(int(self._plan.starts[first]), int(self._plan.stops[stop - 1]))
        return [self._stream.lazy_range(a, b) for a, b in _runs(np.sort(self._samples(places)))]

    def for_workers(self) -> Self:
        """What a worker needs of it."""
        twin = copy.copy(self)
        twin._stream = self._stream.for_workers()
        return twin

    @property
    def _step(self) -> int:
        """Blocks of a batch: as many as have about the samples of a batch of the stream.

        Samples of a block that lie far apart are read in runs, which should be no shorter than a chunk.
        """
        if not self.whole:
            return SLAB_SAMPLES
        plan, layout = self._plan, self._stream.layout
        length = max(1.0, float(np.mean(plan.stops - plan.starts))) if len(plan) else 1.0
        step = max(1, int(np.diff(layout.bounds).max() / length))
        chunks = self._stream.chunks
        return step if plan.order is None or chunks is None else max(step, chunks[0])

    def _samples(self, places: slice) -> NDArray[np.intp]:
        order = self._plan.order
        return np.arange(places.start, places.stop) if order is None else order[places]

    def _rows(self, places: slice, parts: Sequence[NDArray[Any]] | None) -> NDArray[Any]:
        """The samples of some places, in their order."""
        numbers = self._samples(places)
        if self.kind == "array" and self._plan.order is not None:
            return to_floats(self._stream.rows(0, self._stream.length)[numbers])
        turned = np.sort(numbers)
        read = parts if parts is not None else [self._stream.rows(a, b) for a, b in _runs(turned)]
        rows = to_floats(read[0] if len(read) == 1 else np.concatenate(read))
        return rows if np.array_equal(turned, numbers) else rows[np.searchsorted(turned, numbers)]

    def _stacked(self, found: list[tuple[NDArray[Any], Array | None]]) -> tuple[NDArray[Any], Array | None]:
        """Derived samples as one array, and their exposures, which all contrasts of labels share."""
        none = np.empty((0, *self.dims), self.dtype)
        samples = np.stack([one for one, _ in found]).reshape(-1, *self.dims) if found else none
        if not self.partial:
            return samples, None
        if not found:
            return none, np.empty(none.shape)
        each = [np.broadcast_to(counted, one.shape) for one, counted in found if counted is not None]
        return samples, np.stack(each).reshape(samples.shape)

    def _derived(self, block: int, rows: NDArray[Any], start: int) -> tuple[NDArray[Any], Array | None] | None:
        """One derived sample, and how much its entries count where some may be missing.

        ``None`` where too little of its samples is there.
        """
        places = slice(int(self._plan.starts[block]), int(self._plan.stops[block]))
        own = rows[places.start - start : places.stop - start]
        weights: Array | None = self._plan.weights[places]
        if self.nan_policy != "raise" and not all_finite(own):
            if self.partial:
                return self._partly(block, own.reshape(len(own), -1))
            own, _, kept = usable(own, "omit")
            assert kept is not None
            weights = self._plan.without(block, kept)
        if weights is None:
            return None
        derived = weights.T.astype(own.dtype) @ own.reshape(len(own), -1)
        if self.nan_policy == "raise" and not all_finite(derived):
            finite = np.isfinite(own).reshape(len(own), -1).all(axis=1)
            if not finite.all():
                raise missing(int(self._samples(places)[np.argmin(finite)]))
        return np.asarray(derived), np.array([self._plan.shares[block]]) if self.partial else None

    def _partly(self, block: int, own: NDArray[Any]) -> tuple[NDArray[Any], Array] | None:
        """A derived sample of flat ones with missing entries."""
        observed = np.isfinite(own)
        derived, exposure = self._plan.partly(block, np.where(observed, own, 0.0).astype(np.float64), observed)
        return (derived.astype(self.dtype), exposure) if exposure.any() else None

    def _slab_batch(self, blocks: NDArray[np.int64], first: int) -> SlabBatch:
        """Samples too large to be held: a slab of a derived one is made of the slabs of its samples."""
        chunks = self._stream.chunks
        more = 1 if self._plan.basis is not None else 0
        mode, parts = cut(self._stream.dims, None if chunks is None else chunks[1:], SLAB_ENTRIES)

        def read(block: int, part: slice) -> NDArray[Any]:
            places = slice(int(self._plan.starts[block]), int(self._plan.stops[block]))
            total: NDArray[Any] | None = None
            for number, weight in zip(self._samples(places), self._plan.weights[places], strict=True):
                slab = to_floats(self._stream.rows(int(number), int(number) + 1, *[slice(None)] * mode, part))[0]
                if not all_finite(slab):
                    raise missing(int(number))
                added = weight.astype(slab.dtype).reshape(-1, *[1] * slab.ndim) * slab
                total = added if total is None else total + added
            assert total is not None
            return total if more else total[0]

        return SlabBatch(self.dims, mode + more, parts, blocks, read, first, shares=self._plan.shares[blocks])


def _runs(numbers: NDArray[np.intp]) -> list[Run]:
    """Sorted numbers as ranges of neighbours."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    firsts, lasts = numbers[np.concatenate([[0], breaks])], numbers[np.concatenate([breaks - 1, [len(numbers) - 1]])]
    return [(int(a), int(b) + 1) for a, b in zip(firsts, lasts, strict=True)]
