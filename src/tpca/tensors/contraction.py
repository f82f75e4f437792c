r"""Contraction of a tensor (a sample, or a mean of samples) with the blocks of all replicas.

With the modes grouped into k blocks a sample is a k-way array ``T[a_1, ..., a_k]`` and each block of a replica
a vector ``w_m`` of D_m entries.  The reward and its block gradients are (paper, Eq. def-hatR)

.. math::
    R = \langle w_1 \otimes \dots \otimes w_k, T\rangle, \qquad
    \nabla_m R = T \text{ contracted with all } w_i, i \ne m, \qquad R = \langle \nabla_m R, w_m\rangle .

All gradients of all replicas come from two matrix products: split the blocks into a left and a right half, multiply
the half-unfolded ``T`` once by the replicas' outer products of the right half and once by those of the left, and
split again inside each half, where everything is small.  Queries with the same unfolding share these two products,
so that ``T`` is read twice for all of them together.  Queries with identities are traces
(:mod:`tpca.tensors.traces`), named by whoever asks, and read only the diagonals.

A tensor may lie on a device: replicas go there, their gradients come back, and all between is done there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array, narrowed, widened
from tpca.tensors.namespaces import cast, entries, fused, joined, namespace, numpy_dtype, permuted, to_device, to_host
from tpca.tensors.products import multiply
from tpca.tensors.query import Answer, Query, rewards, subtract
from tpca.tensors.traces import Traces


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
