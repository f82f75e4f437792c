r"""Accumulators: what is kept of samples.  Whoever reads data fills one; what it is for, only it knows.

=========================  =====================================================================================
:class:`TensorSum`         the sum of all samples
:class:`Rewards`           the reward of every sample with some rank-one components
:class:`SampleGradients`   the gradients of every sample with the one replica whose turn it is: the paper's access
:class:`Gradients`         mean gradients and rewards of replicas, made from sums of samples
=========================  =====================================================================================

Scores of the rows of views: :mod:`tpca.tensors.rows`.  Solvers have accumulators of their own.

Contraction is linear.  Samples that can be added up are, so that the cost of replicas does not grow with the samples;
for all others their contractions are added up.

**Sub-batches** say how the gradients and the reward of one replica scatter inside a reading.  A reading of n samples is
cut at ``edges``, known before the first sample: sub-batch j has the samples from number ``edges[j]`` on, up to the next
edge.  Samples that can be added up are added to one running sum, as they are without sub-batches; at every edge that
sum is contracted with the few vectors asked about (:attr:`Query.by_part`), and the gradients of a sub-batch are the
difference of two neighbours:

.. math:: G_j = \nabla R(T_1 + \dots + T_{e_{j+1}}) - \nabla R(T_1 + \dots + T_{e_j}) .

That costs one look at the sum for every sub-batch, however many samples it has, for all queries together.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.contraction import (
    Answer,
    Query,
    SubBatches,
    add_gradients_of,
    contract_all,
    fill,
    gradients_of,
    subtract,
)
from tpca.tensors.dense import Batch
from tpca.tensors.namespaces import bytes_of, numpy_dtype, to_host

MAX_ENTRIES = 2**20  # entries of an array that are all looked at: 4 ms
INDISTINCT = 1e-10  # relative eigenvalue of inner products below which components are one and the same
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
    goes_on = False
    """Whether samples are added to this one, round after round; :meth:`edges` then says where they may be divided."""

    def __init__(self, *question: Any) -> None:
        self.question = question
        self.n = 0

    def edges(self, n: int) -> list[int]:
        """Where ``n`` samples that come next may be divided among workers, as numbers of samples from 0 on."""
        raise NotImplementedError

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
    """Reward of every sample with every rank-one component: ``rewards`` ``(n, c)``; ``vectors[i]`` is ``(c, d_i)``.

    Components of the same block of ``together`` explain a sample together: their rewards are the least-squares scores
    on its observed entries.  ``places`` ``(n,)`` are the numbers of the samples in their data, those that were left out
    counted.
    """

    LISTS = ("_parts", "_places")

    def __init__(self, vectors: Sequence[Array], together: Sequence[Sequence[int]] = ()) -> None:
        super().__init__(list(vectors), [list(block) for block in together])
        self._parts: list[Array] = []
        self._places: list[NDArray[np.intp]] = []

    def add(self, batch: Batch, at: int = 0) -> None:
        """Contract every sample."""
        vectors, together = self.question
        rewards = batch.scores(vectors)
        for block in together:
            block_vectors = [rows[block] for rows in vectors]
            products = batch.observed_products(block_vectors)
            rewards[:, block] = least_squares_scores(rewards[:, block], block_vectors, products)
        self._parts.append(rewards)
        self._places.append(getattr(batch, "places", at + np.arange(len(batch))))
        self.n += len(batch)

    @property
    def rewards(self) -> Array:
        """Of all samples, in the order in which they were read."""
        return np.concatenate([np.empty((0, len(self.question[0][0]))), *self._parts])

    @property
    def places(self) -> NDArray[np.intp]:
        """Where in their data the samples are."""
        return np.concatenate([np.empty(0, np.intp), *self._places])


def least_squares_scores(rewards: Array, vectors: Sequence[Array], products: Array | None) -> Array:
    r"""Scores s (n, c) that minimise :math:`|T - \sum_r s_r p_r|` over the observed entries of every sample T.

    ``rewards`` (n, c) are those of every component :math:`p_r` by itself, ``products`` (n, c, c) its inner products
    with the others over these entries; None where all are observed.  The normal equations are products · s = b, and b
    is a reward times the observed energy of its component.
    """
    if products is None:
        gram = np.ones((len(vectors[0]), len(vectors[0])))
        for rows in vectors:
            gram = gram * (rows @ rows.T)
        return np.asarray(rewards @ np.linalg.pinv(gram, rcond=INDISTINCT, hermitian=True))
    energies = np.einsum("ncc->nc", products)
    right_sides = np.where(energies > 0, rewards * energies, 0.0)
    inverses = np.linalg.pinv(products, rcond=INDISTINCT, hermitian=True)
    scores = np.matmul(inverses, right_sides[:, :, None])[:, :, 0]
    return np.where(energies > 0, scores, np.nan)


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


REPLICA_SAMPLES = 2.0  # for every replica, in a group of samples whose sum is contracted: see tpca.engines.base


class Gradients(Accumulator):
    """Mean gradients and rewards of all ``queries``, every sample multiplied by ``scale``: ``answers``, at the end.

    ``scale`` brings data to about unit size, which replicas in half precision need.  With ``edges``, numbers of samples
    from 0 on, queries that ask for it are answered for every sub-batch as well.  ``by_part`` are those queries: all
    that a worker may know.
    """

    SUMS = ("_total", "_sums", "_sizes", "_part_sums")

    def __init__(
        self,
        queries: Sequence[Query],
        scale: float = 1.0,
        edges: Sequence[int] = (),
        by_part: Sequence[Query] | None = None,
    ) -> None:
        parted = _asked_by_part(queries) if by_part is None else tuple(by_part)
        edges = tuple(edges) if parted else ()
        super().__init__(tuple(queries), scale, edges, parted if edges else ())
        self.answers: tuple[Answer, ...] = ()
        self._total: Any = None  # the sum of samples that can be added up
        self._sums: list[dict[int, Array]] | None = None  # the gradients of all others, and of closed groups
        self._sizes = np.zeros(len(edges), np.int64)  # of sub-batches
        self._part_sums = [
            {m: np.zeros((len(edges), *q.partition.shapes[m])) for m in q.blocks} for q in self.question[3]
        ]
        self._before = [{m: np.zeros(total.shape[1:]) for m, total in own.items()} for own in self._part_sums]
        self._open: int | None = None  # the sub-batch that has samples in the running sum since the last look
        self._eps = float(np.finfo(np.float64).eps)  # of the dtype in which samples are added up

    queries = property(lambda self: self.question[0])
    scale = property(lambda self: self.question[1])
    edges = property(lambda self: self.question[2])

    def add(self, batch: Batch, at: int = 0) -> None:
        """Add up the samples, or their gradients."""
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asked judges what does not fit
            for j, start, stop in self._cuts(at, len(batch)):
                some = batch if stop - start == len(batch) else batch[start:stop]
                if batch.summable:
                    is_first = self._total is None
                    self._total = some.add_to(self._total)
                    self._open = j
                    if is_first:
                        self._eps = float(np.finfo(numpy_dtype(self._total)).eps)
                    if j is not None and self.edges[j + 1 : j + 2] == (at + stop,):
                        self._look()
                else:
                    own = [] if j is None else [{m: g[j : j + 1] for m, g in p.items()} for p in self._part_sums]
                    self._sums = self._zeros() if self._sums is None else self._sums
                    some.add_gradients((*self.queries, *self.question[3]), (*self._sums, *own))
                    self._eps = float(np.finfo(np.float32).eps)  # the coarsest that they may be added up in
                if j is not None:
                    self._sizes[j] += stop - start
        self.n += len(batch)

    def _cuts(self, at: int, count: int) -> Iterator[tuple[int | None, int, int]]:
        """The sub-batches that a batch of ``count`` samples from number ``at`` on has a part in, and which part."""
        if not self.edges:
            yield None, 0, count
            return
        first = bisect.bisect_right(self.edges, at) - 1
        inside = [edge - at for edge in self.edges[first + 1 :] if edge < at + count]
        for j, (start, stop) in enumerate(itertools.pairwise([0, *inside, count]), first):
            yield j, start, stop

    def _look(self) -> None:
        """Note the gradients of the running sum, for the sub-batch that ends here."""
        if self._open is None:
            return
        for part in gradients_of(self._total, self.question[3]):
            for m, gradient in part.gradients.items():
                before = self._before[part.number][m]
                self._part_sums[part.number][m][self._open] += gradient.reshape(before.shape) - before
                before[...] = gradient.reshape(before.shape)
        self._open = None

    def add_mean(self, mean: Array, n: int) -> None:
        """Take ``n`` samples, all there are, that are known by their mean only, which may be changed."""
        mean *= n
        self._total, self.n = mean, n

    def merge(self, other: Self) -> None:
        """Take what another one, of the samples that come next, has."""
        super().merge(other)
        self._eps = max(self._eps, other._eps)

    def close(self) -> None:
        """Contract the sum, where that is larger than its gradients.

        Of the scaled mean, in fact, as at the end of a reading that is one group: both round alike.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            self._look()
            if self._total is not None and self.queries and bytes_of(self._total) > gradient_bytes(self.queries):
                factor, self._sums = self.scale / self.n, self._zeros()
                self._total *= factor
                add_gradients_of(self._total, self.queries, self._sums)
                for gradient in (g for sums in self._sums for g in sums.values()):
                    gradient /= factor
                self._total = None

    def finish(self) -> None:
        """Mean gradients in the dtype of their replicas, and rewards; known components subtracted."""
        factor = self.scale / self.n
        with np.errstate(over="ignore", invalid="ignore"):
            self._look()
            if self._total is not None:
                self._total *= factor
                self.answers = contract_all(self._total, self.queries)
            elif self._sums is not None:
                self.answers = tuple(Answer.empty(query) for query in self.queries)
                for query, answer, sums in zip(self.queries, self.answers, self._sums, strict=True):
                    rows = [np.reshape(block, (len(block), -1)).astype(np.float64) for block in query.replicas]
                    means = {m: factor * gradient.reshape(len(gradient), -1) for m, gradient in sums.items()}
                    fill(answer, query, slice(None), means, rows)
            if self._sizes.any():  # not where only the mean is known
                parted = [query for query in self.queries if query.by_part is not None]
                sub_batches = map(self._sub_batches, parted, self._part_sums)
                self.answers = tuple(
                    answer if query.by_part is None else dataclasses.replace(answer, by_part=next(sub_batches))
                    for query, answer in zip(self.queries, self.answers, strict=True)
                )
        self._total, self._sums, self._part_sums = None, None, []

    def _sub_batches(self, query: Query, sums: dict[int, Array]) -> SubBatches:
        """Mean gradients and rewards of one query, by sub-batch."""
        some = np.flatnonzero(self._sizes)
        sizes = self._sizes[some].astype(np.float64)
        rows = [np.asarray(block.reshape(1, -1), np.float64) for block in query.replicas]
        means = {m: self.scale * g[some].reshape(len(some), -1) / sizes[:, None] for m, g in sums.items()}
        means = subtract(means, rows, query)
        first = next(iter(means))
        gradients = {m: means[m].reshape(len(some), *query.partition.shapes[m]) for m in query.by_part or ()}
        return SubBatches(sizes, gradients, means[first] @ rows[first][0], self._eps * self.n)

    def least_samples(self, sum_bytes: int | None) -> int:
        """A contraction costs about as much as adding up two samples for every replica."""
        if sum_bytes is None or sum_bytes <= gradient_bytes(self.queries):  # there is none at the end of a group
            return 1
        replicas = sum(len(query.replicas[0]) for query in self.queries if len(query.partition) > 1)
        return int(REPLICA_SAMPLES * replicas)

    def for_worker(self, sum_bytes: int | None) -> Gradients:
        """No question at all, where sums of samples are smaller than their gradients; else what gradients need."""
        small = sum_bytes is not None and sum_bytes <= gradient_bytes(self.queries)
        queries = () if small else tuple(query.for_gradients() for query in self.queries)
        return Gradients(queries, *self.question[1:])

    def _zeros(self) -> list[dict[int, Array]]:
        return [{m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in self.queries]


def gradient_bytes(queries: Sequence[Query]) -> int:
    """Bytes of the summed gradients of all queries, in float64."""
    return 8 * sum(len(q.replicas[0]) * sum(q.partition.sizes[m] for m in q.blocks) for q in queries)


def _asked_by_part(queries: Sequence[Query]) -> tuple[Query, ...]:
    """What sub-batches need to know of those queries that ask for them.

    Rewards alone follow from the gradients of any one block, the smallest.
    """
    found = []
    for query in queries:
        if query.by_part is not None:
            smallest = min(range(len(query.partition)), key=query.partition.sizes.__getitem__)
            blocks = query.by_part or (smallest,)
            found.append(dataclasses.replace(query, gradients_of=blocks, by_part=None, deflate=()))
    return tuple(found)
