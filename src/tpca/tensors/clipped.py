r"""Samples whose entries are clipped as they are added up: heavy tails cost nothing then.

An entry x counts as :math:`\psi(x) = \max(-b, \min(x, b))` with a bound of product form,
:math:`b = c\, s_1(a_1)\cdots s_{\bar k}(a_{\bar k})`, so that rows of different scale are clipped alike.  ψ is odd:
noise that is symmetric stays so, and has mean zero.  Where a signal is small against b it is seen times the share of
the entries within the bound.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError
from tpca.jit import compiled
from tpca.tensors.accumulators import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.dense import DenseBatch
from tpca.tensors.device import AT_ONCE, DeviceBatch
from tpca.tensors.namespaces import bytes_of, cast, joined, namespace, to_device, to_host, working_like
from tpca.tensors.together import Together

TILE = 2**11  # entries of a sum that stay in the fastest cache while all samples are added to them


class ClippedBatch(DenseBatch):
    """Dense samples that count clipped at ``bound``, an array of the shape of one sample."""

    def __init__(self, batch: DenseBatch, bound: NDArray[Any]) -> None:
        # Looked at: an infinite entry must not be clipped.
        super().__init__(batch.samples, batch.first, batch.dropped, shares=batch.shares, exposure=batch.exposure)
        self.bound = bound
        self.beyond = np.zeros(2, np.int64)  # entries above and below the bound, of those added up
        self._clipped: NDArray[Any] | None = None

    @property
    def samples(self) -> NDArray[Any]:
        """The clipped samples, a copy."""
        if self._clipped is None:
            self._clipped = np.clip(self._samples, -self.bound, self.bound)
        return self._clipped

    def __getitem__(self, some: slice) -> ClippedBatch:
        inner = DenseBatch(self._samples[some], shares=self.shares_of(some), exposure=self.exposure_of(some))
        part = ClippedBatch(inner, self.bound)
        part.beyond = self.beyond  # what is added up of a part is, of the whole
        return part

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Clip and add up in one go: every entry is read once, no copy is made."""
        if total is None:
            total = np.zeros(self._samples.shape[1:], self._samples.dtype)
        flat, sums = self._samples.reshape(len(self), -1), total.reshape(-1)
        self.beyond += compiled(_add_clipped)(flat, self.bound.reshape(-1), sums, flat.dtype.type(weight), TILE)
        return total


class ClippedThere(DeviceBatch):
    """The same on the device of the samples."""

    def __init__(self, batch: DeviceBatch, bound: Any) -> None:
        batch.check()
        known = (batch.first, batch.dropped, None, batch.shares, batch.exposure)
        super().__init__(batch._samples, *known, (batch._start, batch._stop))
        self.bound, self.beyond = bound, np.zeros(2, np.int64)

    def pieces(self, most: int = AT_ONCE) -> Iterator[Any]:
        """The clipped samples, some at a time."""
        xp = namespace(self.bound)
        for piece in super().pieces(min(most, AT_ONCE)):
            yield xp.minimum(xp.maximum(piece, -self.bound), self.bound)

    @property
    def samples(self) -> Any:
        """The clipped samples, a copy."""
        return joined(list(self.pieces()))

    def __getitem__(self, some: slice) -> ClippedThere:
        part = ClippedThere(super().__getitem__(some), self.bound)
        part.beyond = self.beyond
        return part

    def add_to(self, total: Any, weight: float = 1.0) -> Any:
        """Clip and add up, some samples at a time; count what is beyond the bound."""
        xp = namespace(self.bound)
        for piece in super().pieces():
            sides = [xp.sum(cast(piece > self.bound, xp.int32)), xp.sum(cast(piece < -self.bound, xp.int32))]
            self.beyond += to_host(xp.stack(sides))
        return super().add_to(total, weight)

    def _add(self, total: Any, weight: float) -> Any:
        return self._add_products(total, weight)


class Clipped(Together):
    """Several accumulators, filled with the same clipped samples; ``scales`` are c·s_1, s_2, ..., of the data.

    ``beyond`` counts the entries above and below the bound: as many of each where the noise is symmetric.
    """

    of_few = True  # a mean of clipped samples has no law that could be drawn from

    def __init__(self, parts: Sequence[Accumulator], scales: Sequence[Array]) -> None:
        Accumulator.__init__(self, tuple(parts), tuple(scales))
        self.parts = tuple(part.fresh() for part in parts)
        self.beyond = np.zeros(2, np.int64)
        self._bound: Any = None

    def add(self, batch: Any, at: int) -> None:
        """Hand the clipped samples to every part."""
        assert self.question is not None
        if not isinstance(batch, DenseBatch):
            raise StreamError(
                f"clip needs samples that come whole, as arrays, got a {type(batch).__name__}; use clip=None."
            )
        if self._bound is None:
            self._bound = self._bound_for(batch)
        kind: Any = ClippedThere if isinstance(batch, DeviceBatch) else ClippedBatch
        clipped = kind(batch, self._bound)
        super().add(clipped, at)
        self.beyond += clipped.beyond

    def _bound_for(self, batch: DenseBatch) -> Any:
        """The bound on every entry, where the samples are."""
        assert self.question is not None
        bound = functools.reduce(np.multiply.outer, self.question[1])
        if isinstance(batch, DeviceBatch):
            return to_device(bound, working_like(batch._samples))
        return bound.astype(batch.content()[0].dtype)

    def merge(self, other: Together) -> None:
        """Every part takes what its fellow has."""
        assert isinstance(other, Clipped)
        super().merge(other)
        self.beyond += other.beyond

    def close(self) -> None:
        """A group of batches is complete: the bound is made anew for the next."""
        super().close()
        self._bound = None

    def for_worker(self, sum_bytes: int | None) -> Clipped:
        """What a worker needs of every part, and where to clip."""
        assert self.question is not None
        return Clipped([part.for_worker(sum_bytes) for part in self.parts], self.question[1])

    @property
    def nbytes(self) -> int:
        """Those of the parts, and the bound."""
        return super().nbytes + (0 if self._bound is None else bytes_of(self._bound))


def _add_clipped(samples: Any, bound: Any, sums: Any, weight: Any, tile: int) -> Any:
    """``sums += weight * clip(samples)``, tile by tile; returns how many entries were above and below the bound.

    Without branches, so that it becomes vector instructions.
    """
    above = below = 0
    for start in range(0, sums.size, tile):
        stop = min(start + tile, sums.size)
        b, own = bound[start:stop], sums[start:stop]
        for i in range(samples.shape[0]):
            x = samples[i, start:stop]
            high = low = 0
            for j in range(x.size):
                own[j] += weight * min(max(x[j], -b[j]), b[j])
                high += x[j] > b[j]
                low += x[j] < -b[j]
            above += high
            below += low
    return np.array([above, below])
