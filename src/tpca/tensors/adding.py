r"""Samples added up in double precision: to the sums of the bins that they belong to, and their squares to one sum.

With weights :math:`w_i` and columns :math:`z_i` of a sample :math:`T_i`, every bin b has

.. math:: M_b = \sum_{i\in b} w_iz_i\otimes T_i, \qquad Q = \sum_i w_i T_i^2 \text{ (entry by entry)}.

The same samples give the same bits however they are cut into batches, if whoever calls gives *rows of eight*: large
samples are worked on eight at a time, from the first row on, some columns at a time, so that all stays in the cache.
Rows of a run that belong to one bin are added up first.  A matrix product is no substitute: how it rounds depends on
how many rows it is given, and with a matrix of zeros and ones it takes more time.  Small samples are added by
``numpy.add.at``, one after the other in any case.

=====================  =================================================
symbol                 here; n samples, E entries, c columns
=====================  =================================================
:math:`T`              ``samples`` (n, E)
:math:`wz`             ``coefficients`` (n, c)
:math:`M_b`            ``sums[rows[i]]``, of (B, c, E)
:math:`Q`              ``squares`` (E,)
=====================  =================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.threads import share

RowNumbers = NDArray[np.intp]

ROWS = 8
"""Large samples that are added at a time."""
COLUMNS = 2**13
"""Entries that are added at a time: of eight samples half a megabyte in double precision, the cache of a core."""
SMALL_SAMPLE = 2**8
"""Entries of samples up to which a call of NumPy for every sample costs more than its work."""
SHARED = 2**19
"""Entries of samples for which another thread is woken."""
PIECE = 2**16
"""Numbers of small samples that are copied at a time."""


@dataclass(frozen=True)
class Target:
    """Sums of bins, arrays (c, E) or one (B, c, E), and which of them every sample belongs to, ``rows`` (n,)."""

    sums: Array | list[Array]
    rows: RowNumbers


@dataclass(frozen=True)
class Run:
    """Samples from ``start`` to ``stop`` that belong to the sum (c, E) of one bin."""

    start: int
    stop: int
    total: Array


def bin_runs(target: Target, start: int, stop: int) -> Iterator[Run]:
    """The runs of samples of one bin among those from ``start`` to ``stop``, counted from there on."""
    bins = target.rows[start:stop].tolist()
    first = 0
    for place in range(1, len(bins) + 1):
        if place == len(bins) or bins[place] != bins[first]:
            yield Run(first, place, target.sums[bins[first]])
            first = place


def energies_of(samples: NDArray[Any]) -> Array:
    """The sum of squares (n,) of every sample; what is not finite says that the sample is not, or is far too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        if samples.shape[1] <= SMALL_SAMPLE:
            energies = np.asarray(np.einsum("ne,ne->n", samples, samples), dtype=np.float64)
        else:
            energies = np.empty(len(samples))
            for number, sample in enumerate(samples):  # faster than vecdot, whose BLAS may have threads
                energies[number] = np.einsum("e,e->", sample, sample)
        if not np.isfinite(energies).all():
            for row in np.flatnonzero(~np.isfinite(energies)):
                sample = samples[row].astype(np.float64)
                energies[row] = np.einsum("e,e->", sample, sample)
    return energies


def add_samples(
    samples: NDArray[Any],
    coefficients: Array,
    weights: Array,
    targets: Sequence[Target],
    squares: Array | None = None,
) -> None:
    """Add samples to the sums of all targets, and their squares to ``squares``."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite shows in the energies
        if samples.shape[1] <= SMALL_SAMPLE:
            _add_small(samples, coefficients, weights, targets, squares)
        else:
            _add_large(samples, coefficients, weights, targets, squares)


def _add_small(
    samples: NDArray[Any], coefficients: Array, weights: Array, targets: Sequence[Target], squares: Array | None
) -> None:
    count, entries = samples.shape
    columns = coefficients.shape[1]
    step = max(1, PIECE // (entries * columns))
    places = np.arange(entries)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        numbers = samples[rows].astype(np.float64)
        products = (coefficients[rows, :, None] * numbers[:, None, :]).reshape(len(numbers), -1)
        for target in targets:
            _add_at(target.sums, target.rows[rows], products)
        if squares is not None:
            squared = numbers * numbers
            squared *= weights[rows, None]
            every_entry = np.broadcast_to(places, squared.shape)
            np.add.at(squares, every_entry.ravel(), squared.ravel())


def _add_large(
    samples: NDArray[Any], coefficients: Array, weights: Array, targets: Sequence[Target], squares: Array | None
) -> None:
    count, entries = samples.shape
    is_plain = bool((coefficients == 1).all())
    weights_are_plain = bool((weights == 1).all())
    starts = range(0, count, ROWS)
    runs_by_start = []
    for start in starts:
        runs: list[Run] = []
        for target in targets:
            runs += bin_runs(target, start, min(start + ROWS, count))
        runs_by_start.append(runs)

    def add_columns(edges: tuple[int, int]) -> None:
        numbers_held = np.empty((min(ROWS, count), COLUMNS))
        products_held = np.empty_like(numbers_held)
        partial_held = np.empty(COLUMNS)
        for left in range(edges[0], edges[1], COLUMNS):
            width = min(COLUMNS, edges[1] - left)
            entry_slice = slice(left, left + width)
            partial = partial_held[:width]
            for start, runs in zip(starts, runs_by_start, strict=True):
                rows = slice(start, min(start + ROWS, count))
                height = rows.stop - start
                numbers = numbers_held[:height, :width]
                products = products_held[:height, :width]
                np.copyto(numbers, samples[rows, entry_slice])
                for column, column_coefficients in enumerate(coefficients[rows].T):
                    addends = numbers
                    if not is_plain:
                        addends = np.multiply(numbers, column_coefficients[:, None], out=products)
                    for run in runs:
                        total = run.total[column, entry_slice]
                        addend = addends[run.start]
                        if run.stop - run.start > 1:
                            addend = np.add.reduce(addends[run.start : run.stop], axis=0, out=partial)
                        np.add(total, addend, out=total)
                if squares is not None:
                    weighted = numbers
                    if not weights_are_plain:
                        weighted = np.multiply(numbers, weights[rows, None], out=products)
                    np.einsum("ne,ne->e", numbers, weighted, out=partial)
                    total_squares = squares[entry_slice]
                    np.add(total_squares, partial, out=total_squares)

    if samples.size < SHARED:
        add_columns((0, entries))
        return
    middle = entries // 2 // COLUMNS * COLUMNS  # pieces, and so the bits, are the same for one thread
    share(add_columns, [(0, middle), (middle, entries)])


def add_grams(columns: Array, weights: Array, targets: Sequence[Target]) -> None:
    r"""Add :math:`w_iz_iz_i^\top` of every sample, ``targets`` having sums (B, c, c)."""
    products = weights[:, None, None] * columns[:, :, None] * columns[:, None, :]
    for target in targets:
        _add_at(target.sums, target.rows, products.reshape(len(products), -1))


def _add_at(sums: Array | list[Array], rows: RowNumbers, addends: Array) -> None:
    """Add every row of addends (n, m) to the sums of m numbers that it belongs to, one after the other."""
    stacked = np.stack(sums) if isinstance(sums, list) else sums
    flat_places = rows[:, None] * addends.shape[1] + np.arange(addends.shape[1])
    np.add.at(stacked.reshape(-1), flat_places.ravel(), addends.ravel())
    if isinstance(sums, list):
        for total, of_bin in zip(sums, stacked, strict=True):
            total[...] = of_bin
