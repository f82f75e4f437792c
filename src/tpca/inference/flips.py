r"""Tests by resampling: signs of units, several statistics under the same flips, the smallest p with its own null.

Under the null hypothesis the contributions of independent units are symmetric about zero, so that any signs are as good
as those of the data.  A statistic of the data is compared with the same statistic of flipped data,

.. math:: p = (1 + \#\{T(s) \ge T\})/(1 + m) .

A length ignores the sign of all, so G units have 2^(G−1) flips: all of them are taken where that is no more than asked
for.  Several statistics share the flips, and the smallest of their p-values is compared with the smallest p-values of
the flips themselves (Westfall & Young 1993): no statistic is chosen by looking.

Of several views that may be independent of each other, units are rearranged instead of flipped: the rows of a unit of
one view meet those of another unit of the next.  Rows of a series whose neighbours are correlated are shifted in a
circle, which leaves every view as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array

Progress = Callable[[int, int], None]  # told how many flips are done, and how many there are

CHUNK = 2**21  # numbers of flipped tensors that are held at a time, at most
TIE = 1e-9  # lengths that differ by less are equal
LEAST_FLIPS, USUAL_FLIPS = 199, 999
COST_ENTRIES = 1e4  # entries up to which 999 flips of three statistics take about a second


def usual_resamples(entries: int) -> int:
    """``n_resamples="auto"``: 999 up to 10⁴ entries, then fewer in proportion, 199 at least."""
    return int(np.clip(USUAL_FLIPS * COST_ENTRIES / max(1, entries), LEAST_FLIPS, USUAL_FLIPS))


def draw_signs(units: int, n_resamples: int, rng: np.random.Generator) -> Array:
    """The data first, then flips: all of them where that is no more than asked for."""
    if 2 ** (units - 1) <= n_resamples + 1:
        return np.array([(1.0, *signs) for signs in itertools.product((1.0, -1.0), repeat=units - 1)])
    return np.vstack([np.ones(units), rng.choice([-1.0, 1.0], size=(n_resamples, units))])


def own_order(rows: Array) -> NDArray[np.intp]:
    """An order of rows (n, ...) that comes from what is in them alone: a fixed shuffle of that of a projection.

    Whatever is drawn at random for rows in this order is the same however they were given.  Tests stay exact: for any
    rows, signs that are drawn without looking at them are as good in one order as in another.
    """
    rng = np.random.default_rng(0)
    along = rows.reshape(len(rows), -1) @ rng.standard_normal(rows[0].size)
    return np.argsort(along)[rng.permutation(len(rows))]


def least_p(units: int, n_resamples: int) -> float:
    """The smallest p-value that so many units, and so many flips, can give."""
    flips: int = 2 ** (units - 1)  # a float would overflow at 1025 units
    return 1.0 / min(flips, n_resamples + 1)


def rearrangements(
    unit: NDArray[np.int64], views: int, n_resamples: int, rng: np.random.Generator, serial: bool = False
) -> Iterator[NDArray[np.int64]]:
    """Orders ``(m, views, n)`` of the n rows of every view, some at a time; those of the first view stay.

    Rows of a unit are neighbours.  Where units differ in size, rows of the one that comes are repeated or cut.  With
    ``serial`` all rows are shifted; two views have only n - 1 shifts.
    """
    n = len(unit)
    if serial and views == 2:
        all_shifts = 1 + rng.permutation(n - 1)[:n_resamples][:, None]
    starts = np.flatnonzero(np.diff(unit, prepend=unit[0] - 1 if n else 0))
    sizes = np.diff(starts, append=n)
    own = np.repeat(np.arange(len(starts)), sizes)
    place = np.arange(n) - starts[own]
    most = len(all_shifts) if serial and views == 2 else n_resamples
    step = max(1, CHUNK // max(1, 4 * n * views))
    for first in range(0, most, step):
        count = min(step, most - first)
        orders = np.empty((count, views, n), np.int64)
        orders[:, 0] = np.arange(n)
        for view in range(1, views):
            if serial:
                shift = all_shifts[first : first + count] if views == 2 else rng.integers(1, n, (count, 1))
                orders[:, view] = (np.arange(n) + shift) % n
            else:
                other = rng.permuted(np.broadcast_to(np.arange(len(starts)), (count, len(starts))), axis=1)[:, own]
                orders[:, view] = starts[other] + place % sizes[other]
        yield orders


def p_values(values: Array) -> Array:
    """The p-value of every one of ``values`` among all of them: the first is the data, the others are flips."""
    below = np.searchsorted(np.sort(values), values - TIE * np.abs(values), side="left")
    return np.asarray((len(values) - below) / len(values))


def flipped(
    rows: Array, signs: Array, most: int = CHUNK, progress: Progress | None = None
) -> Iterator[tuple[slice, Array]]:
    """Σ_g s_g C_g of every row of signs, about ``most`` numbers at a time; the rows are (G, ...).

    ``progress`` is told when some flips have been used.
    """
    flat = rows.reshape(len(rows), -1)
    step = max(1, most // max(1, flat.shape[1]))
    for start in range(0, len(signs), step):
        some = slice(start, min(start + step, len(signs)))
        yield some, (signs[some].astype(flat.dtype, copy=False) @ flat).reshape(-1, *rows.shape[1:])
        if progress is not None:
            progress(some.stop, len(signs))


def resampled(
    versions: Iterable[Array],
    statistic: Callable[[Array], Array],
    signs: Array,
    scale: Array,
    most: int = CHUNK,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """The same statistic of the flips of several versions of the contributions, divided by ``scale``.

    Values (versions, 1 + m), on the data, then on flips; and the p-value of every version, adjusted for there being
    others.  The least of these is the p-value of any signal.
    """
    rows = []
    for version in versions:
        each = [statistic(stack) / scale[some] for some, stack in flipped(version, signs, most, progress)]
        rows.append(np.concatenate(each))
        del version  # before the next one is made
    p = np.array([p_values(own) for own in rows])
    least = p.min(axis=0)
    return np.array(rows), np.array([(least <= own[0] + 1e-12).mean() for own in p])


def entry_p_values(
    rows: Array, signs: Array, scale: Array, most: int = CHUNK, progress: Progress | None = None
) -> Array:
    """Family-wise p of every entry: how often the largest |t| over all entries of a flip reaches it.

    The level of an entry, the root of its sum of squares over units, is left alone by flips.
    """
    level = np.sqrt(np.einsum("g...,g...->...", rows, rows, dtype=np.float64))
    unknown = level <= 1e-12 * level.max(initial=0.0)
    level = np.where(unknown, np.inf, level)
    largest, own = np.empty(len(signs)), np.zeros(rows.shape[1:])
    for some, stack in flipped(rows, signs, most, progress):
        sizes = np.abs(stack, out=stack)
        sizes /= level
        largest[some] = sizes.reshape(len(sizes), -1).max(axis=1) / scale[some]
        if some.start == 0:
            own = sizes[0] / scale[0]
    reached = len(signs) - np.searchsorted(np.sort(largest), own * (1 - TIE), side="left")
    return np.where(unknown, math.nan, reached / len(signs))
