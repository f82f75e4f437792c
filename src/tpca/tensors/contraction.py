r"""What a solver asks of data (a query), and what it gets: a tensor contracted with the blocks of all replicas.

With the modes grouped into k blocks a sample, or a sum of samples, is a k-way array ``T[a_1, ..., a_k]`` and each block
of a replica a vector ``w_m`` of D_m entries.  The reward and its block gradients are (paper, Eq. def-hatR)

.. math::
    R = \langle w_1 \otimes \dots \otimes w_k, T\rangle, \qquad
    \nabla_m R = T \text{ contracted with all } w_i, i \ne m, \qquad R = \langle \nabla_m R, w_m\rangle .

All gradients of all replicas come from two matrix products: split the blocks into a left and a right half, multiply
the half-unfolded ``T`` once by the replicas' outer products of the right half and once by those of the left, and
split again inside each half, where everything is small.  Queries with the same unfolding share these two products,
so that ``T`` is read twice for all of them together.

Queries that name identities (``Query.traced``) are traces, :math:`\sum_a T_{\dots\,i=a\,\dots\,j=a\,\dots}`, which read
only d^{k-1} of the d^k entries of a tensor.

A tensor may lie on a device: replicas go there, their gradients come back, and all between is done there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array, Partition, narrowed, widened
from tpca.tensors.namespaces import cast, entries, namespace, numpy_dtype, permuted, to_device, to_host
from tpca.threads import share


@dataclass(frozen=True)
class RankOne:
    """A component that is known already: ``strength`` times the outer product of ``vectors``."""

    strength: float
    vectors: tuple[Array, ...]


@dataclass(frozen=True)
class Query:
    """Replicas of the blocks of a partition, and ``gradients_of`` which blocks to take gradients (``None``: all).

    ``traced`` names square blocks whose one replica is the identity: what is contracted with it is traced.
    ``deflate`` holds components to subtract from every sample.  They are subtracted inside the contraction, where they
    are a few inner products; no sample is ever changed.
    ``by_part`` names blocks whose gradients are wanted for every sub-batch of the samples, too, of one replica only;
    rewards come with them, or (``()``) alone.  ``None``: nothing is.
    """

    partition: Partition
    replicas: tuple[NDArray[Any], ...]
    gradients_of: tuple[int, ...] | None = None
    deflate: tuple[RankOne, ...] = ()
    traced: tuple[int, ...] = ()
    by_part: tuple[int, ...] | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose gradients are asked for."""
        return tuple(range(len(self.partition))) if self.gradients_of is None else self.gradients_of

    @property
    def is_trace(self) -> bool:
        """Whether every gradient asked for is contracted with identities only."""
        others = [m for m in range(len(self.partition)) if m not in self.traced]
        return bool(self.traced) and (not others or (len(others) == 1 and list(self.blocks) == others))

    def for_gradients(self) -> Query:
        """The same without what sums of gradients do not need: known components, replicas of the block asked for."""
        own = self.blocks[0] if len(self.blocks) == 1 else None
        replicas = list(self.replicas)
        if own is not None:
            replicas[own] = np.broadcast_to(np.zeros((), replicas[own].dtype), replicas[own].shape)
        return dataclasses.replace(self, replicas=tuple(replicas), deflate=(), by_part=None)

    def __reduce__(self) -> Any:
        """Pickled with what is the same along an axis (a stride of 0) only once."""
        once = [tuple(slice(0, 1) if stride == 0 else slice(None) for stride in w.strides) for w in self.replicas]
        blocks = [(np.ascontiguousarray(w[some]), w.shape) for w, some in zip(self.replicas, once, strict=True)]
        return _unpickled, (self.partition, blocks, self.gradients_of, self.deflate, self.traced, self.by_part)


def _unpickled(partition: Partition, blocks: Sequence[Any], *more: Any) -> Query:
    return Query(partition, tuple(np.broadcast_to(small, shape) for small, shape in blocks), *more)


@dataclass(frozen=True)
class SubBatches:
    """Mean gradients ``(m, *block shape)`` and rewards ``(m,)`` of m sub-batches of ``sizes`` samples, in their order.

    What sub-batches the samples are cut into was fixed before they came (:mod:`tpca.tensors.accumulators`).
    ``rounding`` is that of a sum of all samples, relative: what sub-batches differ by less may be the same.
    """

    sizes: Array
    gradients: dict[int, Array]
    rewards: Array
    rounding: float = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return sum(g.nbytes for g in self.gradients.values()) + self.rewards.nbytes + self.sizes.nbytes


