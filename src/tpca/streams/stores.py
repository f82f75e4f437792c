"""Chunked stores: Zarr and Dask arrays.  Their packages are optional and imported where they are used."""

from __future__ import annotations

import copy
import importlib
import operator
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError, StreamWarning, reading
from tpca.labels import Axis
from tpca.streams.conventions import named_axes, unpacked
from tpca.streams.protocol import Kind, Source
from tpca.streams.store_looks import listed, settled, zarr_arrays, zarr_arrays_in
from tpca.streams.trust import check_chunks, check_metadata, guard_codecs

LONGEST = 2**53  # entries along an axis; far beyond them places do not fit into 64 bits


def package(name: str, extra: str, what: str) -> Any:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise StreamError(f"{what} needs the {name} package; install tpca[{extra}].") from None


def stored_lengths(lengths: Any, least: int) -> tuple[int, ...]:
    """Lengths of axes or chunks as the metadata give them, which may be damaged."""
    found = tuple(operator.index(length) for length in lengths)
    if not all(least <= length <= LONGEST for length in found):
        raise ValueError(f"its metadata give the lengths {found}, and they go from {least} to {LONGEST:.0e}")
    return found


class ZarrSource(Source):
    """A Zarr array of format 2 or 3."""

    kind: Kind = "zarr"
    parallel = True

    def __init__(self, array: Any, name: str, location: tuple[str, str] | None = None) -> None:
        self.name = name
        self.shape = stored_lengths(array.shape, 0)
        self.dtype = np.dtype(array.dtype)
        self.chunks = stored_lengths(array.chunks, 1)
        self.shared = location is not None or "Memory" not in type(array.store).__name__
        self.axes = named_axes(_dimension_names(array), self.shape, lambda name: _beside(array, name))
        self.attributes = dict(array.attrs)
        self._array = array
        self._location = location

    def __reduce__(self) -> tuple[Any, ...]:
        if self._location is None:  # Zarr knows how to open its own stores again
            return (ZarrSource, (self._array, self.name))
        store, inner = self._location
        return (_zarr_at, (absolute(store), inner or None))

    def check_chunks(self) -> str:
        """Look at the files of a store in a folder, before any is read: once, where it is opened."""
        assert self._location is not None
        return check_chunks(self._array, *self._location, self.name)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        with settled():
            block = np.asarray(self._array[key])
        if self._location is not None and block.size:
            fill, last = self._array.fill_value, block[(-1,) * block.ndim]
            if fill is None or last == fill or last != last:  # looks as if it was never written
                _open_node(*self._location)  # raises if the store is gone: Zarr takes a lost chunk for an empty one
        return block


def _dimension_names(array: Any) -> Any:
    """Names of the axes: of Zarr 3 itself, or as xarray writes them into Zarr 2; ``None`` where there are none."""
    told: Mapping[str, Any] = array.metadata.to_dict()
    return told.get("dimension_names") or array.attrs.get("_ARRAY_DIMENSIONS")


def _beside(array: Any, name: str) -> tuple[Any, Mapping[str, Any]] | None:
    """The array of that name in the same group, and its attributes; ``None`` if there is none that can be read."""
    group = array.path.strip("/").rpartition("/")[0]
    try:
        node = package("zarr", "zarr", "reading Zarr").open(array.store, mode="r", path=f"{group}/{name}".strip("/"))
        return None if tuple(node.shape) == array.shape else (node, dict(node.attrs))
    except Exception:  # none of that name, a group, damaged metadata: entries go by their numbers
        return None


def open_zarr(store: str, inner: str | None) -> Source:
    """The Zarr array at a path or fsspec URL, or at ``inner`` in the group there, as its attributes say it is meant."""
    source = _zarr_at(store, inner)
    if os.path.isdir(store):
        with reading(f"cannot open {source.name} as a Zarr array", "check the path, or write it again"):
            missing = source.check_chunks()
        if missing:
            warnings.warn(missing, StreamWarning, stacklevel=2)
    return unpacked(source, source.attributes)


def _zarr_at(store: str, inner: str | None) -> ZarrSource:
    name = repr(store if inner is None else f"{store}::{inner}")
    location = (store, (inner or "").strip("/"))
    with reading(f"cannot open {name} as a Zarr array", "check the path, or write it again"):
        if os.path.isdir(store):
            check_metadata(*location)
        try:
            node = _open_node(*location)
        except Exception as cause:  # the names differ between the versions of zarr-python
            if type(cause).__name__ not in ("GroupNotFoundError", "NodeNotFoundError", "PathNotFoundError"):
                raise
            raise StreamError(f"there is no Zarr array at {name}; check the path{_inside(store, inner)}.") from cause
        source = _zarr_array(node, name, location)
        guard_codecs(node)
        return source


def zarr_source(node: Any, name: str) -> Source:
    """An open Zarr array as a source."""
    source = _zarr_array(node, name)
    return unpacked(source, source.attributes)


def _zarr_array(node: Any, name: str, location: tuple[str, str] | None = None) -> ZarrSource:
    """``node`` as a source if it is an array; a group is refused, with the names of its arrays."""
    with reading(f"cannot use {name}", "write it again"):
        if hasattr(node, "shape"):
            return ZarrSource(node, name, location)
        local = location is not None and os.path.isdir(location[0])
        arrays = listed(zarr_arrays_in(*location) if location and local else zarr_arrays(node))
    raise StreamError(f"{name} is a Zarr group; name one of its arrays, in a path after '::', such as {arrays}.")


def absolute(place: str) -> str:
    """A path that means the same in a process that was started elsewhere; URLs do anyway."""
    return place if "://" in place else os.path.abspath(place)


def _open_node(store: str, inner: str) -> Any:
    with settled():
        return package("zarr", "zarr", "reading Zarr").open(store, mode="r", path=inner or None)


def _inside(store: str, inner: str | None) -> str:
    """The arrays that there are instead of ``inner``, as the end of a sentence."""
    if inner is None:
        return ""
    try:
        arrays = zarr_arrays_in(store, "") if os.path.isdir(store) else zarr_arrays(_open_node(store, ""))
    except Exception:  # there is no group either: nothing to add to the message
        return ""
    return f"; the store holds {listed(arrays)}"


class DaskSource(Source):
    """A Dask array; whatever scheduler is active computes its chunks."""

    kind: Kind = "dask"
    name = "the Dask array"

    def __init__(self, array: Any, axes: tuple[Axis, ...] = ()) -> None:
        if any(np.isnan(length) for length in array.shape):
            raise StreamError(
                f"the Dask array has unknown lengths {array.shape}; call its compute_chunk_sizes() first."
            )
        self.shape = tuple(int(length) for length in array.shape)
        self.dtype = np.dtype(array.dtype)
        self.chunks = tuple(array.chunksize)
        self.edges = np.concatenate([[0], np.cumsum(array.chunks[0])])
        self.axes = axes
        self._array = array

    def transposed(self, order: tuple[int, ...]) -> DaskSource:
        """The same blocks, turned where they are."""
        axes = tuple(self.axes[i] for i in order) if self.axes else ()
        return DaskSource(self._array.transpose(order), axes)

    def part(self, start: int, stop: int) -> Any:
        """Some samples, as one block."""
        return self._array[start:stop].rechunk(-1)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes, computed."""
        return np.asarray(self._array[key].compute())


def without_array(source: Source) -> Source:
    """The source as a worker gets it: the blocks of a Dask array come by themselves."""
    if not isinstance(source, DaskSource):
        return source
    hollow = copy.copy(source)
    hollow._array = None
    return hollow
