r"""Sub-batches: how the gradients and the reward of one replica scatter inside a reading.

A reading of n samples is cut at ``edges``, known before the first sample: sub-batch j has the samples from number
``edges[j]`` on, up to the next edge.  Of every query that asks for it (:attr:`Query.by_part`) the sum of the gradients
over each sub-batch is kept, :math:`m\sum_i d_i` numbers.

Samples that can be added up are added to one running sum, as they are without sub-batches; at every edge that sum is
contracted with the few vectors asked about, and the gradients of a sub-batch are the difference of two neighbours:

.. math:: G_j = \nabla R(T_1 + \dots + T_{e_{j+1}}) - \nabla R(T_1 + \dots + T_{e_j}) .

That costs one look at the sum for every sub-batch, however many samples it has, for all queries together.

Mean gradients and rewards of replicas, made from sums of samples.

Contraction is linear.  Samples that can be added up are, so that the cost of replicas does not grow with the samples;
for all others their contractions are added up.  Samples are added up in about the units in which the answers are
wanted: each is multiplied by a power of two next to the scale, which changes no bit of the result, and keeps sums of
huge samples from overflowing.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.accumulators import Accumulator, added
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import FewReplicas, add_gradients_of, contract_all, narrow
from tpca.tensors.dense import Batch, DenseBatch
from tpca.tensors.device import DeviceBatch
from tpca.tensors.kernels import LARGE, Cut, add_in_halves
from tpca.tensors.namespaces import bytes_of, scaled
from tpca.tensors.query import Answer, Query, SubBatches, rewards, subtract


class SubBatchSums:
    """Sums of gradients over every sub-batch, for all queries that ask for them, as far as samples have come."""

    def __init__(self, edges: Sequence[int], queries: Sequence[Query]) -> None:
        self.edges = tuple(edges)
        self.queries = tuple(queries)
        self.sizes = np.zeros(len(self.edges), np.int64)
        shapes = [{m: q.partition.shapes[m] for m in q.blocks} for q in self.queries]
        self._sums = [{m: np.zeros((len(self.edges), *s)) for m, s in own.items()} for own in shapes]
        self._until = [{m: np.zeros(s) for m, s in own.items()} for own in shapes]  # of the sum at the last edge
        self._ready: FewReplicas | None = None  # from the first look on
        self._open: int | None = None  # the sub-batch that has samples in the running sum since then
        self._held = sum(g.nbytes for own in (*self._sums, *self._until) for g in own.values())

    def cuts(self, count: int, at: int) -> list[Cut]:
        """A batch of ``count`` samples, the first of them number ``at``, cut at the edges."""
        found, place, last = [], at, len(self.edges) - 1
        while place < at + count:
            j = bisect.bisect_right(self.edges, place) - 1
            stop = at + count if j == last else min(at + count, self.edges[j + 1])
            self.sizes[j] += stop - place
            found.append(Cut(j, place - at, stop - at, j < last and stop == self.edges[j + 1]))
            place = stop
        return found

    def at(self, j: int) -> list[dict[int, Array]]:
        """The sums of sub-batch ``j``, to be added to."""
        return [{m: total[j : j + 1] for m, total in own.items()} for own in self._sums]

    def grow(self, j: int) -> None:
        """The running sum has got samples of sub-batch ``j``."""
        self._open = j

    def look(self, running: Any) -> None:
        """Take note of the running sum at the end of a sub-batch, or of a group of samples."""
        if self._open is not None and running is not None:
            self._note(self._open, self._few(running).gradients(running))
            self._open = None

    def add_large(self, running: NDArray[Any], samples: NDArray[Any], weight: float, cuts: Sequence[Cut]) -> bool:
        """Add large samples to the running sum, two halves of it at once; false where it cannot be cut so."""
        if not self._few(running).in_order:
            return False
        gradients = add_in_halves(running, samples, weight, cuts, self._few(running))
        if any(cut.ends for cut in cuts):
            self._note(cuts[0].sub_batch, gradients)
        self._open = None if cuts[-1].ends else cuts[-1].sub_batch
        return True

    def _few(self, running: Any) -> FewReplicas:
        if self._ready is None:
            self._ready = FewReplicas(self.queries, running)
        return self._ready

    def _note(self, j: int, gradients: Sequence[dict[int, Array]]) -> None:
        """The gradients of the running sum at the ends of sub-batches, of ``j`` and those after it."""
        for found, sums, until in zip(gradients, self._sums, self._until, strict=True):
            for m, gradient in found.items():
                ends = gradient.reshape(-1, *until[m].shape)
                steps = ends.astype(np.float64)
                steps[0] -= until[m]
                steps[1:] -= ends[:-1]
                sums[m][j : j + len(steps)] += steps
                until[m][...] = ends[-1]

    def merge(self, other: SubBatchSums) -> None:
        """Take the sums of the samples that come next."""
        self.sizes += other.sizes
        for own, others in zip(self._sums, other._sums, strict=True):
            for m, total in own.items():
                total += others[m]

    def answer(self, number: int, query: Query, factor: float) -> SubBatches:
        """Mean gradients and rewards of the ``number``-th of these queries, by sub-batch, times ``factor``."""
        some = np.flatnonzero(self.sizes)
        sizes = self.sizes[some].astype(np.float64)
        rows = [np.asarray(block.reshape(1, -1), np.float64) for block in query.replicas]
        means = {m: factor * g[some].reshape(len(some), -1) / sizes[:, None] for m, g in self._sums[number].items()}
        means = subtract(means, rows, query)
        first = next(iter(means))
        gradients = {m: means[m].reshape(len(some), *query.partition.shapes[m]) for m in query.by_part or ()}
        return SubBatches(sizes, gradients, means[first] @ rows[first][0])

    @property
    def nbytes(self) -> int:
        """The sums, and what looks need."""
        return self._held + (0 if self._ready is None else self._ready.nbytes)

    def __getstate__(self) -> dict[str, Any]:
        """What travels: not what only looks need."""
        return {**self.__dict__, "_ready": None}


def _shortest(query: Query) -> int:
    """The block whose gradients take least memory: rewards alone can be made of any."""
    return min(range(len(query.partition)), key=lambda m: query.partition.sizes[m])


def asked_by_part(queries: Sequence[Query]) -> tuple[Query, ...]:
    """What sub-batches need to know of those queries that ask for them; rewards follow from any one block."""
    return tuple(
        dataclasses.replace(q, gradients_of=q.by_part or (_shortest(q),), by_part=None, deflate=())
        for q in queries
        if q.by_part is not None
    )


EXPONENTS = (-126, 126)  # of the powers of two that all float types have
REPLICA_SAMPLES = 2.0  # for every replica, in a group of samples whose sum is contracted: see tpca.engines.groups


class Gradients(Accumulator):
    """Mean gradients and rewards of all ``queries``, every sample multiplied by ``scale``: ``answers``, at the end.

    ``scale`` brings data to about unit size, which replicas in half precision need.  With ``edges``, numbers of samples
    from 0 on, queries that ask for it are answered for every sub-batch as well (:mod:`tpca.tensors.gradients`).
    ``by_part`` are those queries, of which a worker may know no more.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        scale: float = 1.0,
        edges: Sequence[int] = (),
        by_part: Sequence[Query] | None = None,
    ) -> None:
        parted = asked_by_part(queries) if by_part is None else tuple(by_part)
        super().__init__(tuple(queries), scale, tuple(edges), parted)
        self._parts = SubBatchSums(edges, parted) if len(edges) and parted else None
        self.answers: tuple[Answer, ...] = ()
        self._total: Any = None  # the sum of samples that can be added up
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

    @property
    def edges(self) -> tuple[int, ...]:
        """Where sub-batches begin."""
        assert self.question is not None
        edges: tuple[int, ...] = self.question[2]
        return edges

    def add(self, batch: Batch, at: int = 0) -> None:
        """Add up the samples, or their gradients."""
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asked judges what does not fit
            if self._parts is None:
                self._take(batch)
            else:
                self._take_parts(self._parts, batch, at)
        self.n += len(batch)

    def _take(self, batch: Batch) -> None:
        if batch.summable:
            self._total = batch.add_to(self._total, self._weight)
        else:
            batch.add_gradients(self.queries, self._begun())

    def _take_parts(self, parts: SubBatchSums, batch: Batch, at: int) -> None:
        whole = None  # other kinds look for themselves
        if isinstance(batch, DenseBatch) and type(batch) in (DenseBatch, DeviceBatch):
            whole = batch
        cuts = parts.cuts(len(batch), at)
        if type(batch) is not DenseBatch or not self._take_large(parts, batch, cuts):
            self._take_cuts(parts, batch if whole is None else whole.trusted(), cuts)
        if whole is not None and self._total is not None:
            whole.look_in(self._total)

    def _take_large(self, parts: SubBatchSums, batch: DenseBatch, cuts: Sequence[Cut]) -> bool:
        """Add up large samples, two halves of each at once, if these are."""
        (samples,) = batch.content()
        if not len(samples) or samples[0].size < LARGE:
            return False
        total = np.zeros(samples.shape[1:], samples.dtype) if self._total is None else self._total
        if total.dtype != samples.dtype or not parts.add_large(total, samples, self._weight, cuts):
            return False
        self._total = total
        return True

    def _take_cuts(self, parts: SubBatchSums, batch: Batch, cuts: Sequence[Cut]) -> None:
        for j, start, stop, ends in cuts:
            some = batch if stop - start == len(batch) else batch[start:stop]
            if batch.summable:
                self._total = some.add_to(self._total, self._weight)
                parts.grow(j)
                if ends:
                    parts.look(self._total)
            else:
                some.add_gradients((*self.queries, *parts.queries), (*self._begun(), *parts.at(j)))

    def _begun(self) -> list[dict[int, Array]]:
        """Sums of the gradients of samples that cannot be added up; these are not multiplied by anything."""
        self._sums, self._weight = self._zeros() if self._sums is None else self._sums, 1.0
        return self._sums

    def add_mean(self, mean: Array, n: int) -> None:
        """Take ``n`` samples, all there are, that are known by their mean only, which may be changed."""
        mean *= n * self._weight
        self._total, self.n = mean, n

    def merge(self, other: Gradients) -> None:
        """Add the sums."""
        if self._parts is not None and other._parts is not None:
            self._parts.look(self._total)
            other._parts.look(other._total)
            self._parts.merge(other._parts)
        self._total = added(self._total, other._total)
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
        if self._parts is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                self._parts.look(self._total)
        if self._total is None or not self.queries or bytes_of(self._total) <= gradient_bytes(self.queries):
            return
        factor = self.scale / self._weight / self.n
        with np.errstate(over="ignore", invalid="ignore"):
            mean = scaled(self._total, factor)
            self._total, self._sums = None, self._zeros()
            add_gradients_of(mean, self.queries, self._sums, factor)

    def finish(self) -> None:
        """Mean gradients in the dtype of their replicas, and rewards; known components subtracted."""
        factor = self.scale / self._weight / self.n
        with np.errstate(over="ignore", invalid="ignore"):
            if self._parts is not None:
                self._parts.look(self._total)
            if self._total is not None:
                self.answers = contract_all(scaled(self._total, factor), self.queries)
            elif self._sums is not None:
                pairs = zip(self.queries, self._sums, strict=True)
                self.answers = tuple(_answer(query, sums, factor) for query, sums in pairs)
            if self._parts is not None and self._parts.sizes.any():  # not where only the mean is known
                self._answer_parts(self._parts, self.scale / self._weight)
        self._total = self._sums = self._parts = None

    def _answer_parts(self, parts: SubBatchSums, factor: float) -> None:
        places = [i for i, query in enumerate(self.queries) if query.by_part is not None]
        answers = list(self.answers)
        for number, i in enumerate(places):
            answers[i] = dataclasses.replace(answers[i], by_part=parts.answer(number, self.queries[i], factor))
        self.answers = tuple(answers)

    @property
    def nbytes(self) -> int:
        """The sums."""
        gradients = sum(g.nbytes for sums in self._sums or () for g in sums.values())
        gradients += 0 if self._parts is None else self._parts.nbytes
        return gradients + (0 if self._total is None else bytes_of(self._total))

    def least_samples(self, sum_bytes: int | None) -> int:
        """A contraction costs about as much as adding up two samples for every replica."""
        if sum_bytes is None or sum_bytes <= gradient_bytes(self.queries):  # there is none at the end of a group
            return 1
        replicas = sum(len(query.replicas[0]) for query in self.queries if len(query.partition) > 1)
        return int(REPLICA_SAMPLES * replicas)

    def for_worker(self, sum_bytes: int | None) -> Gradients:
        """No question at all, where sums of samples are smaller than their gradients; else what gradients need."""
        assert self.question is not None
        small = sum_bytes is not None and sum_bytes <= gradient_bytes(self.queries)
        queries = () if small else tuple(query.for_gradients() for query in self.queries)
        return Gradients(queries, *self.question[1:])

    def _zeros(self) -> list[dict[int, Array]]:
        return [{m: np.zeros((len(q.replicas[0]), *q.partition.shapes[m])) for m in q.blocks} for q in self.queries]


def gradient_bytes(queries: Sequence[Query]) -> int:
    """Bytes of the summed gradients of all queries, in float64."""
    return 8 * sum(len(q.replicas[0]) * sum(q.partition.sizes[m] for m in q.blocks) for q in queries)


def _answer(query: Query, sums: dict[int, Array], factor: float) -> Answer:
    count = len(query.replicas[0])
    rows = [np.asarray(block.reshape(count, -1), dtype=np.float64) for block in query.replicas]
    parts = subtract({m: factor * g.reshape(count, -1) for m, g in sums.items()}, rows, query)
    gradients = {m: np.empty(g.shape, dtype=query.replicas[m].dtype) for m, g in sums.items()}
    narrow(parts, gradients, slice(None))
    return Answer(gradients, rewards(parts, rows))
