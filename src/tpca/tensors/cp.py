r"""Sums of rank-one tensors (CP models, PARAFAC) and their derivatives.

The model of a tensor :math:`T` with axes of length :math:`d_1, \dots, d_k` is

.. math:: \hat T = \sum_{r=1}^{R} a_{1r} \otimes \dots \otimes a_{kr} .

With :math:`f = \|T - \hat T\|^2/2`, the gradient along axis m and the Gauss-Newton matrix are made of small products
only (Acar, Dunlavy & Kolda 2011; Phan, Tichavsky & Cichocki 2013):

.. math::
    -\nabla_m f = T_{(m)} K_m - A_m G_m, \qquad
    (J^\top J)_{mm} = G_m \otimes I, \qquad
    (J^\top J)_{mq}[(i,r),(j,s)] = G_{mq}[r,s]\, A_m[i,s]\, A_q[j,r] .

========================  ==============================================================================================
symbol                    here
========================  ==============================================================================================
:math:`A_m`               ``factors[m]``, of shape (b, d_m, R): one column for every component
:math:`T_{(m)}`           :func:`unfold` of the tensor: axis m against all others
:math:`K_m`               :func:`khatri_rao` of all factors but that of axis m
:math:`G_m`               :func:`gram_of_others`: elementwise product of :math:`A_j^\top A_j`, j not m
:math:`G_{mq}`            the same without m and q
:math:`J`                 derivatives of the model along all factors, never formed
b                         models that are worked on in step: starts of one fit, flips of one test
========================  ==============================================================================================

Axes m and q are coupled through the columns of :math:`A_m` only.  So a system with :math:`J^\top J` falls apart
(:func:`solve_normal_equations`): at right angles to the columns of the factors it is :math:`G_m`, and within them it is
the normal matrix of factors of at most R rows, whatever the length of an axis.

**Ridge.**  With a ridge :math:`\rho\sum_r\lambda_r^2`, where component r has length :math:`\lambda_r`, the fit is the
same least-squares problem in a larger space, where the components have one more, fixed factor of Gram matrix
:math:`11^\top + \rho I`.  All Gram matrices are multiplied by it, and nothing else changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.tensors.blocks import Array

Factors = list[Array]

SMALLEST = 1e-300  # keeps lengths of zeros from being divided by
NO_CURVATURE = 1e-10  # relative eigenvalue of JᵀJ below which a direction does not change the model

LIGHT_DAMPING = 1e-6
"""Damping that only keeps scales of vectors, which leave a model alone, where they are."""
PIECE = 2**18
"""Numbers that are worked on at a time."""


def unfold(tensors: Array, axis: int) -> Array:
    """Matrices (b, d_axis, rest) of tensors (b, d_1, ..., d_k)."""
    matrices: Array = np.moveaxis(tensors, axis + 1, 1).reshape(len(tensors), tensors.shape[axis + 1], -1)
    return matrices


def khatri_rao(factors: Sequence[Array]) -> Array:
    """Column-wise Kronecker products, (b, d_1 ⋯ d_k, R)."""
    product = factors[0]
    for factor in factors[1:]:
        pairs = product[:, :, None, :] * factor[:, None, :, :]
        product = pairs.reshape(len(pairs), -1, pairs.shape[-1])
    return product


def reconstruct(factors: Sequence[Array]) -> Array:
    """The models (b, d_1, ..., d_k): the sum of all components as tensors."""
    shape = [factor.shape[1] for factor in factors]
    strengths = np.ones((len(factors[0]), 1, factors[0].shape[2]))
    rows = khatri_rao([strengths, *factors[:-1]])
    return np.asarray(np.matmul(rows, factors[-1].transpose(0, 2, 1)).reshape(-1, *shape))


def gram_matrices(factors: Sequence[Array]) -> list[Array]:
    """Inner products (b, R, R) of the columns of every factor."""
    return [np.matmul(factor.transpose(0, 2, 1), factor) for factor in factors]


def gram_of_others(grams: Sequence[Array], *axes: int, ridge: float = 0.0) -> Array:
    """Elementwise product (b, R, R) of the Gram matrices of all factors but those of ``axes``."""
    product: Array = np.ones_like(grams[0]) + ridge * np.eye(grams[0].shape[-1])
    for axis, gram in enumerate(grams):
        if axis not in axes:
            product *= gram
    return product


def mttkrp(tensors: Array, factors: Sequence[Array], axis: int) -> Array:
    """Tensors times the Khatri-Rao product of all factors but one, (b, d_axis, R)."""
    ones = np.ones_like(factors[0], shape=(len(factors[0]), 1, factors[0].shape[2]))  # there may be no other
    others = [factor for m, factor in enumerate(factors) if m != axis]
    return np.asarray(np.matmul(unfold(tensors, axis), khatri_rao([ones, *others])))


def squared_residuals(tensors: Array, factors: Sequence[Array], ridge: float = 0.0) -> Array:
    """Squared distances (b,) of models from their tensors, without forming the models; with the ridge."""
    energies = np.sum(tensors * tensors, axis=tuple(range(1, tensors.ndim)))
    inner = np.sum(mttkrp(tensors, factors, 0) * factors[0], axis=(1, 2))
    models = gram_of_others(gram_matrices(factors), ridge=ridge).sum(axis=(1, 2))
    return np.asarray(energies - 2 * inner + models)


def descent_directions(tensors: Array, factors: Sequence[Array], ridge: float = 0.0) -> Factors:
    """Minus the gradient along every factor, (b, d_m, R)."""
    grams = gram_matrices(factors)
    directions = []
    for axis, factor in enumerate(factors):
        model_slope = np.matmul(factor, gram_of_others(grams, axis, ridge=ridge))
        directions.append(mttkrp(tensors, factors, axis) - model_slope)
    return directions


def normal_matrices(factors: Sequence[Array], ridge: float = 0.0) -> Array:
    """JᵀJ (b, R·Σd, R·Σd) of models, axis by axis, and within an axis component by component."""
    rank = factors[0].shape[2]
    sizes = [factor.shape[1] * rank for factor in factors]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    grams = gram_matrices(factors)
    matrices = np.empty((len(factors[0]), starts[-1], starts[-1]))
    for m, row_factor in enumerate(factors):
        rows = slice(starts[m], starts[m + 1])
        for q, column_factor in enumerate(factors[: m + 1]):
            columns = slice(starts[q], starts[q + 1])
            gram = gram_of_others(grams, m, q, ridge=ridge)
            if m == q:
                identity = np.eye(row_factor.shape[1])
                blocks = gram[:, :, None, :, None] * identity[:, None, :]  # (b, r, i, s, j)
            else:
                left = row_factor[:, None, :, :]  # (b, 1, i, s)
                right = column_factor.transpose(0, 2, 1)[:, :, None, None, :]  # (b, r, 1, 1, j)
                blocks = gram[:, :, None, :, None] * left[..., None] * right
            blocks = blocks.reshape(len(gram), sizes[m], sizes[q])
            matrices[:, rows, columns] = blocks
            if m != q:
                matrices[:, columns, rows] = blocks.transpose(0, 2, 1)
    return matrices


def joined_rows(arrays: Sequence[Array]) -> Array:
    """Arrays (b, d_m, R) of all axes in one row, (b, R·Σd), in the order of :func:`normal_matrices`."""
    rows = [array.transpose(0, 2, 1).reshape(len(array), -1) for array in arrays]
    return np.concatenate(rows, axis=1)


def split_rows(rows: Array, like: Sequence[Array]) -> Factors:
    """The arrays (b, d_m, R) that :func:`joined_rows` had joined; ``like`` has their shapes."""
    arrays = []
    start = 0
    for array in like:
        length, rank = array.shape[1:]
        stop = start + length * rank
        arrays.append(rows[:, start:stop].reshape(-1, rank, length).transpose(0, 2, 1))
        start = stop
    return arrays


# Systems with JᵀJ -----------------------------------------------------------------------------------------------------


def column_spaces(factors: Sequence[Array]) -> tuple[Factors, Factors]:
    """Where axes are coupled: orthonormal bases of the factors' columns, and the factors in these coordinates."""
    bases = []
    coordinates = []
    for factor in factors:
        basis = np.linalg.qr(factor)[0]
        bases.append(basis)
        coordinates.append(np.matmul(basis.transpose(0, 2, 1), factor))
    return bases, coordinates


