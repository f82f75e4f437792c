r"""Rows of a table, dense or sparse, as a batch: what is done with them is two products, one by either side.

With weights w_l, a centre μ and factors f_jl of every row

.. math::
    y_{jl} = \langle w_l, x_j - \mu\rangle, \qquad a_l = \sum_j f_{jl}\,(x_j - \mu) .

Sparse rows stay sparse: the centre is a low-rank correction, :math:`y = XW^\top - 1(W\mu)^\top` and
:math:`a = F^\top X - (F^\top 1)\mu^\top`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tpca.tensors.blocks import Array


class RowsBatch:
    """``n`` rows of a table, an array or CSR array ``(n, d)`` of finite floats; ``places`` are their numbers.

    ``first`` is the place of the batch in its stream, ``dropped`` how many of its rows the stream left out.
    """

    summable = False

    def __init__(self, rows: Any, places: NDArray[np.int64], first: int = 0, dropped: int = 0) -> None:
        self.rows, self.places = rows, places
        self.first, self.dropped = first, dropped

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, some: slice) -> RowsBatch:
        return RowsBatch(self.rows[some], self.places[some], self.first)

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are sparse."""
        return bool(sparse.issparse(self.rows))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held."""
        return sum(array.nbytes for array in self.content())

    def content(self) -> list[NDArray[Any]]:
        """The rows, or their entries and where they are, and the places."""
        stored = [self.rows.data, self.rows.indices, self.rows.indptr] if self.is_sparse else [self.rows]
        return [*stored, self.places]

    def chosen(self, mask: NDArray[np.bool_]) -> RowsBatch:
        """Some of the rows."""
        return RowsBatch(self.rows[mask], self.places[mask], self.first)

    def about(self, centre: Array) -> tuple[RowsBatch, Array]:
        """The same rows less the centre, and what is still to be subtracted: of sparse rows, all of it."""
        if self.is_sparse or not centre.any():
            return self, centre
        return RowsBatch(self._centred(centre), self.places, self.first), np.zeros_like(centre)

    def scores(self, weights: Array, centre: Array) -> Array:
        """``(n, L)``: y of every row with every row of ``weights`` ``(L, d)``."""
        if self.is_sparse:
            return np.asarray(self.rows @ weights.T - centre @ weights.T, dtype=np.float64)
        return np.asarray(self._centred(centre) @ weights.T.astype(self.rows.dtype), dtype=np.float64)

    def sums(self, factors: Array, centre: Array) -> Array:
        """``(L, d)``: the rows less the centre, times each column of ``factors`` ``(n, L)``, added up."""
        if self.is_sparse:
            return np.asarray((self.rows.T @ factors).T - np.multiply.outer(factors.sum(axis=0), centre))
        return np.asarray(factors.T.astype(self.rows.dtype) @ self._centred(centre), dtype=np.float64)

    def scatter(self, centre: Array, factors: Array | None = None) -> Array:
        """``(d, d)``: the sum of (x - μ)(x - μ)ᵀ, each times its factor."""
        if not self.is_sparse:
            rows = self._centred(centre)
            left = rows if factors is None else rows * factors[:, None].astype(rows.dtype)
            return np.asarray(left.T @ rows, dtype=np.float64)
        ones = np.ones(len(self)) if factors is None else factors
        weighted = sparse.csr_array(sparse.diags_array(ones) @ self.rows)
        total = np.asarray((weighted.T @ self.rows).toarray(), dtype=np.float64)
        column = np.asarray(weighted.sum(axis=0), dtype=np.float64)
        cross = np.multiply.outer(column, centre)
        return np.asarray(total - cross - cross.T + ones.sum() * np.multiply.outer(centre, centre))

    def _centred(self, centre: Array) -> NDArray[Any]:
        return np.asarray(self.rows - centre.astype(self.rows.dtype) if centre.any() else self.rows)
