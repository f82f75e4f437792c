"""The rank-one toolbox that all methods share: sweeps, top vectors, deflation, orientation, and ghosts.

Rows are unit vectors.  Where a function takes blocks or vectors with leading axes, so many problems are solved in step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyevd, dsyevr, ssyevd, ssyevr
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

SQUARINGS = 5
DENSE_ROWS = 64  # a matrix of more rows is left to Lanczos iteration, in a few dozen vectors of memory
LANCZOS = 40
ROUGH = 1e-4  # tolerance of vectors that are only to climb from
FLIP_SWEEPS, FLIP_STEPS = 8, 6
TRIAL_SWEEPS = 12
SMALL = 10_000  # entries of a tensor for which many starts cost nothing
SWEEPS, SWEPT = (200, 20_000), 2e8  # least and most, by the entries that all sweeps may touch: some climbs are slow
STILL = 1e-24  # squared change of vectors that counts as none
GHOST = 0.9  # overlap above which two vectors count as the same one

Gradient = Callable[[Sequence[Array], int], Array]
Groups = Sequence[Sequence[int]]


def lengths(rows: Array) -> Array:
    """The norm of every row."""
    return np.asarray(np.sqrt(np.vecdot(rows, rows)))


def units(rows: Array) -> Array:
    """Every row divided by its norm; zeros stay zeros."""
    return np.asarray(rows / np.where((norms := lengths(rows)[..., None]) > 0, norms, 1.0))


def toward(gradients: Array, before: Array) -> tuple[Array, Array]:
    """Gradients as unit rows, those of ``before`` where a gradient is zero, and their norms."""
    norms = lengths(gradients)
    scale = norms[..., None]
    if np.count_nonzero(norms) == norms.size:  # in less time than ``all``
        return gradients / scale, norms
    return np.divide(gradients, scale, out=before.copy(), where=scale > 0), norms


def alternate(
    gradient: Gradient, vectors: Sequence[Array], sweeps: int, tolerance: float = 0.0
) -> tuple[list[Array], Array]:
    """Alternating least squares: sweeps that set every mode to its best vector, given the others.

    ``gradient(vectors, mode)`` is that of the objective, ``(..., d_mode)`` at vectors ``(..., d_i)``: as many climbs
    as the leading axes have room for go in step.  Ends after ``sweeps``, or when none has moved by ``tolerance``, the
    squared change of all its vectors.  The objectives ``(...)`` come out positive: every update takes the sign.
    """
    vectors = list(vectors)
    values = np.zeros(vectors[0].shape[:-1])
    for _ in range(sweeps):
        moved: Array | float = 0.0
        for mode, before in enumerate(vectors):
            vectors[mode], values = toward(gradient(vectors, mode), before)
            if tolerance:
                moved = moved + np.sum((vectors[mode] - before) ** 2, axis=-1)
        if tolerance and np.max(moved) < tolerance:
            break
    return vectors, values


def along(blocks: Array, vectors: Sequence[Array], place: int) -> Array:
    """A block contracted with the vectors of all its modes but the one at ``place``.

    Or every block of a stack: what the leading axes of the vectors ``(..., d_i)`` count.
    """
    stack = vectors[0].shape[:-1]
    for v in vectors[:place]:
        blocks = np.vecmat(v, blocks.reshape(*stack, v.shape[-1], -1))
    for v in reversed(vectors[place + 1 :]):
        blocks = np.matvec(blocks.reshape(*stack, -1, v.shape[-1]), v)
    return blocks.reshape(*stack, -1)


def rank_one(block: Array, rng: np.random.Generator | None = None) -> list[Array]:
    """Fit unit vectors whose outer product is next to ``block``: SVD for two modes, alternating from three on.

    With ``rng`` two long modes are fitted roughly, in little memory.
    """
    if block.ndim == 2:
        _, left, right = top_pairs(block, 1, rng, ROUGH)
        return [left[0], right[0]]
    return [v[0] for v in rank_ones(block[None])[0]]


def rank_ones(blocks: Array, start: Sequence[Array] | None = None) -> tuple[list[Array], Array]:
    """Unit vectors ``(c, d_i)`` whose outer products are next to each of ``blocks``, and the inner products with them.

    Alternating from ``start``; by default from the leading singular vectors of all unfoldings, near enough
    (:func:`start_of`).
    """
    if blocks.ndim == 2:
        return [units(blocks)], lengths(blocks)
    if start is None:  # the first vector is found first, from the others
        others = [start_of(blocks, place) for place in range(2, blocks.ndim)]
        return alternate(functools.partial(along, blocks), [np.zeros_like(blocks, shape=blocks.shape[:2]), *others], 4)
    return alternate(functools.partial(along, blocks), start, 1)


def start_of(blocks: Array, place: int) -> Array:
    """About the leading singular vector of the unfolding ``place | rest`` of every block, for a start.

    Of the Gram matrix P of the shorter side, which has no more entries than the block itself, the column of
    P^(2^SQUARINGS) with the largest diagonal entry: as many steps of the power method as that, from the best unit
    vector, at the cost of a few small products.
    """
    matrices = np.moveaxis(blocks, place, 1).reshape(len(blocks), blocks.shape[place], -1)
    wide, turned = matrices.shape[1] <= matrices.shape[2], matrices.transpose(0, 2, 1)
    power = np.matmul(matrices, turned) if wide else np.matmul(turned, matrices)
    for squaring in range(SQUARINGS):
        if squaring % 2 == 0:  # of trace 1 P⁴ has a trace of d⁻³ at least: nothing vanishes until the next time
            scale = power.trace(axis1=1, axis2=2)[:, None, None]
            power /= np.where(scale > 0, scale, 1.0)
        power = np.matmul(power, power)
    best = np.argmax(np.einsum("cii->ci", power), axis=1)
    top = units(power[np.arange(len(power)), :, best])
    return top if wide else units(np.matmul(matrices, top[:, :, None])[:, :, 0])


def top_pairs(
    matrix: Array, count: int = 1, rng: np.random.Generator | None = None, tolerance: float = 0.0
) -> tuple[Array, Array, Array]:
    """The top singular values, and left and right vectors as rows, of a matrix; ``rng`` as in :func:`leading`."""
    if matrix.shape[0] > matrix.shape[1]:
        values, right, left = top_pairs(matrix.T, count, rng, tolerance)
        return values, left, right
    if rng is None or len(matrix) <= DENSE_ROWS:
        _, left = _largest(*np.linalg.eigh(matrix @ matrix.T), count)
    else:
        _, left = _lanczos(lambda v: matrix @ (matrix.T @ v), len(matrix), count, rng, tolerance)
    right = left @ matrix
    values = lengths(right)
    return values, left, units(right)


def leading(
    matrix: Array, count: int = 1, rng: np.random.Generator | None = None, tolerance: float = 0.0
) -> tuple[Array, Array]:
    """The eigenvalues of a matrix's symmetric part that are largest in size, and their vectors as rows.

    With ``rng``, for its start, Lanczos iteration finds those of a large matrix to ``tolerance``; else all are found.
    """
    if rng is None or len(matrix) <= DENSE_ROWS:
        return _largest(*np.linalg.eigh((matrix + matrix.T) / 2), count)
    return _lanczos(lambda v: (matrix @ v + matrix.T @ v) / 2, len(matrix), count, rng, tolerance)


def _lanczos(
    times: Callable[[Array], Array], rows: int, count: int, rng: np.random.Generator, tolerance: float
) -> tuple[Array, Array]:
    """The same of the symmetric matrix that :func:`times` multiplies by."""
    start = rng.standard_normal(rows)
    # Its rules to stop are absolute next to zero: a power of two brings the eigenvalues into range.
    scale = math.ldexp(1.0, -math.frexp(float(np.max(np.abs(times(start)))))[1])
    operator = LinearOperator((rows, rows), matvec=lambda v: scale * times(v), dtype=np.float64)
    try:
        values, basis = eigsh(operator, count, v0=start, ncv=LANCZOS, tol=tolerance)
    except ArpackError as stopped:  # zeros, or a spectrum without a gap: what was reached is as good as any
        reached = getattr(stopped, "eigenvectors", np.empty((rows, 0)))
        basis = np.linalg.qr(np.hstack([reached, rng.standard_normal((rows, count))]))[0][:, :count]
        values = np.einsum("ic,ic->c", basis, operator.matmat(basis))
    return _largest(values / scale, basis, count)


def _largest(values: Array, basis: Array, count: int) -> tuple[Array, Array]:
    """The eigenvalues largest in size, and their vectors as rows."""
    chosen = np.argsort(-np.abs(values))[:count]
    return values[chosen], np.ascontiguousarray(basis[:, chosen].T)


def split_blocks(
    groups: Groups, blocks: Sequence[Array], split: Callable[[Array], Sequence[Array]] = rank_one
) -> list[Array]:
    """One vector per mode, in mode order: those that ``split`` finds for each block of a group of modes."""
    vectors: dict[int, Array] = {}
    for group, block in zip(groups, blocks, strict=True):
        vectors.update(zip(group, split(block), strict=True))
    return [vectors[n] for n in range(len(vectors))]


def deflated(gradient: Array, vectors: Sequence[Array], mode: int, known: Sequence[RankOne]) -> Array:
    r"""A gradient without what known components add to it: :math:`\lambda\prod_{i\ne m}\langle v_i, u_i\rangle u_m`."""
    for one in known:
        inner = [v @ u for i, (v, u) in enumerate(zip(vectors, one.vectors, strict=True)) if i != mode]
        gradient = gradient - np.multiply.outer(one.strength * np.prod(inner, axis=0), one.vectors[mode])
    return gradient


def overlaps(vectors: Sequence[Array], others: Sequence[Array]) -> Array:
    """The inner products of vectors with those of the same mode."""
    return np.array([float(v @ w) for v, w in zip(vectors, others, strict=True)])


def is_ghost(vectors: Sequence[Array], others: Sequence[Array], same: float = GHOST) -> bool:
    """Whether a component is only what an inaccurate estimate of another leaves.

    That is a tensor with all vectors of the other, or all but one.  A signal of that kind is no component of its own
    either: added to the other one it is still of rank one.
    """
    return int(np.sum(np.abs(overlaps(vectors, others)) > same)) >= len(vectors) - 1


def aligned(vectors: Sequence[Array], others: Sequence[Array]) -> tuple[Array, ...]:
    """Every vector with the sign that brings it next to its other."""
    return tuple(v if inner >= 0 else -v for v, inner in zip(vectors, overlaps(vectors, others), strict=True))


def oriented(vectors: Sequence[Array]) -> tuple[Array, ...]:
    """The same signal with signs made definite: the largest entry of every vector positive, but for the last.

    The last takes the sign that is left, so that the product of all signs, and with it the strength, stays.
    """
    signs = [1.0 if v[np.argmax(np.abs(v))] >= 0 else -1.0 for v in vectors]
    signs[-1] = float(np.prod(signs[:-1]))
    return tuple(s * v for s, v in zip(signs, vectors, strict=True))


def positive(vectors: Sequence[Array], strength: float) -> tuple[tuple[Array, ...], float]:
    """The same signal with a strength that is not negative, and :func:`oriented`; a strength of NaN decides nothing."""
    *others, last = vectors
    return oriented([*others, -last if strength < 0 else last]), abs(strength)


# The best fit of a tensor -------------------------------------------------------------------------------------------


def fits(stack: Array) -> tuple[list[Array], Array]:
    """Vectors (b, d_m) and lengths of rank-one fits of a stack (b, *dims), by one procedure for all.

    From power steps along all modes but the longest, which is never decomposed.
    """
    dims = stack.shape[1:]
    order = sorted(range(len(dims)), key=lambda m: -dims[m])
    stack = np.ascontiguousarray(np.moveaxis(stack, [1 + m for m in order], range(1, 1 + len(dims))))
    starts = [np.zeros_like(stack, shape=(len(stack), dims[order[0]]))]
    for place, m in enumerate(order[1:], 1):
        U = np.moveaxis(stack, place + 1, 1).reshape(len(stack), dims[m], -1)
        drawn = np.random.default_rng(place).standard_normal((dims[m],)).astype(stack.dtype)
        x = np.broadcast_to(drawn, (len(stack), dims[m]))
        for _ in range(FLIP_STEPS):
            x = units(np.matvec(U, np.vecmat(x, U)))
        starts.append(x)
    found, values = alternate(functools.partial(along, stack), starts, FLIP_SWEEPS)
    return [found[order.index(m)] for m in range(len(dims))], values


def best_rank_one(tensor: Array, rough: bool = False) -> tuple[list[Array], float]:
    """Unit vectors of the best rank-one fit of one tensor by many starts, and its length; ``rough``: to climb from."""
    dims, sweeps = tensor.shape, 1
    if tensor.ndim == 1:
        start = [np.zeros((1, *dims))]
    elif tensor.ndim == 2:  # its own square gives vectors to half the digits, and a sweep the rest
        start = list(top_pairs(tensor)[1:])
    else:
        rng = np.random.default_rng(0)  # the same for all data: no seed of the user's moves the estimate
        starts = [[v[0] for v in fits(tensor[None])[0]]]
        starts += [[units(rng.standard_normal((d,))) for d in dims] for _ in range(40 if tensor.size <= SMALL else 6)]
        together = len(starts) if tensor.size <= SMALL else 1  # a stack of large tensors would be so many copies
        tried = []
        for first in range(0, len(starts), together):
            some = [np.stack(each) for each in zip(*starts[first : first + together], strict=True)]
            stack = np.broadcast_to(tensor, (len(some[0]), *tensor.shape))
            tried.append(alternate(functools.partial(along, stack), some, TRIAL_SWEEPS))
        found, values = max(tried, key=lambda one: float(np.max(one[1])))
        best = int(np.argmax(values))
        start = [v[best : best + 1] for v in found]
        sweeps = 1 if rough else int(np.clip(SWEPT / tensor.size, *SWEEPS))
    found, values = alternate(functools.partial(along, tensor[None]), start, sweeps, STILL)
    return [v[0] for v in found], float(values[0])


def outer(vectors: Sequence[Array], strength: float = 1.0) -> Array:
    """The tensor of one component."""
    return functools.reduce(np.multiply.outer, vectors[1:], strength * vectors[0])


# Eigenvectors of small matrices --------------------------------------------------------------------------------------
# numpy.linalg.eigh works in double precision whatever it is given, and scipy.linalg.eigh takes longer to choose a
# routine than that takes for a matrix of a dozen rows.  Here single precision stays what it is.

Matrix = NDArray[Any]  # float32 or float64


def all_eigenvectors(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues of a symmetric matrix, the smallest first, and their vectors as columns."""
    values, axes, failed = (ssyevd if matrix.dtype == np.float32 else dsyevd)(matrix.T)
    _check(failed)
    return values, axes


def top_eigenvectors(matrix: Matrix, count: int) -> Matrix:
    """The leading eigenvectors of a symmetric matrix, as rows, the first one first; ``matrix`` is used up."""
    size = len(matrix)
    first = size - min(count, size) + 1
    routine = ssyevr if matrix.dtype == np.float32 else dsyevr
    _, axes, found, _, failed = routine(matrix.T, range="I", il=first, iu=size, overwrite_a=1)
    _check(failed)
    rows: Matrix = axes[:, :found].T[::-1]
    return rows


def _check(failed: int) -> None:
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK found no eigenvectors ({failed}).")
