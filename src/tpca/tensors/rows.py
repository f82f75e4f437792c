r"""Rows of a table, dense or sparse, as a batch: what is done with them is two products, one by either side.

With weights w_l, a centre μ and factors f_jl of every row

.. math::
    y_{jl} = \langle w_l, x_j - \mu\rangle, \qquad a_l = \sum_j f_{jl}\,(x_j - \mu) .

Sparse rows stay sparse: the centre is a low-rank correction, :math:`y = XW^\top - 1(W\mu)^\top` and
:math:`a = F^\top X - (F^\top 1)\mu^\top`.

Samples that are outer products of observed vectors (views), contracted without ever being built.

A sample is :math:`c\,x_1 \otimes \dots \otimes x_{\bar k}`, one vector per mode.  With the modes grouped into blocks,
and :math:`x_{(m)}` for the outer product of the views of block m, everything is an inner product:

.. math::
    t_m = \langle W_m, x_{(m)}\rangle, \qquad s_m = c \prod_{i \ne m} t_i, \qquad \nabla_m R = s_m\, x_{(m)} .

Over n samples and R replicas both are matrix products of n·R·D_m multiply-adds for a block of D_m entries: d^2 for the
paper's pairs, however many modes there are.  The modes of a block are cut into a left and a right part, and with W_m as
a matrix of R·D_left rows and D_right columns

.. math::
    t_{jr} = \sum_l (X_{right} W_m^\top)_{j,rl}\, x_{left,jl}, \qquad
    (\nabla_m R)_{rl} = \sum_j s_{jr}\, x_{left,jl}\, x_{right,j} .

The multiply-adds are the same wherever the cut is; what has to be formed for them is R·D_left + D_right entries a
sample.  So few replicas of a pair are cut in the middle (forming the D_m products of all pairs of features would cost
more than multiplying them), and many replicas are cut at the left end, where the sum over l is gone.

============================  =========================================================================
symbol                        code
============================  =========================================================================
x_i, c                        rows of ``views[i]``, ``weights``
W_m, with its cut             :class:`_Block`, ``matrix`` of shape ``(R · D_left, D_right)``
t_m, s_m                      ``inner``, ``others``, arrays of shape ``(samples, replicas)``
============================  =========================================================================

Scores of the rows of views, on several sets of weights at once.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tpca.tensors.accumulators import Accumulator, bytes_held
from tpca.tensors.blocks import Array, Partition
from tpca.tensors.contraction import Query, outer
from tpca.tensors.dense import one_by_one


class RowsBatch:
    """``n`` rows of a table, an array or CSR array ``(n, d)`` of finite floats; ``places`` are their numbers.

    ``first`` is the place of the batch in its stream, ``dropped`` how many of its rows the stream left out, ``held``
    which of them are held out from a fit.
    """

    summable = False

    def __init__(
        self,
        rows: Any,
        places: NDArray[np.int64],
        first: int = 0,
        dropped: int = 0,
        held: NDArray[np.bool_] | None = None,
    ) -> None:
        self.rows, self.places, self.held = rows, places, held
        self.first, self.dropped = first, dropped

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, some: slice) -> RowsBatch:
        return RowsBatch(self.rows[some], self.places[some], self.first, 0, self._held(some))

    def _held(self, some: Any) -> NDArray[np.bool_] | None:
        return None if self.held is None else self.held[some]

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
        return RowsBatch(self.rows[mask], self.places[mask], self.first, 0, self._held(mask))

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


CHUNK = 2**20  # entries of any temporary array; one block of one replica, or one sample's share, where that is more
ADDED = 2**14  # entries added up at a time: they stay in the cache between being scaled and being added


class ViewsBatch:
    """``n`` samples ``weights[j] * x_1j ⊗ ... ⊗ x_kj``, given as one array ``(n, d_i)`` of finite floats per mode.

    The large products are done in the dtype of the views and added up in float64.  ``first`` is the place of the batch
    in its stream, ``dropped`` how many of its samples the stream left out, ``places`` the numbers of those here.
    """

    summable = False

    def __init__(
        self,
        views: Sequence[NDArray[Any]],
        weights: NDArray[Any] | None = None,
        first: int = 0,
        dropped: int = 0,
        places: NDArray[np.int64] | None = None,
    ) -> None:
        self.views, self.weights = tuple(views), weights
        self.first, self.dropped = first, dropped
        self.places = np.arange(first, first + len(self.views[0])) if places is None else places

    def __len__(self) -> int:
        return len(self.views[0])

    def __getitem__(self, some: slice) -> ViewsBatch:
        return ViewsBatch([view[some] for view in self.views], self._weights(some), self.first, 0, self.places[some])

    @property
    def nbytes(self) -> int:
        """Bytes of the views and weights held."""
        return sum(array.nbytes for array in self.content())

    def content(self) -> list[NDArray[Any]]:
        """The views and the weights."""
        return [*self.views, *([] if self.weights is None else [self.weights])]

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Some replicas and some samples at a time, so that no temporary array is large."""
        for query, own in zip(queries, sums, strict=True):
            for some in _ranges(_different(query), CHUNK // sum(query.partition.sizes)):
                blocks = self._blocks(query, some)
                targets = {m: own[m][some if len(blocks) > 1 else slice(None)] for m in query.blocks}
                each = sum(block.formed for block in blocks) + max(block.spread for block in blocks)
                step = max(1, min(CHUNK // each, len(self)))
                room = _Room(np.result_type(*self.views), blocks, step)
                for rows in _ranges(len(self), step):
                    _add_rows([view[rows] for view in self.views], self._weights(rows), blocks, targets, room)

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add ``weight`` times the sum of the samples, which are built here, to ``total``."""
        dims = tuple(view.shape[1] for view in self.views)
        query = Query(Partition(dims, (tuple(range(len(dims))),)), (np.broadcast_to(np.zeros(()), (1, *dims)),))
        built: Array = np.zeros((1, *dims))
        self.add_gradients([query], [{0: built}])
        built *= weight
        if total is None:
            return np.asarray(built[0])
        total += built[0]
        return total

    def sample_gradients(self, query: Query, at: int) -> Array:  # noqa: ARG002
        """Not given: samples are never built."""
        raise one_by_one(self)

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""
        product = np.ones((len(self), len(vectors[0])))
        for view, v in zip(self.views, vectors, strict=True):
            product *= view @ v.T.astype(view.dtype)
        return product if self.weights is None else product * self.weights[:, None]

    def _weights(self, rows: slice) -> NDArray[Any] | None:
        return None if self.weights is None else self.weights[rows]

    def _blocks(self, query: Query, some: slice) -> list[_Block]:
        """Some replicas, in the dtype of the views."""
        dtype, groups, few = np.result_type(*self.views), query.partition.groups, some.stop - some.start
        blocks = []
        for m, (group, shape) in enumerate(zip(groups, query.partition.shapes, strict=True)):
            cut = _cut(few, shape)
            sizes = math.prod(shape[:cut]), math.prod(shape[cut:])
            matrix = None
            if query.blocks != (m,):  # a block's own replicas have no part in its gradient
                matrix = query.replicas[m][some].astype(dtype, copy=False).reshape(few * sizes[0], sizes[1])
            blocks.append(_Block(group[:cut], group[cut:], sizes, few, matrix))
        return blocks


@dataclass(frozen=True)
class _Block:
    """Replicas of one block, cut into a left and a right part of its modes."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    sizes: tuple[int, int]
    """D_left and D_right."""
    count: int
    """R."""
    matrix: NDArray[Any] | None
    """``(R · D_left, D_right)``; ``None`` when no gradient needs it."""

    @property
    def formed(self) -> int:
        """Entries kept for one sample while all blocks are at work: inner products, outer products of several views."""
        sides = zip((self.left, self.right), self.sizes, strict=True)
        return self.count + sum(size for side, size in sides if len(side) > 1)

    @property
    def spread(self) -> int:
        """Entries for one sample while this block is: the R · D_left columns beside its right views."""
        return self.count * self.sizes[0] if self.left else 0


class _Room:
    """Two arrays for all blocks and samples, one after the other: fresh memory costs more than what is done in it."""

    def __init__(self, dtype: np.dtype[Any], blocks: Sequence[_Block], rows: int) -> None:
        self._spread = np.empty(rows * max(block.spread for block in blocks), dtype)
        self._gradient = np.empty(max(block.count * math.prod(block.sizes) for block in blocks), dtype)

    def spread(self, rows: int, columns: int) -> NDArray[Any]:
        """The columns of some samples."""
        return self._spread[: rows * columns].reshape(rows, columns)

    def gradient(self, rows: int, columns: int) -> NDArray[Any]:
        """The gradient of one block."""
        return self._gradient[: rows * columns].reshape(rows, columns)


def _different(query: Query) -> int:
    """Replicas with gradients of their own: where one block holds all modes, the gradient is the sample itself."""
    return len(query.replicas[0]) if len(query.partition) > 1 else 1


def _ranges(count: int, step: int) -> list[slice]:
    step = max(1, step)
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def _cut(replicas: int, shape: Sequence[int]) -> int:
    """Where to cut the modes of a block so that the least has to be formed for a sample."""
    return min(range(len(shape)), key=lambda i: replicas * math.prod(shape[:i]) + math.prod(shape[i:]))


def _add_rows(
    views: Sequence[NDArray[Any]],
    weights: NDArray[Any] | None,
    blocks: Sequence[_Block],
    targets: dict[int, Array],
    room: _Room,
) -> None:
    """Add the gradients of some replicas over some samples to ``targets``."""
    sides = [_sides(views, block) for block in blocks]
    start = np.ones((len(views[0]), 1)) if weights is None else weights[:, None]
    inner = [_inner(block.matrix, *side, room) for block, side in zip(blocks, sides, strict=True)]
    factors, scales = _scaled([start, *inner], np.result_type(*views))
    # Everything but a block, without dividing by what may be zero: all before it times all after it.
    before = list(itertools.accumulate(factors[:-1], operator.mul))
    after = list(itertools.accumulate(factors[:1:-1], operator.mul))[::-1]
    for m, target in targets.items():
        others = before[m] if m == len(after) else before[m] * after[m]
        scale = math.prod(scales[: m + 1] + scales[m + 2 :])
        _add_scaled(target, _weighted(others, *sides[m], room), scale)


def _add_scaled(target: Array, gradient: NDArray[Any], scale: float) -> None:
    """``target += scale * gradient`` in float64; for all replicas at once where they share one gradient."""
    entries = gradient.reshape(-1)
    for own in target.reshape(-1, len(entries)):
        for some in _ranges(len(entries), ADDED):
            own[some] += np.multiply(entries[some], scale, dtype=np.float64)


def _sides(views: Sequence[NDArray[Any]], block: _Block) -> tuple[NDArray[Any] | None, NDArray[Any]]:
    """The outer products of the views left and right of the cut; ``None`` for no view."""
    left = outer([views[i] for i in block.left]) if block.left else None
    return left, outer([views[i] for i in block.right])


def _inner(matrix: NDArray[Any] | None, left: NDArray[Any] | None, right: NDArray[Any], room: _Room) -> NDArray[Any]:
    """Inner products of the samples with the replicas of a block, ``(n, R)``; one where they are not needed."""
    if matrix is None:
        return np.ones((1, 1), right.dtype)
    if left is None:
        product: NDArray[Any] = right @ matrix.T
        return product
    spread = np.matmul(right, matrix.T, out=room.spread(len(right), len(matrix)))
    inner: NDArray[Any] = np.einsum("jrl,jl->jr", spread.reshape(len(left), -1, left.shape[1]), left)
    return inner


def _scaled(factors: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> tuple[list[NDArray[Any]], list[float]]:
    """Divide each factor by its largest entry, so that no product of many leaves the range of single precision."""
    scales = [max(float(factor.max()), -float(factor.min())) or 1.0 for factor in factors]
    return [(f / scale).astype(dtype, copy=False) for f, scale in zip(factors, scales, strict=True)], scales


def _weighted(weights: NDArray[Any], left: NDArray[Any] | None, right: NDArray[Any], room: _Room) -> NDArray[Any]:
    """``(n, R)`` weights times the outer products of left and right, summed over the samples."""
    if left is not None:
        rows, count = weights.shape
        spread = room.spread(len(left), count * left.shape[1])
        np.multiply(weights[:, :, None], left[:, None, :], out=spread.reshape(rows, count, -1))
        weights = spread
    return np.matmul(weights.T, right, out=room.gradient(weights.shape[1], right.shape[1]))


class Scores(Accumulator):
    """Scores of rows of views, for several sets of vectors; ``vectors[i]`` is ``(c, d_i)``.

    With ``means`` they are subtracted from the views first; with a ``step`` only rows 0, step, 2·step, ... count.
    """

    def __init__(self, levels: Sequence[Sequence[Array]], means: Sequence[Array] | None = None, step: int = 1) -> None:
        super().__init__(list(levels), means, step)
        self.levels: list[list[list[NDArray[Any]]]] = [[] for _ in levels]

    def add(self, batch: ViewsBatch, at: int) -> None:
        """Take the rows of a batch."""
        levels, means, step = self.question
        rows = [view[-at % step :: step] for view in batch.views]
        if means is not None:
            rows = [view - mean for view, mean in zip(rows, means, strict=True)]
        for vectors, own in zip(levels, self.levels, strict=True):
            own.append([view @ v.T.astype(view.dtype) for view, v in zip(rows, vectors, strict=True)])
        self.n += len(batch)

    def merge(self, other: Scores) -> None:
        """Take the rows that come after."""
        for own, others in zip(self.levels, other.levels, strict=True):
            own += others
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """The scores."""
        return bytes_held(self.levels)

    def joined(self, level: int = 0) -> list[NDArray[Any]]:
        """Scores ``(n, c)`` of every view for one set of vectors."""
        empty = [[np.empty((0, len(v))) for v in self.question[0][level]]]
        return [np.concatenate(view) for view in zip(*(self.levels[level] or empty), strict=True)]
