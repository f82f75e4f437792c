"""Gradients of a few single replicas on many tensors, one after the other: what sub-batches are looked at with."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.contraction import middle, outer, placed, replica_rows, split_own, unfolding
from tpca.tensors.namespaces import bytes_of, cast, fused, namespace, permuted, to_host
from tpca.tensors.query import Query

PIECE = 2**19  # multiplications: OpenBLAS copies the matrices of larger products first, which takes as long again


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

    def looks(self, rows: slice) -> HalfLooks:
        """Looks at some rows of it."""
        return HalfLooks(self._packs[0][0], rows)

    def together(self, *parts: HalfLooks) -> list[list[dict[int, Array]]]:
        """What looks at all rows have found: gradients ``(D_m,)`` by block, for every moment and query."""
        ((pack, some),) = self._packs
        found: list[list[dict[int, Array]]] = []
        for products in zip(*(part.moments for part in parts), strict=True):
            found.append([{} for _ in some])
            for m, rows in pack.split(products):
                for query, row in zip(some, rows, strict=True):
                    found[-1][query][m] = row
        return found


class HalfLooks:
    """What some ``rows`` of an unfolding say, at several moments: products with the weights of either side."""

    def __init__(self, pack: _Pack, rows: slice) -> None:
        self.rows, self._pack = rows, pack
        self.moments: list[list[NDArray[Any]]] = []

    def take(self, strip: NDArray[Any]) -> None:
        """Look at these rows, as they are now."""
        products = []
        for left, weights, *_ in self._pack.sides:
            assert weights is not None
            products.append(_few_products(strip, weights) if left else weights[:, self.rows] @ strip)
        self.moments.append(products)


class _Pack:
    """Queries of one replica each with the same blocks, which ask for gradients of the same."""

    def __init__(self, queries: Sequence[Query], like: Any) -> None:
        self._modes, self.rows = unfolding(tuple(like.shape), queries[0].partition.groups)
        each = [replica_rows(query.replicas, slice(0, 1), like) for query in queries]
        vectors = [placed(np.concatenate(blocks), like) for blocks in zip(*each, strict=True)]
        cut = middle(tuple(v.shape[1] for v in vectors))
        self.sides: list[tuple[bool, Any, range, list[Any], list[int]]] = []
        for left, own, others in ((True, range(cut), vectors[cut:]), (False, range(cut, len(vectors)), vectors[:cut])):
            if wanted := [m - own.start for m in queries[0].blocks if m in own]:
                weights = cast(outer(others), like.dtype) if others else None
                self.sides.append((left, weights, own, [vectors[m] for m in own], wanted))

    @property
    def nbytes(self) -> int:
        return sum(bytes_of(weights) for _, weights, *_ in self.sides if weights is not None)

    @property
    def in_order(self) -> bool:
        """Whether rows of the unfolding are neighbours in memory; not of a single block, which has no weights."""
        return self._modes == tuple(range(len(self._modes))) and all(
            weights is not None for _, weights, *_ in self.sides
        )

    def split(self, parts: Sequence[Sequence[NDArray[Any]]]) -> Iterator[tuple[int, Array]]:
        """Block, and its gradients ``(R, D_m)``, from products by side of all rows of the unfolding, part by part."""
        for (left, _, own, vectors, wanted), some in zip(self.sides, zip(*parts, strict=True), strict=True):
            partial = np.concatenate(some, axis=1) if left else functools.reduce(np.add, some)
            for m, gradient in split_own(partial, vectors, wanted).items():
                yield m + own.start, gradient

    def gradients(self, tensor: Any) -> Iterator[tuple[int, Array]]:
        """Block, and its gradients ``(R, D_m)``."""
        matrix = namespace(tensor).reshape(permuted(tensor, self._modes), (self.rows, -1))
        for left, weights, own, vectors, wanted in self.sides:
            if weights is None:
                xp = namespace(matrix)
                partial = xp.broadcast_to(xp.reshape(matrix, (1, -1)), vectors[0].shape)
            elif not isinstance(matrix, np.ndarray):
                found = fused(_split_product, left, tuple(wanted))(matrix, weights, vectors)
                yield from ((m + own.start, to_host(gradient)) for m, gradient in found.items())
                continue
            else:
                partial = _few_products(matrix, weights) if left else np.stack([w @ matrix for w in weights])
            for m, gradient in split_own(partial, vectors, wanted).items():
                yield m + own.start, to_host(gradient)


def _split_product(left: bool, wanted: Sequence[int], matrix: Any, weights: Any, vectors: list[Any]) -> dict[int, Any]:
    """The same on a device, as one program where that is possible."""
    return split_own(weights @ (matrix.T if left else matrix), vectors, wanted)


def _few_products(matrix: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """A matrix times a few vectors, the rows of ``weights``; it is read once, in pieces that BLAS need not copy."""
    if len(weights) == 1:
        return np.asarray(matrix @ weights[0])[None]
    products = np.empty((len(matrix), len(weights)), matrix.dtype)
    step = max(1, PIECE // weights.size)
    for first in range(0, len(matrix), step):
        np.matmul(matrix[first : first + step], weights.T, out=products[first : first + step])
    return products.T
