r"""Dense samples, and their contraction with the blocks of all replicas.

With the modes grouped into k blocks a sample is a k-way array ``T[a_1, ..., a_k]`` and each block of a replica
a vector ``w_m`` of D_m entries.  The reward and its block gradients are (paper, Eq. def-hatR)

.. math::
    R = \langle w_1 \otimes \dots \otimes w_k, T\rangle, \qquad
    \nabla_m R = T \text{ contracted with all } w_i, i \ne m, \qquad R = \langle \nabla_m R, w_m\rangle .

All gradients of all replicas come from two matrix products: split the blocks into a left and a right half, multiply
the half-unfolded ``T`` once by the replicas' outer products of the right half and once by those of the left, and
split again inside each half, where everything is small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from tpca.batches.query import Answer, Query, rewards, subtract
from tpca.blocks import Array
from tpca.errors import SampleError


def contract(tensor: NDArray[Any], query: Query) -> Answer:
    """Gradients and rewards of every replica of ``query`` on one tensor (a sample, or a mean of samples).

    Gradients come in the dtype of their block's replicas, rewards in float64.
    """
    partition, count = query.partition, len(query.replicas[0])
    gradients = {m: np.empty((count, *partition.shapes[m]), dtype=query.replicas[m].dtype) for m in query.blocks}
    reward = np.empty(count)
    for some, vectors, parts in gradient_slices(tensor, partition.groups, query.replicas, query.blocks):
        parts = subtract(parts, vectors, query)
        reward[some] = rewards(parts, vectors)
        narrow(parts, gradients, some)
    return Answer(gradients, reward)


def narrow(parts: dict[int, Array], gradients: dict[int, NDArray[Any]], some: slice) -> None:
    """Store gradients in the dtype of their replicas; infinite where they do not fit."""
    with np.errstate(over="ignore"):
        for m, gradient in parts.items():
            gradients[m][some] = gradient.reshape(gradients[m][some].shape)


def gradient_slices(
    tensor: NDArray[Any], groups: Sequence[Sequence[int]], replicas: Sequence[NDArray[Any]], wanted: Sequence[int]
) -> Iterator[tuple[slice, list[Array], dict[int, Array]]]:
    """Gradients of a few replicas after the other: which ones, their blocks as rows, their gradients as rows."""
    unfolded = _unfold(tensor, groups)
    wide = np.result_type(tensor.dtype, *(block.dtype for block in replicas))
    for some in _slices(len(replicas[0]), unfolded.shape, unfolded.size):
        pairs = zip(replicas, unfolded.shape, strict=True)
        vectors = [block[some].reshape(-1, size).astype(wide, copy=False) for block, size in pairs]
        yield some, vectors, _split_shared(unfolded, vectors, wanted)


def _unfold(tensor: NDArray[Any], groups: Sequence[Sequence[int]]) -> NDArray[Any]:
    """The tensor as a k-way array, one axis per block (a view when the blocks are in mode order)."""
    sizes = [math.prod(tensor.shape[n] for n in group) for group in groups]
    return tensor.transpose([n for group in groups for n in group]).reshape(sizes)


def _slices(count: int, sizes: Sequence[int], entries: int) -> list[slice]:
    """Replicas in slices whose outer products together stay below the size of the tensor itself."""
    cut = _middle(sizes)
    per_replica = math.prod(sizes[:cut]) + math.prod(sizes[cut:])
    step = max(1, entries // per_replica)
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def _middle(sizes: Sequence[int]) -> int:
    """Where to cut a list of block sizes so that the two halves are as even as possible."""
    if len(sizes) < 2:
        return len(sizes)
    return min(range(1, len(sizes)), key=lambda i: max(math.prod(sizes[:i]), math.prod(sizes[i:])))


def _split_shared(tensor: NDArray[Any], vectors: list[Array], wanted: Sequence[int]) -> dict[int, Array]:
    """Gradients when all replicas see the same tensor: two matrix products, then :func:`_split_own`."""
    cut = _middle(tensor.shape)
    if cut == len(vectors):  # a single block: its gradient is the tensor itself
        return {0: np.broadcast_to(tensor.astype(np.float64), vectors[0].shape)}
    left = math.prod(tensor.shape[:cut])
    matrix = tensor.reshape(left, -1)
    gradients: dict[int, Array] = {}
    if any(m < cut for m in wanted):
        partial = _outer(vectors[cut:]).astype(tensor.dtype, copy=False) @ matrix.T
        mine = [m for m in wanted if m < cut]
        gradients.update(_split_own(partial, vectors[:cut], mine))
    if any(m >= cut for m in wanted):
        partial = _outer(vectors[:cut]).astype(tensor.dtype, copy=False) @ matrix
        mine = [m - cut for m in wanted if m >= cut]
        gradients.update({m + cut: g for m, g in _split_own(partial, vectors[cut:], mine).items()})
    return gradients


def _split_own(tensors: NDArray[Any], vectors: list[Array], wanted: Sequence[int]) -> dict[int, Array]:
    """Gradients when replica r sees its own small tensor ``tensors[r]`` (flattened)."""
    if len(vectors) == 1:
        return {0: tensors.astype(np.float64, copy=False)}
    sizes = [v.shape[1] for v in vectors]
    cut = _middle(sizes)
    tensors = tensors.reshape(len(tensors), math.prod(sizes[:cut]), -1)
    gradients: dict[int, Array] = {}
    if any(m < cut for m in wanted):
        partial = np.matmul(tensors, _outer(vectors[cut:])[:, :, None])[:, :, 0]
        gradients.update(_split_own(partial, vectors[:cut], [m for m in wanted if m < cut]))
    if any(m >= cut for m in wanted):
        partial = np.matmul(_outer(vectors[:cut])[:, None, :], tensors)[:, 0, :]
        mine = [m - cut for m in wanted if m >= cut]
        gradients.update({m + cut: g for m, g in _split_own(partial, vectors[cut:], mine).items()})
    return gradients


def _outer(vectors: Sequence[Array]) -> Array:
    """Row-wise outer products: ``(R, D_1), (R, D_2), ... -> (R, D_1 D_2 ...)``."""
    product = vectors[0]
    for v in vectors[1:]:
        product = (product[:, :, None] * v[:, None, :]).reshape(len(v), -1)
    return product


SHORT = 2**30  # entries that a BLAS routine with 32-bit integers can count


def missing(index: int) -> SampleError:
    """The error for a sample with entries that are not numbers."""
    return SampleError(
        f'sample {index} contains NaN or Inf; clean it, or open the stream with nan_policy="skip" or "zero".'
    )


class DenseBatch:
    """``n`` dense samples, a C-contiguous array of shape ``(n, d_1, ..., d_k̄)`` of finite real numbers.

    ``first`` is the place of the batch in its stream, ``dropped`` how many of its samples the stream left out.  A
    stream that has not looked for NaN and Inf says so: ``unchecked`` is then the number of the first sample, for the
    message.  They are looked for when the samples are used; in a sum of samples, where they show, that is almost free.
    """

    def __init__(self, samples: NDArray[Any], first: int = 0, dropped: int = 0, unchecked: int | None = None) -> None:
        self._samples = samples
        self.first, self.dropped = first, dropped
        self._unchecked = unchecked

    @property
    def samples(self) -> NDArray[Any]:
        """The samples; all of them finite."""
        self.check()
        return self._samples

    def check(self) -> None:
        """Refuse samples with NaN or Inf, if nobody has looked yet."""
        if self._unchecked is not None:
            _refuse_missing(self._samples, self._unchecked)
            self._unchecked = None

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, some: slice) -> DenseBatch:
        start, _, _ = some.indices(len(self))
        unchecked = None if self._unchecked is None else self._unchecked + start
        return DenseBatch(self._samples[some], unchecked=unchecked)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""
        return int(self._samples.nbytes)

    def add_to(self, total: NDArray[Any] | None) -> NDArray[Any]:
        """Add the sum of the samples to ``total``, in place; contraction is linear, so replicas need only this.

        One BLAS product (``total += ones @ X``) reads every entry once.  A missing entry makes the total one, too.
        """
        if total is None:
            total = np.zeros(self._samples.shape[1:], self._samples.dtype)
        if not len(self):
            return total
        flat = self._samples.reshape(len(self), -1)
        ones = np.ones(len(flat), flat.dtype)
        sums: NDArray[Any] = total.reshape(-1)
        gemv, asum = _blas(flat.dtype)
        gemv(1.0, flat.T, ones, 1.0, sums, overwrite_y=1)
        if self._unchecked is not None and not math.isfinite(asum(sums)):
            _refuse_missing(self._samples, self._unchecked)
        return total

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""
        *others, last = vectors
        part: NDArray[Any] = self.samples @ last.T.astype(self.samples.dtype)
        for v in reversed(others):
            part = np.einsum("...ic,ci->...c", part, v)
        return part.astype(np.float64, copy=False)

    def each(self, query: Query) -> Answer:
        """Gradients where replica r sees only the samples r, R + r, 2R + r, ...: shape ``(n / R, R, *block shape)``.

        The paper feeds every start fresh samples (Algorithm MPSNSGA, steps 1 to 3); this is that access.
        """
        partition, count = query.partition, len(query.replicas[0])
        steps = len(self.samples) // count
        modes = [1 + n for group in partition.groups for n in group]
        own = self.samples.transpose([0, *modes]).reshape(steps, count, *partition.sizes)
        (block,) = query.blocks
        others = [w.reshape(count, -1) for m, w in enumerate(query.replicas) if m != block]
        front = np.moveaxis(own, 2 + block, 2).reshape(steps, count, partition.sizes[block], -1)
        weights = _outer(others).astype(own.dtype, copy=False)
        gradient = np.matmul(front, weights[None, :, :, None])[..., 0].astype(np.float64, copy=False)
        if query.less:  # the same for every step
            rows = [w.reshape(count, -1) for w in query.replicas]
            gradient += subtract({block: np.zeros(gradient.shape[1:])}, rows, query)[block]
        shaped = gradient.reshape(steps, count, *partition.shapes[block])
        reward = np.einsum("tri,ri->tr", gradient, query.replicas[block].reshape(count, -1))
        return Answer({block: shaped}, reward)


@functools.cache
def _blas(dtype: np.dtype[Any]) -> Any:
    """``gemv`` and ``asum`` for one dtype; looking them up takes as long as adding up a small sample."""
    return get_blas_funcs(("gemv", "asum"), dtype=dtype)


def _refuse_missing(samples: NDArray[Any], first: int) -> None:
    """Raise an error that names the first sample with NaN or Inf, if there is one."""
    if samples.size <= SHORT and math.isfinite(_blas(samples.dtype)[1](samples.reshape(-1))):
        return  # the sum of all sizes shows a missing entry; if it is only too large, the entries are looked at
    finite = np.isfinite(samples).reshape(len(samples), -1).all(axis=1)
    if not finite.all():
        raise missing(first + int(np.argmin(finite)))
