"""Eigenvectors of small symmetric matrices, by LAPACK's routines as they are.

``numpy.linalg.eigh`` works in double precision whatever it is given, and ``scipy.linalg.eigh`` takes longer to choose a
routine than that takes for a matrix of a dozen rows.  Here single precision stays what it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyevd, dsyevr, ssyevd, ssyevr

Matrix = NDArray[Any]  # float32 or float64


def all_eigenvectors(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues of a symmetric matrix, the smallest first, and their vectors as columns."""
    values, axes, failed = (ssyevd if matrix.dtype == np.float32 else dsyevd)(matrix.T)
    _check(failed)
    return values, axes


def top_eigenvectors(matrix: Matrix, count: int) -> Matrix:
    """The leading eigenvectors of a symmetric matrix, as rows, the first one first; ``matrix`` is used up."""
    size = len(matrix)
    first = size - min(count, size) + 1
    routine = ssyevr if matrix.dtype == np.float32 else dsyevr
    _, axes, found, _, failed = routine(matrix.T, range="I", il=first, iu=size, overwrite_a=1)
    _check(failed)
    rows: Matrix = axes[:, :found].T[::-1]
    return rows


def _check(failed: int) -> None:
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK found no eigenvectors ({failed}).")
