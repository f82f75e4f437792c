r"""Vectors that are all the same: the best fit ±v ⊗ … ⊗ v of some tensors, found by power iteration.

.. math:: Z(v) = s\,\langle X, v^{\otimes k}\rangle, \qquad
    v \leftarrow \mathrm{unit}\bigl(s\,g(v) + \alpha v\bigr), \qquad
    g(v) = \tfrac1k\sum_m X \text{ contracted with } v \text{ in all modes but } m ,

s the sign of the strength (always 1 at odd order, where v takes it).  The shift α is 0 until a step lowers Z, which at
even order it may; that step is taken back and α doubled (Kolda & Mayo 2011).  The climb begins at the leading
eigenvectors of the partial traces (:mod:`tpca.solvers.race.strategies.symmetric`), at the unrestricted fit, and at
random.  What it means: :mod:`tpca.solvers.mean.reading`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.fit import BEST, MAX_SWEEPS, MORE_SWEEPS, MOVE_TOL, SWEEPS, gradients, most_starts, select
from tpca.solvers.rank_one import ROUGH, aligned, leading, toward
from tpca.tensors.blocks import Array, unit

RANDOM = 8  # random starts
LEADING = 2  # eigenvectors of a trace
LOSS_TOL = 1e-14  # relative loss of Z that is rounding


@dataclass(frozen=True)
class SymmetricFits:
    """The best symmetric fit to each of some tensors: vectors ``(T, d)``, signs ``(T,)`` and objectives ``(T,)``."""

    vectors: Array
    signs: Array
    values: Array


def can_be_symmetric(dims: Sequence[int]) -> bool:
    """Whether all vectors have the same length."""
    return len(set(dims)) == 1


def best_symmetric(
    tensors: Array,
    fitted: Sequence[Array],
    rng: np.random.Generator,
    sweeps: tuple[int, int, int] = (SWEEPS, MORE_SWEEPS, MAX_SWEEPS),
) -> SymmetricFits:
    """The best symmetric fits to ``tensors``.

    ``fitted`` has the vectors ``(T, d)`` of each mode of their unrestricted fits; ``sweeps`` are those of all starts,
    of the best few, and of the best.
    """
    if tensors.ndim == 3:  # a matrix: the eigenvector of largest absolute eigenvalue is the best fit
        pairs = [leading(matrix, 1, rng) for matrix in tensors]
        values = np.array([value[0] for value, _ in pairs])
        return SymmetricFits(np.concatenate([x for _, x in pairs]), np.where(values < 0, -1.0, 1.0), np.abs(values))
    each = [_starts(tensor, [v[i] for v in fitted], rng) for i, tensor in enumerate(tensors)]
    x, signs = (np.stack(part).astype(tensors.dtype, copy=False) for part in zip(*each, strict=True))
    x, signs = _directed(tensors, x, signs)
    for count, most in zip((BEST, 1, 1), sweeps, strict=True):
        x, values = climb_symmetric(tensors, x, signs, most)
        (x, signs), values = select([x, signs], values, count)
    return SymmetricFits(x[:, 0], signs[:, 0, 0], values[:, 0])


def climb_symmetric(tensors: Array, x: Array, signs: Array, sweeps: int) -> tuple[Array, Array]:
    """Shifted power iteration from ``(T, R, d)`` with signs ``(T, R, 1)``, until all stand still; Z never falls."""
    gradient = signs * symmetric_gradients(tensors, x)
    values = np.sum(gradient * x, axis=2, keepdims=True)
    shifts = np.zeros_like(values)
    for _ in range(sweeps):
        fresh, length = toward(gradient + shifts * x, x)
        moved = float(np.max(np.sum((fresh - x) ** 2, axis=2)))
        there = signs * symmetric_gradients(tensors, fresh)
        reached = np.sum(there * fresh, axis=2, keepdims=True)
        better = reached >= values - LOSS_TOL * np.abs(values)
        shifts = np.where(better, shifts, np.maximum(2 * shifts, length[..., None] / 2))
        x, values = np.where(better, fresh, x), np.where(better, reached, values)
        gradient = np.where(better, there, gradient)
        if moved < MOVE_TOL:
            break
    return x, values[..., 0]


def symmetric_gradients(tensors: Array, x: Array) -> Array:
    """The mean gradient g ``(T, R, d)`` of as many vectors."""
    order = tensors.ndim - 1
    total = gradients(tensors, [x] * order, 0)
    for mode in range(1, order):
        total += gradients(tensors, [x] * order, mode)
    return np.asarray(total / order)


def _directed(tensors: Array, x: Array, signs: Array) -> tuple[Array, Array]:
    """Signs that are not known (0) as those of Z; at odd order v takes them."""
    seen = np.where(np.sum(symmetric_gradients(tensors, x) * x, axis=2, keepdims=True) < 0, -1.0, 1.0)
    if tensors.ndim % 2 == 0:
        return seen * x, np.ones_like(seen)
    return x, np.where(signs == 0, seen, signs)


def _starts(tensor: Array, fitted: Sequence[Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """Unit vectors ``(R, d)`` of all starts and their signs ``(R, 1)``, 0 where not known."""
    middle = np.sum(aligned(fitted, [fitted[0]] * len(fitted)), axis=0)
    known = itertools.chain(_traced(tensor, rng), [(unit(middle), 0.0)])
    random = ((unit(rng.standard_normal(len(tensor))), 0.0) for _ in range(RANDOM))
    each = itertools.islice(itertools.chain(known, random), most_starts(tensor.shape))
    x, signs = zip(*each, strict=True)
    return np.stack(x), np.array(signs)[:, None]


def _traced(tensor: Array, rng: np.random.Generator) -> Iterator[tuple[Array, float]]:
    """Pairs of modes traced away, all pairings added up: the eigenvectors of the matrix that is left.

    At odd order a vector t is left, the first start; the matrix is what was left before, contracted with t.
    """
    while tensor.ndim > 3:
        tensor = _trace(tensor)
    odd = tensor.ndim == 3
    if odd:
        t = unit(_trace(tensor))
        yield t, 1.0
        tensor = _contracted(tensor, t)
    values, x = leading(tensor, LEADING, rng, ROUGH)
    yield from ((v, 1.0 if odd else math.copysign(1.0, value)) for value, v in zip(values, x, strict=True))


def _contracted(tensor: Array, t: Array) -> Array:
    """A tensor of order 3 contracted with t in one mode, for all modes."""
    return np.asarray(np.tensordot(t, tensor, 1) + np.tensordot(tensor, t, (1, 0)) + tensor @ t)


def _trace(tensor: Array) -> Array:
    """The sum of the traces over all pairs of modes."""
    pairs = itertools.combinations(range(tensor.ndim), 2)
    total = np.zeros(tensor.shape[2:])
    for i, j in pairs:
        total += np.trace(tensor, axis1=i, axis2=j)
    return total
