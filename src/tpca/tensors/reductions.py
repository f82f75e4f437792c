"""The reduction: what is kept of the batches of a round until it is complete, and the answers at its end.

Contraction is linear.  Samples that can be added up are (:class:`TensorSum`), so that the cost of replicas does not
grow with the samples of a round; for all others their contractions are (:class:`AnswerSum`).  Two reductions over
different batches merge into one, which is all that threads and workers need: sums of samples into their sum, or, where
gradients are smaller, what :meth:`Reduction.contracted` makes of them.

Samples are added up in about the units in which the answers are wanted: each is multiplied by a power of two next to
``scale``, which changes no bit of the result, and keeps sums of huge samples from overflowing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.contraction import Asked, contract_all, gradients_of, narrow
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Answer, Query, rewards, subtract

EXPONENTS = (-126, 126)  # of the powers of two that all float types have


class Reduction(Protocol):
    """Batches of one round, reduced."""

    n: int
    """Samples so far."""

    def add(self, batch: Any) -> None:
        """Take the samples of another batch."""

    def answers(self, scale: float) -> tuple[Answer, ...]:
        """Mean gradients and rewards of all queries, every sample multiplied by ``scale``; ends the reduction."""

    def contracted(self, scale: float) -> AnswerSum:
        """The gradients of what was added, summed; worked out on samples multiplied by ``scale``, but without it."""

    def merge(self, other: Self, /) -> None:
        """Take what another reduction of the same queries has added up."""

    def copy(self) -> Self:
        """One with sums of its own, to merge others into."""

    @property
    def queries(self) -> tuple[Query, ...]:
        """The questions; only :meth:`add`, :meth:`answers` and :meth:`contracted` need them."""

    @queries.setter
    def queries(self, queries: tuple[Query, ...], /) -> None: ...

    @property
    def nbytes(self) -> int:
        """Bytes held at most while a batch is added."""


def reduction(batch: Batch, queries: Sequence[Query], scale: float = 1.0) -> Reduction:
    """A reduction for batches of this kind; ``scale`` is about what its answers will be asked with."""
    return TensorSum(queries, scale) if hasattr(batch, "add_to") else AnswerSum(queries)


class TensorSum:
    """The sum of all samples, each times ``weight``, contracted once at the end."""

    def __init__(self, queries: Sequence[Query], scale: float = 1.0) -> None:
        self.queries, self.n = tuple(queries), 0
        least, most = EXPONENTS
        self.weight = math.ldexp(1.0, max(least, min(math.frexp(scale)[1] - 1, most)))
        self._total: NDArray[Any] | None = None

    def add(self, batch: Any) -> None:
        """Add the samples up."""
        self._total = batch.add_to(self._total, self.weight)
        self.n += len(batch)

    def answers(self, scale: float) -> tuple[Answer, ...]:
        """The mean sample, contracted with every query."""
        if self._total is None:
            return ()
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asked judges what does not fit
            return contract_all(self._mean(self._total, scale), self.queries)

    def contracted(self, scale: float) -> AnswerSum:
        """The gradients of the sum; of the scaled mean, in fact, so that no number leaves the range of its type."""
        gradients = AnswerSum(self.queries, self.weight)
        if self._total is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                mean = self._mean(self._total, scale)
                gradients.add_tensor(mean, self.n, self.n / (scale / self.weight))
        return gradients

    def _mean(self, total: NDArray[Any], scale: float) -> NDArray[Any]:
        total *= scale / self.weight / self.n
        return total

    def merge(self, other: TensorSum) -> None:
        """Add the sums."""
        if other._total is not None:
            own = self._total
            self._total = other._total.copy() if own is None else np.add(own, other._total, out=own)
            self.n += other.n

    def copy(self) -> TensorSum:
        """One with a sum of its own."""
        twin = TensorSum(self.queries, self.weight)
        twin.merge(self)
        return twin

    @property
    def nbytes(self) -> int:
        """The sum."""
        return 0 if self._total is None else self._total.nbytes


class AnswerSum:
    """The sum of the gradients of every query, of samples that were multiplied by ``weight``."""

    def __init__(self, queries: Sequence[Query], weight: float = 1.0) -> None:
        self.queries, self.n, self.weight = tuple(queries), 0, weight
        self._sums: list[dict[int, Array]] = [
            {m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in self.queries
        ]

    def add(self, batch: Any) -> None:
        """Add the gradients up."""
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asked judges what does not fit
            batch.add_gradients(self.queries, self._sums)
        self.n += len(batch)

    def add_tensor(self, mean: NDArray[Any], n: int, factor: float) -> None:
        """Add the gradients of ``factor`` times a tensor, which stands for ``n`` samples."""
        asked = [Asked(query.partition.groups, query.replicas, query.blocks) for query in self.queries]
        for part in gradients_of(mean, asked):
            for m, gradient in part.gradients.items():
                own = self._sums[part.number][m][part.some]
                own += factor * gradient.reshape(own.shape)
        self.n += n

    def contracted(self, scale: float) -> AnswerSum:  # noqa: ARG002
        """The sum itself: it has been contracted batch by batch."""
        return self

    def merge(self, other: AnswerSum) -> None:
        """Add the sums."""
        for own, others in zip(self._sums, other._sums, strict=True):
            for m, total in own.items():
                total += others[m]
        self.n += other.n

    def copy(self) -> AnswerSum:
        """One with sums of its own."""
        twin = AnswerSum((), self.weight)
        twin.queries, twin.n = self.queries, self.n
        twin._sums = [{m: total.copy() for m, total in sums.items()} for sums in self._sums]
        return twin

    def answers(self, scale: float) -> tuple[Answer, ...]:
        """Mean gradients in the dtype of their replicas, known components subtracted."""
        if self.n == 0:
            return ()
        factor = scale / self.weight / self.n
        with np.errstate(over="ignore", invalid="ignore"):
            return tuple(_answer(query, sums, factor) for query, sums in zip(self.queries, self._sums, strict=True))

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
