r"""Sub-batches: how the gradients and the reward of one replica scatter inside a reading.

A reading of n samples is cut at ``edges``, known before the first sample: sub-batch j has the samples from number
``edges[j]`` on, up to the next edge.  Of every query that asks for it (:attr:`Query.by_part`) the sum of the gradients
over each sub-batch is kept, :math:`m\sum_i d_i` numbers.

Samples that can be added up are added to one running sum, as they are without sub-batches; at every edge that sum is
contracted with the few vectors asked about, and the gradients of a sub-batch are the difference of two neighbours:

.. math:: G_j = \nabla R(T_1 + \dots + T_{e_{j+1}}) - \nabla R(T_1 + \dots + T_{e_j}) .

That costs one look at the sum for every sub-batch, however many samples it has, for all queries together.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.few_replicas import FewReplicas
from tpca.tensors.halves import Cut, add_in_halves
from tpca.tensors.query import Query, SubBatches, subtract


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


def asked_by_part(queries: Sequence[Query]) -> tuple[Query, ...]:
    """What sub-batches need to know of those queries that ask for them; rewards follow from any one block."""
    return tuple(
        dataclasses.replace(q, gradients_of=q.by_part or (0,), by_part=None, deflate=())
        for q in queries
        if q.by_part is not None
    )
