"""Digests: whether samples are those that were read before, without keeping them.

Accumulators: what is kept of samples.  Whoever reads data fills one; what it is for, only it knows.

=========================  =====================================================================================
:class:`TensorSum`         the sum of all samples
:class:`Rewards`           the reward of every sample with some rank-one components
:class:`SampleGradients`   the gradients of every sample with the one replica whose turn it is: the paper's access
=========================  =====================================================================================

Mean gradients and rewards of replicas, what most solvers ask for: :mod:`tpca.tensors.gradients`; scores of the rows of
views: :mod:`tpca.tensors.rows`.  Several accumulators
that are filled with the same samples: :mod:`tpca.tensors.accumulators`.

Several accumulators as one, so that samples are read once for all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.dense import Batch
from tpca.tensors.namespaces import bytes_of, to_host
from tpca.tensors.query import Query

MAX_ENTRIES = 2**20  # entries of an array that are all looked at: 4 ms
RUN = 16  # neighbours that are looked at together: one comes from memory with those next to it


def digest(arrays: Iterable[NDArray[Any]], most: int = MAX_ENTRIES) -> str:
    """Of dtypes, shapes and entries; of an array with more than ``most``, of about so many, in runs spread over it."""
    found = hashlib.sha256()
    for array in arrays:
        flat = array.reshape(-1)
        if flat.size > max(most, RUN):
            step = -(-flat.size // most) | 1  # odd, so that runs do not begin in one column only
            flat = flat[: flat.size // RUN * RUN].reshape(-1, RUN)[::step]
        found.update(f"{array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(flat).tobytes())
    return found.hexdigest()[:16]


class Accumulator:
    """Something that samples are added to, in any number of parts that are merged in a fixed order.

    A life: made with its ``question``, :meth:`fresh` for every group of batches, :meth:`add` for every batch,
    :meth:`close` at the end of the group, :meth:`merge` of neighbours, :meth:`finish` once.
    """

    of_few = False
    """Whether it is meant for so few samples that a law which is simulated may as well draw them one by one."""

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
        self.total: Any = None

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
        self.total = added(self.total, other.total)
        self.n += other.n

    def finish(self) -> None:
        """A sum on a device comes to the host: whoever asked for it works on it there."""
        self.total = None if self.total is None else to_host(self.total)

    @property
    def nbytes(self) -> int:
        """The sum."""
        return 0 if self.total is None else bytes_of(self.total)


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


class Together(Accumulator):
    """Several accumulators, filled with the same samples: ``parts``, in the order in which they were given."""

    def __init__(self, parts: Sequence[Accumulator]) -> None:
        super().__init__(tuple(parts))
        self.parts = tuple(part.fresh() for part in parts)
        self.of_few = any(part.of_few for part in parts)

    def add(self, batch: Any, at: int) -> None:
        """Hand the samples to every part."""
        for part in self.parts:
            part.add(batch, at)
        self.n += len(batch)

    def merge(self, other: Together) -> None:
        """Every part takes what its fellow has."""
        for own, others in zip(self.parts, other.parts, strict=True):
            own.merge(others)
        self.n += other.n

    def close(self) -> None:
        """A group of batches is complete for every part."""
        for part in self.parts:
            part.close()

    def finish(self) -> None:
        """Every part works out what was asked for."""
        for part in self.parts:
            part.finish()

    def forget(self) -> None:
        """Every part leaves its question behind."""
        super().forget()
        for part in self.parts:
            part.forget()

    def recall(self, blank: Together) -> None:
        """Every part takes its question up again."""
        super().recall(blank)
        for own, asked in zip(self.parts, blank.parts, strict=True):
            own.recall(asked)

    @property
    def nbytes(self) -> int:
        """What all parts hold."""
        return sum(part.nbytes for part in self.parts)

    def least_samples(self, sum_bytes: int | None) -> int:
        """Enough for every part."""
        return max((part.least_samples(sum_bytes) for part in self.parts), default=1)

    def for_worker(self, sum_bytes: int | None) -> Together:
        """What a worker needs of every part."""
        return Together([part.for_worker(sum_bytes) for part in self.parts])
