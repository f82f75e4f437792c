r"""Is there a signal?  A test by sign flips of groups of samples, exact for noise of any covariance.

Without a signal, and with noise as likely as its negative, the sums of independent groups may have their signs changed:
the mean and all its *flips* :math:`\sum_g s_gw_gx'_g` (:mod:`tpca.solvers.mean.groups`) are equally likely.  So with
any statistic T, worked out for the mean and for m flips that are drawn without replacement,

.. math:: p = \frac{1 + \#\{T_s \ge T\}}{1 + m} \le 1 - \text{confidence}

happens in at most 1 − confidence of all cases (Hemerik & Goeman 2018), whatever the noise: its entries may be
correlated, of unequal variance or heavy-tailed, and the variance may drift.  m is such that one flip may reach T (39 at
0.95), or none where there are few groups.  A flip that changes few signs keeps most of a signal, so only those with an
even number of changes are drawn where there are enough of them: of eight groups, none keeps more than half.

**T** is one procedure for all: the length Z of a fit from leading vectors of all modes, mixtures of them, and a few
random starts.  Where the vectors may be the same (:mod:`tpca.solvers.mean.symmetric`), a fit of such vectors is made,
too.  It reaches less far in noise, so that T is the larger of the two, each less what white noise of the same level
reaches (:func:`~tpca.solvers.mean.reading.noise_reach`).

**Early end.**  Once as many flips reach T as may not, nothing can be proven any more; if that is after l flips,
p = (number of them)/l is as valid (Besag & Clifford 1991).

Where a signal is plain to see (:mod:`tpca.solvers.mean.plain`) nothing of this is needed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.climb import WORK, climb, select
from tpca.solvers.mean.grouping import Array32
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.reading import noise_reach, read, read_symmetric
from tpca.solvers.mean.starts import Starts
from tpca.solvers.mean.symmetric import best_symmetric
from tpca.solvers.rank_one import along, top_pairs
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array, unit

SWEEPS, BEST, MORE_SWEEPS = 10, 6, 15  # of all starts, and of the best
SYMMETRIC_SWEEPS = (8, 17, 0)  # of symmetric fits: of all starts, and of the best few
USUAL = 40  # the mean and its flips, at a confidence of 0.95
FIRST, NEXT = 4, 8  # flips looked at before the rest: on pure noise 3 of 5 tests end with these, 11 of 13 with those
# What a symmetric fit must be ahead, in units of σ: the larger of two reaches further than one.  Of signals (8³) that
# one kind of fit proves alone, a fifth of the unrestricted ones is lost with 0, a tenth of either kind with 0.5, a
# fourth of the symmetric ones with 0.75.
MARGIN = 0.6
TURNS = 5  # over several known components that are taken off
TIE = 1e-6  # relative difference of two T that is rounding


@functools.cache
def flips_allowed(confidence: float) -> tuple[int, int]:
    """How many flips to draw, with one of them, or with none, allowed to reach T."""
    chance = 1 - confidence
    one, none = (math.ceil(reached / chance - 1e-9) - 1 for reached in (2, 1))
    return one, none


@functools.cache
def flips_there(groups: int, confidence: float) -> tuple[int, int, bool]:
    """How many flips are drawn, of how many there are, and whether these all have an even number of changes."""
    evens, all_ = (2 ** max(0, groups - fixed) - 1 for fixed in (2, 1))
    wanted = flips_allowed(confidence)
    even = any(count <= evens for count in wanted)
    there = evens if even else all_
    return next((count for count in wanted if count <= there), there), there, even


def draw_flips(groups: int, confidence: float, rng: np.random.Generator) -> Array:
    """Signs ``(m, G)`` of different flips, the first always 1; fewer than the test needs where groups are too few."""
    count, there, even = flips_there(groups, confidence)
    codes = 1 + rng.choice(there, count, replace=False) if count else np.empty(0, dtype=int)
    bits, signs = (codes[:, None] >> np.arange(groups - 1 - even)) & 1, np.ones((count, groups))
    signs[:, 1 : groups - even] -= 2 * bits
    if even:
        signs[:, -1] -= 2 * (bits.sum(axis=1) % 2)
    return signs


@dataclass(frozen=True)
class Proof:
    """What a test says: T of the mean and of the flips that were looked at, the T that was needed, and p.

    All as lengths of a fit, of a symmetric one where ``symmetric``: that is then the better guess.  ``plain`` is p of
    the unrestricted fit alone.  ``guess`` is the fit of the mean that the test made, where it looked at flips.
    """

    value: float
    flips: tuple[float, ...]
    needed: float
    p_value: float
    plain: float
    symmetric: bool
    guess: RankOne | None = None

    def proven(self, confidence: float) -> bool:
        """Whether noise alone would hardly get there."""
        return self.p_value <= 1 - confidence + 1e-9


def flip_test(
    groups: Groups,
    confidence: float,
    rng: np.random.Generator,
    known: Sequence[RankOne] = (),
    with_symmetric: bool = False,
) -> Proof:
    """Test for a signal besides ``known`` components; with ``with_symmetric``, also for one of equal vectors."""
    signs = draw_flips(len(groups), confidence, rng)
    every = np.vstack([np.ones(len(groups)), signs])
    reach = _reach(groups.dims, groups.level(every), with_symmetric)
    starts = Starts.drawn(groups.dims, rng, with_symmetric)
    most = max(1, math.floor((1 - confidence) * (len(every)) + 1e-9))  # so many flips may not reach T
    lengths, guesses = np.empty((0, 2)), None
    for some in _chunks(len(every), groups.entries):
        tensors = without(groups.flipped(every[some]), every[some] @ (groups.weights * groups.shares), known)
        fits = quick_fits(tensors, starts, with_symmetric, rng)
        lengths, guesses = np.vstack([lengths, fits.lengths]), guesses or fits.first
        if int(np.count_nonzero(_reaches(np.max(lengths - reach, axis=1)))) >= most:
            break
    proof = _judged(lengths, reach, most, len(signs))
    assert guesses is not None, "the mean was looked at"
    return dataclasses.replace(proof, guess=guesses[proof.symmetric])


def _reach(dims: Sequence[int], sigma: float, with_symmetric: bool) -> Array:
    """What white noise reaches, of both kinds of fit."""
    order, squared = len(dims), sigma**2
    plain = noise_reach([(d - 1) * squared for d in dims], read)
    symmetric = noise_reach([(dims[0] - 1) * squared / order] * order, read_symmetric) + MARGIN * sigma
    return np.array([plain, symmetric if with_symmetric else 0.0])


def _judged(lengths: Array, reach: Array, most: int, drawn: int) -> Proof:
    """All that is told of a test, from Z ``(1 + flips, 2)`` of both kinds."""
    excess = np.max(lengths - reach, axis=1)
    symmetric = bool(np.argmax(lengths[0] - reach))
    values = excess + reach[int(symmetric)]
    needed = float(np.sort(values[1:])[-most]) if len(values) > most else math.inf
    p, plain = (_p_value(part, most, drawn) for part in (excess, lengths[:, 0]))
    return Proof(float(values[0]), tuple(values[1:].tolist()), needed, p, plain, symmetric)


def _p_value(values: Array, most: int, drawn: int) -> float:
    reaching = np.flatnonzero(_reaches(values))
    if len(reaching) >= most:
        return most / float(reaching[most - 1] + 1)
    return (1 + len(reaching)) / (1 + drawn)


def _reaches(values: Array) -> Array:
    """Whether each of the values after the first is as large as that."""
    return np.asarray(values[1:] >= values[0] - TIE * abs(values[0]))


def flips_at_once(entries: int) -> int:
    """How many flips, in float32, fit into the work space; no more than a usual test has."""
    return max(1, min(USUAL, 2 * WORK // entries))


def _chunks(count: int, entries: int) -> Iterator[slice]:
    """The mean and a few flips first, then as many at a time as fit."""
    most = flips_at_once(entries)
    start = 0
    for some in itertools.chain((1 + FIRST, NEXT), itertools.repeat(most)):
        yield slice(start, start := start + min(some, most))
        if start >= count:
            return


@dataclass(frozen=True)
class QuickFits:
    """Z of both kinds of fit, ``lengths`` ``(T, 2)``, and both fits of the ``first`` tensor."""

    lengths: Array
    first: tuple[RankOne, RankOne]


def quick_fits(tensors: Array32, starts: Starts, with_symmetric: bool, rng: np.random.Generator) -> QuickFits:
    """Fits of both kinds, good enough to compare.  Without ``with_symmetric`` the second has the length -inf."""
    if tensors.ndim == 3:
        pairs = [top_pairs(matrix, 1, rng) for matrix in tensors]
        plain, vectors = (
            np.array([pair[0][0] for pair in pairs]),
            [np.stack([p[side] for p in pairs]) for side in (1, 2)],
        )
    else:
        vectors = [starts.of(tensors, mode) for mode in range(tensors.ndim - 1)]
        vectors, values = select(*climb(tensors, vectors, SWEEPS, 0.0), BEST)
        vectors, values = select(*climb(tensors, vectors, MORE_SWEEPS, 0.0), 1)
        plain = values[:, 0]
    free = RankOne(float(plain[0]), tuple(unit(v[0, 0].astype(np.float64)) for v in vectors))
    if not with_symmetric:
        return QuickFits(np.column_stack([plain, np.full(len(plain), -math.inf)]).astype(np.float64), (free, free))
    fitted = [] if tensors.ndim == 3 else [v[:, 0] for v in vectors]
    fits = best_symmetric(tensors, fitted, rng, SYMMETRIC_SWEEPS, starts.equal, copied=tensors.size <= 2 * WORK)
    return QuickFits(np.column_stack([plain, fits.values]).astype(np.float64), (free, fits.fit(0)))


def without(tensors: Array32, kept: Array, known: Sequence[RankOne]) -> Array32:
    """Tensors without the share that they have ``kept`` of known components, and with nothing left next to these.

    Next to a component is all that differs from it in one vector.  The fit to the mean leaves no noise there, nor may
    the flips have any; components that are not orthogonal take a few turns.
    """
    share = kept.astype(np.float32).reshape(-1, *[1] * (tensors.ndim - 1))
    for one in known:
        tensors -= share * (one.strength * _outer_products([v[None].astype(np.float32) for v in one.vectors]))
    for one in [*known] * (1 if len(known) == 1 else TURNS):
        stack: list[Array32] = [np.broadcast_to(v.astype(np.float32), (len(tensors), len(v))) for v in one.vectors]
        sides = [along(tensors, stack, mode) for mode in range(len(stack))]
        value = np.sum(sides[0] * stack[0], axis=1, keepdims=True)
        for mode, side in enumerate(sides):
            rest = side if mode == 0 else side - value * stack[mode]
            tensors -= _outer_products([*stack[:mode], rest, *stack[mode + 1 :]])
    return tensors


def _outer_products(vectors: Sequence[Array]) -> Array:
    """The outer product of every row of the vectors ``(T, d_i)``: ``(T, *dims)``."""
    product, *others = vectors
    for v in others:
        product = product[..., None] * v.reshape(len(v), *[1] * (product.ndim - 1), -1)
    return product
