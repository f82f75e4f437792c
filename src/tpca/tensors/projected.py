"""Samples that count projected (:mod:`tpca.tensors.projection`), and accumulators that are filled with these.

Sums are projected, not samples: a batch is added up as it is.  Single samples are projected for those few who look at
them, which tell of the noise, and where entries are clipped, which is not linear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.accumulators import Accumulator, added
from tpca.tensors.blocks import Array
from tpca.tensors.dense import DenseBatch
from tpca.tensors.projection import Projection
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Query
from tpca.tensors.together import Together
from tpca.tensors.wrapped import WrappedBatch


class ProjectedBatch(WrappedBatch):
    """Samples in whatever form they come, which are contracted as they are."""

    def __init__(self, batch: Batch, projection: Projection) -> None:
        super().__init__(batch)
        self._projection = projection

    def __getitem__(self, some: slice) -> ProjectedBatch:
        return ProjectedBatch(self._batch[some], self._projection)

    def add_to(self, total: Any, weight: float = 1.0) -> Any:
        """Add the samples up, and project the sum."""
        return _added(self._batch, self._projection, total, weight)

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Ask the samples for what is orthogonal to the vectors, and bring the answers to the basis of that."""
        asked = [self._projection.query(query) for query in queries]
        found = [{m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in asked]
        self._batch.add_gradients(asked, found)
        for query, own, gradients in zip(queries, sums, found, strict=True):
            for m, gradient in self._projection.gradients(query, gradients).items():
                own[m] += gradient

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients of every sample."""
        gradients = self._batch.sample_gradients(self._projection.query(query), at)
        (block,) = query.blocks
        return self._projection.gradients(query, {block: gradients})[block]

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward of every sample with every rank-one component."""
        return self._batch.scores(self._projection.back(vectors))


class ProjectedDense(DenseBatch):
    """Dense samples."""

    def __init__(self, batch: DenseBatch, projection: Projection) -> None:
        super().__init__(batch._samples, batch.first, batch.dropped, shares=batch.shares)
        self._batch, self._projection = batch, projection
        self._projected: NDArray[Any] | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one projected sample."""
        return self._projection.projected_dims

    @property
    def samples(self) -> NDArray[Any]:
        """The projected samples, a copy."""
        if self._projected is None:
            self._projected = self._projection.tensor(self._batch.samples)
        return self._projected

    def __len__(self) -> int:
        return len(self._batch)

    def check(self) -> None:
        """Refuse samples with NaN or Inf, if nobody has looked yet."""
        self._batch.check()

    def __getitem__(self, some: slice) -> ProjectedDense:
        return ProjectedDense(self._batch[some], self._projection)

    def add_to(self, total: Any, weight: float = 1.0) -> Any:
        """Add the samples up, and project the sum."""
        return _added(self._batch, self._projection, total, weight)

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward of every sample with every rank-one component."""
        return self._batch.scores(self._projection.back(vectors))


class Projected(Together):
    """Several accumulators, filled with the same projected samples."""

    def __init__(self, parts: Sequence[Accumulator], projection: Projection) -> None:
        super().__init__(parts)
        self.question = (tuple(parts), projection)
        self.projection = projection

    def add(self, batch: Any, at: int) -> None:
        """Hand the projected samples to every part."""
        kind: Any = ProjectedDense if isinstance(batch, DenseBatch) else ProjectedBatch
        super().add(kind(batch, self.projection), at)

    def least_samples(self, sum_bytes: int | None) -> int:
        """Enough for every part."""
        return super().least_samples(self.projection.share(sum_bytes))

    def for_worker(self, sum_bytes: int | None) -> Projected:
        """What a worker needs of every part, and the projection."""
        smaller = self.projection.share(sum_bytes)
        return Projected([part.for_worker(smaller) for part in self.parts], self.projection)

    @property
    def nbytes(self) -> int:
        """Those of the parts, of the projection, and of a sum before it is projected."""
        return super().nbytes + self.projection.nbytes + 8 * math.prod(self.projection.dims)


def _added(batch: Batch, projection: Projection, total: Any, weight: float) -> Any:
    return added(total, projection.tensor(batch.add_to(None, weight)))
