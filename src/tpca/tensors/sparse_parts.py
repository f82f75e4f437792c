"""Sparse samples as they are given: coordinates, values and shape of each, which must fit together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError

Indices = NDArray[np.intp]


def scipy_parts(matrix: Any, j: int) -> tuple[Any, Any, Any]:
    """Coordinates, values and shape of a ``scipy.sparse`` matrix."""
    if not hasattr(matrix, "tocoo") or len(matrix.shape) != 2:
        raise SampleError(
            f"samples must be scipy.sparse matrices of order 2, got {_described(matrix)} at sample {j}; "
            "give other sparse samples to SparseBatch.from_coo."
        )
    coo = matrix.tocoo()
    return (coo.row, coo.col), coo.data, matrix.shape


def coo_parts(item: Any, j: int) -> tuple[Any, Any, Any]:
    """Coordinates, values and shape of a sample in coordinate form."""
    if isinstance(item, tuple) and len(item) == 3:
        return item
    if not all(hasattr(item, name) for name in ("coords", "data", "shape")):
        raise SampleError(
            f"samples must have coords, data and shape, got {_described(item)} at sample {j}; "
            "give sparse.COO arrays or tuples (coords, values, shape)."
        )
    fill = getattr(item, "fill_value", 0)
    if fill != 0:
        raise SampleError(
            f"entries that are not stored must be 0, got fill_value {fill} at sample {j}; subtract it first."
        )
    return item.coords, item.data, item.shape


def _described(item: Any) -> str:
    shape = getattr(item, "shape", None)
    return type(item).__name__ if shape is None else f"{type(item).__name__} of shape {shape}"


def checked_parts(coords: Any, values: Any, shape: Any, j: int) -> tuple[Indices, NDArray[Any], tuple[int, ...]]:
    """Return the parts of sample ``j`` as arrays that fit together, or refuse them."""
    dims, places, entries = tuple(int(d) for d in shape), np.asarray(coords), np.asarray(values)
    if len(dims) < 2:
        raise SampleError(f"samples must have at least 2 modes, got shape {dims} at sample {j}; vectors are averaged.")
    if entries.dtype.kind not in "fiub":
        raise SampleError(
            f"samples must be real numbers, got dtype {entries.dtype} at sample {j}; convert them to float first."
        )
    if entries.ndim != 1 or places.shape != (len(dims), entries.size):
        raise SampleError(
            f"coords must have shape (modes, entries) = ({len(dims)}, {entries.size}), got {places.shape} with "
            f"values of shape {entries.shape} at sample {j}; give one column of coords per value."
        )
    if places.dtype.kind not in "iu" and places.size:
        raise SampleError(f"coords must be integers, got dtype {places.dtype} at sample {j}; convert them first.")
    outside = (places < 0) | (places >= np.array(dims)[:, None])
    if outside.any():
        worst = tuple(int(c) for c in places[:, int(np.argmax(outside.any(axis=0)))])
        raise SampleError(
            f"coords must lie inside shape {dims}, got {worst} at sample {j}; count from 0, or give a larger shape."
        )
    if not np.isfinite(entries).all():
        raise SampleError(f"sample {j} contains NaN or Inf; clean it, or leave such entries out.")
    wide = entries.dtype.itemsize > 4 or (entries.dtype.kind != "f" and entries.dtype.itemsize == 4)
    return places.astype(np.intp), entries.astype(np.float64 if wide else np.float32), dims
