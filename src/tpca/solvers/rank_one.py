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
from tpca.tensors.blocks import Array, unit

SQUARINGS = 5
DENSE_ROWS = 64  # a matrix of more rows is left to Lanczos iteration, in a few dozen vectors of memory
LANCZOS = 40
ROUGH = 1e-4  # tolerance of vectors that are only to climb from
TRIAL_SWEEPS = 12
SMALL = 10_000  # entries of a tensor for which many starts cost nothing
SWEEPS, SWEPT = (200, 20_000), 2e8  # least and most, by the entries that all sweeps may touch: some climbs are slow
STILL = 1e-24  # squared change of vectors that counts as none
GHOST = 0.9  # overlap above which two vectors count as the same one
FITTED_NUMBERS = 2**18
"""Numbers of tensors that are fitted in step: one or two megabytes are read again and again from a cache."""
SHORT_SIDE = 32
"""Rows of a matrix up to which powers of its Gram matrix cost no more than reads of it."""
KRYLOV_STEPS = 8
"""Steps of two reads: with four a third more of 64³ patterns at the limit of detection are missed."""
PAIRS = 3
"""Singular pairs to start from: the best one is rarely the first where noise is all there is."""
START_TURNS = 3
"""Turns over the axes of a singular vector: it is only to climb from."""
START_SWEEPS = 2
"""Sweeps after which the best start is known well enough."""
FIT_SWEEPS = 6
"""Sweeps after which fits of noise are as long as by eight that set one axis after the other (2 % short of rest)."""
INNER_SWEEPS = 3
"""Turns over the axes of a contracted tensor: it is small, a read of the whole costs more."""

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
    r"""Vectors (b, d_m) and lengths of rank-one fits of tensors (b, \*dims), by one procedure for all.

    Every tensor is read as a matrix M, whose rows are the first axes and whose columns are the others, about as many.
    A sweep reads it twice, whatever its order: M contracted with the vectors of its rows is a small tensor, of which
    all column axes are fitted by turns; then the other way round.

    ======================  ==========================================================================================
    symbol                  here
    ======================  ==========================================================================================
    M                       ``matrices`` (b, rows, columns)
    p, q                    leading singular vectors of M: starts are rank-one fits of both, reshaped
    u, v                    ``of_rows`` and ``of_columns``: lists of vectors (b, c, d_m) of c starts
    :math:`u^\top M, Mv`    ``contracted`` with the outer products of these
    ======================  ==========================================================================================

    Of several starts the one whose fit is longest after a few sweeps goes on.  No seed of the user's, and no sign of
    a tensor, changes a length.
    """
    dims = stack.shape[1:]
    if len(dims) == 1:
        return [units(stack)], lengths(stack)
    vectors = [np.empty_like(stack, shape=(len(stack), length)) for length in dims]
    values = np.empty_like(stack, shape=len(stack))
    at_a_time = max(1, FITTED_NUMBERS // max(1, math.prod(dims)))
    for start in range(0, len(stack), at_a_time):
        piece = slice(start, start + at_a_time)
        fitted, values[piece] = fits_in_step(stack[piece])
        for vector, rows in zip(vectors, fitted, strict=True):
            vector[piece] = rows
    return vectors, values


def fits_in_step(stack: Array) -> tuple[list[Array], Array]:
    """The fits of :func:`fits`, of as many tensors as the cache holds."""
    dims = stack.shape[1:]
    split = balanced_split(dims)
    matrices = stack.reshape(len(stack), math.prod(dims[:split]), -1)
    left, right = singular_pairs(matrices)
    of_rows = start_within(left, dims[:split])
    of_columns = start_within(right, dims[split:])
    if left.shape[1] > 1:
        for _ in range(START_SWEEPS):
            of_rows, of_columns, values = swept(matrices, of_rows, of_columns)
        best = np.argmax(values, axis=1)[:, None, None]
        of_rows = [np.take_along_axis(vector, best, axis=1) for vector in of_rows]
        of_columns = [np.take_along_axis(vector, best, axis=1) for vector in of_columns]
    for _ in range(FIT_SWEEPS):
        of_rows, of_columns, values = swept(matrices, of_rows, of_columns)
    return [vector[:, 0] for vector in (*of_rows, *of_columns)], values[:, 0]


def balanced_split(dims: Sequence[int]) -> int:
    """How many of the first axes make the rows of a matrix, so that rows and columns are fewest together."""
    return min(range(1, len(dims)), key=lambda count: math.prod(dims[:count]) + math.prod(dims[count:]))


def swept(
    matrices: Array, of_rows: Sequence[Array], of_columns: Sequence[Array]
) -> tuple[list[Array], list[Array], Array]:
    """Vectors after a sweep of two reads, those of the columns first, and the lengths (b, c)."""
    contracted = np.matmul(outer_rows(of_rows), matrices)
    new_columns, _ = within(contracted, of_columns, INNER_SWEEPS)
    contracted = np.matmul(outer_rows(new_columns), matrices.swapaxes(1, 2))
    new_rows, values = within(contracted, of_rows, INNER_SWEEPS)
    return new_rows, new_columns, values


def within(tensors: Array, vectors: Sequence[Array], sweeps: int) -> tuple[list[Array], Array]:
    """Vectors (b, c, d_m) and lengths of rank-one fits of small tensors (b, c, numbers); one axis needs one step."""
    return alternate(functools.partial(along, tensors), vectors, sweeps if len(vectors) > 1 else 1)


def start_within(singular: Array, dims: Sequence[int]) -> list[Array]:
    """About the best vectors of singular vectors (b, c, numbers) that are reshaped to ``dims``."""
    fixed = [fixed_direction(length, axis).astype(singular.dtype) for axis, length in enumerate(dims)]
    start = [np.broadcast_to(vector, (*singular.shape[:-1], len(vector))) for vector in fixed]
    return within(singular, start, START_TURNS)[0]


def outer_rows(vectors: Sequence[Array]) -> Array:
    """The outer products (b, c, numbers) of vectors (b, c, d_m), flat."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = (product[..., :, None] * vector[..., None, :]).reshape(*vector.shape[:-1], -1)
    return product


@functools.lru_cache(maxsize=64)
def fixed_direction(length: int, number: int) -> Array:
    """A random unit vector, the same for all data."""
    vector = unit(np.random.default_rng(number).standard_normal(length))
    vector.flags.writeable = False
    return vector


def singular_pairs(matrices: Array) -> tuple[Array, Array]:
    """About the leading left and right singular vectors, (b, c, rows) and (b, c, columns), of matrices (b, ...).

    Of those with a short side one pair, by powers of its Gram matrix; of others a few, by :func:`krylov_pairs`.  The
    vectors of the longer side are not of length one.
    """
    if matrices.shape[1] > matrices.shape[2]:
        right, left = singular_pairs(matrices.swapaxes(1, 2))
        return left, right
    if matrices.shape[1] <= SHORT_SIDE:
        left = start_of(matrices, 1)[:, None]
        return left, np.matmul(left, matrices)
    return krylov_pairs(matrices)


def krylov_pairs(matrices: Array) -> tuple[Array, Array]:
    r"""The leading singular pairs of wide matrices M within a Krylov space, by Lanczos' method.

    The rows of X are an orthonormal basis of the span of :math:`x, MM^\top x, \dots, (MM^\top)^{K-1}x` of a fixed x.
    With Y = XM and the leading eigenvectors c of :math:`YY^\top` pairs are cX and cY.
    """
    count, rows, columns = matrices.shape
    steps = min(KRYLOV_STEPS, rows)
    basis = np.zeros_like(matrices, shape=(count, steps, rows))
    images = np.zeros_like(matrices, shape=(count, steps, columns))
    basis[:, 0] = fixed_direction(rows, 0)
    images[:, 0] = np.vecmat(basis[:, 0], matrices)
    for step in range(1, steps):
        known = basis[:, :step]
        following = np.matvec(matrices, images[:, step - 1])
        for _ in range(2):  # once is not enough in rounded numbers
            following -= np.vecmat(np.matvec(known, following), known)
        basis[:, step] = units(following)
        images[:, step] = np.vecmat(basis[:, step], matrices)
    _, axes = np.linalg.eigh(np.matmul(images, images.swapaxes(1, 2)))
    leading_axes = axes[:, :, : -PAIRS - 1 : -1].swapaxes(1, 2)
    return np.matmul(leading_axes, basis), np.matmul(leading_axes, images)


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
