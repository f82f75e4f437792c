r"""Whitening inside the contraction: queries and gradients are transformed, data never are.

Noise whose covariance is a Kronecker product :math:`C_1\otimes\dots\otimes C_{\bar k}` is white after
:math:`T' = T\times_1 W_1\dots\times_{\bar k} W_{\bar k}` with :math:`W_i = C_i^{-1/2}`.  W_i is symmetric, so that with
a block of modes (i, j, ...) contracted as :math:`Q' = Q\times_i W_i\times_j W_j\dots`

.. math::
    \langle T', Q_1\otimes\dots\otimes Q_k\rangle = \langle T, Q_1'\otimes\dots\otimes Q_k'\rangle, \qquad
    \nabla_m R(T'; Q) = \nabla_m R(T; Q') \times_i W_i\times_j W_j\dots .

A signal :math:`\lambda v_1\otimes\dots` of the data is :math:`\lambda' u_1\otimes\dots` of the whitened data with
:math:`u_i \propto W_i v_i`; the way back is

.. math:: v = \frac{W^{-1}u}{\|W^{-1}u\|}, \qquad \lambda = \lambda'\prod_i\|W_i^{-1}u_i\| ;

what errors become on it is in :mod:`tpca.noise.carrying`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.noise.carrying import Carried, carried
from tpca.tensors import Answer, Query, RankOne
from tpca.tensors.blocks import Array, unit
from tpca.tensors.namespaces import namespace, to_device

CHUNK = 2**12  # entries of a wider copy; one replica of a block where that is more
FLOOR = 1e-6  # of the largest eigenvalue of a covariance, below which nothing is but rounding


@kept
@dataclass(frozen=True, eq=False)
class Whitening:
    """``matrices`` W_i and their ``inverses``, one of each for every mode, symmetric and positive definite."""

    matrices: tuple[Array, ...]
    inverses: tuple[Array, ...]

    @classmethod
    def of(cls, covariances: Sequence[Array], least: Sequence[float] | None = None) -> Self:
        """W_i = C_i^(-1/2), C_i scaled to mean variance one: the level of the noise stays what it is on average.

        No direction is taken for quieter than ``least``, of the mean variance of a mode.
        """
        pairs = [_roots(c, floor) for c, floor in zip(covariances, least or [0.0] * len(covariances), strict=True)]
        return cls(tuple(matrix for matrix, _ in pairs), tuple(inverse for _, inverse in pairs))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(matrix.nbytes for matrix in (*self.matrices, *self.inverses))

    @property
    def shared(self) -> bool:
        """Whether all modes are whitened alike, so that what is symmetric stays so."""
        first = self.matrices[0]
        return all(matrix.shape == first.shape and np.array_equal(matrix, first) for matrix in self.matrices)

    @property
    def undone(self) -> Whitening:
        """The way back from whitened data."""
        return Whitening(self.inverses, self.matrices)

    @property
    def covariances(self) -> tuple[Array, ...]:
        """C_i, of mean variance one but for what was floored."""
        return tuple(inverse @ inverse for inverse in self.inverses)

    def loudest(self, mode: int) -> Array:
        """The direction of a mode in which its noise is loudest."""
        return np.ascontiguousarray(np.linalg.eigh(self.inverses[mode])[1][:, -1])

    @property
    def most(self) -> float:
        """The largest :meth:`factor` of any vectors."""
        return math.prod(float(np.linalg.norm(inverse, 2)) for inverse in self.inverses)

    def query(self, query: Query) -> Query:
        """What to ask of the data themselves to learn the answer to ``query`` about whitened data.

        Identities that were traced become blocks like any other.  Known components, which are ones of the whitened
        data, are subtracted from the data as what they are there.
        """
        pairs = zip(query.replicas, query.partition.groups, strict=True)
        replicas = tuple(_applied(block, [self.matrices[n] for n in group]) for block, group in pairs)
        deflate = tuple(RankOne(known.strength, self._inverted(known.vectors)) for known in query.deflate)
        return dataclasses.replace(query, replicas=replicas, deflate=deflate, traced=())

    def answer(self, query: Query, answer: Answer) -> Answer:
        """The answer about whitened data, from the one that the data gave; rewards are the same."""
        parts = answer.by_part
        if parts is not None:
            parts = dataclasses.replace(parts, gradients=self._whitened(query, parts.gradients))
        return dataclasses.replace(answer, gradients=self._whitened(query, answer.gradients), by_part=parts)

    def vectors(self, vectors: Sequence[Array]) -> tuple[Array, ...]:
        """W_i l_i; rows of an array are vectors, too."""
        return tuple(v @ matrix for v, matrix in zip(vectors, self.matrices, strict=True))

    def gradient(self, gradient: Array, mode: int) -> Array:
        """W_i g_i; rows of an array are gradients, too."""
        whitened: Array = gradient @ self.matrices[mode]
        return whitened

    def tensor(self, tensor: Any, modes: Sequence[int] | None = None) -> NDArray[Any]:
        """One tensor of whitened data, or several along leading axes; ``modes``: those of its axes, in their order."""
        order = range(len(self.matrices)) if modes is None else modes
        if not isinstance(tensor, np.ndarray):
            there: NDArray[Any] = _product(tensor, [self.matrices[n] for n in order], tensor.ndim - len(order))
            return there
        wide = tensor if tensor.dtype.kind == "f" else tensor.astype(np.float64)
        return _applied(wide, [self.matrices[n] for n in order])

    def back(self, vectors: Sequence[Array]) -> tuple[Array, ...]:
        """Unit vectors of the data, v = unit(W^-1 u)."""
        return tuple(unit(v) for v in self._inverted(vectors))

    def factor(self, vectors: Sequence[Array]) -> float:
        """Strength in the data over that in whitened data: the product of all |W_i^-1 u_i|, u_i of unit length."""
        return math.prod(float(np.linalg.norm(v)) for v in self._inverted(vectors))

    def carried(self, vectors: Sequence[Array], covariances: Sequence[Array]) -> list[Carried]:
        """Vectors of whitened data, with the covariances of their errors, as vectors of the data."""
        return [carried(*each) for each in zip(self.inverses, vectors, covariances, strict=True)]

    def slope_error(self, mode: int, vector: Array, covariance: Array) -> float:
        """Root mean squared error of v as the slopes at it say: √tr JΣJ^T, J = (I − vv^T)W^-1/|W^-1 u|.

        That is cheap, but too small where v is far off by chance (:meth:`carried`).
        """
        inverse = self.inverses[mode]
        raw = inverse @ vector
        squared = float(raw @ raw)
        slope = inverse @ raw
        total = float(np.vdot(inverse @ covariance, inverse)) - float(slope @ covariance @ slope) / squared
        return math.sqrt(max(0.0, total) / squared)

    def _whitened(self, query: Query, gradients: dict[int, Array]) -> dict[int, Array]:
        groups = query.partition.groups
        return {m: _applied(g, [self.matrices[n] for n in groups[m]]) for m, g in gradients.items()}

    def _inverted(self, vectors: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(inverse @ v for inverse, v in zip(self.inverses, vectors, strict=True))


def _roots(covariance: Array, least: float) -> tuple[Array, Array]:
    """C^(-1/2) and C^(1/2) of a covariance scaled to mean variance one, its eigenvalues floored."""
    values, axes = np.linalg.eigh(covariance * (len(covariance) / np.trace(covariance)))
    roots = np.sqrt(np.maximum(values, max(least, FLOOR * values[-1])))
    return _symmetric(axes, 1 / roots), _symmetric(axes, roots)


def _symmetric(axes: Array, values: Array) -> Array:
    product = (axes * values) @ axes.T
    return np.ascontiguousarray(0.5 * (product + product.T))


def _applied(array: NDArray[Any], matrices: Sequence[Array]) -> NDArray[Any]:
    """``array`` times a matrix along each of its last axes, in its own dtype; the work is done in a wider one.

    A few entries at a time, so that no wider copy of all is ever held.
    """
    if not any(array.strides) and not array.flat[0]:
        return array  # nothing but one zero, however large it looks
    shape = array.shape[array.ndim - len(matrices) :]
    rows = array.reshape(-1, *shape)
    whitened: NDArray[Any] = np.empty(rows.shape, array.dtype)
    step = max(1, CHUNK // math.prod(shape))
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            whitened[start : start + step] = _product(rows[start : start + step], matrices)
    return whitened.reshape(array.shape)


def _product(rows: Any, matrices: Sequence[Array], lead: int = 1) -> Any:
    """Every row times a matrix along each axis, behind ``lead`` others; on a device, there."""
    xp, part = namespace(rows), rows
    if isinstance(rows, np.ndarray):
        part = rows.astype(np.result_type(rows.dtype, np.float32), copy=False)
    for axis, matrix in enumerate(matrices, start=lead):
        part = xp.moveaxis(xp.moveaxis(part, axis, -1) @ to_device(matrix, part), -1, axis)
    return part
