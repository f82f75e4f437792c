r"""Patterns orthogonal to given vectors along some modes: queries and gradients are transformed, samples never are.

With the rows of P the vectors of mode i that nothing shall be said of (a constant: the average reference, a DC offset;
known artefacts), r their rank, and the rows of :math:`B_i`, :math:`(d_i - r)\times d_i`, an orthonormal basis of what
is orthogonal to them, the projected samples :math:`T' = T\times_1 B_1\dots\times_{\bar k} B_{\bar k}` are ordinary
ones of smaller dims,

.. math::
    \langle T', w_1\otimes\dots\otimes w_k\rangle = \langle T, B_1^\top w_1\otimes\dots\otimes B_k^\top w_k\rangle ,

so that degrees of freedom, covariances and noise levels follow by themselves.  A vector u of T' is :math:`v = B^\top u`
of the data, of the same length; strengths stay.

*Which basis.*  The one next to the entries themselves, so that a row of B is an entry and little else, and what is
said of single entries (tails, unequal scales) stays what it is.  With V, :math:`d\times r`, an orthonormal basis of the
rows of P, r entries are left out, K are those kept, and :math:`B = (I - V_KV_K^\top)^{-1/2}(E_K - V_KV^\top)`.  From
:math:`V_L^\top V_L = W t^2 W^\top` of the entries left out, :math:`s^2 = 1 - t^2` and :math:`U = V_KW/s`

.. math:: B = E_K + U R, \qquad R = (1/t - 1)\,U^\top E_K - (s/t)\,W^\top V^\top ,

which takes 2dr numbers to hold, and as many operations to apply.

====================  ============================================================
symbol                code
====================  ============================================================
K, U, R               ``entries``, ``outer``, ``inner``
B x, B^T y            ``down``, ``up``
====================  ============================================================
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from tpca.tensors.blocks import Array, Partition
from tpca.tensors.namespaces import namespace, to_device
from tpca.tensors.query import Query, RankOne

ALONE = 0.1  # of a unit vector's squared length: where all but so little lies in one entry, its variance is not told


@dataclass(frozen=True, eq=False)
class Basis:
    """B of one mode of ``length`` entries."""

    length: int
    entries: NDArray[np.intp]
    outer: Array
    inner: Array

    @classmethod
    def beside(cls, vectors: Array) -> Basis:
        """The basis of what is orthogonal to all rows of ``vectors``."""
        sizes = np.abs(vectors).max(axis=1, keepdims=True)
        rows = vectors / np.where(sizes > 0, sizes, 1.0)
        _, values, axes = np.linalg.svd(rows, full_matrices=False)
        rank = int(np.sum(values > values[0] * max(rows.shape) * np.finfo(float).eps)) if values[0] > 0 else 0
        length, own = rows.shape[1], np.ascontiguousarray(axes[:rank].T)
        left_out = np.sort(qr(own.T, mode="r", pivoting=True)[1][:rank]) if rank else np.zeros(0, np.intp)
        entries = np.delete(np.arange(length), left_out)
        squares, turn = np.linalg.eigh(own[left_out].T @ own[left_out])
        t = np.sqrt(np.clip(squares, np.finfo(float).tiny, 1.0))
        s = np.sqrt(np.maximum(0.0, 1 - t**2))
        outer = own[entries] @ turn / np.where(s > 0, s, 1.0)
        inner = -(s / t)[:, None] * (own @ turn).T
        inner[:, entries] += ((1 / t - 1) * outer).T
        return cls(length, entries, np.ascontiguousarray(outer), np.ascontiguousarray(inner))

    @property
    def size(self) -> int:
        """Entries of a projected vector: d − r."""
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.entries.nbytes + self.outer.nbytes + self.inner.nbytes

    def down(self, array: Any, axis: int = -1) -> Any:
        """B times the vectors along an axis."""
        xp = namespace(array)
        rows = xp.moveaxis(array, axis, -1)
        if isinstance(rows, np.ndarray):
            projected = rows[..., self.entries] + (rows @ self.inner.T) @ self.outer.T
        else:
            own = xp.take(rows, xp.asarray(self.entries, device=rows.device), axis=-1)
            projected = own + (rows @ to_device(self.inner.T, rows)) @ to_device(self.outer.T, rows)
        return xp.moveaxis(projected, -1, axis)

    def up(self, array: NDArray[Any], axis: int = -1) -> NDArray[Any]:
        """B^T times the vectors along an axis."""
        rows = np.moveaxis(array, axis, -1)
        back = (rows @ self.outer) @ self.inner
        back[..., self.entries] += rows
        return np.moveaxis(back, -1, axis)

    def variances(self, variances: Array, vector: Array) -> Array:
        """The diagonal of B^T P diag(b) P B, with ``variances`` b and P the projection across a unit ``vector``."""
        middle = self.outer.T @ (variances[:, None] * self.outer)
        squares = np.einsum("rj,rs,sj->j", self.inner, middle, self.inner)
        crossed = np.einsum("ar,ra->a", self.outer, self.inner[:, self.entries])
        squares[self.entries] += variances * (1 + 2 * crossed)
        along = self.up(vector)
        squares += along * (along * float(vector**2 @ variances) - 2 * self.up(variances * vector))
        return np.asarray(np.maximum(squares, 0.0))


@dataclass(frozen=True, eq=False)
class Projection:
    """The bases of all modes of samples of shape ``dims``; ``None`` for a mode that stays as it is."""

    dims: tuple[int, ...]
    bases: tuple[Basis | None, ...]

    @property
    def projected_dims(self) -> tuple[int, ...]:
        """Shape of a projected sample."""
        pairs = zip(self.dims, self.bases, strict=True)
        return tuple(d if basis is None else basis.size for d, basis in pairs)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(basis.nbytes for basis in self.bases if basis is not None)

    @property
    def shared(self) -> bool:
        """Whether all modes are projected alike, so that what is symmetric stays so."""
        first, *others = [None if basis is None else basis.inner for basis in self.bases]
        return all(first is None if own is None else first is not None and np.array_equal(own, first) for own in others)

    def share(self, sum_bytes: int | None) -> int | None:
        """Bytes of a projected sum, from those of a sum of samples."""
        return None if sum_bytes is None else sum_bytes // math.prod(self.dims) * math.prod(self.projected_dims)

    def tensor(self, tensor: Any) -> Any:
        """A projected tensor, or several along leading axes, in their own dtype; worked out in float64."""
        projected, lead = tensor, tensor.ndim - len(self.dims)
        for mode, basis in enumerate(self.bases):
            projected = projected if basis is None else basis.down(projected, lead + mode)
        return np.ascontiguousarray(projected, dtype=tensor.dtype) if isinstance(tensor, np.ndarray) else projected

    def back(self, vectors: Sequence[Array]) -> tuple[Array, ...]:
        """Vectors of the data, B^T u; rows of an array are vectors, too."""
        pairs = zip(vectors, self.bases, strict=True)
        return tuple(u if basis is None else basis.up(u) for u, basis in pairs)

    def query(self, query: Query) -> Query:
        """What to ask of the data themselves; identities that were traced become blocks like any other."""
        partition = Partition(self.dims, query.partition.groups)
        pairs = zip(query.replicas, partition.groups, strict=True)
        replicas = tuple(self._block(block, group, up=True) for block, group in pairs)
        deflate = tuple(RankOne(known.strength, self.back(known.vectors)) for known in query.deflate)
        return dataclasses.replace(query, partition=partition, replicas=replicas, deflate=deflate, traced=())

    def gradients(self, query: Query, gradients: dict[int, Array]) -> dict[int, Array]:
        """Gradients of projected samples, from those of the data."""
        groups = query.partition.groups
        return {m: self._block(gradient, groups[m], up=False) for m, gradient in gradients.items()}

    def back_variances(self, mode: int, vector: Array, variances: Array) -> Array:
        """Variances of the entries of B^T u, where those of u are P diag(b) P, P the projection across it."""
        basis = self.bases[mode]
        alone = Basis(len(vector), np.arange(len(vector)), np.zeros((len(vector), 0)), np.zeros((0, len(vector))))
        return (alone if basis is None else basis).variances(variances, vector)

    def back_errors(self, mode: int, vector: Array, errors: Array) -> Array:
        """Standard errors of the entries of B^T u from those of u, in noise that is white: b = s²/(1 − u²)."""
        if self.bases[mode] is None:
            return errors
        return np.sqrt(self.back_variances(mode, vector, errors**2 / np.maximum(1 - vector**2, ALONE)))

    def back_rows(self, mode: int, matrix: Array) -> Array:
        """B^T M."""
        basis = self.bases[mode]
        return matrix if basis is None else basis.up(matrix, 0)

    def _block(self, block: NDArray[Any], group: Sequence[int], up: bool) -> NDArray[Any]:
        turned = block
        for axis, mode in enumerate(group, start=1):
            basis = self.bases[mode]
            if basis is not None:
                turned = basis.up(turned, axis) if up else basis.down(turned, axis)
        return turned
