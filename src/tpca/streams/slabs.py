"""Samples too large to be held: where to cut them, and how to read a piece."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.streams.checks import all_finite, to_floats
from tpca.streams.protocol import NanPolicy
from tpca.tensors.dense import missing


def cut(dims: tuple[int, ...], chunks: tuple[int, ...] | None, entries: int) -> tuple[int, list[slice]]:
    """The mode to cut, and its ranges: whole chunks, each slab of at most ``entries`` entries where that is possible.

    ``chunks`` are those of a sample (``None``: stored in one piece); the mode with the most of them is cut, so that
    a slab touches as few chunks in vain as can be.  Of one piece the first mode is cut, whose ranges are neighbours, or
    if a single place of that is too much, the next, or the longest.
    """
    total = math.prod(dims)
    mode, unit = next((n for n, d in enumerate(dims) if total // d <= entries), dims.index(max(dims))), 1
    if chunks is not None:
        counts = [-(-length // chunk) for length, chunk in zip(dims, chunks, strict=True)]
        mode = counts.index(max(counts))
        unit = chunks[mode]
    fits = entries // (total // dims[mode])
    step = max(unit, fits // unit * unit)
    return mode, [slice(a, min(a + step, dims[mode])) for a in range(0, dims[mode], step)]


class SlabReader:
    """Reads ranges of one mode of single samples, cleaned: missing entries are refused, or read as 0."""

    def __init__(self, read: Callable[[tuple[slice, ...]], NDArray[Any]], mode: int, policy: NanPolicy) -> None:
        self._read, self._mode, self._policy = read, mode, policy

    def __call__(self, index: int, part: slice) -> NDArray[Any]:
        """The range ``part`` of the mode, of sample ``index``."""
        slab = self._slab(index, part)
        if all_finite(slab):
            return slab
        if self._policy != "zero":
            raise missing(index)
        return np.where(np.isfinite(slab), slab, slab.dtype.type(0))

    def observed(self, index: int, part: slice) -> NDArray[Any]:
        """Ones where there are entries in that range, and zeros where they are missing."""
        there: NDArray[Any] = np.isfinite(self._slab(index, part)).astype(np.float64)
        return there

    def scan(self, index: int, parts: list[slice]) -> bool:
        """Whether the sample is to be kept.  Reads all of it, slab by slab."""
        slabs = (self._slab(index, part) for part in parts)
        if self._policy == "omit":
            return all(all_finite(slab) for slab in slabs)
        return any(bool(np.isfinite(slab).any()) for slab in slabs)

    def _slab(self, index: int, part: slice) -> NDArray[Any]:
        key = (slice(index, index + 1), *[slice(None)] * self._mode, part)
        slab: NDArray[Any] = to_floats(self._read(key))[0]
        return slab
