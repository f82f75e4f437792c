r"""The best rank-one fit of some tensors: many starts, alternating least squares, the best objective wins.

For a tensor X the fit is the unit vectors that maximise

.. math:: Z(v_1, \dots, v_k) = \langle X, v_1\otimes\dots\otimes v_k\rangle, \qquad
    v_m \leftarrow \mathrm{unit}(X \text{ contracted with all } v_i,\ i \ne m),

which for Gaussian noise is the maximum of the likelihood.  Z has many local maxima, so the climb begins in many places:

=========  ==========================================================================================================
unfolding  the top singular pairs of X as a matrix A | B, each side split into its modes; for the single modes this is
           the HOSVD start, for even halves the spectral start of Montanari & Richard (2014)
trace      a trace over two modes of equal length, for vectors that are alike (Hopkins et al. 2016)
random     a few, for what all of these miss
=========  ==========================================================================================================

All starts climb a few sweeps together, then the best few, and the best one until it stands still.  Several tensors of
one shape are fitted at once, each with its own starts: the mean of the samples, and contrasts between them that hold
noise only.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.solvers.rank_one import ROUGH, alternate, rank_one, split_blocks, top_pairs, unfold
from tpca.tensors.blocks import Array, unit

RANDOM = 16  # random starts
UNFOLDINGS = 8  # at most so many, the most even first: those tell the most (the rest start at random as well)
PAIRS = 2  # singular pairs of each
TRACES = 6  # at most so many pairs of equal modes
SWEEPS = 15  # of all starts together
BEST, MORE_SWEEPS = 3, 60  # of them climb on, so many sweeps more
MAX_SWEEPS = 5000  # of the best one, if it does not stand still before
MOVE_TOL = 1e-18  # squared movement of all vectors in a sweep: far below any statistical error
GRAM = 4  # copies of a Gram matrix that its eigenvectors take
WORK = 2**15  # floats that a climb may form at a time, or a tensor's worth if that is more
SHARE = 16  # one part in so many of that is what all starts of a tensor, or the long side of an unfolding, may take


def best_fits(tensors: Array, rng: np.random.Generator) -> tuple[list[Array], Array]:
    """Vectors ``(T, d_i)`` of every mode and the objective Z ``(T,)`` of the best fit to each of ``tensors``.

    The first is climbed until it stands still.  Of the others only Z is wanted, which settles long before the vectors.
    """
    if tensors.ndim == 3:  # a matrix: the top singular pair is the best fit
        each_pair = [top_pairs(matrix, 1, rng) for matrix in tensors]
        values, left, right = (np.concatenate(part) for part in zip(*each_pair, strict=True))
        return [left, right], values
    vectors = [np.stack(mode) for mode in zip(*(starts(tensor, rng) for tensor in tensors), strict=True)]
    vectors, values = select(*climb(tensors, vectors, SWEEPS), BEST)
    vectors, values = select(*climb(tensors, vectors, MORE_SWEEPS), 1)
    first, value = climb(tensors[:1], [v[:1] for v in vectors], MAX_SWEEPS)
    values[0] = value[0]
    return [np.concatenate([v, others[1:]])[:, 0] for v, others in zip(first, vectors, strict=True)], values[:, 0]


def hosvd_fit(tensor: Array) -> tuple[tuple[Array, ...], float]:
    """The fit from the leading vectors of all single modes alone (HOSVD): enough for a signal that is plain to see."""
    vectors = [leading_of_mode(tensor, mode)[None, None] for mode in range(tensor.ndim)]
    vectors, values = climb(tensor[None], vectors, MAX_SWEEPS)
    return tuple(v[0, 0] for v in vectors), float(values[0, 0])


def leading_of_mode(tensor: Array, mode: int) -> Array:
    """The top left singular vector of the unfolding ``mode | other modes``.

    From the Gram matrix of the mode, without a copy of the tensor, unless the mode is so long that this would outgrow
    the tensor.
    """
    length = tensor.shape[mode]
    if GRAM * length**2 > max(tensor.size, WORK):
        others = tuple(n for n in range(tensor.ndim) if n != mode)
        _, left, _ = top_pairs(unfold(tensor, ((mode,), others)), 1, np.random.default_rng(length), ROUGH)
        return np.asarray(left[0])
    blocks = tensor.reshape(math.prod(tensor.shape[:mode]), tensor.shape[mode], -1)
    if blocks.shape[2] == 1:
        gram = blocks[..., 0].T @ blocks[..., 0]
    else:
        gram = np.zeros((blocks.shape[1],) * 2)
        for block in blocks:
            gram += block @ block.T
    return np.asarray(np.linalg.eigh(gram)[1][:, -1])


def select(vectors: list[Array], values: Array, count: int) -> tuple[list[Array], Array]:
    """The best ``count`` starts of every tensor."""
    best = np.argsort(-values, axis=1)[:, :count]
    return [np.take_along_axis(v, best[:, :, None], axis=1) for v in vectors], np.take_along_axis(values, best, axis=1)


def climb(tensors: Array, vectors: Sequence[Array], sweeps: int) -> tuple[list[Array], Array]:
    """Alternating least squares from vectors ``(T, R, d_i)``, R starts for each of ``(T, *dims)`` tensors.

    Ends after ``sweeps``, or when all stand still.
    """
    return alternate(functools.partial(gradients, tensors), vectors, sweeps, MOVE_TOL)


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
    left, right = _outer(vectors[:mode]), _outer(vectors[mode + 1 :])
    if left is None and right is not None:
        return _times(tensors.reshape(count, length, -1), right)
    if right is None and left is not None:
        return np.asarray(left @ tensors.reshape(count, -1, length))
    assert left is not None
    assert right is not None
    if right.shape[2] >= left.shape[2]:
        part = _times(tensors.reshape(count, -1, right.shape[2]), right)
        gradient = left[:, :, None, :] @ part.reshape(count, -1, left.shape[2], length)
        return np.asarray(gradient[:, :, 0])
    part = np.asarray(left @ tensors.reshape(count, left.shape[2], -1))
    return np.asarray((part.reshape(count, -1, length, right.shape[2]) @ right[..., None])[..., 0])


def _times(matrices: Array, rows: Array) -> Array:
    """``rows @ matrix.T`` of every pair; the small operand is the one transposed, for it is the one that is copied."""
    return np.asarray((matrices @ rows.transpose(0, 2, 1)).transpose(0, 2, 1))


def _outer(vectors: Sequence[Array]) -> Array | None:
    """Outer products ``(T, R, D)`` of vectors ``(T, R, d_i)``; ``None`` of none."""
    if not vectors:
        return None
    product, *others = vectors
    for v in others:
        product = (product[..., :, None] * v[..., None, :]).reshape(*v.shape[:2], -1)
    return product


def starts(tensor: Array, rng: np.random.Generator) -> tuple[Array, ...]:
    """Unit vectors ``(R, d_i)`` of all starts, as many for every tensor of one shape."""
    random = ([unit(rng.standard_normal((d,))) for d in tensor.shape] for _ in range(RANDOM))
    each = itertools.chain(_unfolded(tensor, rng), _traced(tensor, rng), random)
    return tuple(np.stack(mode) for mode in zip(*itertools.islice(each, most_starts(tensor.shape)), strict=True))


def most_starts(dims: Sequence[int]) -> int:
    """As many starts as there are, fewer where one mode is so long that their vectors would outgrow the tensor."""
    room = max(math.prod(dims), WORK) // (SHARE * sum(dims))
    return max(2, min(UNFOLDINGS * PAIRS + TRACES + RANDOM, room))


def unfoldings(dims: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The groups of modes A | B to unfold along, the most even first."""
    order = len(dims)
    sides = (a for size in range(1, order // 2 + 1) for a in itertools.combinations(range(order), size))
    pairs = ((a, tuple(n for n in range(order) if n not in a)) for a in sides if 2 * len(a) < order or 0 in a)

    def longest(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> int:
        return max(math.prod(dims[n] for n in side) for side in pair)

    first, *others = heapq.nsmallest(UNFOLDINGS, pairs, key=longest)
    room = max(math.prod(dims), WORK) // SHARE
    return [first, *(pair for pair in others if longest(pair) <= room)]


def _unfolded(tensor: Array, rng: np.random.Generator) -> Iterator[list[Array]]:
    """Starts from the top singular pairs of the unfoldings."""
    dims, split = tensor.shape, functools.partial(rank_one, rng=rng)
    for groups in unfoldings(dims):
        shapes = [tuple(dims[n] for n in group) for group in groups]
        _, *sides = top_pairs(unfold(tensor, groups), min(PAIRS, *map(math.prod, shapes)), rng, ROUGH)
        for pair in zip(*sides, strict=True):
            blocks = [side.reshape(shape) for side, shape in zip(pair, shapes, strict=True)]
            yield split_blocks(groups, blocks, split)


def _traced(tensor: Array, rng: np.random.Generator) -> Iterator[list[Array]]:
    """Starts from traces: what two equal vectors leave of the signal is the signal in the other modes."""
    dims = tensor.shape
    equal = [(i, j) for i, j in itertools.combinations(range(len(dims)), 2) if dims[i] == dims[j]]
    for pair in equal[:TRACES] if len(dims) > 2 else ():
        others = [n for n in range(len(dims)) if n not in pair]
        traced = np.ascontiguousarray(np.trace(tensor, axis1=pair[0], axis2=pair[1]))
        again = next(_traced(traced, rng), None)
        vectors = dict(zip(others, rank_one(traced, rng) if again is None else again, strict=True))
        matrix = tensor
        for n in reversed(others):
            matrix = vectors[n] @ matrix.reshape(math.prod(dims[:n]), dims[n], -1)
        vectors |= zip(pair, rank_one(matrix.reshape(dims[pair[0]], dims[pair[1]]), rng), strict=True)
        yield [vectors[n] for n in range(len(dims))]