@dataclass(frozen=True)
class Answer:
    """Gradients for one query, by block, each of shape ``(R, *block shape)``, and the rewards ``(R,)``.

    With :attr:`Query.by_part` also those of every sub-batch.
    """

    gradients: dict[int, Array]
    rewards: Array
    by_part: SubBatches | None = None

    @classmethod
    def empty(cls, query: Query) -> Answer:
        """Room for the answer: gradients in the dtype of their replicas, rewards in float64."""
        count, shapes = len(query.replicas[0]), query.partition.shapes
        gradients = {m: np.empty((count, *shapes[m]), dtype=query.replicas[m].dtype) for m in query.blocks}
        return cls(gradients, np.empty(count))

    @property
    def nbytes(self) -> int:
        """Bytes of the gradients and rewards."""
        parts = 0 if self.by_part is None else self.by_part.nbytes
        return sum(g.nbytes for g in self.gradients.values()) + self.rewards.nbytes + parts


def rewards(gradients: dict[int, Array], replicas: Sequence[Array]) -> Array:
    """Rewards from any block's gradient, by 1-homogeneity: R = <grad_m R, W_m> (paper, Section 3.1)."""
    block = min(gradients, key=lambda m: gradients[m].size)
    count = len(replicas[block])
    products: Array = np.einsum("ri,ri->r", gradients[block].reshape(count, -1), replicas[block].reshape(count, -1))
    return products


def subtract(gradients: dict[int, Array], vectors: Sequence[Array], query: Query) -> dict[int, Array]:
    r"""Gradients without the components ``query.deflate``; ``vectors[m]`` are the replicas' blocks as rows.

    The gradient of a component :math:`c\,u_1\otimes\dots\otimes u_k` is
    :math:`c\prod_{i\ne m}\langle w_i, u_i\rangle\,u_m`.
    """
    for known in query.deflate:
        rays = [ray.reshape(-1) for ray in query.partition.outer(known.vectors)]
        inner = np.stack([w @ ray for w, ray in zip(vectors, rays, strict=True)])
        for m in gradients:
            others = known.strength * np.delete(inner, m, axis=0).prod(axis=0)
            gradients[m] = gradients[m] - np.multiply.outer(others, rays[m])
    return gradients


HALVED = 2**24  # multiplications that are done in two halves: a third of a millisecond, many times waking a thread
FOUR = 4  # rows that BLAS multiplies at once; it first copies the matrix, which takes longer than to multiply fewer


class PartialGradients(NamedTuple):
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
    answers = tuple(Answer.empty(query) for query in queries)
    for part in gradients_of(tensor, queries):
        fill(answers[part.number], queries[part.number], part.some, part.gradients, part.vectors)
    return answers


def fill(answer: Answer, query: Query, some: slice, gradients: dict[int, Array], vectors: Sequence[Array]) -> None:
    """Take gradients, as rows, of some replicas into an answer, without known components, and their rewards.

    They are stored in the dtype of their replicas, infinite where they do not fit; those in float32 are used up.
    """
    gradients = subtract(gradients, vectors, query)
    answer.rewards[some] = rewards(gradients, vectors)
    with np.errstate(over="ignore"):
        for m, gradient in gradients.items():
            target = answer.gradients[m][some]
            narrowed(gradient.reshape(target.shape), target)


def add_gradients_of(tensor: NDArray[Any], queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
    """Add the gradients of a tensor to ``sums``, one entry per query and block."""
    for part in gradients_of(tensor, queries):
        for m, gradient in part.gradients.items():
            own = sums[part.number][m][part.some]
            own += gradient.reshape(own.shape)


def gradients_of(tensor: NDArray[Any], queries: Sequence[Query]) -> Iterator[PartialGradients]:
    """The gradients that are asked for, of some replicas after the others."""
    traces: dict[Any, Any] = {(): tensor}
    together: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, query in enumerate(queries):
        if query.is_trace:
            vectors = [np.asarray(block.reshape(1, -1), np.float64) for block in query.replicas]
            gradients = {m: traced(traces, query.partition.groups, m) for m in query.blocks}
            yield PartialGradients(number, slice(0, 1), vectors, gradients)
        else:
            together.setdefault(unfolding(tensor.shape, query.partition.groups), []).append(number)
    for (modes, rows), numbers in together.items():
        matrix = namespace(tensor).reshape(permuted(tensor, modes), (rows, -1))
        for pack in _packs(matrix, queries, numbers):
            _contract_pack(matrix, pack, queries)
            yield from pack


@functools.cache
def unfolding(dims: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], int]:
    """Modes in the order of their blocks, and the rows of the matrix that is left of the middle."""
    sizes = tuple(math.prod(dims[n] for n in group) for group in groups)
    return tuple(n for group in groups for n in group), math.prod(sizes[: middle(sizes)])


@functools.cache
def middle(sizes: tuple[int, ...]) -> int:
    """Where to cut a list of block sizes so that the two halves are as even as possible."""
    if len(sizes) < 2:
        return len(sizes)
    return min(range(1, len(sizes)), key=lambda i: max(math.prod(sizes[:i]), math.prod(sizes[i:])))


