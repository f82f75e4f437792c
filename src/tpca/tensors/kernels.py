r"""Sums of rows, added up in place by one or two threads: ``gemv`` of BLAS, called by its address.

SciPy's own wrapper copies rows that are parts of longer ones, and holds the interpreter's lock, so that a second thread
would wait.  NumPy's product makes a sum of its own first, which takes a third longer (25 samples of 32⁴).  SciPy
publishes the addresses for compiled code (:mod:`scipy.linalg.cython_blas`).
"""

from __future__ import annotations

import ctypes
import functools
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
SHARED = 2**20  # entries of rows that another thread is woken for: reading them takes some 0.2 ms
WIDE = 2**12  # columns that are read in pieces: of narrow rows, pieces are read more slowly than the whole
COLUMNS = 2**19  # of a piece, at most: the sum of a wider one leaves the cache
# Rows of so many entries are added four at a time.  BLAS takes four rows at once, and goes on to the next four after
# some thousand entries; where there are no others it reads four long rows from end to end, a quarter faster.
STREAMED, FOUR = 2**17, 4


def add_rows(total: NDArray[Any], rows: NDArray[Any]) -> None:
    """``total += rows.sum(axis=0)``, in place; ``total`` (m,) and each of ``rows`` (k, m) contiguous.

    Some columns at a time, which two threads may share; the pieces, and so the bits, are the same for one.
    """
    much = rows.size >= SHARED and len(total) >= WIDE
    step = min(COLUMNS, -(-len(total) // 2)) if much else max(1, len(total))
    pieces = [slice(first, first + step) for first in range(0, len(total), step)]
    share(lambda some: _add(total[some], rows[:, some]), pieces)


def _add(total: NDArray[Any], rows: NDArray[Any]) -> None:
    letter, real = LETTERS.get(total.dtype, ("", ctypes.c_float))
    gemv = _routine(f"{letter}gemv")
    count, columns = rows.shape
    apart = rows.strides[0] // rows.itemsize if count > 1 else columns
    if gemv is None or rows.dtype != total.dtype or max(count, columns, apart) >= COUNTED:
        total += rows.sum(axis=0)
        return
    step = FOUR if columns >= STREAMED else max(1, count)
    m, n, lda, one = (ctypes.c_int(number) for number in (columns, step, apart, 1))
    letter_n, unit, ones = ctypes.c_char(b"N"), real(1.0), np.ones(step, total.dtype)
    to = ctypes.byref
    for first in range(0, count, step):
        n.value = min(step, count - first)
        place = rows.ctypes.data + first * rows.strides[0]
        vectors = ones.ctypes.data, to(one), to(unit), total.ctypes.data, to(one)
        gemv(to(letter_n), to(m), to(n), to(unit), place, to(lda), *vectors)


@functools.cache
def _routine(name: str) -> Any:
    """A routine by its address; ``None`` where there is none with integers of the usual size.

    The signature, which is the name of the address, says what it takes.
    """
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
