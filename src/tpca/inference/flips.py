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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.inference.regression import SINGLE_PRECISION
from tpca.tensors.blocks import Array

SINGLE: Any = np.float32
Progress = Callable[[int, int], None]  # told how many flips are done, and how many there are

CHUNK = 2**21
"""Numbers in double precision, of flipped tensors that are held at a time, at most: 16 MB."""
TIE = 1e-9
"""Lengths that differ by a smaller part are equal."""
SINGLE_TIE = 1e-6
"""The same in single precision, which rounds to 1e-7; flips differ by some percent."""
ENTRIES_TOGETHER = 2**14
"""Entries whose p-values are worked out at a time, of all flips: some megabytes."""
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


def p_values(values: Array, tie: float = TIE) -> Array:
    """The p-value of every one of ``values`` among all of them: the first is the data, the others are flips."""
    below = np.searchsorted(np.sort(values), values - tie * np.abs(values), side="left")
    return np.asarray((len(values) - below) / len(values))


def tie_of(dtype: Any) -> float:
    """By how small a part equal lengths may differ that are worked out in this precision."""
    return SINGLE_TIE if dtype == SINGLE else TIE


def rows_to_flip(rows: Array) -> tuple[Array, float]:
    """Contributions (G, ...) as they are flipped, and the number that they were divided by.

    Large tensors in single precision, with a largest entry of about one: squares neither overflow nor vanish.  The
    number is a power of two, so nothing but the precision changes.
    """
    if rows[0].size <= SINGLE_PRECISION or rows.dtype == SINGLE:
        return rows, 1.0
    largest = max(float(rows.max()), -float(rows.min()))
    size = math.ldexp(1.0, math.frexp(largest)[1])
    single = np.empty_like(rows, SINGLE)
    np.divide(rows, size, out=single, casting="same_kind")
    return single, size


def flipped(
    rows: Array, signs: Array, most: int = CHUNK, progress: Progress | None = None
) -> Iterator[tuple[slice, Array]]:
    """Σ_g s_g C_g of every row of signs, in the memory of about ``most`` numbers; the rows are (G, ...).

    The next sums overwrite those before them.  ``progress`` is told when some flips have been used.
    """
    flat = rows.reshape(len(rows), -1)
    signs = signs.astype(flat.dtype, copy=False)
    numbers = most * np.dtype(np.float64).itemsize // flat.dtype.itemsize
    step = min(len(signs), max(1, numbers // max(1, flat.shape[1])))
    sums = np.empty_like(flat, shape=(step, flat.shape[1]))
    for start in range(0, len(signs), step):
        some = slice(start, min(start + step, len(signs)))
        stack = np.matmul(signs[some], flat, out=sums[: some.stop - start])
        yield some, stack.reshape(-1, *rows.shape[1:])
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

    The statistic of tensors t times as large is t times as large.  Values (versions, 1 + m), on the data, then on
    flips; and the p-value of every version, adjusted for there being others.  The least of these is the p-value of any
    signal.
    """
    values = []
    p = []
    for version in versions:
        rows, size = rows_to_flip(version)
        del version  # before the flips take their memory
        of_version = np.empty(len(signs))
        for some, stack in flipped(rows, signs, most, progress):
            of_version[some] = statistic(stack) * (size / scale[some])
        values.append(of_version)
        p.append(p_values(of_version, tie_of(rows.dtype)))
        del rows, stack  # before the next version is made
    least = np.min(p, axis=0)
    return np.array(values), np.array([(least <= of_version[0] + 1e-12).mean() for of_version in p])


def entry_p_values(
    rows: Array, signs: Array, scale: Array, most: int = CHUNK, progress: Progress | None = None
) -> Array:
    """Family-wise p of every entry: how often the largest |t| over all entries of a flip reaches it.

    The level of an entry, the root of its sum of squares over units, is left alone by flips.  All flips of some
    entries are taken at a time.
    """
    flat = rows.reshape(len(rows), -1)
    entries = flat.shape[1]
    level = np.sqrt(np.einsum("ge,ge->e", flat, flat))
    unknown = level <= 1e-12 * level.max(initial=0.0)
    level = np.where(unknown, np.inf, level)
    dtype = SINGLE if entries > SINGLE_PRECISION else level.dtype
    signs_over_scale = (signs / scale[:, None]).astype(dtype)
    largest = np.zeros(len(signs), dtype)
    sizes = np.empty(entries, dtype)  # of the data
    step = max(1, min(ENTRIES_TOGETHER, most // len(signs)))
    for start in range(0, entries, step):
        piece = slice(start, start + step)
        t = signs_over_scale @ (flat[:, piece] / level[piece]).astype(dtype)
        sizes[piece] = np.abs(t[0])
        np.maximum(largest, t.max(axis=1), out=largest)
        np.maximum(largest, -t.min(axis=1), out=largest)
        if progress is not None:
            progress(len(signs) * min(start + step, entries) // entries, len(signs))
    reached = len(signs) - np.searchsorted(np.sort(largest), sizes * (1 - tie_of(dtype)), side="left")
    return np.where(unknown, math.nan, reached / len(signs)).reshape(rows.shape[1:])
