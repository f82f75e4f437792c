"""Rows added to a sum in place, where both may be parts of larger arrays: ``gemv`` of BLAS, called by its address.

SciPy's wrapper of it would first copy rows that are not neighbours in memory, and holds the interpreter's lock.  It
publishes the addresses as well, for compiled code (:mod:`scipy.linalg.cython_blas`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

from tpca.threads import share

LETTERS: dict[Any, tuple[str, Any]] = {
    np.dtype(np.float32): ("s", ctypes.c_float),
    np.dtype(np.float64): ("d", ctypes.c_double),
}
ARGUMENTS = 11  # all of them pointers
COUNTED = 2**31  # what an integer of the usual size does not hold
LONG = 2**20  # entries, from which rows are worth a second thread
COLUMNS = 2**19  # of a piece, at most: narrow ones are read more slowly


def add_rows(total: NDArray[Any], rows: NDArray[Any], weight: float, fresh: bool = False) -> None:
    """``total += weight * sum of rows``, in place; ``total`` (m,) and every one of ``rows`` (k, m) contiguous.

    With ``fresh``, ``=`` instead, whatever was in ``total``.
    """
    count, entries = rows.shape
    gemv = _gemv(total.dtype)
    apart = rows.strides[0] // rows.itemsize if count > 1 else entries
    if gemv is None or apart >= COUNTED or not rows.size:
        total[...] = np.full(count, weight, total.dtype) @ rows + (0 if fresh else total)
        return
    gemv(entries, count, apart, weight, rows, np.ones(count, total.dtype), not fresh, total)


def add_in_pieces(total: NDArray[Any], rows: NDArray[Any], weight: float, fresh: bool = False) -> None:
    """The same, some columns at a time, which two threads may share; the pieces are the same for one."""
    step = min(COLUMNS, -(-len(total) // 2))
    pieces = [slice(first, first + step) for first in range(0, len(total), step)]
    share(lambda some: add_rows(total[some], rows[:, some], weight, fresh), pieces)


@functools.cache
def _gemv(dtype: np.dtype[Any]) -> Callable[..., None] | None:
    """Its product for one dtype; ``None`` where there is none with integers of the usual size."""
    letter, real = LETTERS.get(dtype, ("", None))
    routine = _routine(f"{letter}gemv")
    if real is None or routine is None:
        return None
    no, one = ctypes.c_char(b"N"), ctypes.c_int(1)

    def product(
        m: int, n: int, lda: int, weight: float, a: NDArray[Any], x: NDArray[Any], before: bool, y: NDArray[Any]
    ) -> None:
        sizes, factors = [ctypes.c_int(size) for size in (m, n, lda)], (real(weight), real(before))
        given = (no, *sizes[:2], factors[0], a, sizes[2], x, one, factors[1], y, one)
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
