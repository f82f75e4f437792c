"""Memory: what was asked for, in bytes; sensible defaults; what some arrays really hold."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from numbers import Real

from tpca.errors import SolverError
from tpca.tensors.blocks import Array

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
SHARE_OF_MACHINE = 0.1
SAMPLES_WORTH = 4.0
MIN_BYTES = 10**6


def parse_memory(memory: str | float) -> int:
    """Bytes of ``"64MB"``, ``"1.5GiB"`` or a plain number of bytes."""
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", memory)
        if match is None or match[2].upper() not in UNITS:
            raise SolverError(
                f"memory_limit must be a number of bytes or text like '64MB' or '1.5GiB', got {memory!r}."
            )
        memory = float(match[1]) * UNITS[match[2].upper()]
    if isinstance(memory, bool) or not isinstance(memory, Real):
        raise SolverError(f"memory_limit must be a number of bytes or text like '64MB' or '1.5GiB', got {memory!r}.")
    if not (math.isfinite(memory) and memory > 0):
        raise SolverError(f"memory_limit must be positive and finite, got {memory}.")
    return int(memory)


def budget(limit: str | float | None) -> int:
    """Bytes that may be held: what was asked for, or a tenth of this machine's memory."""
    return int(SHARE_OF_MACHINE * machine_memory()) if limit is None else parse_memory(limit)


def default_memory(dims: Sequence[int]) -> int:
    """The smaller of a tenth of this machine's memory and four samples' size in float64, but at least 1 MB.

    Beyond four samples a method that holds the mean of all samples would be the better choice.
    """
    sample = 8 * math.prod(dims)
    return int(min(SHARE_OF_MACHINE * machine_memory(), max(MIN_BYTES, SAMPLES_WORTH * sample)))


def machine_memory() -> float:
    """Physical memory of this machine in bytes; 4 GB where it cannot be asked."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 4e9


def held_bytes(arrays: Sequence[Array]) -> int:
    """Bytes behind some arrays, views of one array counted once."""
    roots = {id(root): root.nbytes for root in (a if a.base is None else a.base for a in arrays)}
    return sum(roots.values())
