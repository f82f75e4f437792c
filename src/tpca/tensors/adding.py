r"""Samples added up one by one: to the sums of the bins that they belong to, and their squares to one sum.

With weights :math:`w_i` and columns :math:`z_i` of a sample :math:`T_i`, every bin b has

.. math:: M_b = \sum_{i\in b} w_iz_i\otimes T_i, \qquad Q = \sum_i w_i T_i^2 \text{ (entry by entry)}.

Rows are added in their order, entry by entry, in double precision.  A matrix product is no substitute: how it rounds
depends on how many rows it is given, and the same samples in other batches would give other bits.  Large samples are
added row by row, some columns at a time, so that what they are added to stays in the cache; small ones by
``numpy.add.at``, which adds in the order of its indices too.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.threads import share

Rows = NDArray[np.intp]

SMALL_SAMPLE = 2**10
"""Entries of samples up to which a call of NumPy for every sample costs more than its work."""
COLUMNS = 2**16
"""Entries that are added at a time: in double precision half a megabyte, which a core has for itself."""
SHARED = 2**20
"""Entries of samples for which another thread is woken."""
PIECE = 2**16
"""Numbers of small samples that are copied at a time."""


@dataclass(frozen=True)
class Target:
    """Sums of bins, arrays (c, E) or one (B, c, E), and which of them every sample belongs to, ``rows`` (n,)."""

    sums: Array | list[Array]
    rows: Rows


def add_samples(
    samples: NDArray[Any],
    coefficients: Array,
    weights: Array,
    targets: Sequence[Target],
    squares: Array | None = None,
) -> Array:
    """Add samples to the sums of all targets, and their squares to ``squares``; the energy (n,) of every sample.

    An energy that is not finite says that the sample is not, or too large to be squared.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite shows in the energies
        if samples.shape[1] <= SMALL_SAMPLE:
            return _add_small(samples, coefficients, weights, targets, squares)
        return _add_large(samples, coefficients, weights, targets, squares)


def _add_small(
    samples: NDArray[Any], coefficients: Array, weights: Array, targets: Sequence[Target], squares: Array | None
) -> Array:
    count, entries = samples.shape
    columns = coefficients.shape[1]
    step = max(1, PIECE // (entries * columns))
    places = np.arange(columns * entries)
    energies = np.zeros(count)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        numbers = samples[rows].astype(np.float64)
        products = (coefficients[rows, :, None] * numbers[:, None, :]).reshape(len(numbers), -1)
        for target in targets:
            _add_at(target.sums, target.rows[rows], products)
        if squares is None:
            continue
        squared = numbers * numbers
        energies[rows] = squared.sum(axis=1)
        squared *= weights[rows, None]
        every_entry = np.broadcast_to(places[:entries], squared.shape)
        np.add.at(squares, every_entry.ravel(), squared.ravel())
    return energies


def _add_large(
    samples: NDArray[Any], coefficients: Array, weights: Array, targets: Sequence[Target], squares: Array | None
) -> Array:
    count, entries = samples.shape
    starts = range(0, entries, COLUMNS)
    energies = np.zeros((len(starts), count))
    plain_columns = (coefficients == 1).all(axis=0)
    plain_weights = bool((weights == 1).all())
    places_of = [target.rows.tolist() for target in targets]

    def add_columns(number: int) -> None:
        start = starts[number]
        stop = min(start + COLUMNS, entries)
        numbers = np.empty(stop - start)
        product = np.empty(stop - start)
        square_sums = None if squares is None else squares[start:stop]
        sums_by_target = []
        for target, places in zip(targets, places_of, strict=True):
            sums_by_target.append({place: list(target.sums[place][:, start:stop]) for place in set(places)})
        for i in range(count):
            np.copyto(numbers, samples[i, start:stop])
            for j, plain in enumerate(plain_columns):
                addend = numbers
                if not plain:
                    addend = np.multiply(numbers, coefficients[i, j], out=product)
                for sums_of_bins, places in zip(sums_by_target, places_of, strict=True):
                    total = sums_of_bins[places[i]][j]
                    np.add(total, addend, out=total)
            if square_sums is None:
                continue
            np.multiply(numbers, numbers, out=product)
            energies[number, i] = np.add.reduce(product)
            if not plain_weights:
                np.multiply(product, weights[i], out=product)
            np.add(square_sums, product, out=square_sums)

    if samples.size >= SHARED:
        share(add_columns, range(len(starts)))
    else:
        for number in range(len(starts)):
            add_columns(number)
    return np.add.reduce(energies, axis=0)


def add_grams(columns: Array, weights: Array, targets: Sequence[Target]) -> None:
    r"""Add :math:`w_iz_iz_i^\top` of every sample, ``targets`` having sums (B, c, c)."""
    products = weights[:, None, None] * columns[:, :, None] * columns[:, None, :]
    for target in targets:
        _add_at(target.sums, target.rows, products.reshape(len(products), -1))


def _add_at(sums: Array | list[Array], rows: Rows, addends: Array) -> None:
    """Add every row of addends (n, m) to the sums of m numbers that it belongs to, one after the other."""
    stacked = np.stack(sums) if isinstance(sums, list) else sums
    flat_places = rows[:, None] * addends.shape[1] + np.arange(addends.shape[1])
    np.add.at(stacked.reshape(-1), flat_places.ravel(), addends.ravel())
    if isinstance(sums, list):
        for total, of_bin in zip(sums, stacked, strict=True):
            total[...] = of_bin
