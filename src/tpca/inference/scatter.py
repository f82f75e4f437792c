r"""Errors of rank-one components from how units scatter about the estimate; and whether two halves of these agree.

The fit is :math:`\sum_c \lambda_c\, v_{c1}\otimes\dots\otimes v_{ck}`.  A small change E of the tensor that is fitted
changes it by :math:`\delta = (J^\top J)^+ J^\top E`, where J has the derivatives along every :math:`\lambda_c` and, at
right angles to :math:`v_{cm}`, along every vector.  :math:`J^\top E` are *slopes*, E contracted with all vectors but
one, so that a unit leaves no more than a vector for every mode.  With one component :math:`J^\top J` is diagonal:
:math:`\delta\lambda = \langle E, \otimes v\rangle` and :math:`\delta v_m = t_m/\lambda`, t the tangent part.
Several components of a matrix are its singular vectors, and change as these do.

From the sum of squares over units, on the squared scale, where the bias of a length is additive,

.. math:: s^2 = \lambda^2\Big(1 - \sum_m |\delta v_m|^2\Big), \qquad
    \text{interval}\ \sqrt{\max(0, s^2 \pm 2\,t_{\nu}\,\mathrm{se}(\lambda)\,\lambda)} .

**Halves.**  Units are split into two halves at random, components are fitted to each half alone, and those of a half
are matched with those of the whole (by the assignment of largest total :math:`|\cos|`).  The agreement of component c
is the cosine of its two unit patterns, :math:`\prod_m \langle u_m, v_m\rangle`, averaged over a few splits: 1 if both
halves show the same pattern, near 0 if they have nothing in common.  Split-half analysis of Harshman & DeSarbo (1984).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from tpca.tensors.blocks import Array

EQUAL = 1e-3  # relative difference of squared lengths below which singular vectors are not told apart
LARGEST_SYSTEM = 4096  # parameters: 134 MB a matrix
SPLITS = 5  # into halves

Patterns = Sequence[Sequence[Array]]


def slopes(rows: Array, vectors: Sequence[Array]) -> list[Array]:
    """Tensors (n, *dims) contracted with the vectors of all modes but one: (n, d_m) for every mode."""
    return [slope(rows, vectors, mode) for mode in range(len(vectors))]


def slope(rows: Array, vectors: Sequence[Array], mode: int) -> Array:
    """The same for one mode, (n, d_mode)."""
    n = len(rows)
    for v in reversed(vectors[mode + 1 :]):  # one product, where that of a stack would be many
        rows = (rows.reshape(-1, len(v)) @ v).reshape(rows.shape[:-1])
    for v in vectors[:mode]:
        rows = np.matmul(v, rows.reshape(n, len(v), -1))
    return rows.reshape(n, -1)


class Tangents:
    """Turns slopes of every component into changes of strengths and vectors.

    The coupling of several components is solved for with up to ``largest`` parameters; with more it is left out.
    """

    def __init__(self, vectors: Sequence[Sequence[Array]], strengths: Array, largest: int = LARGEST_SYSTEM) -> None:
        self.vectors, self.strengths = vectors, np.asarray(strengths, dtype=np.float64)
        self.sizes = [len(v) for v in vectors[0]]
        width = len(vectors) * (1 + sum(self.sizes))
        several = len(vectors) > 1 and bool((self.strengths > 0).all())
        self._pairs = several and len(self.sizes) == 2
        self._inverse = None
        if several and not self._pairs and width <= largest:
            self._inverse = np.linalg.pinv(self._gram(), rcond=1e-9, hermitian=True)

    def changes(self, each: Sequence[Sequence[Array]]) -> Array:
        """(n, c, 1 + Σd) changes δλ, λδv_1, ..., λδv_k of every component; ``each`` has its slopes.

        Where components are coupled the tangents of each by itself follow, (n, c, 1 + 2Σd): the bias is theirs.
        """
        n, rows = len(each[0][0]), []
        for vectors, own in zip(self.vectors, each, strict=True):
            along = own[0] @ vectors[0]
            tangents = [s - np.outer(s @ v, v) for s, v in zip(own, vectors, strict=True)]
            rows.append(np.column_stack([along, *tangents]))
        found = np.stack(rows, axis=1)
        if self._pairs:
            return np.concatenate([self._turned(found), found[:, :, 1:]], axis=2)
        if self._inverse is None:
            return found
        coupled = (found.reshape(n, -1) @ self._inverse).reshape(found.shape)
        return np.concatenate([coupled, found[:, :, 1:]], axis=2)

    def _turned(self, found: Array) -> Array:
        """Changes of singular vectors of a matrix, which turn into each other the more, the more equal their lengths.

        With a = ⟨E, u_e⊗v_c⟩ and b = ⟨E, u_c⊗v_e⟩, λ_c δu_c has λ_c(λ_c a + λ_e b)/(λ_c² − λ_e²) along u_e, and
        λ_c δv_c the same with a and b exchanged; they are a and b if λ_e is 0.
        """
        out, rows = found.copy(), self.sizes[0] + 1
        for c, own in enumerate(self.strengths):
            for e, other in enumerate(self.strengths):
                if e == c:
                    continue
                u, v = self.vectors[e]
                a, b = found[:, c, 1:rows] @ u, found[:, c, rows:] @ v
                gap = own**2 - other**2
                gap = math.copysign(max(abs(gap), EQUAL * own**2), gap)
                out[:, c, 1:rows] += np.outer(own * (own * a + other * b) / gap - a, u)
                out[:, c, rows:] += np.outer(own * (own * b + other * a) / gap - b, v)
        return out

    def _gram(self) -> Array:
        """JᵀJ, with derivatives along vectors divided by λ: the identity, on tangents, for one component.

        Of the slots of two components, λ and every vector, it is the product of the inner products of all modes but
        theirs, and in these of projections P = I − vvᵀ onto tangents.
        """
        count, slots = len(self.vectors), np.cumsum([0, 1, *self.sizes])
        gram = np.zeros((count, slots[-1], count, slots[-1]))
        P = [[np.eye(len(v)) - np.outer(v, v) for v in vectors] for vectors in self.vectors]
        for (c, own), (e, others) in itertools.product(enumerate(self.vectors), repeat=2):
            inner = np.array([v @ u for v, u in zip(own, others, strict=True)])
            left = [np.ones(1), *(p @ u for p, u in zip(P[c], others, strict=True))]
            right = [np.ones(1), *(p @ v for p, v in zip(P[e], own, strict=True))]
            for s, t in itertools.product(range(len(left)), repeat=2):
                block = P[c][s - 1] @ P[e][s - 1] if s == t > 0 else np.outer(left[s], right[t])
                rest = np.prod(np.delete(inner, [i - 1 for i in (s, t) if i]))
                gram[c, slots[s] : slots[s + 1], e, slots[t] : slots[t + 1]] = rest * block
        return gram.reshape(count * slots[-1], -1)


@dataclass(frozen=True)
class Errors:
    """Of one component: ``strength`` without the bias of a fit, its ``interval``, and errors of all vectors."""

    strength: float
    interval: tuple[float, float]
    vectors: tuple[Array, ...]


def errors_of(tangents: Tangents, squares: Array, freedom: float, confidence: float) -> list[Errors]:
    """From the sum of squared changes over units with ``freedom`` degrees of freedom."""
    found, end = [], 1 + sum(tangents.sizes)
    reach = float(student.ppf(0.5 + confidence / 2, max(freedom, 1)))
    for length, own in zip(tangents.strengths, squares, strict=True):
        error = math.sqrt(own[0])
        squared = length**2 - float(own[1:].sum() if len(own) == end else own[end:].sum())
        strength = math.sqrt(max(squared, 0.0))
        wide = 2 * reach * error * length
        ends = (math.sqrt(max(squared - wide, 0.0)), math.sqrt(max(squared + wide, 0.0)))
        each = np.sqrt(own[1:end]) / max(strength, 1e-300)
        each = np.minimum(each, 1.0)  # an entry of a unit vector is no less sure than that
        found.append(Errors(strength, ends, tuple(np.split(each, np.cumsum(tangents.sizes)[:-1]))))
    return found


def half_agreements(n_units: int, fitted: Callable[[Array], Patterns], whole: Patterns, signed: bool = True) -> Array:
    """The agreement of every component of ``whole``; ``fitted`` gives those of the units whose numbers it is given.

    Without ``signed`` a pattern and its negative are the same.  NaN for fewer than four units, and for a component that
    is zero.
    """
    if n_units < 4:
        return np.full(len(whole), math.nan)
    rng = np.random.default_rng(0)  # fixed: the answer has no seed
    each = []
    for _ in range(SPLITS):
        matched = []
        for some in np.array_split(rng.permutation(n_units), 2):
            half = fitted(np.sort(some))
            distances = [[-abs(cosine(one, other)) for other in half] for one in whole]
            matched.append([half[int(j)] for j in linear_sum_assignment(distances)[1]])
        each.append([cosine(a, b) for a, b in zip(*matched, strict=True)])
    mean = np.mean(each if signed else np.abs(each), axis=0)
    there = [all(v.any() for v in vectors) for vectors in whole]
    return np.where(there, mean, math.nan)


def cosine(one: Sequence[Array], other: Sequence[Array]) -> float:
    """Of the unit tensors of two components."""
    return math.prod(float(v @ u) for v, u in zip(one, other, strict=True))
