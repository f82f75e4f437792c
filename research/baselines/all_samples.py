r"""All samples of a source at once: their mean held in memory, or one pass over the data per query.

Most published methods see nothing but the mean of all N samples,

.. math:: \bar T = \frac1N \sum_t T_t = \lambda\, v_1 \otimes \dots \otimes v_{\bar k} + \bar E,
          \qquad \bar E_{ij\dots} \sim N(0, \sigma^2 / N),

and only through contractions.  :class:`AllSamples` answers such queries either from the mean itself, which is then
part of the method's state (∏ d floats), or by reading the data again for every query: no state, as many passes as
queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from research.baselines.baseline import RunStatistics, all_zero, check_fits, check_found, no_samples
from tpca.engines.base import A
from tpca.errors import SolverError, StreamError
from tpca.solvers.estimate import Recovery
from tpca.tensors import Answer, Gradients, Query, TensorSum, contract
from tpca.tensors.blocks import Array


class AllSamples(RunStatistics):
    """Contractions of the mean of all samples.

    ``hold`` keeps the mean in memory; otherwise every query costs a pass, which from the second on takes a
    re-readable source.
    """

    def __init__(self, source: Any, max_samples: int | None, hold: bool = True) -> None:
        super().__init__(source, max_samples)
        self._mean: Array | None = None
        if hold:
            self._mean = self._read_mean()
            self.note()

    @property
    def held(self) -> bool:
        """Whether the mean is held."""
        return self._mean is not None

    @property
    def mean(self) -> Array:
        """The mean of all samples, if it is held."""
        if self._mean is None:
            raise SolverError("the mean is not held; construct AllSamples with hold=True.")
        return self._mean

    def ask(self, *queries: Query) -> tuple[Answer, ...]:
        """Answers over all samples; they and the replicas asked with count as state."""
        answers = self._answers(queries) if self._mean is None else tuple(contract(self._mean, q) for q in queries)
        asked = [block for query in queries for block in query.replicas]
        working = 0 if self._mean is None else max(_contraction_bytes(q) for q in queries)
        self.note(*asked, working=sum(answer.nbytes for answer in answers) + working)
        return answers

    def ask_vectors(self, vectors: Sequence[Array], gradients_of: tuple[int, ...] | None = None) -> Answer:
        """Gradients and reward of one vector per mode."""
        return self.ask(Query(self.singles, tuple(v[None] for v in vectors), gradients_of))[0]

    def note(self, *arrays: Array, working: int = 0) -> None:
        """Remember the most that was held: the mean, ``arrays``, and ``working`` bytes beside them."""
        super().note(*arrays, working=working + (0 if self._mean is None else self._mean.nbytes))

    def recovery(
        self, vectors: Sequence[Array], strength: float | None = None, history: list[dict[str, Any]] | None = None
    ) -> Recovery:
        """As in :class:`RunStatistics`; a strength that is not given is asked for."""
        check_found(vectors)
        if strength is None:
            strength = float(self.ask_vectors(vectors, gradients_of=(0,)).rewards[0])
        return super().recovery(vectors, strength, history)

    def _pass(self, blank: A) -> A:
        """One pass over the data."""
        if self.passes:
            if not self.engine.rereadable:
                raise StreamError(
                    "this method reads the samples several times, and they can be read only once; "
                    "store them (.npy, Zarr, HDF5), or use a method or option that holds the mean."
                )
            self.engine.rewind()
        part = self.engine.reduce(blank, self.limit)
        if part.n == 0:
            raise no_samples()
        self.passes += 1
        self.n = part.n
        return part

    def _answers(self, queries: tuple[Query, ...]) -> tuple[Answer, ...]:
        """Answers from one pass over the data."""
        answers = self._pass(Gradients(queries)).answers
        if not any(g.any() for answer in answers for g in answer.gradients.values()):
            raise all_zero()
        return answers

    def _read_mean(self) -> Array:
        """The mean of all samples."""
        check_fits(f"the mean of samples of shape {self.dims}", 8 * math.prod(self.dims))
        part = self._pass(TensorSum())
        if part.total is None or not part.total.any():
            raise all_zero()
        mean: Array = part.total.astype(np.float64, copy=False)
        mean /= part.n
        return mean


def _contraction_bytes(query: Query) -> int:
    """Bytes that a contraction of the mean takes besides its answer: see :func:`tpca.tensors.contract`.

    Three arrays the size of the replicas' outer products over both halves of the blocks (the products, the partial
    contractions, a copy), and their gradients, for as many replicas at once as a mean has room for; and a copy of the
    mean if the blocks do not name the modes in order.
    """
    sizes, modes = query.partition.sizes, [n for group in query.partition.groups for n in group]
    entries = math.prod(sizes)
    halves = [(math.prod(sizes[:cut]), math.prod(sizes[cut:])) for cut in range(1, len(sizes))]
    outer = sum(min(halves, key=max, default=(0, 0)))
    some = max(1, min(len(query.replicas[0]), entries // max(outer, 1)))
    return 8 * (3 * some * outer + some * sum(sizes) + (0 if modes == sorted(modes) else entries))
