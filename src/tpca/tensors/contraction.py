r"""Products in the form that BLAS is quickest at: of replicas' rows with an unfolded tensor.

Contraction of a tensor (a sample, or a mean of samples) with the blocks of all replicas.

With the modes grouped into k blocks a sample is a k-way array ``T[a_1, ..., a_k]`` and each block of a replica
a vector ``w_m`` of D_m entries.  The reward and its block gradients are (paper, Eq. def-hatR)

.. math::
    R = \langle w_1 \otimes \dots \otimes w_k, T\rangle, \qquad
    \nabla_m R = T \text{ contracted with all } w_i, i \ne m, \qquad R = \langle \nabla_m R, w_m\rangle .

All gradients of all replicas come from two matrix products: split the blocks into a left and a right half, multiply
the half-unfolded ``T`` once by the replicas' outer products of the right half and once by those of the left, and
split again inside each half, where everything is small.  Queries with the same unfolding share these two products,
so that ``T`` is read twice for all of them together.  Queries with identities are traces
(:mod:`tpca.tensors.contraction`), named by whoever asks, and read only the diagonals.

A tensor may lie on a device: replicas go there, their gradients come back, and all between is done there.

Gradients of a few single replicas on many tensors, one after the other: what sub-batches are looked at with.

Traces: contraction with identities, which needs the diagonals of a tensor only.

Where a block of two modes (i, j) is the identity, contraction with it is the trace over i and j, a sum of d slices:

.. math:: (\mathrm{tr}_{ij} T)_{\dots} = \sum_a T_{\dots\,i=a\,\dots\,j=a\,\dots} ,

d^{k-1} of the d^k entries.  Several queries share what they have in common.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array, narrowed, widened
from tpca.tensors.namespaces import (
    bytes_of,
    cast,
    entries,
    fused,
    joined,
    namespace,
    numpy_dtype,
    permuted,
    to_device,
    to_host,
)
from tpca.tensors.query import Answer, Query, rewards, subtract
from tpca.threads import share

HALVED = 2**24  # multiplications that are done in two halves: a third of a millisecond, many times waking a thread
FITTED = 2**22  # multiplications that are worth some care: a tenth of a millisecond
FOUR = 4  # rows that BLAS multiplies at once


def multiply(rows: Any, matrix: Any) -> Any:
    """``rows @ matrix``; of a large one on the host the two halves of its columns at once.

    BLAS takes four rows at a time.  A transposed ``matrix`` it would rather multiply as it lies in memory, from the
    left: that gives the transposed product, in a fifth less time, or in half of it where there are few rows.
    """
    much, columns = rows.size * matrix.shape[1], matrix.shape[1]
    if not isinstance(matrix, np.ndarray) or much < min(FITTED, HALVED) or len(rows) < FOUR:
        return rows @ matrix
    count, turned = len(rows), matrix.flags.f_contiguous
    if count % FOUR:
        rows = np.concatenate([rows, np.zeros((FOUR - count % FOUR, rows.shape[1]), rows.dtype)])
    product: NDArray[Any] = np.empty((len(rows), columns), matrix.dtype, order="F" if turned else "C")
    cut = columns // 2 if much >= HALVED else columns

    def part(some: slice) -> None:
        np.matmul(rows, matrix[:, some], out=product[:, some])

    share(part, [slice(first, first + cut) for first in range(0, columns, cut)])
    return np.ascontiguousarray(product[:count])


class Asked(NamedTuple):
    """The replicas of the blocks ``groups``, and the blocks whose gradients are asked for."""

    groups: tuple[tuple[int, ...], ...]
    replicas: Sequence[NDArray[Any]]
    gradients_of: Sequence[int]
    traced: Sequence[int] = ()

    @classmethod
    def of(cls, query: Query) -> Asked:
        """What a query asks of a tensor."""
        return cls(query.partition.groups, query.replicas, query.blocks, query.traced)

    @property
    def is_trace(self) -> bool:
        """Whether every gradient asked for is contracted with identities only."""
        others = [m for m in range(len(self.groups)) if m not in self.traced]
        return bool(self.traced) and (not others or (len(others) == 1 and list(self.gradients_of) == others))


class Part(NamedTuple):
    """Gradients, as rows, of the replicas ``some`` of query ``number``, and their blocks as rows."""

    number: int
    some: slice
    vectors: list[Array]
    gradients: dict[int, Array]


def contract(tensor: NDArray[Any], query: Query) -> Answer:
    """Gradients and rewards of every replica of ``query`` on one tensor."""
    (answer,) = contract_all(tensor, (query,))
    return answer


def contract_all(tensor: NDArray[Any], queries: Sequence[Query]) -> tuple[Answer, ...]:
    """Gradients and rewards of all queries on one tensor.

    Gradients come in the dtype of their block's replicas, rewards in float64.
    """
    answers = [_empty_answer(query) for query in queries]
    asked = [Asked.of(query) for query in queries]
    for part in gradients_of(tensor, asked):
        gradients = subtract(part.gradients, part.vectors, queries[part.number])
        answer = answers[part.number]
        answer.rewards[part.some] = rewards(gradients, part.vectors)
        narrow(gradients, answer.gradients, part.some)
    return tuple(answers)


def _empty_answer(query: Query) -> Answer:
    count, shapes = len(query.replicas[0]), query.partition.shapes
    gradients = {m: np.empty((count, *shapes[m]), dtype=query.replicas[m].dtype) for m in query.blocks}
    return Answer(gradients, np.empty(count))


def narrow(parts: dict[int, Array], gradients: dict[int, NDArray[Any]], some: slice) -> None:
    """Store gradients in the dtype of their replicas, infinite where they do not fit; those in float32 are used up."""
    with np.errstate(over="ignore"):
        for m, gradient in parts.items():
            narrowed(gradient.reshape(gradients[m][some].shape), gradients[m][some])


def add_gradients_of(
    tensor: NDArray[Any], queries: Sequence[Query], sums: Sequence[dict[int, Array]], factor: float = 1.0
) -> None:
    """Add the gradients of a tensor, divided by ``factor``, to ``sums``, one entry per query and block."""
    for part in gradients_of(tensor, [Asked.of(query) for query in queries]):
        for m, gradient in part.gradients.items():
            own = sums[part.number][m][part.some]
            own += gradient.reshape(own.shape) / factor


def gradients_of(tensor: NDArray[Any], asked: Sequence[Asked]) -> Iterator[Part]:
    """The gradients that are asked for, of some replicas after the others."""
    traces = Traces(tensor)
    together: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, one in enumerate(asked):
        if one.is_trace:
            vectors = [np.asarray(block.reshape(1, -1), np.float64) for block in one.replicas]
            yield Part(number, slice(0, 1), vectors, traces.gradients(one.groups, one.gradients_of))
        else:
            together.setdefault(unfolding(tensor.shape, one.groups), []).append(number)
    for (modes, rows), members in together.items():
        matrix = namespace(tensor).reshape(permuted(tensor, modes), (rows, -1))
        for pack in _packs(matrix, asked, members):
            _contract_pack(matrix, pack, asked)
            yield from pack


@functools.cache
def unfolding(dims: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], int]:
    """Modes in the order of their blocks, and the rows of the matrix that is left of the middle."""
    sizes = tuple(math.prod(dims[n] for n in group) for group in groups)
    return tuple(n for group in groups for n in group), math.prod(sizes[: middle(sizes)])


def _packs(matrix: NDArray[Any], asked: Sequence[Asked], members: Sequence[int]) -> Iterator[list[Part]]:
    """Replicas of all queries in packs whose outer products together stay below the size of the tensor itself."""
    most = max(1, entries(matrix) // sum(matrix.shape))
    pack: list[Part] = []
    room = most
    for number in members:
        replicas, start = asked[number].replicas, 0
        while start < len(replicas[0]):
            some = slice(start, min(start + room, len(replicas[0])))
            pack.append(Part(number, some, replica_rows(replicas, some, matrix), {}))
            room -= some.stop - start
            start = some.stop
            if not room:
                yield pack
                pack, room = [], most
    if pack:
        yield pack


def replica_rows(replicas: Sequence[NDArray[Any]], some: slice, matrix: Any) -> list[Array]:
    """Some replicas of every block as rows, in the widest of their dtypes and that of ``matrix``."""
    wide = np.result_type(numpy_dtype(matrix), *(block.dtype for block in replicas))
    rows = [np.reshape(block[some], (some.stop - some.start, -1)) for block in replicas]
    return [(widened(r) if r.dtype == np.float16 else r).astype(wide, copy=False) for r in rows]


def _contract_pack(matrix: NDArray[Any], pack: Sequence[Part], asked: Sequence[Asked]) -> None:
    """Two matrix products, one for the blocks on either side of the middle."""
    cuts = [middle(tuple(v.shape[1] for v in part.vectors)) for part in pack]
    if cuts[0] == len(pack[0].vectors):  # a single block: its gradient is the tensor itself
        for part in pack:
            part.gradients[0] = np.broadcast_to(to_host(matrix).reshape(-1).astype(np.float64), part.vectors[0].shape)
        return
    vectors = [[placed(v, matrix) for v in part.vectors] for part in pack]
    lefts = [range(cut) for cut in cuts]
    rights = [range(cut, len(part.vectors)) for cut, part in zip(cuts, pack, strict=True)]
    _contract_side(matrix.T, pack, vectors, lefts, rights, asked)
    _contract_side(matrix, pack, vectors, rights, lefts, asked)


def placed(vectors: Array, matrix: Any) -> Any:
    """Vectors to be multiplied with a matrix: where it is, and of the host as wide as they are."""
    return vectors if isinstance(matrix, np.ndarray) else to_device(vectors, matrix)


def _contract_side(
    matrix: Any,
    pack: Sequence[Part],
    vectors: Sequence[Sequence[Any]],
    mine: Sequence[range],
    others: Sequence[range],
    asked: Sequence[Asked],
) -> None:
    """The gradients of the blocks ``mine``: one product with the outer products of the ``others``, then split."""
    sides = [
        (part, own, blocks, rest)
        for part, own, blocks, rest in zip(pack, vectors, mine, others, strict=True)
        if any(m in blocks for m in asked[part.number].gradients_of)
    ]
    if not sides:
        return
    wanted = [tuple(m for m in asked[part.number].gradients_of if m in blocks) for part, _, blocks, _ in sides]
    spec = tuple((blocks, rest, some) for (_, _, blocks, rest), some in zip(sides, wanted, strict=True))
    found = fused(_side_gradients, spec)(matrix, [own for _, own, _, _ in sides])
    for (part, *_), gradients in zip(sides, found, strict=True):
        part.gradients.update({m: to_host(gradient) for m, gradient in gradients.items()})


def _side_gradients(
    spec: Sequence[tuple[range, range, Sequence[int]]], matrix: Any, vectors: Sequence[Sequence[Any]]
) -> list[dict[int, Any]]:
    """Gradients of the blocks of one side: for every query its own blocks, the others, and those that are wanted."""
    pairs = list(zip(spec, vectors, strict=True))
    rows = [cast(outer([own[m] for m in rest]), matrix.dtype) for (_, rest, _), own in pairs]
    partial = multiply(rows[0] if len(rows) == 1 else joined(rows), matrix)
    del rows
    found, end = [], 0
    for (blocks, _, wanted), own in pairs:
        start, end = end, end + own[0].shape[0]
        mine = split_own(partial[start:end, :], [own[m] for m in blocks], [m - blocks[0] for m in wanted])
        found.append({m + blocks[0]: gradient for m, gradient in mine.items()})
    return found


@functools.cache
def middle(sizes: tuple[int, ...]) -> int:
    """Where to cut a list of block sizes so that the two halves are as even as possible."""
    if len(sizes) < 2:
        return len(sizes)
    return min(range(1, len(sizes)), key=lambda i: max(math.prod(sizes[:i]), math.prod(sizes[i:])))


def split_own(tensors: Any, vectors: list[Any], wanted: Sequence[int]) -> dict[int, Any]:
    """Gradients when replica r sees its own small tensor ``tensors[..., r, :]`` (flattened)."""
    if len(vectors) == 1:
        return {0: tensors if tensors.dtype == vectors[0].dtype else cast(tensors, np.result_type(tensors, vectors[0]))}
    sizes = tuple(v.shape[1] for v in vectors)
    cut = middle(sizes)
    xp = namespace(tensors)
    tensors = xp.reshape(tensors, (*tensors.shape[:-1], math.prod(sizes[:cut]), -1))
    gradients: dict[int, Any] = {}
    if any(m < cut for m in wanted):
        partial = xp.matmul(tensors, outer(vectors[cut:])[..., None])[..., 0]
        gradients.update(split_own(partial, vectors[:cut], [m for m in wanted if m < cut]))
    if any(m >= cut for m in wanted):
        partial = xp.matmul(outer(vectors[:cut])[..., None, :], tensors)[..., 0, :]
        mine = [m - cut for m in wanted if m >= cut]
        gradients.update({m + cut: g for m, g in split_own(partial, vectors[cut:], mine).items()})
    return gradients


def outer(vectors: Sequence[Any]) -> Array:
    """Outer products of vectors along their last axis: ``(..., D_1), (..., D_2), ... -> (..., D_1 D_2 ...)``."""
    product: Array = vectors[0]
    for v in vectors[1:]:
        product = namespace(v).reshape(product[..., :, None] * v[..., None, :], (*v.shape[:-1], -1))
    return product


PIECE = 2**19  # multiplications: OpenBLAS copies the matrices of larger products first, which takes as long again
AT_A_TIME = 4  # vectors that a matrix is multiplied with at a time


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
    again = isinstance(weights, np.ndarray) and len(weights) % AT_A_TIME == AT_A_TIME - 1
    return np.concatenate([weights, weights[:1]]) if again else weights


def _few_products(matrix: NDArray[Any], weights: NDArray[Any], products: NDArray[Any] | None = None) -> NDArray[Any]:
    """A matrix times a few vectors, the rows of ``weights``, as columns; into ``products``, if that is given.

    The matrix is read once for every four of them, in pieces that BLAS need not copy.
    """
    products = np.empty((len(matrix), len(weights)), matrix.dtype) if products is None else products
    for few in range(0, len(weights), AT_A_TIME):
        some = weights[few : few + AT_A_TIME]
        step = len(matrix) if len(some) == 1 else max(1, PIECE // some.size)
        for first in range(0, len(matrix), step):
            rows = slice(first, first + step)
            np.matmul(matrix[rows], some.T, out=products[rows, few : few + AT_A_TIME])
    return products


Pair = tuple[int, int]


class Traces:
    """Traces of one tensor over pairs of modes, each worked out once."""

    def __init__(self, tensor: NDArray[Any]) -> None:
        self._known: dict[tuple[Pair, ...], Any] = {(): tensor}

    def gradients(self, groups: Sequence[Sequence[int]], wanted: Sequence[int]) -> dict[int, Array]:
        """The tensor traced over all groups but one, for every one wanted, as one row."""
        return {m: self._gradient(groups, m) for m in wanted}

    def _gradient(self, groups: Sequence[Sequence[int]], m: int) -> Array:
        pairs = sorted((min(group), max(group)) for i, group in enumerate(groups) if i != m)
        traced = self._over(tuple(pairs))
        left = sorted(groups[m])  # the modes that are left, in their order
        row = to_host(permuted(traced, [left.index(mode) for mode in groups[m]])).reshape(1, -1)
        return row.astype(np.float64, copy=False)

    def _over(self, pairs: tuple[Pair, ...]) -> Any:
        if pairs not in self._known:
            *before, (i, j) = pairs
            rest = self._over(tuple(before))
            gone = [mode for pair in before for mode in pair]
            self._known[pairs] = _trace(rest, i - sum(mode < i for mode in gone), j - sum(mode < j for mode in gone))
        return self._known[pairs]


def _trace(tensor: Any, i: int, j: int) -> Any:
    """Sum of the slices on the diagonal of two axes, ``i`` before ``j``."""
    if isinstance(tensor, np.ndarray):
        axes = list(range(tensor.ndim))
        kept = [axis for axis in axes if axis not in (i, j)]
        axes[j] = i
        return np.einsum(tensor, axes, kept, dtype=np.float64)
    slices = namespace(tensor).moveaxis(tensor, (i, j), (0, 1))
    total = slices[0, 0, ...] + 0  # a copy
    for a in range(1, slices.shape[0]):
        total += slices[a, a, ...]
    return total