def damped_steps(factors: Sequence[Array], slopes: Sequence[Array], damping: Array, ridge: float = 0.0) -> Factors:
    r"""Changes :math:`(J^\top J + \mu I)^{-1}s` for slopes s; μ is ``damping`` (b,) times the mean curvature."""
    bases, coordinates = column_spaces(factors)
    inner_slopes = []
    for basis, slope in zip(bases, slopes, strict=True):
        inner_slopes.append(np.matmul(basis.transpose(0, 2, 1), slope))
    matrices = normal_matrices(coordinates, ridge)
    diagonal = np.arange(matrices.shape[1])
    shift = damping * np.mean(matrices[:, diagonal, diagonal], axis=1) + SMALLEST  # of factors of zeros, too
    matrices[:, diagonal, diagonal] += shift[:, None]
    solution = np.linalg.solve(matrices, joined_rows(inner_slopes)[:, :, None])
    inner_changes = split_rows(np.asarray(solution[:, :, 0], np.float64), inner_slopes)
    grams = gram_matrices(coordinates)
    identity = np.eye(factors[0].shape[2])
    changes = []
    for axis, basis in enumerate(bases):
        change = np.matmul(basis, inner_changes[axis])
        if factors[axis].shape[1] > basis.shape[2]:
            curvature = gram_of_others(grams, axis, ridge=ridge) + shift[:, None, None] * identity
            outer_slope = slopes[axis] - np.matmul(basis, inner_slopes[axis])
            outer_change = np.linalg.solve(curvature, outer_slope.transpose(0, 2, 1))
            change = change + outer_change.transpose(0, 2, 1)
        changes.append(change)
    return changes


