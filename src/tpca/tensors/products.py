"""Products in the form that BLAS is quickest at: of replicas' rows with an unfolded tensor, of rows with themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.threads import share

HALVED = 2**24  # multiplications that are done in two halves: a third of a millisecond, many times waking a thread
FITTED = 2**22  # multiplications that are worth some care: a tenth of a millisecond
FOUR = 4  # rows that BLAS multiplies at once
FEW = 10**6  # multiplications of a product that BLAS has a loop for which copies nothing first
FEW_ROWS = 32  # whose products are all made sooner than one half of them


def multiply(rows: Any, matrix: Any) -> Any:
    """``rows @ matrix``; of a large one on the host the two halves of its columns at once.

    BLAS takes four rows at a time.  A transposed ``matrix`` it would rather multiply as it lies in memory, from the
    left: that gives the transposed product, in a fifth less time, or in half of it where there are few rows.
    """
    much, columns = rows.size * matrix.shape[1], matrix.shape[1]
    if not isinstance(matrix, np.ndarray) or much < min(FITTED, HALVED) or len(rows) < FOUR:
        return rows @ matrix
    count, turned = len(rows), matrix.flags.f_contiguous
    if count % FOUR:
        rows = np.concatenate([rows, np.zeros((FOUR - count % FOUR, rows.shape[1]), rows.dtype)])
    product: NDArray[Any] = np.empty((len(rows), columns), matrix.dtype, order="F" if turned else "C")
    cut = columns // 2 if much >= HALVED else columns

    def part(some: slice) -> None:
        np.matmul(rows, matrix[:, some], out=product[:, some])

    share(part, [slice(first, first + cut) for first in range(0, columns, cut)])
    return np.ascontiguousarray(product[:count])


def gram_of(rows: NDArray[Any]) -> NDArray[Any]:
    """``rows @ rows.T`` of one matrix ``(d, n)``, or of each of some; small ones, and of few rows, in two parts.

    Of a matrix and itself NumPy has BLAS make one half only, which takes up to three times as long as its loop for
    small products takes for both.
    """
    turned, length = rows.swapaxes(-1, -2), rows.shape[-2]
    half = length // 2
    if not half or (length > FEW_ROWS and (length - half) * length * rows.shape[-1] > FEW):
        return np.asarray(rows @ turned)
    product: NDArray[Any] = np.empty((*rows.shape[:-1], length), rows.dtype)
    for some in (slice(half), slice(half, None)):
        np.matmul(rows, turned[..., some], out=product[..., some])
    return product
