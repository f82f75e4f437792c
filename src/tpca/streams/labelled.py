"""Arrays of xarray: in memory, on Dask, or in a file that xarray has opened and reads when it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError
from tpca.labels import Axis, as_coords
from tpca.streams.protocol import ArraySource, Kind, Source
from tpca.streams.store_looks import listed
from tpca.streams.stores import DaskSource


def is_labelled(source: Any) -> bool:
    """Whether it is one of xarray's objects, which is told without importing it."""
    return type(source).__module__.partition(".")[0] == "xarray"


class LazySource(Source):
    """A DataArray whose entries are still in their file."""

    kind: Kind = "xarray"

    def __init__(self, array: Any, axes: tuple[Axis, ...]) -> None:
        self.name, self.shape, self.dtype, self.axes = _name(array), tuple(array.shape), np.dtype(array.dtype), axes
        chunks = array.encoding.get("preferred_chunks") or {}
        lengths = tuple(int(chunks.get(dim, length)) for dim, length in zip(array.dims, array.shape, strict=True))
        self.chunks = lengths if chunks else None
        self._array = array

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        return np.asarray(self._array[key].values)


def labelled_source(array: Any) -> Source:
    """A DataArray, or the only variable of a Dataset."""
    if type(array).__name__ == "Dataset":
        names = list(map(str, array.data_vars))
        if len(names) != 1:
            raise StreamError(f"a Dataset of {len(names)} variables was given; give one, such as {listed(names)}.")
        array = array[names[0]]
    if type(array).__name__ not in ("DataArray", "Variable"):
        raise StreamError(f"of xarray, a DataArray is read, got {type(array).__name__}; give one variable.")
    axes = tuple(Axis(str(dim), _coords(array, dim)) for dim in array.dims)
    variable = array if type(array).__name__ == "Variable" else array.variable
    if variable.chunks is not None:
        return DaskSource(variable.data, axes)
    if variable._in_memory:  # xarray has no public way to ask; to look at the data would load them
        return ArraySource(variable.to_numpy(), axes, _name(array))
    return LazySource(array, axes)


def _coords(array: Any, dim: Any) -> NDArray[Any] | None:
    """The coordinate that goes along an axis under the same name."""
    return as_coords(array[dim].values) if type(array).__name__ == "DataArray" and dim in array.coords else None


def _name(array: Any) -> str:
    named = None if type(array).__name__ == "Variable" else array.name
    return "the DataArray" if named is None else f"the DataArray {str(named)!r}"