def pseudo_inverse(matrix: Array) -> Array:
    """The inverse of a positive matrix, with zeros where it has no curvature."""
    return np.asarray(np.linalg.pinv(matrix, rcond=NO_CURVATURE, hermitian=True))


@dataclass(frozen=True)
class TangentSpace:
    r"""All small changes of one model with factors ``vectors[m]`` (d_m, R), and :math:`(J^\top J)^+` in pieces.

    Within the columns of all factors it is ``inner_inverse``, at right angles to those of axis m ``outer_inverses[m]``.
    """

    vectors: Factors
    bases: Factors
    inner_inverse: Array
    outer_inverses: Factors

    def changes(self, slopes: Sequence[Array]) -> Factors:
        r"""Changes :math:`(J^\top J)^+ s` of the factors for slopes s (n, d_m, R) of n tensors."""
        inner_slopes = []
        for basis, slope in zip(self.bases, slopes, strict=True):
            inner_slopes.append(np.matmul(basis.T, slope))
        inner_changes = split_rows(joined_rows(inner_slopes) @ self.inner_inverse, inner_slopes)
        changes = []
        for axis, basis in enumerate(self.bases):
            outer_slope = slopes[axis] - np.matmul(basis, inner_slopes[axis])
            outer_change = np.matmul(outer_slope, self.outer_inverses[axis])
            changes.append(np.matmul(basis, inner_changes[axis]) + outer_change)
        return changes


def tangent_space(vectors: Sequence[Array]) -> TangentSpace:
    """The tangent space of a model with factors (d_m, R)."""
    model = [factor[None] for factor in vectors]
    bases, coordinates = column_spaces(model)
    inner_inverse = pseudo_inverse(normal_matrices(coordinates)[0])
    grams = gram_matrices(model)
    outer_inverses = [pseudo_inverse(gram_of_others(grams, axis)[0]) for axis in range(len(model))]
    return TangentSpace(list(vectors), [basis[0] for basis in bases], inner_inverse, outer_inverses)


def free_directions(vectors: Sequence[Array]) -> int:
    """How many small changes of a model (d_m, R) leave it as it is, beside those of the scales of vectors.

    Where there is any, other components have the same sum: they are not unique.
    """
    rank = vectors[0].shape[1]
    model = [factor[None] for factor in vectors]
    _, coordinates = column_spaces(model)
    grams = gram_matrices(model)
    flat: int = flat_directions(normal_matrices(coordinates)[0]) - rank * (len(vectors) - 1)
    for axis, factor in enumerate(vectors):
        outside = len(factor) - coordinates[axis].shape[1]
        flat += outside * flat_directions(gram_of_others(grams, axis)[0])
    return flat


def flat_directions(matrix: Array) -> int:
    """How many eigenvalues of a positive matrix are zero."""
    curvatures = np.linalg.eigvalsh(matrix)
    return int(np.count_nonzero(curvatures <= NO_CURVATURE * curvatures[-1]))


def slopes_along(tensors: Array, vectors: Sequence[Array]) -> Factors:
    """Jᵀ of tensors (n, d_1, ..., d_k): each contracted with all factors (d_m, R) but one, (n, d_m, R) an axis."""
    model = [factor[None] for factor in vectors]
    return [mttkrp(tensors, model, axis) for axis in range(len(vectors))]


