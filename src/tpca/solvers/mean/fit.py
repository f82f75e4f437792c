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

All starts climb a few sweeps together, then the best few, and the best one until it stands still.  Climbs go in step,
also those of several tensors of one shape: the flips that the fit is compared with (:mod:`tpca.solvers.mean.test`).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.solvers.eigen import top_eigenvectors
from tpca.solvers.mean.climb import WORK, climb, climb_one, select
from tpca.solvers.rank_one import ROUGH, rank_one, split_blocks, top_pairs, unfold
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array, unit
from tpca.tensors.products import gram_of
from tpca.threads import gathered

RANDOM = 16  # random starts
UNFOLDINGS = 8  # at most so many, the most even first: those tell the most (the rest start at random as well)
PAIRS = 2  # singular pairs of each
TRACES = 6  # at most so many pairs of equal modes
SWEEPS = 15  # of all starts together
BEST, MORE_SWEEPS = 3, 60  # of them climb on, so many sweeps more
MAX_SWEEPS = 5000  # of the best one, if it does not stand still before
GRAM = 4  # copies of a Gram matrix that its eigenvectors take
SHORT = 12  # rows of a matrix that has all eigenvectors in hardly more time than one
LARGE = 2**16  # entries, from which modes are worth a second thread
SHARE = 16  # one part in so many of that is what all starts of a tensor, or the long side of an unfolding, may take


def best_fit(tensor: Array, rng: np.random.Generator) -> RankOne:
    """The best fit from all starts, climbed until it stands still."""
    if tensor.ndim == 2:  # a matrix: the top singular pair is the best fit
        (value,), (left,), (right,) = top_pairs(tensor, 1, rng)
        return RankOne(float(value), (left, right))
    vectors = [v[None] for v in starts(tensor, rng)]
    vectors, _ = select(*climb(tensor[None], vectors, SWEEPS), BEST)
    vectors, _ = select(*climb(tensor[None], vectors, MORE_SWEEPS), 1)
    vectors, values = climb(tensor[None], vectors, MAX_SWEEPS)
    return RankOne(float(values[0, 0]), tuple(v[0, 0] for v in vectors))


def hosvd_fit(tensor: Array, sweeps: int = MAX_SWEEPS) -> RankOne:
    """The fit from the leading vectors of all single modes alone (HOSVD): enough for a signal that is plain to see."""
    if tensor.ndim == 2:
        return best_fit(tensor, np.random.default_rng(len(tensor)))
    modes = range(tensor.ndim)
    leading = gathered(lambda mode: leading_of_mode(tensor, mode)[0], modes, worth=tensor.size > LARGE)
    vectors, value = climb_one(tensor, leading, sweeps)
    return RankOne(value, tuple(vectors))


def leading_of_mode(tensor: Array, mode: int, count: int = 1) -> Array:
    """The top left singular vectors ``(count, d)`` of the unfolding ``mode | other modes``.

    From the Gram matrix of the mode, without a copy of the tensor, unless the mode is so long that this would outgrow
    the tensor.
    """
    length = tensor.shape[mode]
    if GRAM * length**2 > max(tensor.size, WORK):
        others = tuple(n for n in range(tensor.ndim) if n != mode)
        _, left, _ = top_pairs(unfold(tensor, ((mode,), others)), count, np.random.default_rng(length), ROUGH)
        return left
    return np.asarray(_leading_of(gram(tensor, mode)[None], count)[0])


def gram(tensor: Array, mode: int) -> Array:
    """The Gram matrix of the rows of the unfolding ``mode | other modes``, a block at a time."""
    length = tensor.shape[mode]
    if mode == tensor.ndim - 1:
        rows = tensor.reshape(-1, length)
        return np.asarray(rows.T @ rows, dtype=np.float64)
    if tensor.size <= WORK:
        return np.asarray(gram_of(rows_of_mode(tensor[None], mode)[0]), dtype=np.float64)
    total = np.zeros((length, length))
    # Many small blocks cost more than a copy of them in another order, a slice of the first mode at a time.
    for block in tensor.reshape(-1, length, math.prod(tensor.shape[mode + 1 :])) if mode < 2 else tensor:
        total += gram_of(block if mode < 2 else np.moveaxis(block, mode - 1, 0).reshape(length, -1))
    return total


def leading_of_modes(tensors: Array, mode: int, count: int = 1) -> Array:
    """The same of some tensors, all at once where they are small: ``(T, count, d)``."""
    length = tensors.shape[1 + mode]
    if tensors.size > 2 * WORK or length**2 > tensors[0].size:
        return np.stack([leading_of_mode(tensor, mode, count) for tensor in tensors])
    return _leading_of(gram_of(rows_of_mode(tensors, mode)).astype(np.float64, copy=False), count)


def rows_of_mode(tensors: Array, mode: int) -> Array:
    """The unfolding ``mode | other modes`` of some tensors, ``(T, d, ...)``."""
    count, length, after = len(tensors), tensors.shape[1 + mode], math.prod(tensors.shape[2 + mode :])
    return tensors.reshape(count, -1, length, after).swapaxes(1, 2).reshape(count, length, -1)


def _leading_of(grams: Array, count: int) -> Array:
    """The top eigenvectors ``(T, count, d)`` of Gram matrices, which are used up.

    A single one is found by itself, unless all of several short matrices take no longer.
    """
    if count == 1 and (len(grams) == 1 or grams.shape[1] > SHORT):
        return np.stack([top_eigenvectors(one, 1) for one in grams])
    return np.asarray(np.linalg.eigh(grams)[1][:, :, : -count - 1 : -1].transpose(0, 2, 1))


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
