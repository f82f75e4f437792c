r"""Partial traces, and the power iteration that starts from them: methods for the symmetric model.

**Partial trace**: contract pairs of modes away until a d × d matrix is left, and take its leading eigenvector.
For the symmetric model, T̄ = λ v ⊗ … ⊗ v + noise.  Tracing a pair of modes (summing over equal indices) keeps the
signal, since ⟨v, v⟩ = 1.  Even order: all pairs but one are traced,

.. math:: M_{ab} = \sum_{c, e, \dots} \bar T_{a b c c e e \dots} = \lambda v v^\top + \text{noise of norm } d^{\bar k/4}
          \,\sigma/\sqrt N .

Odd order: all pairs are traced, which leaves a vector t = λv + noise, then

.. math:: M = \sum_i t_i\, T_i, \qquad t_i = \mathrm{tr}(T_i), \quad T_i \text{ the } i\text{-th slice (order 3);}

beyond order 3 the slices' other pairs are traced.  This is :math:`\sum_i T_i \otimes T_i` with one of its two sides
traced.  Either way v̂ is M's eigenvector of largest absolute eigenvalue, good for λ²N ≳ d^{k̄/2}σ².

**Homotopy**: power iteration from there,

.. math:: x^0 = \begin{cases} \text{leading eigenvector of the partial trace } M & \bar k \text{ even} \\
          \mathrm{unit}(t),\ t \text{ the trace vector} & \bar k \text{ odd} \end{cases}
          \qquad
          x^{t+1} = \mathrm{unit}\Big(s \sum_n \bar T \text{ contracted with } x^t \text{ in all modes but } n\Big) .

The start is the maximiser of the objective smoothed by infinite noise, and the rest follows it back to no smoothing:
of the whole path only the two ends are needed.  Order 3 needs λ√N ≳ d^{3/4}σ after one iteration, although t itself
knows little of v; even orders need λ²N ≳ d^{k̄/2}σ².

Symbols: ``eye`` is what traces a pair (a block contracted with the identity), ``lead`` is t; ``sign`` is s, that of M's
leading eigenvalue (1 at odd order).

References: S. Hopkins, T. Schramm, J. Shi, D. Steurer, *Fast spectral algorithms from sum-of-squares proofs*, STOC
2016, Section on tensor PCA (order 3: Σ_i Tr(T_i) T_i); A. Anandkumar, Y. Deng, R. Ge, H. Mobahi, *Homotopy analysis for
tensor PCA*, COLT 2017 (order 3); G. Biroli, C. Cammarota, F. Ricci-Tersenghi, *How to iron out rough landscapes and get
optimal performances*, J. Phys. A 2020 (any order).
Different on purpose: averaged over all ways to pair the modes, which is the same as symmetrising the data first: theirs
are symmetric, ours need not be.  One vector serves all modes: unequal dims are refused, and modes whose vectors differ
are beyond it.  In the homotopy every sample serves both the start and the iterations, without the noise that the paper
of 2017 injects for its proof.

State at even order: the matrices of all pairings, O(d²); one pass.  At odd order the same with a second pass over the
data, or, if they can be read only once, the mean.  Without the mean in memory the strength is not known (NaN).  The
homotopy holds the mean and some vectors; with ``method="passes"`` no mean, O(d²) for the start, and a pass per
iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.all_samples import AllSamples
from research.baselines.baseline import Baseline, check_symmetric, one_of
from tpca.engines import open_engine
from tpca.errors import check_integer
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import option
from tpca.solvers.race.strategies.symmetric import pairings
from tpca.solvers.rank_one import leading
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, unit

MOVE_TOL = 1e-7  # change of x at which iterating stops


@dataclass(kw_only=True, eq=False)
class PartialTrace(Baseline):
    """Leading eigenvector of the partial trace of the mean; symmetric model, any order from 3."""

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


@dataclass(kw_only=True, eq=False)
class Homotopy(Baseline):
    """Power iteration on the mean from its partial trace; symmetric model, any order from 3.

    Parameters
    ----------
    max_iterations
        Most power iterations; it ends earlier when x stands still.
    method
        ``"mean"`` holds the mean, ``"passes"`` reads a re-readable source once per iteration instead.
    """

    max_iterations: int = option(100, check_integer)
    method: str = option("mean", one_of("mean", "passes"))

    def run(self, source: Any) -> Recovery:
        """Recover the vector of all modes from all samples of ``source``."""
        engine = open_engine(source)
        check_symmetric("Homotopy", engine.dims)
        samples = AllSamples(engine, self.max_samples, hold=self.method == "mean")
        x, sign = start(samples)
        history = []
        for iteration in range(self.max_iterations):
            (answer,) = samples.ask(Query(samples.singles, (x[None],) * len(samples.dims)))
            value = sign * float(answer.rewards[0])
            before, x = x, unit(sign * sum(answer.gradients[n][0] for n in range(len(samples.dims))))
            moved = float(np.linalg.norm(x - before))
            history.append({"iteration": iteration, "value": value, "moved": moved})
            if moved < MOVE_TOL:
                break
        return samples.recovery([sign * x, *[x] * (len(samples.dims) - 1)], history=history)


def start(samples: AllSamples) -> tuple[Array, float]:
    """x^0 and s."""
    if len(samples.dims) % 2:
        return unit(trace_vector(samples)), 1.0
    (value,), (vector,) = leading(trace_matrix(samples, None))
    return vector, math.copysign(1.0, value)


def trace_vector(samples: AllSamples) -> Array:
    """The vector t: all pairs traced, averaged over all pairings; odd order."""
    d = samples.dims[0]
    eye, one = np.eye(d)[None], np.ones((1, d))
    partitions = _partitions(samples.dims)
    traced = tuple(range(1, len(partitions[0])))
    answers = samples.ask(
        *(Query(p, (one, *[eye] * len(traced)), gradients_of=(0,), traced=traced) for p in partitions)
    )
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
