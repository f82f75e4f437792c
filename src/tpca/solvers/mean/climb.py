r"""Alternating least squares on some tensors at once, at two full contractions a sweep whatever the order.

With the modes cut into a left and a right half, X is a matrix for each half of them: while the vectors of one half take
their turns, those of the other stand still, and what these leave of X is worked out once,

.. math:: L = X\cdot(v_{c+1}\otimes\dots\otimes v_k), \qquad R = (v_1\otimes\dots\otimes v_c)\cdot X ,

tensors of the modes of one half.  The updates are those of plain sweeps over all modes, one after the other.

Where nobody asks how far vectors move, they are not kept at length 1: with g the gradient, whose length is Z times
those of all other vectors,

.. math:: v_m \leftarrow g/\|g\|^2, \qquad \|v_1\|\cdots\|v_k\| = 1/Z ,

so that no length grows, and neither roots nor zeros are looked at before the last sweep.  One of them may even stay as
long as its gradient, which is Z over Z before, over the length it had.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from tpca.solvers.rank_one import along, alternate, toward
from tpca.tensors.blocks import Array, unit
from tpca.tensors.contraction import middle, outer

MOVE_TOL = 1e-18  # squared movement of all vectors in a sweep: far below any statistical error
ROUNDED = 1e-13  # the same of tensors in float32, below which vectors move by rounding
GROWN = 1e-8, 1e-4  # relative growth of Z in a sweep that is no rounding, in float64 and in float32
WORK = 2**15  # floats that a climb may form at a time, or a tensor's worth if that is more


def climb(
    tensors: Array, vectors: Sequence[Array], sweeps: int, tolerance: float = MOVE_TOL
) -> tuple[list[Array], Array]:
    """Alternating least squares from vectors ``(T, R, d_i)``, R starts for each of ``(T, *dims)`` tensors.

    Ends after ``sweeps``, or when none has moved by ``tolerance``.
    """
    count, starts = vectors[0].shape[:2]
    if count == starts == 1 and (tolerance or tensors.size > WORK):
        one, value = climb_one(tensors[0], [v[0, 0] for v in vectors], sweeps, tolerance)
        return [v[None, None] for v in one], np.full((1, 1), value)
    cut = middle(tensors.shape[1:])
    step = at_once(tensors, cut)
    if not step:
        return alternate(functools.partial(gradients, tensors), vectors, sweeps, tolerance)
    if step < starts * count:
        few = max(1, step // count)  # starts, of all tensors where that is possible
        whole = slice(None)
        parts = [(whole, slice(r, r + few)) for r in range(0, starts, few)]
        if step < count:
            parts = [(slice(t, t + 1), slice(r, r + step)) for t in range(count) for r in range(0, starts, step)]
        each = [_climb(tensors[t], [v[t, r] for v in vectors], sweeps, tolerance, cut) for t, r in parts]
        return _joined(each, parts, vectors)
    return _climb(tensors, vectors, sweeps, tolerance, cut)


def climb_one(
    tensor: Array, vectors: Sequence[Array], sweeps: int, tolerance: float = MOVE_TOL
) -> tuple[list[Array], float]:
    r"""The same of one tensor from one start ``(d_i)``; in float32 if that is what the tensor is in.

    A turn of one vector v makes Z of ⟨g, v⟩ to |g|, so that :math:`\|\Delta v\|^2 = 2(1 - Z_{before}/Z)`: while Z grows
    by more than rounding, how far vectors move need not be looked at.
    """
    cut, own, value = middle(tensor.shape), [v.astype(tensor.dtype, copy=False) for v in vectors], 0.0
    tolerance, grown = least_movement(tensor, tolerance), GROWN[tensor.dtype == np.float32]
    matrix = tensor.reshape(math.prod(tensor.shape[:cut]), -1)
    before, reached = own, math.inf
    for _ in range(sweeps):
        value = _turns((matrix @ ray(own[cut:])).reshape(tensor.shape[:cut]), own := own.copy(), 0)
        value = _turns((ray(own[:cut]) @ matrix).reshape(tensor.shape[cut:]), own, cut) or value
        if value <= reached * (1 + grown) and movement(own, before) < tolerance:
            break
        before, reached = own, value
    return [unit(v.astype(np.float64)) for v in own] if tensor.dtype == np.float32 else own, value


def movement(vectors: Sequence[Array], others: Sequence[Array]) -> float:
    """The squared distance of all vectors from others."""
    return sum([float(change @ change) for change in map(np.subtract, vectors, others)])


def least_movement(tensor: Array, tolerance: float) -> float:
    """A tolerance of movement that rounding allows; 0 stays 0."""
    return max(tolerance, ROUNDED) if tolerance and tensor.dtype == np.float32 else tolerance


def at_once(tensors: Array, cut: int) -> int:
    """Starts that may climb at a time, of all tensors together; 0 where not even one may."""
    dims = tensors.shape[1:]
    formed = 2 * (math.prod(dims[:cut]) + math.prod(dims[cut:]))
    room = max(tensors[0].size, WORK) * (8 // tensors.itemsize)
    return int(room // formed)


def select(vectors: list[Array], values: Array, count: int) -> tuple[list[Array], Array]:
    """The best ``count`` starts of every tensor."""
    if values.shape[1] == 1:
        return vectors, values
    best = (-values).argsort(axis=1)[:, :count]
    each = np.arange(len(values))[:, None]
    return [v[each, best] for v in vectors], values[each, best]


def halves(tensors: Array, vectors: Sequence[Array], cut: int, left: bool) -> Array:
    """L or R of every start: ``(T, R, *dims)`` of the modes on the ``left``, or of the others."""
    count, starts, dims = len(tensors), vectors[0].shape[1], tensors.shape[1:]
    matrices = tensors.reshape(count, math.prod(dims[:cut]), -1)
    if left:
        return times(matrices, _rays(vectors[cut:])).reshape(count, starts, *dims[:cut])
    return np.asarray(np.matmul(_rays(vectors[:cut]), matrices)).reshape(count, starts, *dims[cut:])


def _rays(vectors: Sequence[Array]) -> Array:
    """The outer products of the vectors ``(T, R, d_i)`` of every start, ``(T, R, ...)``."""
    product, *others = vectors
    for v in others:  # by einsum, whose loops are quicker than broadcasting where vectors are short
        product = np.einsum("tri,trj->trij", product, v).reshape(*v.shape[:2], -1)
    return product


def _climb(
    tensors: Array, vectors: Sequence[Array], sweeps: int, tolerance: float, cut: int
) -> tuple[list[Array], Array]:
    """Climbs that go in step."""
    if not tolerance:
        own, values = _sweeps(tensors, vectors, sweeps, cut)
        if values.min() > 0:  # else, or where that is NaN, a gradient was zero
            return own, values
    own = list(vectors)
    values = np.zeros(own[0].shape[:2])
    for _ in range(sweeps):
        before = own.copy()
        for first, stop in ((0, cut), (cut, len(own))):
            part = halves(tensors, own, cut, first == 0)
            for mode in range(first, stop):
                own[mode], values = toward(along(part, own[first:stop], mode - first), own[mode])
        if tolerance:
            moved = sum(np.sum((v - w) ** 2, axis=-1) for v, w in zip(own, before, strict=True))
            if np.max(moved) < tolerance:
                break
    return own, values


def _sweeps(tensors: Array, vectors: Sequence[Array], sweeps: int, cut: int) -> tuple[list[Array], Array]:
    """So many sweeps of climbs that go in step; where a gradient is zero on the way, NaN comes out."""
    own, values = list(vectors), np.zeros(vectors[0].shape[:2])
    matrices = tensors.reshape(len(tensors), math.prod(tensors.shape[1 : 1 + cut]), -1)
    turned = matrices.transpose(0, 2, 1)
    if cut > 1 and own[0].shape[1] > 1 and tensors.size <= 2 * WORK:  # BLAS is slower on large ones as they are
        turned = turned.copy()
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for left in range(sweeps, 0, -1):
            for first, stop, block in ((0, cut, turned), (cut, len(own), matrices)):
                part = np.matmul(_rays(own[cut:] if first == 0 else own[:cut]), block)
                for mode in range(first, stop):
                    gradient = along(part, own[first:stop], mode - first)
                    if left == 1:
                        own[mode], values = toward(gradient, own[mode])
                    else:
                        own[mode] = gradient if mode == cut else gradient / np.vecdot(gradient, gradient)[..., None]
    return own, values


def _joined(
    each: Sequence[tuple[list[Array], Array]], parts: Sequence[tuple[slice, slice]], vectors: Sequence[Array]
) -> tuple[list[Array], Array]:
    """Climbs of some starts of some tensors each as those of all."""
    own = [np.empty_like(v, dtype=each[0][0][m].dtype) for m, v in enumerate(vectors)]
    values = np.empty(vectors[0].shape[:2], dtype=each[0][1].dtype)
    for (found, lengths), place in zip(each, parts, strict=True):
        values[place] = lengths
        for all_, v in zip(own, found, strict=True):
            all_[place] = v
    return own, values


def _turns(block: Array, own: list[Array], first: int) -> float:
    """Set the vectors of one half, from mode ``first`` on, each given all others: the length of the last gradient."""
    value = 0.0
    for place in range(block.ndim):
        gradient = block
        for v in own[first : first + place]:
            gradient = v @ gradient.reshape(len(v), -1)
        for v in reversed(own[first + place + 1 : first + block.ndim]):
            gradient = gradient.reshape(-1, len(v)) @ v
        value = math.sqrt(gradient @ gradient)
        if value > 0:
            own[first + place] = gradient / value
    return value


def ray(vectors: Sequence[Array]) -> Array:
    """The outer product of some vectors, as one vector."""
    product, *others = vectors
    for v in others:
        product = (product[:, None] * v).reshape(-1)
    return product


def gradients(tensors: Array, vectors: Sequence[Array], mode: int) -> Array:
    """Every tensor contracted with the vectors of its starts in all modes but ``mode``: ``(T, R, d_mode)``."""
    dims = tensors.shape[1:]
    before, after = math.prod(dims[:mode]), math.prod(dims[mode + 1 :])
    formed = len(tensors) * (2 * before + 2 * after + 2 * dims[mode] * min(before, after))  # for one start of each
    room = max(tensors[0].size, WORK)
    if formed > room and len(tensors) > 1:
        each = range(len(tensors))
        return np.concatenate([gradients(tensors[i : i + 1], [v[i : i + 1] for v in vectors], mode) for i in each])
    step = max(1, room // formed)
    some = (slice(i, i + step) for i in range(0, vectors[0].shape[1], step))
    parts = [_gradients(tensors, [v[:, few] for v in vectors], mode) for few in some]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _gradients(tensors: Array, vectors: Sequence[Array], mode: int) -> Array:
    """The same for few starts: the longer side of the modes first."""
    count, length = len(tensors), tensors.shape[1 + mode]
    if mode == 0:
        return times(tensors.reshape(count, length, -1), outer(vectors[1:]))
    left = outer(vectors[:mode])
    if mode == len(vectors) - 1:
        return np.asarray(left @ tensors.reshape(count, -1, length))
    right = outer(vectors[mode + 1 :])
    if right.shape[2] >= left.shape[2]:
        part = times(tensors.reshape(count, -1, right.shape[2]), right)
        gradient = left[:, :, None, :] @ part.reshape(count, -1, left.shape[2], length)
        return np.asarray(gradient[:, :, 0])
    part = np.asarray(left @ tensors.reshape(count, left.shape[2], -1))
    return np.asarray((part.reshape(count, -1, length, right.shape[2]) @ right[..., None])[..., 0])


def times(matrices: Array, rows: Array) -> Array:
    """``rows @ matrix.T`` of every pair; the small operand is the one transposed, for it is the one that is copied."""
    return np.asarray((matrices @ rows.transpose(0, 2, 1)).transpose(0, 2, 1))
