r"""Vectors that are the same in all modes: partial traces find them.

Let P run over all ways to pair up the modes (one mode stays single at odd order).  Tracing out all pairs but one gives,
for v ⊗ ... ⊗ v, a d x d matrix of signal λ v v^T (at odd order: all pairs, a vector λ v).  Its noise has d^q times the
variance of a sample's, q = number of pairs traced; different pairings are nearly uncorrelated:

.. math:: M = \sum_{rounds} B \sum_P \mathrm{sym}\,\mathrm{tr}_P(T), \qquad
          A = \sum_{rounds} B \sum_i T(\cdot_i, x, \dots, x) .

``M`` starts the search; its leading eigenvector (of largest absolute eigenvalue: the strength may be negative) or, at
odd order, its direction is the first x.  ``A`` adds the contractions with x itself, of noise 1 instead of d^q, so that
x is improved by samples as soon as it is any good:  ``x <- unit(s_M M(x) / w_M + s_A A / w_A)``, s the signals
``<x, M(x)>`` and ``<x, A>``, w the noise variances.  The proposal is x for every mode, the sign of one flipped for a
negative strength.

Symbols: T mean of a round, B its samples (``n`` in ``absorb``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.strategies.strategy import Look, all_finite
from tpca.solvers.rank_one import leading
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

SWEEPS = 5  # of M and A on x
ORDERS = range(3, 7)  # six modes have 15 pairings, twelve 10 395


def pairings(modes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to group ``modes`` into pairs; at odd order one mode, named first, is left single."""
    if len(modes) % 2:
        for single in modes:
            rest = tuple(m for m in modes if m != single)
            yield from (((single,), *groups) for groups in pairings(rest))
    elif not modes:
        yield ()
    else:
        first, *others = modes
        for partner in others:
            rest = tuple(m for m in others if m != partner)
            yield from (((first, partner), *groups) for groups in pairings(rest))


def symmetric_floats(dims: Sequence[int]) -> float:
    """State of :class:`Symmetric` in float64 units; infinite where it has nothing to look for.

    M, A, x and the eigenvectors of M in float64; the identity that is asked with and the answers in flight in float32.
    """
    order, d = len(dims), dims[0]
    if order not in ORDERS or len(set(dims)) > 1:
        return math.inf
    trace, count = (d, 1) if order % 2 else (d * d, order // 2)
    in_flight = math.prod(range(order - 1 + order % 2, 0, -2)) * count * trace / 2
    return 5 * trace + in_flight + d * d / 2 + (2 * order + 5) * d


@kept
class Symmetric:
    """All vectors the same up to sign."""

    name, size = "symmetric", 1

    def __init__(self, dims: Sequence[int], rng: np.random.Generator) -> None:
        self._dims, self._odd = tuple(dims), len(dims) % 2
        self._partitions = [Partition(self._dims, groups) for groups in pairings(tuple(range(len(dims))))]
        self._x = unit(rng.standard_normal(dims[0]))
        self._sign = 1.0
        self._traces: Array = np.zeros(dims[0] if self._odd else (dims[0], dims[0]))
        self._contractions: Array = np.zeros(dims[0])
        self._trace_variance = self._variance = 0.0

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight: the eigenvectors of M."""
        return 32 * self._traces.size

    def queries(self) -> tuple[Query, ...]:
        """Ask for the traces of all pairings, and the contractions with x."""
        d, gradients_of = self._dims[0], (0,) if self._odd else None
        blocks = {1: np.ones((1, d), np.float32), 2: np.eye(d, dtype=np.float32)[None]}
        asked = []
        for p in self._partitions:
            pairs = tuple(m for m, group in enumerate(p.groups) if len(group) == 2)
            asked.append(Query(p, tuple(blocks[len(group)] for group in p.groups), gradients_of, traced=pairs))
        return (*asked, Query(Partition.singles(self._dims), tuple(v[None] for v in self.propose())))

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add traces and contractions; start x from M alone, then let M and A agree on it."""
        *traces, own = answers
        if not all_finite(answers):
            return
        pairs = (len(self._dims) - 1) // 2  # traced out of each term of M
        for gradient in (gradient for answer in traces for gradient in answer.gradients.values()):
            self._traces += n * gradient[0]
            self._trace_variance += n * self._dims[0] ** pairs * (1.0 if self._odd else 0.5)  # sym halves it
        for mode, gradient in own.gradients.items():
            self._contractions += (self._sign if mode == 0 else 1.0) * n * gradient[0]
            self._variance += n
        if self._odd:
            x = unit(self._traces)
        else:
            (value,), (x,) = leading(self._traces)
            self._sign = math.copysign(1.0, value)
            if x @ self._contractions < 0:  # of x and -x, the one that A was summed with
                x = -x
        for _ in range(SWEEPS):
            x = unit(self._toward(x)[0])
        self._x = x

    def restart(self) -> None:
        """Keep x, forget the sums."""
        self._traces[...] = 0.0
        self._contractions[...] = 0.0
        self._trace_variance = self._variance = 0.0

    def _toward(self, x: Array) -> tuple[Array, float]:
        """M(x) and A in the proportion of signal to noise variance, and the noise variance of their sum."""
        first = self._traces if self._odd else self._sign * 0.5 * (self._traces @ x + self._traces.T @ x)
        second = self._contractions
        a = max(0.0, float(x @ first)) / max(self._trace_variance, 1.0)
        b = max(0.0, float(x @ second)) / max(self._variance, 1.0)
        if a == b == 0.0:
            return x, 1.0
        return a * first + b * second, a * a * self._trace_variance + b * b * self._variance

    def read(self) -> Look:
        """What it says can be read off directly."""
        return self

    def propose(self) -> tuple[Array, ...]:
        """Propose x for every mode; a negative strength is a sign of mode 0."""
        return (self._sign * self._x, *(self._x for _ in self._dims[1:]))

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """Tell what M and A say about x, with the signs of ``vectors``; its own x serves: the modes are one vector."""
        total, variance = self._toward(self._x)
        return [math.copysign(1.0, float(v @ self._x)) * total for v in vectors], variance

    def arrays(self) -> list[Array]:
        """M, A and x."""
        return [self._traces, self._contractions, self._x]
