"""Adding up the rows of a matrix, ``y += w A``, some columns at a time, which two threads may share.

BLAS is called as SciPy offers it to compiled code: unlike the functions of ``scipy.linalg.blas`` that lets other
threads go on meanwhile, and takes columns of a matrix without a copy.  Pieces are the same for any number of threads,
and so are the sums.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from numpy.typing import NDArray
from scipy.linalg import cython_blas

from tpca.threads import share

LONG = 2**20  # entries, from which a matrix is worth a second thread
COLUMNS = 2**19  # of a piece, at most: narrow ones are read more slowly


def add_rows(matrix: NDArray[Any], weights: NDArray[Any], sums: NDArray[Any], fresh: bool) -> None:
    """``sums += weights @ matrix`` in place, all of one type and contiguous; ``fresh``: ``=``, whatever there was."""
    rows, columns = matrix.shape
    step = min(COLUMNS, -(-columns // 2))
    blas, size = _gemv(matrix.dtype.char), matrix.itemsize
    real = ctypes.c_float if size == 4 else ctypes.c_double
    one, begin, next_ = real(1.0), real(0.0 if fresh else 1.0), ctypes.c_int(1)

    def add(first: int) -> None:
        shape = [ctypes.byref(ctypes.c_int(n)) for n in (min(step, columns - first), rows, columns)]
        own = matrix.ctypes.data + first * size, shape[2]
        to = sums.ctypes.data + first * size, ctypes.byref(next_)
        by = weights.ctypes.data, ctypes.byref(next_)
        blas(b"N", *shape[:2], ctypes.byref(one), *own, *by, ctypes.byref(begin), *to)

    share(add, range(0, columns, step))


@functools.cache
def _gemv(kind: str) -> Any:
    """``gemv`` for numbers of a kind, ``f`` or ``d``."""
    every = cython_blas.__pyx_capi__
    capsule = every["sgemv"] if kind == "f" else every["dgemv"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(pointer(capsule, name(capsule)))
