r"""Partial traces: contract pairs of modes away until a d × d matrix is left, and take its leading eigenvector.

For the symmetric model, T̄ = λ v ⊗ … ⊗ v + noise.  Tracing a pair of modes (summing over equal indices) keeps the
signal, since ⟨v, v⟩ = 1.  Even order: all pairs but one are traced,

.. math:: M_{ab} = \sum_{c, e, \dots} \bar T_{a b c c e e \dots} = \lambda v v^\top + \text{noise of norm } d^{\bar k/4}
          \,\sigma/\sqrt N .

Odd order: all pairs are traced, which leaves a vector t = λv + noise, then

.. math:: M = \sum_i t_i\, T_i, \qquad t_i = \mathrm{tr}(T_i), \quad T_i \text{ the } i\text{-th slice (order 3);}

beyond order 3 the slices' other pairs are traced.  This is :math:`\sum_i T_i \otimes T_i` with one of its two sides
traced.  Either way v̂ is M's eigenvector of largest absolute eigenvalue, good for λ²N ≳ d^{k̄/2}σ².

Symbols: ``eye`` is what traces a pair (a block contracted with the identity), ``lead`` is t.

Reference: S. Hopkins, T. Schramm, J. Shi, D. Steurer, *Fast spectral algorithms from sum-of-squares proofs*, STOC 2016,
Section on tensor PCA (order 3: Σ_i Tr(T_i) T_i); even order: G. Biroli, C. Cammarota, F. Ricci-Tersenghi, *How to iron
out rough landscapes and get optimal performances*, J. Phys. A 2020.
Different on purpose: averaged over all ways to pair the modes, which is the same as symmetrising the data first: theirs
are symmetric, ours need not be.  One vector serves all modes: unequal dims are refused, and modes whose vectors differ
are beyond it.

State at even order: the matrices of all pairings, O(d²); one pass.  At odd order the same with a second pass over the
data, or, if they can be read only once, the mean.  Without the mean in memory the strength is not known (NaN).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpca.engines import open_engine
from tpca.lab.baselines.all_samples import AllSamples
from tpca.lab.baselines.options import check_equal_dims, check_order
from tpca.solvers.options import check_max_samples
from tpca.solvers.race.strategies.symmetric import pairings
from tpca.solvers.rank_one import leading
from tpca.solvers.recovery import Recovery
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit


class PartialTrace:
    """Leading eigenvector of the partial trace of the mean; symmetric model, any order from 3.

    ``seed`` is not used: the method has nothing random.
    """

    def __init__(self, *, random_state: int = 0, max_samples: int | None = None) -> None:
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

    def run(self, source: Any) -> Recovery:
        """Recover the vector of all modes from all samples of ``source``."""
        engine = open_engine(source)
        check_symmetric("PartialTrace", engine.dims)
        odd = len(engine.dims) % 2
        samples = AllSamples(engine, self.max_samples, hold=bool(odd) and not engine.rereadable)
        lead = unit(trace_vector(samples)) if odd else None
        (value,), (vector,) = leading(trace_matrix(samples, lead))
        sign = math.copysign(1.0, value)
        if lead is not None:  # M is quadratic in the data: the sign is that of t
            vector, sign = math.copysign(1.0, float(vector @ lead)) * vector, 1.0
        vectors = [sign * vector, *[vector] * (len(samples.dims) - 1)]
        return samples.recovery(vectors, None if samples.held else math.nan)


def check_symmetric(method: str, dims: tuple[int, ...]) -> None:
    """Equal dims, and something to trace."""
    check_order(method, dims, 3)
    check_equal_dims(method, dims)


def trace_vector(samples: AllSamples) -> Array:
    """The vector t: all pairs traced, averaged over all pairings; odd order."""
    d = samples.dims[0]
    eye, one = np.eye(d)[None], np.ones((1, d))
    partitions = _partitions(samples.dims)
    traced = tuple(range(1, len(partitions[0])))
    answers = samples.ask(*(Query(p, (one, *[eye] * len(traced)), wanted=(0,), traced=traced) for p in partitions))
    total: Array = sum((answer.gradients[0][0] for answer in answers), start=np.zeros(d))
    return total / len(answers)


def trace_matrix(samples: AllSamples, lead: Array | None) -> Array:
    """M: one pair left, the single mode of an odd order contracted with ``lead``; averaged over all pairings."""
    d = samples.dims[0]
    eye = np.eye(d)[None]
    single = () if lead is None else (lead[None],)
    wanted = tuple(range(len(single), (len(samples.dims) + 1) // 2))
    blocks = (*single, *[eye] * len(wanted))
    queries = [Query(p, blocks, wanted, traced=wanted) for p in _partitions(samples.dims)]
    matrices = [g[0] for answer in samples.ask(*queries) for g in answer.gradients.values()]
    total: Array = sum(matrices, start=np.zeros((d, d)))
    samples.note(eye, *matrices, working=3 * total.nbytes)  # the sum, its mean, and later the eigenvectors
    return (total + total.T) / (2 * len(matrices))


def _partitions(dims: tuple[int, ...]) -> list[Partition]:
    return [Partition(dims, groups) for groups in pairings(tuple(range(len(dims))))]
