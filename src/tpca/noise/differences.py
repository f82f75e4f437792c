"""Differences of samples: their size, Gram matrices and kurtoses, on the host or on the device of the samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors import DenseBatch
from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import cast, entries, namespace, permuted, rows_of, to_device, to_host

Gram = NDArray[np.float32]  # single precision: memory is strategies', and 1e-7 is nothing to chance
FEW = 4  # matrices that are multiplied one by one: for more of them a copy in another order is cheaper


def kurtoses(evens: DenseBatch, odds: DenseBatch) -> tuple[float, int]:
    """The kurtoses of what both samples of every pair have, each times how many entries these are, and how many."""
    first, second, one, other = _amounts(evens), _amounts(odds), _wide(evens.samples), _wide(odds.samples)
    xp, count = namespace(one), len(evens)
    scale = xp.sqrt(first * second * (first + second))
    there = scale > 0
    y = xp.where(there, second * one - first * other, 0.0) / xp.where(there, scale, 1.0)
    y, amounts = xp.reshape(y, (count, -1)), xp.reshape(cast(there, y.dtype), (count, -1))
    largest = xp.max(xp.abs(y), axis=1)
    squares = xp.square(y / xp.where(largest > 0, largest, 1.0)[:, None])
    found = [largest, xp.sum(amounts, axis=1), xp.sum(squares, axis=1), xp.sum(xp.square(squares), axis=1)]
    size, counts, second_powers, fourth_powers = (to_host(numbers).astype(np.float64) for numbers in found)
    good = (size > 0) & np.isfinite(size)
    each = (counts[good] + 2) * fourth_powers[good] / second_powers[good] ** 2
    return float(each @ counts[good]), int(counts[good].sum())


def _wide(array: Any) -> Any:
    """In float64, of the host."""
    return array.astype(np.float64, copy=False) if isinstance(array, np.ndarray) else array


def _amounts(batch: DenseBatch) -> Any:
    """How much every entry counts."""
    wide = _wide(batch.samples)
    return namespace(wide).ones_like(wide) if batch.exposure is None else cast(batch.exposure, wide.dtype)


def unit_size(odd: Any, even: Any, shares: tuple[Array, Array] | None = None) -> tuple[Any, NDArray[np.int64] | None]:
    """Differences of root mean square one, without those that are zero or beyond all floats, and which these are.

    ``None``: all of them.  ``shares`` of odd and even samples, where these hold unequal ones of the signal:
    s_even·T_odd - s_odd·T_even has none of it.
    """
    if shares is not None:
        of_odd, of_even = (own.reshape(-1, *[1] * (odd.ndim - 1)).astype(odd.dtype) for own in shares)
        odd, even = of_even * odd, of_odd * even
    differences, places = _difference(odd, even), None
    xp, axes = namespace(differences), tuple(range(1, differences.ndim))
    if not differences.shape[0]:
        return differences, None
    extremes = xp.max(differences, axis=axes), -xp.min(differences, axis=axes)
    largest = np.maximum(*(to_host(one) for one in extremes)).astype(np.float64)
    good = (largest > 0) & np.isfinite(largest)
    if not good.all():
        places = np.flatnonzero(good)
        differences, largest = rows_of(differences, places), largest[good]
    if not np.all((largest > 1e-10) & (largest < 1e10)):  # first: squares would leave the range
        differences /= to_device(largest.reshape(-1, *[1] * len(axes)), differences)
    if differences.shape[0]:
        differences /= rms(differences)
    return differences, places


def every_other(differences: Any, places: NDArray[np.int64] | None, first: int) -> Any:
    """Those of some differences, which have ``places`` among all, whose places are ``first``, ``first`` + 2, ..."""
    return differences[first::2, ...] if places is None else rows_of(differences, np.flatnonzero(places % 2 == first))


def _difference(odd: Any, even: Any) -> Any:
    if not isinstance(odd, np.ndarray):
        return odd - even
    kind = np.float32 if odd.dtype == even.dtype == np.float32 else np.float64
    with np.errstate(over="ignore"):
        return np.subtract(odd, even, dtype=kind, order="C")


def rms(arrays: Any) -> Any:
    """Root mean square of all entries of each array, along the first axis of what these have."""
    xp = namespace(arrays)
    flat = xp.reshape(arrays, (arrays.shape[0], -1))
    squares = xp.matmul(flat[:, None, :], flat[:, :, None])[:, 0, 0] / flat.shape[1]
    return xp.reshape(xp.sqrt(squares), (-1, *[1] * (arrays.ndim - 1)))


def mean_fourth(arrays: Any) -> float:
    """The sum over arrays of the mean fourth power of their entries."""
    xp = namespace(arrays)
    squares = xp.reshape(xp.square(arrays), (-1,))
    size: int = entries(arrays) // arrays.shape[0]
    return float(to_host(squares @ squares)) / size


def gram(tensors: Any, mode: int) -> Gram:
    """The sum of the Gram matrices of a mode, of trace d for every tensor of mean square one."""
    xp, count, shape = namespace(tensors), tensors.shape[0], tensors.shape[1:]
    length, before = shape[mode], math.prod(shape[:mode])
    if mode == len(shape) - 1:
        rows = xp.reshape(tensors, (-1, length))
        product = rows.T @ rows
    elif count * before <= FEW:
        blocks = xp.reshape(tensors, (count * before, length, -1))
        product = xp.sum(xp.matmul(blocks, permuted(blocks, (0, 2, 1))), axis=0)
    else:
        rows = xp.reshape(xp.moveaxis(tensors, 1 + mode, 0), (length, -1))
        product = rows @ rows.T
    return np.asarray(to_host(product) * (length / math.prod(shape)), dtype=np.float32)
