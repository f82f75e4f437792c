r"""Rows added to a sum in place, where both may be parts of larger arrays: ``gemv`` of BLAS, called by its address.

SciPy's wrapper of it would first copy rows that are not neighbours in memory, and holds the interpreter's lock.  It
publishes the addresses as well, for compiled code (:mod:`scipy.linalg.cython_blas`).

Short sub-batches of large samples, on two cores: each adds up one half of the entries.

A half is half of the rows of an unfolding, which goes through all sub-batches of a batch by itself: samples are added,
and wherever a sub-batch ends it is contracted with the few vectors asked about (:mod:`tpca.tensors.gradients`).  The
halves are the same however many cores there are (:func:`tpca.threads.share`), and so is what comes out.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

from tpca.tensors.blocks import Array
from tpca.tensors.contraction import FewReplicas
from tpca.threads import share

LETTERS: dict[Any, tuple[str, Any]] = {
    np.dtype(np.float32): ("s", ctypes.c_float),
    np.dtype(np.float64): ("d", ctypes.c_double),
}
ARGUMENTS = 11  # all of them pointers
COUNTED = 2**31  # what an integer of the usual size does not hold
LONG = 2**20  # entries, from which rows are worth a second thread
COLUMNS = 2**19  # of a piece, at most: narrow ones are read more slowly, and sums of wide ones leave the cache
# Entries of rows that are added a few at a time.  BLAS takes four rows at once, and goes on to the next four after some
# thousand entries; where there are no others it reads four long rows from end to end, a sixth faster.
STREAMED = 2**17
UNROLLED_ROWS = (4, 2, 1)  # rows that it has a loop for
MANY = 256  # rows of any length, at most


def add_rows(total: NDArray[Any], rows: NDArray[Any], weight: float, fresh: bool = False) -> None:
    """``total += weight * sum of rows``, in place; ``total`` (m,) and every one of ``rows`` (k, m) contiguous.

    With ``fresh``, ``=`` instead, whatever was in ``total``.
    """
    adder(total, rows, weight, fresh)(0, len(rows))


def adder(total: NDArray[Any], rows: NDArray[Any], weight: float, fresh: bool = False) -> Callable[[int, int], None]:
    """The same for rows ``start`` to ``stop``, some after the others: what all of them need is made ready once."""
    count, entries = rows.shape
    ready = _gemv(total.dtype)
    apart = rows.strides[0] // rows.itemsize if count > 1 else entries
    if ready is None or apart >= COUNTED or not rows.size:
        return functools.partial(_add_slowly, total, rows, weight, fresh)
    if entries <= COLUMNS:
        return ready(total, rows, apart, weight, fresh)
    step = -(-entries // -(-entries // COLUMNS))
    pieces = [slice(first, first + step) for first in range(0, entries, step)]
    adders = [ready(total[some], rows[:, some], apart, weight, fresh) for some in pieces]

    def add(start: int, stop: int) -> None:
        for one in adders:
            one(start, stop)

    return add


def _add_slowly(total: NDArray[Any], rows: NDArray[Any], weight: float, fresh: bool, start: int, stop: int) -> None:
    some = rows[start:stop]
    total[...] = np.full(len(some), weight, total.dtype) @ some + (0 if fresh and start == 0 else total)


def add_in_pieces(total: NDArray[Any], rows: NDArray[Any], weight: float, fresh: bool = False) -> None:
    """The same, some columns at a time, which two threads may share; the pieces are the same for one."""
    step = min(COLUMNS, -(-len(total) // 2))
    pieces = [slice(first, first + step) for first in range(0, len(total), step)]
    share(lambda some: add_rows(total[some], rows[:, some], weight, fresh), pieces)


def portions(count: int, entries: int) -> list[int]:
    """How many rows of so many entries are added at a time, ``count`` in all."""
    if entries < STREAMED:
        return [MANY] * (count // MANY) + [count % MANY] * (count % MANY > 0)
    most, *fewer = UNROLLED_ROWS
    return [most] * (count // most) + [few for few in fewer if count % most & few]


@functools.cache
def _gemv(dtype: np.dtype[Any]) -> Callable[..., Callable[[int, int], None]] | None:
    """Its product for one dtype, made ready; ``None`` where there is none with integers of the usual size."""
    letter, real = LETTERS.get(dtype, ("", None))
    routine = _routine(f"{letter}gemv")
    if real is None or routine is None:
        return None
    to = ctypes.byref
    no, one, ones = to(ctypes.c_char(b"N")), to(ctypes.c_int(1)), to((real * MANY)(*[1] * MANY))

    def ready(
        total: NDArray[Any], rows: NDArray[Any], apart: int, weight: float, fresh: bool
    ) -> Callable[[int, int], None]:
        n, beta, entries, bytes_apart = ctypes.c_int(), real(not fresh), rows.shape[1], apart * dtype.itemsize
        before, address = (no, to(ctypes.c_int(entries)), to(n), to(real(weight))), rows.ctypes.data
        after = (to(ctypes.c_int(apart)), ones, one, to(beta), total.ctypes.data, one)

        def add(start: int, stop: int, held: Any = (total, rows)) -> None:  # noqa: ARG001
            place = address + start * bytes_apart  # often of a single row: what goes before the product is kept short
            for n.value in portions(stop - start, entries):
                routine(*before, place, *after)
                beta.value = 1
                place += n.value * bytes_apart

        return add

    return ready


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


LARGE = 2**17  # entries of samples that are cut, whether there is one of them or many: sums do not depend on that
SHARED = 2**20  # entries of all samples together that another thread is woken for: reading them takes some 0.2 ms


class Cut(NamedTuple):
    """Samples ``start`` to ``stop`` of a batch, of one ``sub_batch``, and whether they end it."""

    sub_batch: int
    start: int
    stop: int
    ends: bool


def add_in_halves(
    total: NDArray[Any], samples: NDArray[Any], weight: float, cuts: Sequence[Cut], few: FewReplicas
) -> list[dict[int, Array]]:
    """Add ``weight`` times the samples to ``total``, in place; of every query the gradients where sub-batches end."""
    matrix, each = total.reshape(few.rows, -1), samples.reshape(len(samples), few.rows, -1)
    looks = few.looks(sum(cut.ends for cut in cuts))

    def work(number: int) -> None:
        rows, moment = looks.halves[number], 0
        half = matrix[rows]
        add = adder(half.reshape(-1), each[:, rows].reshape(len(each), half.size), weight)
        for cut in cuts:
            add(cut.start, cut.stop)
            if cut.ends:
                looks.take(number, moment, half)
                moment += 1

    share(work, range(len(looks.halves)), worth=samples.size >= SHARED)
    return looks.gradients()
