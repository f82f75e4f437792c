"""Rows added to a sum in place, where both may be parts of larger arrays: ``gemv`` of BLAS, called by its address.

SciPy's wrapper of it would first copy rows that are not neighbours in memory.  It publishes the addresses as well, for
compiled code (:mod:`scipy.linalg.cython_blas`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

LETTERS: dict[Any, tuple[str, Any]] = {
    np.dtype(np.float32): ("s", ctypes.c_float),
    np.dtype(np.float64): ("d", ctypes.c_double),
}
ARGUMENTS = 11  # all of them pointers
COUNTED = 2**31  # what an integer of the usual size does not hold


def add_rows(total: NDArray[Any], rows: NDArray[Any], weight: float) -> None:
    """``total += weight * sum of rows``, in place; ``total`` (m,) and every one of ``rows`` (k, m) contiguous."""
    count, entries = rows.shape
    gemv = _gemv(total.dtype)
    apart = rows.strides[0] // rows.itemsize if count > 1 else entries
    if gemv is None or apart >= COUNTED or not rows.size:
        total += np.full(count, weight, total.dtype) @ rows
        return
    gemv(entries, count, apart, weight, rows, np.ones(count, total.dtype), total)


@functools.cache
def _gemv(dtype: np.dtype[Any]) -> Callable[..., None] | None:
    """Its product for one dtype; ``None`` where there is none with integers of the usual size."""
    letter, real = LETTERS.get(dtype, ("", None))
    routine = _routine(f"{letter}gemv")
    if real is None or routine is None:
        return None
    no, one, unit = ctypes.c_char(b"N"), ctypes.c_int(1), real(1.0)

    def product(m: int, n: int, lda: int, weight: float, a: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> None:
        given = (no, ctypes.c_int(m), ctypes.c_int(n), real(weight), a, ctypes.c_int(lda), x, one, unit, y, one)
        routine(*(g.ctypes.data if isinstance(g, np.ndarray) else ctypes.addressof(g) for g in given))

    return product


def _routine(name: str) -> Any:
    """A routine by its address; the signature, which is the name of the address, says what it takes."""
    capsule = getattr(cython_blas, "__pyx_capi__", {}).get(name)
    if capsule is None:
        return None
    named, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature: bytes = named(capsule)
    if signature.count(b"*") != ARGUMENTS or signature.count(b" int *") != 5:
        return None
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * ARGUMENTS)(address(capsule, signature))
