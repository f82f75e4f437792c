"""Gradients of a few single replicas on many tensors, one after the other: what sub-batches are looked at with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.contraction import middle, outer, placed, replica_rows, split_own, unfolding
from tpca.tensors.namespaces import bytes_of, cast, fused, namespace, permuted, to_host
from tpca.tensors.query import Query

PIECE = 2**19  # multiplications: OpenBLAS copies the matrices of larger products first, which takes as long again
FEW = 4  # vectors that a matrix is multiplied with at a time


class FewReplicas:
    """Gradients of queries of one replica each on many tensors ``like`` one, of its shape and dtype, and on its device.

    What depends on the replicas is made once.  Queries that ask alike share their products, so that a tensor is read
    once for all of them.
    """

    def __init__(self, queries: Sequence[Query], like: Any) -> None:
        self._count = len(queries)
        alike: dict[tuple[Any, ...], list[int]] = {}
        for number, query in enumerate(queries):
            alike.setdefault((query.partition.groups, query.blocks), []).append(number)
        self._packs = [(_Pack([queries[i] for i in some], like), some) for some in alike.values()]

    @property
    def nbytes(self) -> int:
        """Bytes of what was worked out."""
        return sum(pack.nbytes for pack, _ in self._packs)

    def gradients(self, tensor: Any) -> list[dict[int, Array]]:
        """Gradients ``(D_m,)`` by block, for every query."""
        found: list[dict[int, Array]] = [{} for _ in range(self._count)]
        for pack, some in self._packs:
            for m, rows in pack.gradients(tensor):
                for number, row in zip(some, rows, strict=True):
                    found[number][m] = row
        return found

    @property
    def in_order(self) -> bool:
        """Whether neighbours in memory are rows of the one unfolding that is asked about."""
        return len(self._packs) == 1 and self._packs[0][0].in_order

    @property
    def rows(self) -> int:
        """Rows of that unfolding."""
        return self._packs[0][0].rows

    def looks(self, moments: int) -> Looks:
        """Room for so many looks at it."""
        ((pack, some),) = self._packs
        return Looks(pack, some, moments)


class Looks:
    """What an unfolding says at several moments: products with the weights of its sides, of two halves of its rows.

    The halves are looked at one by one, by whoever has just changed them.
    """

    def __init__(self, pack: _Pack, queries: Sequence[int], moments: int) -> None:
        self.halves = (slice(0, pack.rows // 2), slice(pack.rows // 2, pack.rows))
        self._pack, self._queries, self._moments = pack, queries, moments
        self._products: list[NDArray[Any]] = []
        for side in pack.sides:
            shape = (moments, math.prod(v.shape[1] for v in side.vectors), len(side.weights))
            self._products.append(np.empty(shape if side.left else (len(self.halves), *shape), side.weights.dtype))

    def take(self, half: int, moment: int, strip: NDArray[Any]) -> None:
        """Look at one half of the rows, as they are now."""
        rows = self.halves[half]
        for side, products in zip(self._pack.sides, self._products, strict=True):
            if side.left:
                _few_products(strip, side.weights, products[moment, rows])
            else:
                _few_products(strip.T, side.weights[:, rows], products[half, moment])

    def gradients(self) -> list[dict[int, Array]]:
        """Gradients ``(moments, D_m)`` by block, for every query."""
        found: list[dict[int, Array]] = [{} for _ in self._queries]
        if not self._moments:
            return found
        for side, products in zip(self._pack.sides, self._products, strict=True):
            whole = products if side.left else np.add(*products)
            for m, gradients in side.split(whole):
                for number, query in enumerate(self._queries):
                    found[query][m] = gradients[:, number]
        return found


class _Side(NamedTuple):
    """The blocks from ``first`` on that are ``left`` of the middle, or right of it; ``weights`` are of the others.

    ``vectors`` are these blocks of all replicas, ``wanted`` those of them whose gradients are.
    """

    left: bool
    weights: Any
    first: int
    vectors: list[Any]
    wanted: list[int]

    def split(self, products: NDArray[Any]) -> Iterator[tuple[int, Array]]:
        """Block, and its gradients ``(..., R, D_m)``, from products ``(..., D, R)`` with the weights."""
        partial = np.swapaxes(products[..., : len(self.vectors[0])], -1, -2)
        for m, gradient in split_own(partial, self.vectors, self.wanted).items():
            yield m + self.first, gradient


class _Pack:
    """Queries of one replica each with the same blocks, which ask for gradients of the same."""

    def __init__(self, queries: Sequence[Query], like: Any) -> None:
        self._modes, self.rows = unfolding(tuple(like.shape), queries[0].partition.groups)
        each = [replica_rows(query.replicas, slice(0, 1), like) for query in queries]
        vectors = [placed(np.concatenate(blocks), like) for blocks in zip(*each, strict=True)]
        cut = middle(tuple(v.shape[1] for v in vectors))
        self.sides: list[_Side] = []
        for left, own, others in ((True, range(cut), vectors[cut:]), (False, range(cut, len(vectors)), vectors[:cut])):
            if wanted := [m - own.start for m in queries[0].blocks if m in own]:
                weights = _rounded_up(cast(outer(others), like.dtype)) if others else None
                self.sides.append(_Side(left, weights, own.start, [vectors[m] for m in own], wanted))

    @property
    def nbytes(self) -> int:
        return sum(bytes_of(side.weights) for side in self.sides if side.weights is not None)

    @property
    def in_order(self) -> bool:
        """Whether rows of the unfolding are neighbours in memory; not of a single block, which has no weights."""
        return self._modes == tuple(range(len(self._modes))) and all(side.weights is not None for side in self.sides)

    def gradients(self, tensor: Any) -> Iterator[tuple[int, Array]]:
        """Block, and its gradients ``(R, D_m)``."""
        matrix = namespace(tensor).reshape(permuted(tensor, self._modes), (self.rows, -1))
        for side in self.sides:
            if isinstance(matrix, np.ndarray) and side.weights is not None:
                yield from side.split(_few_products(matrix if side.left else matrix.T, side.weights))
            elif side.weights is not None:
                found = fused(_split_product, side.left, tuple(side.wanted))(matrix, side.weights, side.vectors)
                yield from ((m + side.first, to_host(gradient)) for m, gradient in found.items())
            else:  # a single block: its gradient is the tensor itself
                xp = namespace(matrix)
                yield side.first, to_host(xp.broadcast_to(xp.reshape(matrix, (1, -1)), side.vectors[0].shape))


def _split_product(left: bool, wanted: Sequence[int], matrix: Any, weights: Any, vectors: list[Any]) -> dict[int, Any]:
    """The same on a device, as one program where that is possible."""
    return split_own(weights @ (matrix.T if left else matrix), vectors, wanted)


def _rounded_up(weights: Any) -> Any:
    """Rows of weights; on the host one of three twice, for BLAS takes four vectors in less time."""
    again = isinstance(weights, np.ndarray) and len(weights) % FEW == FEW - 1
    return np.concatenate([weights, weights[:1]]) if again else weights


def _few_products(matrix: NDArray[Any], weights: NDArray[Any], products: NDArray[Any] | None = None) -> NDArray[Any]:
    """A matrix times a few vectors, the rows of ``weights``, as columns; into ``products``, if that is given.

    The matrix is read once for every four of them, in pieces that BLAS need not copy.
    """
    products = np.empty((len(matrix), len(weights)), matrix.dtype) if products is None else products
    for few in range(0, len(weights), FEW):
        some = weights[few : few + FEW]
        step = len(matrix) if len(some) == 1 else max(1, PIECE // some.size)
        for first in range(0, len(matrix), step):
            rows = slice(first, first + step)
            np.matmul(matrix[rows], some.T, out=products[rows, few : few + FEW])
    return products
