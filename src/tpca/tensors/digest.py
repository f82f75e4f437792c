"""Digests: whether samples are those that were read before, without keeping them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ENTRIES = 2**20  # entries of an array that are all looked at: 4 ms
RUN = 16  # neighbours that are looked at together: one comes from memory with those next to it


def digest(arrays: Iterable[NDArray[Any]], most: int = MAX_ENTRIES) -> str:
    """Of dtypes, shapes and entries; of an array with more than ``most``, of about so many, in runs spread over it."""
    found = hashlib.sha256()
    for array in arrays:
        flat = array.reshape(-1)
        if flat.size > max(most, RUN):
            step = -(-flat.size // most) | 1  # odd, so that runs do not begin in one column only
            flat = flat[: flat.size // RUN * RUN].reshape(-1, RUN)[::step]
        found.update(f"{array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(flat).tobytes())
    return found.hexdigest()[:16]
