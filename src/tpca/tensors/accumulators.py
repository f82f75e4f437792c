"""Accumulators: what is kept of samples.  Whoever reads data fills one; what it is for, only it knows.

=========================  =====================================================================================
:class:`TensorSum`         the sum of all samples
:class:`Gradients`         mean gradients and rewards of replicas, known components subtracted
:class:`Rewards`           the reward of every sample with some rank-one components
:class:`SampleGradients`   the gradients of every sample with the one replica whose turn it is: the paper's access
:class:`Scores`            the scores of every row of views
=========================  =====================================================================================

Contraction is linear.  Samples that can be added up are, so that the cost of replicas does not grow with the samples;
for all others their contractions are added up.  Samples are added up in about the units in which the answers are
wanted: each is multiplied by a power of two next to the scale, which changes no bit of the result, and keeps sums of
huge samples from overflowing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.contraction import add_gradients_of, contract_all, narrow
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Answer, Query, rewards, subtract
from tpca.tensors.views import ViewsBatch

EXPONENTS = (-126, 126)  # of the powers of two that all float types have
REPLICA_SAMPLES = 2.0  # for every replica, in a group of samples whose sum is contracted: see tpca.engines.groups


class Accumulator:
    """Something that samples are added to, in any number of parts that are merged in a fixed order.

    A life: made with its ``question``, :meth:`fresh` for every group of batches, :meth:`add` for every batch,
    :meth:`close` at the end of the group, :meth:`merge` of neighbours, :meth:`finish` once.
    """

    def __init__(self, *question: Any) -> None:
        self.question: tuple[Any, ...] | None = question
        self.n = 0

    def fresh(self) -> Self:
        """An empty one with the same question."""
        assert self.question is not None
        return type(self)(*self.question)

    def add(self, batch: Any, at: int) -> None:
        """Take the samples of a batch, the first of which is number ``at`` of all that are read for this."""
        raise NotImplementedError

    def merge(self, other: Self) -> None:
        """Take what another one with the same question, of the samples that come next, has."""
        raise NotImplementedError

    def close(self) -> None:
        """A group of batches is complete: keep no more than merging needs."""

    def finish(self) -> None:
        """All samples are in, at least one: work out what was asked for."""

    def forget(self) -> None:
        """Leave the question behind: whoever asked has it."""
        self.question = None

    def recall(self, blank: Self) -> None:
        """Take up the question of ``blank`` again."""
        self.question = blank.question

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0

    def least_samples(self, sum_bytes: int | None) -> int:  # noqa: ARG002
        """Samples in a group that make :meth:`close` cheap beside :meth:`add`.

        ``sum_bytes`` are those of a sum of samples; ``None`` where samples do not come whole.
        """
        return 1

    def for_worker(self, sum_bytes: int | None) -> Self:  # noqa: ARG002
        """What a worker needs of it to read a group of samples."""
        return self


class TensorSum(Accumulator):
    """The sum of all samples, each times ``weight``: ``total``, ``None`` before the first."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.weight = weight
        self.total: NDArray[Any] | None = None

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Add the samples up."""
        self.total = batch.add_to(self.total, self.weight)
        self.n += len(batch)

    def add_mean(self, mean: Array, n: int) -> None:
        """Take ``n`` samples, all there are, that are known by their mean only, which may be changed."""
        mean *= n * self.weight
        self.total, self.n = mean, n

    def merge(self, other: TensorSum) -> None:
        """Add the sums."""
        self.total = _added(self.total, other.total)
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """The sum."""
        return 0 if self.total is None else self.total.nbytes


class Gradients(Accumulator):
    """Mean gradients and rewards of all ``queries``, every sample multiplied by ``scale``: ``answers``, at the end.

    ``scale`` brings data to about unit size, which replicas in half precision need.
    """

    def __init__(self, queries: Sequence[Query], scale: float = 1.0) -> None:
        super().__init__(tuple(queries), scale)
        self.answers: tuple[Answer, ...] = ()
        self._total: NDArray[Any] | None = None  # the sum of samples that can be added up
        self._sums: list[dict[int, Array]] | None = None  # the gradients of all others, and of closed groups
        least, most = EXPONENTS
        self._weight = math.ldexp(1.0, max(least, min(math.frexp(scale)[1] - 1, most)))  # of what is added up

    @property
    def queries(self) -> tuple[Query, ...]:
        """What is asked."""
        assert self.question is not None
        queries: tuple[Query, ...] = self.question[0]
        return queries

    @property
    def scale(self) -> float:
        """What every sample is multiplied by."""
        assert self.question is not None
        return float(self.question[1])

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Add up the samples, or their gradients."""
        if batch.summable:
            self._total = batch.add_to(self._total, self._weight)
        else:
            self._sums, self._weight = self._zeros() if self._sums is None else self._sums, 1.0
            with np.errstate(over="ignore", invalid="ignore"):  # whoever asked judges what does not fit
                batch.add_gradients(self.queries, self._sums)
        self.n += len(batch)

    def add_mean(self, mean: Array, n: int) -> None:
        """Take ``n`` samples, all there are, that are known by their mean only, which may be changed."""
        mean *= n * self._weight
        self._total, self.n = mean, n

    def merge(self, other: Gradients) -> None:
        """Add the sums."""
        self._total = _added(self._total, other._total)
        self._weight = other._weight
        if self._sums is None:
            self._sums = other._sums
        elif other._sums is not None:
            for own, others in zip(self._sums, other._sums, strict=True):
                for m, total in own.items():
                    total += others[m]
        self.n += other.n

    def close(self) -> None:
        """Contract the sum, where that is larger than its gradients.

        Of the scaled mean, in fact, so that no number leaves the range of its type.
        """
        if self._total is None or not self.queries or self._total.nbytes <= gradient_bytes(self.queries):
            return
        factor = self.scale / self._weight / self.n
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.multiply(self._total, factor, out=self._total)
            self._total, self._sums = None, self._zeros()
            add_gradients_of(mean, self.queries, self._sums, factor)

    def finish(self) -> None:
        """Mean gradients in the dtype of their replicas, and rewards; known components subtracted."""
        factor = self.scale / self._weight / self.n
        with np.errstate(over="ignore", invalid="ignore"):
            if self._total is not None:
                self.answers = contract_all(np.multiply(self._total, factor, out=self._total), self.queries)
            elif self._sums is not None:
                pairs = zip(self.queries, self._sums, strict=True)
                self.answers = tuple(_answer(query, sums, factor) for query, sums in pairs)
        self._total = self._sums = None

    @property
    def nbytes(self) -> int:
        """The sums."""
        gradients = sum(g.nbytes for sums in self._sums or () for g in sums.values())
        return gradients + (0 if self._total is None else self._total.nbytes)

    def least_samples(self, sum_bytes: int | None) -> int:
        """A contraction costs about as much as adding up two samples for every replica."""
        if sum_bytes is None or sum_bytes <= gradient_bytes(self.queries):  # there is none at the end of a group
            return 1
        replicas = sum(len(query.replicas[0]) for query in self.queries if len(query.partition) > 1)
        return int(REPLICA_SAMPLES * replicas)

    def for_worker(self, sum_bytes: int | None) -> Gradients:
        """No question at all, where sums of samples are smaller than their gradients; else what gradients need."""
        sent = Gradients((), self.scale)
        if sum_bytes is None or sum_bytes > gradient_bytes(self.queries):
            sent.question = (tuple(query.for_gradients() for query in self.queries), self.scale)
        return sent

    def _zeros(self) -> list[dict[int, Array]]:
        return [{m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in self.queries]


class Rewards(Accumulator):
    """Reward of every sample with every rank-one component: ``rewards`` ``(n, c)``; ``vectors[i]`` is ``(c, d_i)``."""

    def __init__(self, vectors: Sequence[Array]) -> None:
        super().__init__(list(vectors))
        self._parts: list[Array] = []

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Contract every sample."""
        assert self.question is not None
        self._parts.append(batch.scores(self.question[0]))
        self.n += len(batch)

    def merge(self, other: Rewards) -> None:
        """Append the rewards of the samples that come next."""
        self._parts += other._parts
        self.n += other.n

    @property
    def rewards(self) -> Array:
        """Of all samples, in their order."""
        assert self.question is not None
        return np.concatenate([np.empty((0, len(self.question[0][0]))), *self._parts])

    @property
    def nbytes(self) -> int:
        """The rewards."""
        return sum(part.nbytes for part in self._parts)


class SampleGradients(Accumulator):
    """Gradients of single samples: sample j is contracted with replica j mod R, of the one block that is wanted.

    ``gradients`` has shape ``(steps, R, *block shape)``, all replicas having a fresh sample at every step; samples
    beyond the last whole step are left out.  Allowed because a block's gradient does not depend on the block itself.
    """

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._parts: list[Array] = []

    def add(self, batch: Batch, at: int) -> None:
        """Contract every sample with the replica whose turn it is."""
        assert self.question is not None
        self._parts.append(batch.sample_gradients(self.question[0], at))
        self.n += len(batch)

    def merge(self, other: SampleGradients) -> None:
        """Append those of the samples that come next."""
        self._parts += other._parts
        self.n += other.n

    @property
    def gradients(self) -> Array:
        """Of all whole steps."""
        assert self.question is not None
        query: Query = self.question[0]
        (block,) = query.blocks
        count, shape = len(query.replicas[0]), query.partition.shapes[block]
        steps = self.n // count
        whole = self._parts[0] if len(self._parts) == 1 else np.concatenate([np.empty((0, *shape)), *self._parts])
        return whole[: steps * count].reshape(steps, count, *shape)

    @property
    def nbytes(self) -> int:
        """The gradients."""
        return sum(part.nbytes for part in self._parts)


class Scores(Accumulator):
    """Scores of rows of views, for several sets of vectors; ``vectors[i]`` is ``(c, d_i)``.

    With ``means`` they are subtracted from the views first; with a ``step`` only rows 0, step, 2·step, ... count.
    """

    def __init__(self, levels: Sequence[Sequence[Array]], means: Sequence[Array] | None = None, step: int = 1) -> None:
        super().__init__(list(levels), means, step)
        self.levels: list[list[list[NDArray[Any]]]] = [[] for _ in levels]

    def add(self, batch: ViewsBatch, at: int) -> None:
        """Take the rows of a batch."""
        assert self.question is not None
        levels, means, step = self.question
        rows = [view[-at % step :: step] for view in batch.views]
        if means is not None:
            rows = [view - mean for view, mean in zip(rows, means, strict=True)]
        for vectors, own in zip(levels, self.levels, strict=True):
            own.append([view @ v.T.astype(view.dtype) for view, v in zip(rows, vectors, strict=True)])
        self.n += len(batch)

    def merge(self, other: Scores) -> None:
        """Take the rows that come after."""
        for own, others in zip(self.levels, other.levels, strict=True):
            own += others
        self.n += other.n

    def joined(self, level: int = 0) -> list[NDArray[Any]]:
        """Scores ``(n, c)`` of every view for one set of vectors."""
        assert self.question is not None
        empty = [[np.empty((0, len(v))) for v in self.question[0][level]]]
        return [np.concatenate(view) for view in zip(*(self.levels[level] or empty), strict=True)]

    @property
    def nbytes(self) -> int:
        """The scores."""
        return sum(view.nbytes for parts in self.levels for part in parts for view in part)


def gradient_bytes(queries: Sequence[Query]) -> int:
    """Bytes of the summed gradients of all queries, in float64."""
    return 8 * sum(len(q.replicas[0]) * sum(q.partition.sizes[m] for m in q.blocks) for q in queries)


def _added(own: NDArray[Any] | None, other: NDArray[Any] | None) -> NDArray[Any] | None:
    if own is None or other is None:
        return other if own is None else own
    own += other
    return own


def _answer(query: Query, sums: dict[int, Array], factor: float) -> Answer:
    count = len(query.replicas[0])
    rows = [np.asarray(block.reshape(count, -1), dtype=np.float64) for block in query.replicas]
    parts = subtract({m: factor * g.reshape(count, -1) for m, g in sums.items()}, rows, query)
    gradients = {m: np.empty(g.shape, dtype=query.replicas[m].dtype) for m, g in sums.items()}
    narrow(parts, gradients, slice(None))
    return Answer(gradients, rewards(parts, rows))
