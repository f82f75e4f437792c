"""Accumulators: what is kept of samples.  Whoever reads data fills one; what it is for, only it knows.

=========================  =====================================================================================
:class:`TensorSum`         the sum of all samples
:class:`Rewards`           the reward of every sample with some rank-one components
:class:`SampleGradients`   the gradients of every sample with the one replica whose turn it is: the paper's access
=========================  =====================================================================================

Mean gradients and rewards of replicas, what most solvers ask for: :mod:`tpca.tensors.gradients`; scores of the rows of
views: :mod:`tpca.tensors.view_scores`.  Several accumulators
that are filled with the same samples: :mod:`tpca.tensors.together`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tpca.tensors.blocks import Array
from tpca.tensors.exposure import exposure_sum
from tpca.tensors.namespaces import bytes_of, to_host
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Query


class Accumulator:
    """Something that samples are added to, in any number of parts that are merged in a fixed order.

    A life: made with its ``question``, :meth:`fresh` for every group of batches, :meth:`add` for every batch,
    :meth:`close` at the end of the group, :meth:`merge` of neighbours, :meth:`finish` once.
    """

    of_few = False
    """Whether it is meant for so few samples that a law which is simulated may as well draw them one by one."""

    in_one = False
    """Whether samples that lie next to each other in memory are better added in one batch than in several."""

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
    """The sum of all samples, each times ``weight``: ``total``, ``None`` before the first.

    ``observed`` has how many samples there are of every entry; ``None``: all of them.  ``worth`` is the sum of their
    shares of the signal: their number, where all hold as much.
    """

    in_one = True

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.weight = weight
        self.total: Any = None
        self.observed: Array | None = None
        self.worth = 0.0

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Add the samples up."""
        self.total = self._plus(batch)
        self._count(exposure_sum(batch), len(batch))
        self.n += len(batch)
        self.worth += len(batch) if batch.shares is None else float(batch.shares.sum())

    def _plus(self, batch: Batch) -> Any:
        """The total with the samples of a batch."""
        return batch.add_to(self.total, self.weight)

    def add_mean(self, mean: Array, n: int) -> None:
        """Take ``n`` samples, all there are, that are known by their mean only, which may be changed."""
        mean *= n * self.weight
        self.total, self.n, self.worth = mean, n, float(n)

    def merge(self, other: TensorSum) -> None:
        """Add the sums."""
        self.total = added(self.total, other.total)
        self._count(other.observed, other.n)
        self.n += other.n
        self.worth += other.worth

    def finish(self) -> None:
        """A sum on a device comes to the host: whoever asked for it works on it there."""
        self.total = None if self.total is None else to_host(self.total)

    def _count(self, observed: Array | None, n: int) -> None:
        """Count the entries of ``n`` more samples."""
        if self.observed is None and observed is not None:
            self.observed = np.full(observed.shape, float(self.n))
        if self.observed is not None:
            self.observed += n if observed is None else observed

    @property
    def nbytes(self) -> int:
        """The sum, and the counts."""
        return sum(bytes_of(held) for held in (self.total, self.observed) if held is not None)


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

    of_few = True

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


def added(own: Any, other: Any) -> Any:
    """Two sums as one, in place where that is possible; ``None`` stands for zero."""
    if own is not None and other is not None:
        own += other
    return other if own is None else own
