r"""Samples too large to be held: read and contracted slab by slab.

A slab is a range of one mode.  With that mode in block m, a slab of the sum of some samples gives the rows of
:math:`\nabla_m R` that belong to its range, and adds to the gradients of all other blocks:

.. math::
    \nabla_i R = \sum_{slabs} T_{slab} \text{ contracted with } w_m|_{slab}
    \text{ and all other } w_j,\ j \ne i .
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array, Partition
from tpca.tensors.contraction import Query, gradients_of
from tpca.tensors.dense import DenseBatch, observed_share, pair_vectors, square_of_pairs

Read = Callable[[int, slice], NDArray[Any]]


class SlabBatch:
    """The stored samples ``indices``, of shape ``dims``; ``read(index, part)`` reads a range of ``mode`` of one.

    Where entries may be missing they are read as 0, and ``observed`` reads which are there, as ones and zeros.
    """

    summable = False

    def __init__(
        self,
        dims: tuple[int, ...],
        mode: int,
        parts: Sequence[slice],
        indices: NDArray[np.integer[Any]],
        read: Read,
        first: int = 0,
        dropped: int = 0,
        observed: Read | None = None,
    ) -> None:
        self.dims, self.mode, self.parts, self.indices = dims, mode, list(parts), indices
        self.first, self.dropped = first, dropped
        self._read, self._observed = read, observed

    @property
    def exposure(self) -> SlabBatch | None:
        """Which entries are there, as samples of ones and zeros; ``None``: all of them."""
        if self._observed is None:
            return None
        return SlabBatch(self.dims, self.mode, self.parts, self.indices, self._observed)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, some: slice) -> SlabBatch:
        own = self.indices[some]
        return SlabBatch(self.dims, self.mode, self.parts, own, self._read, self.first, observed=self._observed)

    @property
    def nbytes(self) -> int:
        """Bytes in flight: the sum of a slab, the slab that is added, and a copy in the order of the blocks."""
        longest = max(int(part.stop - part.start) for part in self.parts)
        return 3 * 8 * math.prod(self.dims) // self.dims[self.mode] * longest

    def content(self) -> Iterator[NDArray[Any]]:
        """The two ends of the first sample: the others may not have been read yet, and all of them would take long."""
        return (self._read(int(i), part) for i in self.indices[:1] for part in (self.parts[0], self.parts[-1]))

    @property
    def places(self) -> NDArray[np.integer[Any]]:
        """The number of every sample in its stream."""
        return self.indices

    @property
    def observed_sums(self) -> Callable[[Array], Array] | None:
        """Sums of which entries were observed; ``None`` where all were."""
        exposure = self.exposure
        return None if exposure is None else exposure.weighted_sums

    def weighted_sums(self, weights: Array) -> Array:
        """Sums (c, *dims) of the samples, each times a row of ``weights`` (n, c), slab by slab."""
        total = np.zeros((weights.shape[1], *self.dims))
        for index, row in zip(self.indices, weights, strict=True):
            for part in self.parts:
                slab = self._read(int(index), part)
                total[(slice(None),) * (1 + self.mode) + (part,)] += np.multiply.outer(row, slab)
        return total

    def dense_pieces(self, most: int = 0) -> Iterator[tuple[slice, Array, NDArray[Any] | None]]:  # noqa: ARG002
        """The samples in full, one after the other."""
        for j in range(len(self)):
            one = self[j : j + 1]
            exposure = one.exposure
            seen = None if exposure is None else exposure.samples()
            yield slice(j, j + 1), one.samples().astype(np.float64), seen

    def stored_pieces(self, most: int) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any] | None]]:  # noqa: ARG002
        """The samples in full, in the dtype in which they are read, one after the other."""
        for number in range(len(self)):
            batch = self[number : number + 1]
            exposure = batch.exposure
            seen = None if exposure is None else exposure.samples()
            yield slice(number, number + 1), batch.samples(), seen

    def check(self) -> None:
        """Nothing is left to be looked for: slabs were checked when they were read."""

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Every slab is read once, for all samples and all queries."""
        if not len(self):
            return
        for part in self.parts:
            slab = self._sum_slab(part)
            for query, own in zip(queries, sums, strict=True):
                block = next(m for m, group in enumerate(query.partition.groups) if self.mode in group)
                place = query.partition.groups[block].index(self.mode)
                rows = (slice(None),) * (1 + place) + (part,)  # those of the block that belong to the slab
                replicas = tuple(w[rows] if m == block else w for m, w in enumerate(query.replicas))
                for found in gradients_of(slab, [dataclasses.replace(query, replicas=replicas, traced=())]):
                    for m, gradient in found.gradients.items():
                        target = own[m][found.some][rows] if m == block else own[m][found.some]
                        target += gradient.reshape(target.shape)

    def add_to(self, total: NDArray[Any] | None) -> NDArray[Any]:
        """Add the sum of the samples to ``total``, slab by slab."""
        own: Array = self.weighted_sums(np.ones((len(self), 1)))[0]
        return own if total is None else own + total

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients of every sample, built in full one after the other."""
        each = (self[j : j + 1].samples() for j in range(len(self)))
        return np.concatenate([DenseBatch(one).sample_gradients(query, at + j) for j, one in enumerate(each)])

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``.

        Of a sample with missing entries, that of least squares over the others, as of dense ones.
        """
        rewards, exposure = self._contracted(vectors), self.exposure
        if exposure is None:
            return rewards
        return rewards / observed_share(exposure._contracted([v**2 for v in vectors]), vectors)

    def observed_products(self, vectors: Sequence[Array]) -> Array | None:
        """Inner products ``(n, c, c)`` of components over the observed entries of every sample; None where all are."""
        exposure = self.exposure
        if exposure is None:
            return None
        return square_of_pairs(exposure._contracted(pair_vectors(vectors)), len(vectors[0]))

    def _contracted(self, vectors: Sequence[Array]) -> Array:
        query = Query(Partition.singles(self.dims), tuple(vectors), gradients_of=(0,))
        total = np.zeros((len(self), len(vectors[0])))
        for place in range(len(self)):
            sums: dict[int, Array] = {0: np.zeros(vectors[0].shape)}
            self[place : place + 1].add_gradients([query], [sums])
            total[place] = np.einsum("ci,ci->c", sums[0], vectors[0])
        return total

    def samples(self) -> NDArray[Any]:
        """The samples in full, for those who can hold them."""
        read = [[self._read(int(i), part) for part in self.parts] for i in self.indices]
        return np.stack([np.concatenate(slabs, axis=self.mode) for slabs in read])

    def _sum_slab(self, part: slice) -> NDArray[Any]:
        first, *others = (int(i) for i in self.indices)
        total = self._read(first, part)
        if others:
            total = total.copy()
        for index in others:
            total += self._read(index, part)
        return total
