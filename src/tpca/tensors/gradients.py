"""Mean gradients and rewards of replicas, made from sums of samples.

Contraction is linear.  Samples that can be added up are, so that the cost of replicas does not grow with the samples;
for all others their contractions are added up.  Samples are added up in about the units in which the answers are
wanted: each is multiplied by a power of two next to the scale, which changes no bit of the result, and keeps sums of
huge samples from overflowing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.tensors.accumulators import Accumulator, added
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import add_gradients_of, contract_all, narrow
from tpca.tensors.dense import DenseBatch
from tpca.tensors.device import DeviceBatch
from tpca.tensors.namespaces import bytes_of, scaled
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Answer, Query, rewards, subtract
from tpca.tensors.sub_batches import SubBatchSums, asked_by_part

EXPONENTS = (-126, 126)  # of the powers of two that all float types have
REPLICA_SAMPLES = 2.0  # for every replica, in a group of samples whose sum is contracted: see tpca.engines.groups


class Gradients(Accumulator):
    """Mean gradients and rewards of all ``queries``, every sample multiplied by ``scale``: ``answers``, at the end.

    ``scale`` brings data to about unit size, which replicas in half precision need.  With ``edges``, numbers of samples
    from 0 on, queries that ask for it are answered for every sub-batch as well (:mod:`tpca.tensors.sub_batches`).
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
        whole: Any = batch if type(batch) in (DenseBatch, DeviceBatch) else None  # others look for themselves
        for j, some, ends in parts.pieces(batch if whole is None else whole.trusted(), at):
            if batch.summable:
                self._total = some.add_to(self._total, self._weight)
                parts.grow(j)
                if ends:
                    parts.look(self._total)
            else:
                some.add_gradients((*self.queries, *parts.queries), (*self._begun(), *parts.at(j)))
        if whole is not None and self._total is not None:
            whole.look_in(self._total)

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
