"""Arrays in memory."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tpca.labels import Axis
from tpca.streams.protocol import Kind, Source


class ArraySource(Source):
    """An array in memory."""

    kind: Kind = "array"
    shared = False

    def __init__(self, array: NDArray[Any], axes: tuple[Axis, ...] = (), name: str = "the array") -> None:
        self.shape, self.dtype, self.axes, self.name = array.shape, array.dtype, axes, name
        self._array = array

    def transposed(self, order: tuple[int, ...]) -> ArraySource:
        """A view of the same array."""
        axes = tuple(self.axes[i] for i in order) if self.axes else ()
        return ArraySource(self._array.transpose(order), axes, self.name)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """A view of the entries."""
        return self._array[key]
