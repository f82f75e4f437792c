"""Accumulators: what is kept of samples.  Whoever reads data fills one; what it is for, only it knows.

=========================  =====================================================================================
:class:`TensorSum`         the sum of all samples
:class:`Rewards`           the reward of every sample with some rank-one components
:class:`SampleGradients`   the gradients of every sample with the one replica whose turn it is: the paper's access
=========================  =====================================================================================

Mean gradients and rewards of replicas: :mod:`tpca.tensors.gradients`; scores of the rows of views:
:mod:`tpca.tensors.rows`.  Solvers have accumulators of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.dense import Batch
from tpca.tensors.namespaces import bytes_of, to_host
from tpca.tensors.query import Query

MAX_ENTRIES = 2**20  # entries of an array that are all looked at: 4 ms
RUN = 16  # neighbours that are looked at together: one comes from memory with those next to it


class Accumulator:
    """Something that samples are added to, in any number of parts that are merged in a fixed order.

    A life: made with its ``question``, :meth:`fresh` for every group of batches, :meth:`add` for every batch,
    :meth:`close` at the end of the group, :meth:`merge` of neighbours, :meth:`finish` once.  The question stays with
    whoever asked: what comes back from a worker has none, and gets it again.

    A class says what it adds up, and this one merges it and counts its bytes: ``SUMS`` are attributes to be added up
    (numbers, arrays, objects with ``plus``, lists and dicts of these; ``None`` for nothing yet), ``LISTS`` are lists to
    which those of later samples are appended.
    """

    SUMS: ClassVar[tuple[str, ...]] = ()
    LISTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *question: Any) -> None:
        self.question = question
        self.n = 0

    def fresh(self) -> Self:
        """An empty one with the same question."""
        return type(self)(*self.question)

    def add(self, batch: Any, at: int) -> None:
        """Take the samples of a batch, the first of which is number ``at`` of all that are read for this."""
        raise NotImplementedError

    def merge(self, other: Self) -> None:
        """Take what another one, of the samples that come next, has; both are closed."""
        self.n += other.n
        for name in self.SUMS:
            setattr(self, name, plus(getattr(self, name), getattr(other, name)))
        for name in self.LISTS:
            getattr(self, name).extend(getattr(other, name))

    def close(self) -> None:
        """A group of batches is complete: keep no more than merging needs."""

    def finish(self) -> None:
        """All samples are in, at least one: work out what was asked for."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(bytes_held(getattr(self, name)) for name in (*self.SUMS, *self.LISTS))

    def least_samples(self, sum_bytes: int | None) -> int:  # noqa: ARG002
        """Samples in a group that make :meth:`close` cheap beside :meth:`add`.

        ``sum_bytes`` are those of a sum of samples; ``None`` where samples do not come whole.
        """
        return 1

    def for_worker(self, sum_bytes: int | None) -> Self:  # noqa: ARG002
        """What a worker needs of it to read a group of samples."""
        return self


def plus(own: Any, other: Any) -> Any:
    """Two sums as one, in place where that is possible; ``None`` stands for zero."""
    if own is None or other is None:
        return other if own is None else own
    if isinstance(own, dict):
        own.update({key: plus(own.get(key), value) for key, value in other.items()})
        return own
    if isinstance(own, list):
        return [plus(one, another) for one, another in zip(own, other, strict=True)]
    if hasattr(own, "plus"):
        return own.plus(other)
    own += other
    return own


def bytes_held(value: Any) -> int:
    """Bytes of all arrays in a sum."""
    if isinstance(value, dict):
        return sum(bytes_held(one) for one in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_held(one) for one in value)
    return bytes_of(value) if hasattr(value, "nbytes") or hasattr(value, "dtype") else 0


class TensorSum(Accumulator):
    """The sum of all samples: ``total``, ``None`` before the first."""

    SUMS = ("total",)

    def __init__(self) -> None:
        super().__init__()
        self.total: Any = None

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Add the samples up."""
        self.total = batch.add_to(self.total)
        self.n += len(batch)

    def add_mean(self, mean: Array, n: int) -> None:
        """Take ``n`` samples, all there are, that are known by their mean only, which may be changed."""
        mean *= n
        self.total, self.n = mean, n

    def finish(self) -> None:
        """A sum on a device comes to the host: whoever asked for it works on it there."""
        self.total = to_host(self.total)


class Rewards(Accumulator):
    """Reward of every sample with every rank-one component: ``rewards`` ``(n, c)``; ``vectors[i]`` is ``(c, d_i)``."""

    LISTS = ("_parts",)

    def __init__(self, vectors: Sequence[Array]) -> None:
        super().__init__(list(vectors))
        self._parts: list[Array] = []

    def add(self, batch: Batch, at: int = 0) -> None:  # noqa: ARG002
        """Contract every sample."""
        self._parts.append(batch.scores(self.question[0]))
        self.n += len(batch)

    @property
    def rewards(self) -> Array:
        """Of all samples, in their order."""
        return np.concatenate([np.empty((0, len(self.question[0][0]))), *self._parts])


class SampleGradients(Accumulator):
    """Gradients of single samples: sample j is contracted with replica j mod R, of the one block that is wanted.

    ``gradients`` has shape ``(steps, R, *block shape)``, all replicas having a fresh sample at every step; samples
    beyond the last whole step are left out.  Allowed because a block's gradient does not depend on the block itself.
    """

    LISTS = ("_parts",)

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._parts: list[Array] = []

    def add(self, batch: Batch, at: int) -> None:
        """Contract every sample with the replica whose turn it is."""
        self._parts.append(batch.sample_gradients(self.question[0], at))
        self.n += len(batch)

    @property
    def gradients(self) -> Array:
        """Of all whole steps."""
        query: Query = self.question[0]
        (block,) = query.blocks
        count, shape = len(query.replicas[0]), query.partition.shapes[block]
        steps = self.n // count
        whole = self._parts[0] if len(self._parts) == 1 else np.concatenate([np.empty((0, *shape)), *self._parts])
        return whole[: steps * count].reshape(steps, count, *shape)


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