def beyond_tangent_space(tensors: Array, space: TangentSpace) -> Array:
    r"""Tensors (n, d_1, ..., d_k) without the tangent space of a model: :math:`C - J(J^\top J)^+J^\top C`.

    Every small change of the components lies in that space.  What a fit of R components leaves of noise lies beyond it,
    and so does a component R + 1.  To take out one component after the other instead would leave pieces of them that
    are not orthogonal, which no noise has.
    """
    changes = space.changes(slopes_along(tensors, space.vectors))
    remainder = tensors.copy()
    for axis, change in enumerate(changes):
        factors = [np.broadcast_to(factor, (len(tensors), *factor.shape)) for factor in space.vectors]
        factors[axis] = change
        remainder -= reconstruct(factors)
    return remainder


def joint_gains(tensors: Array, vectors: Sequence[Array], space: TangentSpace) -> Array:
    r"""By how much models come nearer to tensors, to first order, if one component is added and all are fitted anew.

    The tensors (n, d_1, ..., d_k) lie beyond the tangent space of a model, and ``vectors[m]`` (n, d_m) are those of a
    rank-one fit p of each.  So their slopes s along the model are zero, and the gain of a Gauss-Newton step of both
    together is :math:`s^\top S^{-1}s` with the slopes along p alone, where

    .. math:: S = J_p^\top J_p - J_p^\top J(J^\top J)^+J^\top J_p

    is what the tangent space of p has beyond that of the model (a Schur complement).  The root of the gain is the
    length of the fit where p lies beyond the tangent space of the model, and larger where p is like the components that
    are there, which hide a part of it.

    Of every axis only the span of the components and p matters.  It is worked on a few tensors at a time.
    """
    known = []
    for factor, basis in zip(space.vectors, space.bases, strict=True):
        coordinates = basis.T @ factor
        known.append(np.vstack([coordinates, np.zeros((1, coordinates.shape[1]))]))
    known_space = tangent_space(known)
    directions = sum(len(factor) for factor in known)
    at_a_time = max(1, PIECE // (known[0].shape[1] * directions**2))
    gains = np.zeros(len(tensors))
    for start in range(0, len(tensors), at_a_time):
        piece = slice(start, start + at_a_time)
        columns = [vector[piece, :, None] for vector in vectors]
        added = []
        slopes = []
        for axis, basis in enumerate(space.bases):
            vector = columns[axis][:, :, 0]
            slope = mttkrp(tensors[piece], columns, axis)[:, :, 0]
            inner = vector @ basis
            inner_slope = slope @ basis
            outer = vector - inner @ basis.T
            outer_length = np.linalg.norm(outer, axis=1)
            outer_slope = np.vecdot(slope - inner_slope @ basis.T, outer) / (outer_length + SMALLEST)
            added.append(np.column_stack([inner, outer_length]))
            slopes.append(np.column_stack([inner_slope, outer_slope]))
        curvature = curvature_beyond(added, known_space) + LIGHT_DAMPING * np.eye(directions)
        slope_rows = np.concatenate(slopes, axis=1)
        changes = np.linalg.solve(curvature, slope_rows[:, :, None])[:, :, 0]
        gains[piece] = np.vecdot(slope_rows, changes)
    return np.sqrt(gains)


def curvature_beyond(added: Sequence[Array], space: TangentSpace) -> Array:
    """JᵀJ (n, Σd, Σd) of n unit components ``added[m]`` (n, d_m), less what the tangent space of a model has of it."""
    products = [vector @ factor for vector, factor in zip(added, space.vectors, strict=True)]
    count = len(added[0])
    slopes = []
    for q, vector in enumerate(added):
        blocks = []
        for m, factor in enumerate(space.vectors):
            others = [product for axis, product in enumerate(products) if axis not in (m, q)]
            gram = math.prod(others, start=np.ones_like(products[0]))[:, None, None, :]
            if m == q:
                blocks.append(gram * np.eye(len(factor))[:, :, None])
            else:
                blocks.append(gram * factor[:, None, :] * vector[:, None, :, None])
        slopes.append(np.concatenate(blocks, axis=1).reshape(-1, *space.vectors[q].shape))
    changes = joined_rows(space.changes(slopes))
    rows = joined_rows(slopes)
    shape = (count, len(rows) // count, rows.shape[1])
    explained = np.matmul(rows.reshape(shape), changes.reshape(shape).transpose(0, 2, 1))
    return np.asarray(normal_matrices([vector[:, :, None] for vector in added]) - explained)
