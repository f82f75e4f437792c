"""Memory that a worker frees stays with it, for the next batch.

Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``: glibc then gives every freed array of some size back to
the system at once, and for the next batch the system clears and maps as many pages again.  For a reader that frees one
batch after the other this is 40 % of all its seconds (benchmarks/dask_scaling.py).  So, in a worker with that setting,
up to ``KEPT`` bytes are kept instead.
"""

from __future__ import annotations

import ctypes
import functools
import os

DASK = "65536"
KEPT = 2**28
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


@functools.cache
def keep_freed_pages() -> bool:
    """Undo Dask's setting in this process, if it is in force and the C library lets us; whether it did."""
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != DASK:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 4 * KEPT)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
