r"""Vectors that are all the same: the best fit ±v ⊗ … ⊗ v of some tensors, found by power iteration.

.. math:: Z(v) = s\,\langle X, v^{\otimes k}\rangle, \qquad
    v \leftarrow \mathrm{unit}\bigl(s\,g(v) + \alpha v\bigr), \qquad
    g(v) = \tfrac1k\sum_m X \text{ contracted with } v \text{ in all modes but } m ,

s the sign of the strength (always 1 at odd order, where v takes it).  The shift α is 0 until a step lowers Z, which at
even order it may; that step is taken back and α doubled (Kolda & Mayo 2011).  The climb begins at the leading
eigenvectors of the partial traces (:mod:`tpca.solvers.race.strategies.symmetric`), at the unrestricted fit, and at
random.  What it means: :mod:`tpca.solvers.mean.reading`.

All of this is the same for the mean S of X over all orders of its modes, whose gradients are the same along every mode:
one is worked out instead of k.  That takes a copy, which the many flips of a test have room for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.climb import MOVE_TOL, at_once, gradients, halves, select
from tpca.solvers.mean.fit import BEST, MAX_SWEEPS, MORE_SWEEPS, SWEEPS, most_starts
from tpca.solvers.rank_one import DENSE_ROWS, ROUGH, along, leading, toward, units
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array, unit
from tpca.tensors.contraction import middle

RANDOM = 8  # random starts
LEADING = 2  # eigenvectors of a trace
LOSS_TOL = 1e-14, 5e-7  # relative loss of Z that is rounding, in float64 and in float32


@dataclass(frozen=True)
class SymmetricFits:
    """The best symmetric fit to each of some tensors: vectors ``(T, d)``, signs ``(T,)`` and objectives ``(T,)``."""

    order: int
    vectors: Array
    signs: Array
    values: Array

    def fit(self, number: int) -> RankOne:
        """That of one tensor; a negative strength is the sign of one vector."""
        x = unit(self.vectors[number].astype(np.float64))
        return RankOne(float(self.values[number]), (self.signs[number] * x, *[x] * (self.order - 1)))


def can_be_symmetric(dims: Sequence[int]) -> bool:
    """Whether all vectors have the same length."""
    return len(set(dims)) == 1


def best_symmetric(
    tensors: Array,
    fitted: Sequence[Array],
    rng: np.random.Generator,
    sweeps: tuple[int, int, int] = (SWEEPS, MORE_SWEEPS, MAX_SWEEPS),
    random: Array | None = None,
    copied: bool = False,
) -> SymmetricFits:
    """The best symmetric fits to ``tensors``.

    ``fitted`` has the vectors ``(T, d)`` of each mode of their unrestricted fits; ``sweeps`` are those of all starts,
    of the best few, and of the best; ``random`` unit rows to start from, drawn if not given.  ``copied``: whether there
    is room for a copy of all tensors.
    """
    if tensors.ndim == 3:  # a matrix: the eigenvector of largest absolute eigenvalue is the best fit
        pairs = [leading(matrix, 1, rng) for matrix in tensors]
        values = np.array([value[0] for value, _ in pairs])
        return SymmetricFits(2, np.concatenate([x for _, x in pairs]), np.where(values < 0, -1.0, 1.0), np.abs(values))
    random = random_rows(tensors.shape[1], rng) if random is None else random
    x, signs = (part.astype(tensors.dtype, copy=False) for part in _starts(tensors, fitted, rng, random))
    tensors = symmetrised(tensors) if copied else tensors
    x, signs = _directed(tensors, x, signs, copied)
    for count, most in zip((BEST, 1, 1), sweeps, strict=True):
        if not most:
            break
        x, values = climb_symmetric(tensors, x, signs, most, copied)
        (x, signs), values = select([x, signs], values, count)
    return SymmetricFits(tensors.ndim - 1, x[:, 0], signs[:, 0, 0], values[:, 0])


def random_rows(length: int, rng: np.random.Generator) -> Array:
    """Unit vectors ``(R, d)`` to start from."""
    return units(rng.standard_normal((RANDOM, length)))


def climb_symmetric(tensors: Array, x: Array, signs: Array, sweeps: int, same: bool = False) -> tuple[Array, Array]:
    """Shifted power iteration from ``(T, R, d)`` with signs ``(T, R, 1)``, until all stand still; Z never falls.

    ``same``: the tensors are symmetric.
    """
    plain = bool((signs == 1).all())
    gradient = symmetric_gradients(tensors, x, same) * signs
    values = _inner(gradient, x)
    shifts, kept = np.zeros_like(values), values.dtype.type(1 - LOSS_TOL[x.dtype == np.float32])
    shifted = False
    for _ in range(sweeps):
        fresh, length = toward(gradient + shifts * x if shifted else gradient, x)
        there = symmetric_gradients(tensors, fresh, same)
        there = there if plain else signs * there
        reached = _inner(there, fresh)
        still = x.dtype == np.float64 and float(np.max(np.sum((fresh - x) ** 2, axis=2))) < MOVE_TOL
        better = reached >= kept * values
        if np.count_nonzero(better) == better.size:
            x, values, gradient = fresh, reached, there
        else:
            shifted, shifts = True, np.where(better, shifts, np.maximum(2 * shifts, length[..., None] / 2))
            x, values = np.where(better, fresh, x), np.where(better, reached, values)
            gradient = np.where(better, there, gradient)
        if still:
            break
    return x, values[..., 0]


def _inner(rows: Array, others: Array) -> Array:
    """The inner product of every pair of rows, ``(T, R, 1)``."""
    return np.asarray(np.vecdot(rows, others)[..., None])


def symmetrised(tensors: Array) -> Array:
    """S of every tensor: the mean over all orders of its modes, each new mode put in every place."""
    whole = tensors
    for modes in range(2, tensors.ndim):
        last = tensors.ndim - modes  # the modes from here on are symmetric after this turn
        part = whole.copy()
        for place in range(last + 1, tensors.ndim):
            part += np.swapaxes(whole, last, place)
        whole = part / np.asarray(modes, part.dtype)
    return whole


def symmetric_gradients(tensors: Array, x: Array, same: bool = False) -> Array:
    """The mean gradient g ``(T, R, d)`` of as many vectors; where it is the ``same`` along all modes, of the first."""
    order, cut = tensors.ndim - 1, middle(tensors.shape[1:])
    if same:  # those of the right half, for which nothing is turned
        return along(halves(tensors, [x] * order, cut, False), [x] * (order - cut), 0)
    if at_once(tensors, cut) < x.shape[0] * x.shape[1]:
        total = gradients(tensors, [x] * order, 0)
        for mode in range(1, order):
            total += gradients(tensors, [x] * order, mode)
        return np.asarray(total / order)
    total = np.zeros_like(x)
    for left, modes in ((True, cut), (False, order - cut)):
        part = halves(tensors, [x] * order, cut, left)
        for mode in range(modes):
            total += along(part, [x] * modes, mode)
    return np.asarray(total / order)


def _directed(tensors: Array, x: Array, signs: Array, same: bool) -> tuple[Array, Array]:
    """Signs that are not known (0) as those of Z; at odd order v takes them."""
    one = np.ones((), x.dtype)
    seen = np.where(_inner(symmetric_gradients(tensors, x, same), x) < 0, -one, one)
    if tensors.ndim % 2 == 0:
        return seen * x, np.ones_like(seen)
    return x, np.where(signs == 0, seen, signs)


def _starts(tensors: Array, fitted: Sequence[Array], rng: np.random.Generator, random: Array) -> tuple[Array, Array]:
    """Unit vectors ``(T, R, d)`` of all starts and their signs ``(T, R, 1)``, 0 where not known.

    Those of the traces, the middle of the fitted vectors, and at ``random``, the same for all tensors.
    """
    known, signs = _traced(tensors, rng)
    every = np.stack(fitted)
    middle_ = np.where(np.vecdot(every, every[0])[..., None] < 0, -every, every).sum(axis=0)
    random = np.broadcast_to(random, (len(tensors), *random.shape))
    x = np.concatenate([known, units(middle_)[:, None], random], axis=1)[:, : most_starts(tensors.shape[1:])]
    signs = np.concatenate([signs, np.zeros((len(tensors), 1 + RANDOM))], axis=1)[:, : x.shape[1], None]
    return x, signs


def _traced(tensors: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Pairs of modes traced away, all pairings added up: the eigenvectors ``(T, r, d)`` of the matrix that is left.

    At odd order a vector t is left, the first start; the matrix is what was left before, contracted with t.  And the
    signs ``(T, r)`` of their strengths.
    """
    while tensors.ndim > 4:
        tensors = _trace(tensors)
    t = None
    if tensors.ndim == 4:
        t = units(_trace(tensors)).astype(tensors.dtype, copy=False)
        tensors = _contracted(tensors, t)
    if tensors.shape[1] <= DENSE_ROWS:
        values, axes = np.linalg.eigh((tensors + tensors.transpose(0, 2, 1)) / 2)
        each, chosen = np.arange(len(values))[:, None], (-np.abs(values)).argsort(axis=1)[:, :LEADING]
        values, x = values[each, chosen], axes.transpose(0, 2, 1)[each, chosen]
    else:
        pairs = [leading(matrix, LEADING, rng, ROUGH) for matrix in tensors]
        values, x = (np.stack(part) for part in zip(*pairs, strict=True))
    if t is None:
        return x, np.where(values < 0, -1.0, 1.0)
    return np.concatenate([t[:, None], x], axis=1), np.ones((len(x), 1 + x.shape[1]))


def _contracted(tensors: Array, t: Array) -> Array:
    """Tensors of order 3 contracted with t in one mode, for all modes."""
    count, d = t.shape
    first = np.matmul(t[:, None, :], tensors.reshape(count, d, -1)).reshape(count, d, d)
    return np.asarray(
        first + np.matmul(t[:, None, None, :], tensors)[:, :, 0] + np.matmul(tensors, t[:, None, :, None])[..., 0]
    )


def _trace(tensors: Array) -> Array:
    """The sum of the traces over all pairs of modes."""
    total = np.zeros((len(tensors), *tensors.shape[3:]))
    for i, j in itertools.combinations(range(1, tensors.ndim), 2):
        total += np.trace(tensors, axis1=i, axis2=j)
    return total
