"""Memory for batches that is used again: fresh memory costs page faults, which take as long as reading from a cache.

A batch that was read holds a :class:`Lease` through its array and all views of it; when the last of them is gone, the
memory goes back, and the next batch is read into it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_IDLE = 17  # pieces that wait at most: as many as can be in flight


class Lease:
    """Some memory, until nobody has it any more."""

    def __init__(self, memory: NDArray[Any], idle: deque[NDArray[Any]]) -> None:
        self._memory, self._idle = memory, idle
        # NumPy's way to hand over memory: arrays made of this hold this object, and so do all views of them.
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._idle.append(self._memory)


class Leases:
    """Memory for arrays of one size at a time; what is not in use is kept, at most for the last size asked for."""

    def __init__(self) -> None:
        self._idle: deque[NDArray[Any]] = deque(maxlen=MAX_IDLE)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Leases, ())  # memory stays in its process

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of this shape with anything in it."""
        nbytes = math.prod(shape) * dtype.itemsize
        memory = self._memory(nbytes)
        return np.asarray(Lease(memory, self._idle))[:nbytes].view(dtype).reshape(shape)

    def _memory(self, nbytes: int) -> NDArray[Any]:
        """At least so many bytes, not twice as many; what does not fit is let go."""
        while True:
            try:
                memory = self._idle.pop()  # the one that was used last is still in the processor's cache
            except IndexError:
                return np.empty(nbytes, np.uint8)
            if nbytes <= memory.nbytes <= 2 * nbytes:
                return memory
