"""The reduction: what is kept of the batches of a round until it is complete, and the answers at its end.

Contraction is linear.  Samples that can be added up are (:class:`TensorSum`), so that the cost of replicas does not
grow with the samples of a round; for all others their contractions are (:class:`AnswerSum`).  Two reductions over
different batches merge into one, which is all that threads and workers need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca.batches.dense import contract, narrow
from tpca.batches.protocol import Batch
from tpca.batches.query import Answer, Query, rewards, subtract
from tpca.blocks import Array


class Reduction(Protocol):
    """Batches of one round, reduced."""

    n: int
    """Samples so far."""

    def add(self, batch: Any) -> None:
        """Take the samples of another batch."""

    def answers(self, scale: float) -> tuple[Answer, ...]:
        """Mean gradients and rewards of all queries, every sample multiplied by ``scale``; ends the reduction."""

    @property
    def nbytes(self) -> int:
        """Bytes held at most while a batch is added."""


def reduction(batch: Batch, queries: Sequence[Query]) -> Reduction:
    """A reduction for batches of this kind."""
    return TensorSum(queries) if hasattr(batch, "total") else AnswerSum(queries)


class TensorSum:
    """The sum of all samples, contracted once at the end."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries, self.n = tuple(queries), 0
        self._total: NDArray[Any] | None = None

    def add(self, batch: Any) -> None:
        """Add the samples up."""
        part = batch.total()
        self._total = part if self._total is None else np.add(self._total, part, out=self._total)
        self.n += len(batch)

    def answers(self, scale: float) -> tuple[Answer, ...]:
        """The mean sample, contracted with every query."""
        if self._total is None:
            return ()
        mean = np.multiply(self._total, scale / self.n, out=self._total)
        return tuple(contract(mean, query) for query in self.queries)

    @property
    def nbytes(self) -> int:
        """The sum, and the sum of one batch."""
        return 0 if self._total is None else 2 * self._total.nbytes


class AnswerSum:
    """The sum of the gradients of every query."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries, self.n = tuple(queries), 0
        self._sums: list[dict[int, Array]] = [
            {m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in self.queries
        ]

    def add(self, batch: Any) -> None:
        """Add the gradients up."""
        batch.add_gradients(self.queries, self._sums)
        self.n += len(batch)

    def answers(self, scale: float) -> tuple[Answer, ...]:
        """Mean gradients in the dtype of their replicas, known components subtracted."""
        if self.n == 0:
            return ()
        pairs = zip(self.queries, self._sums, strict=True)
        return tuple(_answer(query, sums, scale / self.n) for query, sums in pairs)

    @property
    def nbytes(self) -> int:
        """The sums."""
        return sum(g.nbytes for sums in self._sums for g in sums.values())


def _answer(query: Query, sums: dict[int, Array], factor: float) -> Answer:
    count = len(query.replicas[0])
    rows = [np.asarray(block.reshape(count, -1), dtype=np.float64) for block in query.replicas]
    parts = subtract({m: factor * g.reshape(count, -1) for m, g in sums.items()}, rows, query)
    gradients = {m: np.empty(g.shape, dtype=query.replicas[m].dtype) for m, g in sums.items()}
    narrow(parts, gradients, slice(None))
    return Answer(gradients, rewards(parts, rows))
