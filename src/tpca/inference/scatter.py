r"""Errors of rank-one components from how units scatter about the estimate; and whether two halves of these agree.

The fit is :math:`\sum_c \lambda_c\, v_{c1}\otimes\dots\otimes v_{ck}`.  A small change E of the tensor that is fitted
changes it by :math:`\delta = (J^\top J)^+ J^\top E`, where J has the derivatives along every :math:`\lambda_c` and, at
right angles to :math:`v_{cm}`, along every vector.  :math:`J^\top E` are *slopes*, E contracted with all vectors but
one, so that a unit leaves no more than a vector for every axis.  With one component :math:`J^\top J` is diagonal:
:math:`\delta\lambda = \langle E, \otimes v\rangle` and :math:`\delta v_m = t_m/\lambda`, t the tangent part.
Components that are fitted together are coupled (:class:`~tpca.tensors.cp.TangentSpace`), the more, the more alike they
are.  Several components of a matrix are its singular vectors, and change as these do.

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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from tpca.tensors.blocks import Array
from tpca.tensors.cp import TangentSpace, tangent_space

EQUAL = 1e-3  # relative difference of squared lengths below which singular vectors are not told apart
SPLITS = 5  # into halves

Patterns = Sequence[Sequence[Array]]


def slopes(rows: Array, vectors: Sequence[Array]) -> list[Array]:
    """Tensors (n, *dims) contracted with the vectors of all axes but one: (n, d_m) for every axis."""
    return [slope(rows, vectors, mode) for mode in range(len(vectors))]


def slope(rows: Array, vectors: Sequence[Array], mode: int) -> Array:
    """Tensors contracted with the vectors of all axes but ``mode``, (n, d_mode)."""
    n = len(rows)
    for v in reversed(vectors[mode + 1 :]):  # one product, where that of a stack would be many
        rows = (rows.reshape(-1, len(v)) @ v).reshape(rows.shape[:-1])
    for v in vectors[:mode]:
        rows = np.matmul(v, rows.reshape(n, len(v), -1))
    return rows.reshape(n, -1)


class Tangents:
    """Turns slopes of every component into changes of strengths and vectors; zeros of a component that is zero.

    ``vectors`` has the unit vectors of every component, ``strengths`` (c,) their lengths.
    """

    def __init__(self, vectors: Sequence[Sequence[Array]], strengths: Array) -> None:
        self.vectors = vectors
        self.strengths = np.asarray(strengths, dtype=np.float64)
        self.sizes = [len(vector) for vector in vectors[0]]
        self._fitted: list[int] = np.flatnonzero(self.strengths > 0).tolist()
        self._long_axes = [m for m, size in enumerate(self.sizes) if size > 1]
        self._space = None
        if len(self._fitted) > 1 and len(self._long_axes) > 2:
            factors = [np.stack([vectors[c][m] for c in self._fitted], axis=1) for m in range(len(self.sizes))]
            self._space = tangent_space(factors)

    def changes(self, slopes_by_component: Sequence[Sequence[Array]]) -> Array:
        """Changes δλ, λδv_1, ..., λδv_k of every component, (n, c, 1 + Σd), from its slopes.

        Where components are coupled the tangents of each by itself follow, (n, c, 1 + 2Σd).  The bias of a strength
        comes from these: components that are nearly alike turn into each other, which makes neither longer.
        """
        rows = []
        for component_vectors, slopes_of_one in zip(self.vectors, slopes_by_component, strict=True):
            strength_change = slopes_of_one[0] @ component_vectors[0]
            tangents = [without_direction(s, v) for s, v in zip(slopes_of_one, component_vectors, strict=True)]
            rows.append(np.column_stack([strength_change, *tangents]))
        separate = np.stack(rows, axis=1)
        if len(self._fitted) < 2:
            return separate
        if self._space is None:
            coupled = self._turned(separate)
        else:
            coupled = self._coupled(self._space, slopes_by_component)
        return np.concatenate([coupled, separate[:, :, 1:]], axis=2)

    def _coupled(self, space: TangentSpace, slopes_by_component: Sequence[Sequence[Array]]) -> Array:
        """Changes of components that were fitted together."""
        slopes_by_axis = []
        for m in range(len(self.sizes)):
            slopes_by_axis.append(np.stack([slopes_by_component[c][m] for c in self._fitted], axis=2))
        factor_changes = space.changes(slopes_by_axis)
        n = len(slopes_by_axis[0])
        changes = np.zeros((n, len(self.vectors), 1 + sum(self.sizes)))
        for place, c in enumerate(self._fitted):
            start = 1
            for m, vector in enumerate(self.vectors[c]):
                change = factor_changes[m][:, :, place]
                stop = start + len(vector)
                changes[:, c, 0] += change @ vector
                changes[:, c, start:stop] = without_direction(change, vector)
                start = stop
        return changes

    def _turned(self, separate: Array) -> Array:
        """Changes of singular vectors of a matrix, which turn into each other the more, the more equal their lengths.

        With a = ⟨E, u_e⊗v_c⟩ and b = ⟨E, u_c⊗v_e⟩, λ_c δu_c has λ_c(λ_c a + λ_e b)/(λ_c² − λ_e²) along u_e, and
        λ_c δv_c the same with a and b exchanged; they are a and b if λ_e is 0.
        """
        turned = separate.copy()
        edges = np.cumsum([1, *self.sizes])
        row_axis, column_axis = self._long_axes
        rows = slice(edges[row_axis], edges[row_axis + 1])
        columns = slice(edges[column_axis], edges[column_axis + 1])
        for c, e in itertools.permutations(self._fitted, 2):
            length = self.strengths[c]
            other_length = self.strengths[e]
            u = self.vectors[e][row_axis]
            v = self.vectors[e][column_axis]
            a = separate[:, c, rows] @ u
            b = separate[:, c, columns] @ v
            gap = length**2 - other_length**2
            gap = math.copysign(max(abs(gap), EQUAL * length**2), gap)
            turned[:, c, rows] += np.outer(length * (length * a + other_length * b) / gap - a, u)
            turned[:, c, columns] += np.outer(length * (length * b + other_length * a) / gap - b, v)
        return turned


def without_direction(rows: Array, vector: Array) -> Array:
    """Rows (n, d) at right angles to a unit vector."""
    return rows - np.outer(rows @ vector, vector)


@dataclass(frozen=True)
class Errors:
    """Of one component: ``strength`` without the bias of a fit, its ``interval``, and errors of all vectors."""

    strength: float
    interval: tuple[float, float]
    vectors: tuple[Array, ...]


def errors_of(tangents: Tangents, squares: Array, freedom: float, confidence: float) -> list[Errors]:
    """Errors of every component from the sum of squared changes over units, with ``freedom`` degrees of freedom."""
    end = 1 + sum(tangents.sizes)
    edges = np.cumsum(tangents.sizes)[:-1]
    reach = float(student.ppf(0.5 + confidence / 2, max(freedom, 1)))
    errors = []
    for length, component_squares in zip(tangents.strengths, squares, strict=True):
        vector_squares = component_squares[1:end]
        bias_squares = component_squares[end:] if len(component_squares) > end else vector_squares
        squared_strength = length**2 - float(bias_squares.sum())
        strength = math.sqrt(max(squared_strength, 0.0))
        margin = 2 * reach * math.sqrt(component_squares[0]) * length
        lower_end = math.sqrt(max(squared_strength - margin, 0.0))
        upper_end = math.sqrt(max(squared_strength + margin, 0.0))
        vector_errors = np.sqrt(vector_squares) / max(strength, 1e-300)
        vector_errors = np.minimum(vector_errors, 1.0)  # an entry of a unit vector is no less sure than that
        errors.append(Errors(strength, (lower_end, upper_end), tuple(np.split(vector_errors, edges))))
    return errors


def unit_halves(n_units: int) -> list[NDArray[np.intp]]:
    """Numbers of the units of both halves, split after split."""
    rng = np.random.default_rng(0)  # fixed: the answer has no seed
    halves = []
    for _ in range(SPLITS):
        for half in np.array_split(rng.permutation(n_units), 2):
            halves.append(np.sort(half))
    return halves


def half_agreements(halves: Sequence[Patterns], whole: Patterns, signed: bool = True) -> Array:
    """The agreement of every component of ``whole`` between components that were fitted to :func:`unit_halves`.

    Without ``signed`` a pattern and its negative are the same.  NaN for a component that is zero.
    """
    agreements: list[list[float]] = []
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        of_split = []
        for mine, theirs in zip(matched(first, whole), matched(second, whole), strict=True):
            of_split.append(cosine(mine, theirs))
        agreements.append(of_split)
    values = np.array(agreements)
    if not signed:
        values = np.abs(values)
    present = [all(vector.any() for vector in vectors) for vectors in whole]
    return np.where(present, values.mean(axis=0), math.nan)


def matched(patterns: Patterns, whole: Patterns) -> list[Sequence[Array]]:
    """For every component of ``whole`` the pattern that belongs to it, by the assignment of largest total |cosine|."""
    sizes = [[abs(cosine(component, pattern)) for pattern in patterns] for component in whole]
    _, chosen = linear_sum_assignment(sizes, maximize=True)
    return [patterns[number] for number in chosen.tolist()]


def cosine(one: Sequence[Array], other: Sequence[Array]) -> float:
    """Of the unit tensors of two components."""
    return math.prod(float(v @ u) for v, u in zip(one, other, strict=True))
