r"""Rank-one components of the estimate D, and the test of each.

The first is the best rank-one fit of D; each next one that of what is left; then all are refined together, one after
the other given the rest, until none moves.  The length of the best rank-one fit is also the statistic of the test: for
all flips by the same procedure, which never decomposes the longest mode.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from tpca.solvers.rank_one import along, alternate, top_pairs, units
from tpca.tensors.blocks import Array

FLIP_SWEEPS, FLIP_STEPS = 8, 6
TRIAL_SWEEPS = 12
SMALL = 10_000  # entries of a tensor for which many starts cost nothing
SWEEPS, SWEPT = (200, 20_000), 2e8  # least and most, by the entries that all sweeps may touch: some climbs are slow
REFINEMENTS = 100
STILL = 1e-24  # squared change of vectors that counts as none
OPPOSED = -0.5  # cosine of two components that nearly cancel
NOTHING = 1e-13  # share of D below which what is left is rounding


def lengths(stack: Array) -> Array:
    """Length of the best rank-one fit of every tensor of a stack (b, *dims), by one procedure for all."""
    return fits(stack)[1]


def fits(stack: Array) -> tuple[list[Array], Array]:
    """Vectors (b, d_m) and lengths of rank-one fits, from power steps along all modes but the longest."""
    dims = stack.shape[1:]
    order = sorted(range(len(dims)), key=lambda m: -dims[m])
    stack = np.ascontiguousarray(np.moveaxis(stack, [1 + m for m in order], range(1, 1 + len(dims))))
    starts = [np.zeros_like(stack, shape=(len(stack), dims[order[0]]))]
    starts += [_power_steps(stack, place, dims[m]) for place, m in enumerate(order[1:], 1)]
    found, values = alternate(functools.partial(along, stack), starts, FLIP_SWEEPS)
    return [found[order.index(m)] for m in range(len(dims))], values


def _power_steps(stack: Array, place: int, d: int) -> Array:
    """About the leading vector of a mode of every tensor."""
    U = np.moveaxis(stack, place + 1, 1).reshape(len(stack), d, -1)
    x = np.broadcast_to(np.random.default_rng(place).standard_normal(d).astype(stack.dtype), (len(stack), d))
    for _ in range(FLIP_STEPS):
        x = np.matvec(U, np.vecmat(x, U))
        x = x / np.maximum(np.sqrt(np.vecdot(x, x)), 1e-300)[:, None]
    return x


def best_rank_one(tensor: Array, rough: bool = False) -> tuple[list[Array], float]:
    """Unit vectors of the best rank-one fit of one tensor that several starts lead to, and its length.

    A ``rough`` one is only to climb from.
    """
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
        tried = [_tried(tensor, starts[first : first + together]) for first in range(0, len(starts), together)]
        found, values = max(tried, key=lambda one: float(np.max(one[1])))
        best = int(np.argmax(values))
        start = [v[best : best + 1] for v in found]
        sweeps = 1 if rough else int(np.clip(SWEPT / tensor.size, *SWEEPS))
    found, values = alternate(functools.partial(along, tensor[None]), start, sweeps, STILL)
    return [v[0] for v in found], float(values[0])


def _tried(tensor: Array, starts: Sequence[Sequence[Array]]) -> tuple[list[Array], Array]:
    """A few sweeps from every start, in step."""
    stacked = [np.stack(each) for each in zip(*starts, strict=True)]
    stack = np.broadcast_to(tensor, (len(starts), *tensor.shape))
    return alternate(functools.partial(along, stack), stacked, TRIAL_SWEEPS)


def outer(vectors: Sequence[Array], strength: float = 1.0) -> Array:
    """The tensor of one component."""
    return functools.reduce(np.multiply.outer, vectors[1:], strength * vectors[0])


def components_of(D: Array, count: int) -> tuple[list[list[Array]], Array]:
    """Vectors and lengths of ``count`` components, strongest first; zeros where there is no more to fit."""
    left, found, sizes = D, [], []
    whole = float(np.linalg.norm(D))
    for _ in range(count):
        vectors, size = best_rank_one(left)
        if not size > NOTHING * whole:
            break
        found.append(vectors)
        sizes.append(size)
        left = left - outer(vectors, size)
    if len(found) > 1 and D.ndim > 2:
        refined, lengths_ = _refined(D, found, sizes)
        pairs = [(a, b) for i, a in enumerate(refined) for b in refined[:i]]
        if all(cosine(a, b) > OPPOSED for a, b in pairs):  # else they run away from each other, and cancel
            found, sizes = refined, lengths_
    order = np.argsort(-np.array(sizes), kind="stable")
    found, sizes = [found[i] for i in order], [sizes[i] for i in order]
    missing = count - len(found)
    return found + [[np.zeros(d) for d in D.shape]] * missing, np.array(sizes + [0.0] * missing)


def _refined(D: Array, found: list[list[Array]], sizes: list[float]) -> tuple[list[list[Array]], list[float]]:
    """All components together: each anew, given the others, until none moves."""
    found, sizes = list(found), list(sizes)
    left = D - sum(outer(v, s) for v, s in zip(found, sizes, strict=True))
    for _ in range(REFINEMENTS):
        moved = 0.0
        for c, (vectors, size) in enumerate(zip(found, sizes, strict=True)):
            own = left + outer(vectors, size)
            fresh, value = alternate(functools.partial(along, own[None]), [v[None] for v in vectors], 2)
            found[c], sizes[c] = [v[0] for v in fresh], float(value[0])
            left = own - outer(found[c], sizes[c])
            moved = max(moved, *(float(np.sum((a - b) ** 2)) for a, b in zip(found[c], vectors, strict=True)))
        if moved < STILL:
            break
    return found, sizes


def deflated(C: Array, vectors: Sequence[Array]) -> Array:
    """Tensors (n, *dims) without what has all modes but one along ``vectors``: what the next component is tested on.

    An error of a component's own vectors lies there, and so is not taken for another one.
    """

    def on(T: Array, m: int) -> Array:
        return np.moveaxis(np.multiply.outer(np.tensordot(T, vectors[m], (m + 1, 0)), vectors[m]), -1, m + 1)

    modes = range(len(vectors))
    out = C - functools.reduce(on, modes, C)
    for m in modes:
        part = functools.reduce(on, (j for j in modes if j != m), C)
        out = out - (part - on(part, m))
    return out


def cosine(one: Sequence[Array], other: Sequence[Array]) -> float:
    """Of the unit tensors of two components."""
    return math.prod(float(v @ u) for v, u in zip(one, other, strict=True))