def _packs(matrix: NDArray[Any], queries: Sequence[Query], numbers: Sequence[int]) -> Iterator[list[PartialGradients]]:
    """Replicas of all queries in packs whose outer products together stay below the size of the tensor itself.

    Blocks become rows, in the widest of their dtypes and that of the matrix.
    """
    most = max(1, entries(matrix) // sum(matrix.shape))
    pack: list[PartialGradients] = []
    room = most
    for number in numbers:
        replicas, start = queries[number].replicas, 0
        wide = np.result_type(numpy_dtype(matrix), *(block.dtype for block in replicas))
        while start < len(replicas[0]):
            some = slice(start, min(start + room, len(replicas[0])))
            rows = [np.reshape(block[some], (some.stop - start, -1)) for block in replicas]
            rows = [(widened(r) if r.dtype == np.float16 else r).astype(wide, copy=False) for r in rows]
            pack.append(PartialGradients(number, some, rows, {}))
            room -= some.stop - start
            start = some.stop
            if not room:
                yield pack
                pack, room = [], most
    if pack:
        yield pack


def _contract_pack(matrix: Any, pack: Sequence[PartialGradients], queries: Sequence[Query]) -> None:
    """Two matrix products, one for the blocks on either side of the middle."""
    if len(pack[0].vectors) == 1:  # a single block: its gradient is the tensor itself
        for part in pack:
            part.gradients[0] = np.broadcast_to(to_host(matrix).reshape(-1).astype(np.float64), part.vectors[0].shape)
        return
    here = isinstance(matrix, np.ndarray)
    vectors = [part.vectors if here else [to_device(v, matrix) for v in part.vectors] for part in pack]
    for left in (True, False):
        sides, rows = [], []
        for part, own in zip(pack, vectors, strict=True):
            cut = middle(tuple(v.shape[1] for v in own))
            first, mine, others = (0, own[:cut], own[cut:]) if left else (cut, own[cut:], own[:cut])
            wanted = [m - first for m in queries[part.number].blocks if 0 <= m - first < len(mine)]
            if wanted:
                sides.append((part, first, mine, wanted))
                rows.append(cast(outer(others), matrix.dtype))
        if not sides:
            continue
        together = rows[0] if len(rows) == 1 else namespace(matrix).concat(rows, axis=0)
        partial, start = multiply(together, matrix.T if left else matrix), 0
        for part, first, mine, wanted in sides:
            stop = start + mine[0].shape[0]
            for m, gradient in split_own(partial[start:stop, :], mine, wanted).items():
                part.gradients[m + first] = to_host(gradient)
            start = stop


def multiply(rows: Any, matrix: Any) -> Any:
    """``rows @ matrix``; few rows one by one, of a large product the two halves of its columns at once."""
    if not isinstance(matrix, np.ndarray):
        return rows @ matrix
    if len(rows) < FOUR:
        return np.stack([row @ matrix for row in rows])
    columns = matrix.shape[1]
    if rows.size * columns < HALVED:
        return rows @ matrix
    product: NDArray[Any] = np.empty((len(rows), columns), matrix.dtype)

    def multiply_half(some: slice) -> None:
        np.matmul(rows, matrix[:, some], out=product[:, some])

    share(multiply_half, [slice(0, columns // 2), slice(columns // 2, columns)])
    return product


def split_own(tensors: Any, vectors: list[Any], wanted: Sequence[int]) -> dict[int, Any]:
    """Gradients when replica r sees its own small tensor ``tensors[r]`` (flattened)."""
    if len(vectors) == 1:
        return {0: tensors if tensors.dtype == vectors[0].dtype else cast(tensors, np.result_type(tensors, vectors[0]))}
    sizes = tuple(v.shape[1] for v in vectors)
    cut = middle(sizes)
    xp = namespace(tensors)
    tensors = xp.reshape(tensors, (tensors.shape[0], math.prod(sizes[:cut]), -1))
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


def traced(known: dict[Any, Any], groups: Sequence[Sequence[int]], m: int) -> Array:
    """A tensor traced over all groups but group ``m``, as one row.

    ``known`` has it, by the pairs of modes that are gone (``()``: the tensor itself), and gets what is traced here.
    """
    pairs = tuple(sorted((min(group), max(group)) for i, group in enumerate(groups) if i != m))
    for count, (i, j) in enumerate(pairs):
        if pairs[: count + 1] not in known:
            gone = [mode for pair in pairs[:count] for mode in pair]
            i, j = (mode - sum(other < mode for other in gone) for mode in (i, j))
            known[pairs[: count + 1]] = _trace(known[pairs[:count]], i, j)
    left = sorted(groups[m])  # the modes that are left, in their order
    row = to_host(permuted(known[pairs], [left.index(mode) for mode in groups[m]])).reshape(1, -1)
    return row.astype(np.float64, copy=False)


def _trace(tensor: Any, i: int, j: int) -> Any:
    """Sum of the slices on the diagonal of two axes, ``i`` before ``j``."""
    if isinstance(tensor, np.ndarray):
        return np.trace(tensor, axis1=i, axis2=j, dtype=np.float64)
    slices = namespace(tensor).moveaxis(tensor, (i, j), (0, 1))
    total = slices[0, 0, ...]
    for a in range(1, slices.shape[0]):
        total = total + slices[a, a, ...]
    return total
