"""Chunked stores: Zarr, HDF5 and Dask arrays.  Their packages are optional and imported where they are used."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError, one_line, reading
from tpca.streams.protocol import Kind, Source
from tpca.streams.store_looks import (
    check_extent,
    guard_blosc,
    hdf5_datasets,
    listed,
    settled,
    zarr_arrays,
    zarr_arrays_in,
)

LONGEST = 2**53  # entries along an axis; far beyond them places do not fit into 64 bits
MAX_COMPRESSED = 2000  # times: the deflate of HDF5 can do 1032, and noise hardly 2
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def _package(name: str, extra: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise StreamError(f"reading {what} needs the {name} package; install tpca[{extra}].") from None


def _lengths(lengths: Any, least: int) -> tuple[int, ...]:
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
        self.shape = _lengths(array.shape, 0)
        self.dtype = np.dtype(array.dtype)
        self.chunks = _lengths(array.chunks, 1)
        self.shared = location is not None or "Memory" not in type(array.store).__name__
        self._array = array
        self._location = location

    def __reduce__(self) -> tuple[Any, ...]:
        if self._location is None:  # Zarr knows how to open its own stores again
            return (ZarrSource, (self._array, self.name))
        store, inner = self._location
        return (open_zarr, (_absolute(store), inner or None))

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        with settled():
            block = np.asarray(self._array[key])
        if self._location is not None and block.size:
            fill, last = self._array.fill_value, block[(-1,) * block.ndim]
            if fill is None or last == fill or last != last:  # looks as if it was never written
                _open_node(*self._location)  # raises if the store is gone: Zarr takes a lost chunk for an empty one
        return block


def open_zarr(store: str, inner: str | None) -> ZarrSource:
    """The Zarr array at a path or fsspec URL, or at ``inner`` in the group there."""
    name = repr(store if inner is None else f"{store}::{inner}")
    location = (store, (inner or "").strip("/"))
    with reading(f"cannot open {name} as a Zarr array", "check the path, or write it again"):
        try:
            node = _open_node(*location)
        except Exception as cause:  # the names differ between the versions of zarr-python
            if type(cause).__name__ not in ("GroupNotFoundError", "NodeNotFoundError", "PathNotFoundError"):
                raise
            raise StreamError(f"there is no Zarr array at {name}; check the path{_inside(store, inner)}.") from cause
        source = zarr_source(node, name, location)
        if os.path.isdir(store):
            check_extent(node, os.path.join(*location))
        guard_blosc(node)
        return source


def zarr_source(node: Any, name: str, location: tuple[str, str] | None = None) -> ZarrSource:
    """``node`` as a source if it is an array; a group is refused, with the names of its arrays."""
    with reading(f"cannot use {name}", "write it again"):
        if hasattr(node, "shape"):
            return ZarrSource(node, name, location)
        local = location is not None and os.path.isdir(location[0])
        arrays = listed(zarr_arrays_in(*location) if location and local else zarr_arrays(node))
    raise StreamError(f"{name} is a Zarr group; name one of its arrays, in a path after '::', such as {arrays}.")


def _absolute(place: str) -> str:
    """A path that means the same in a process that was started elsewhere; URLs do anyway."""
    return place if "://" in place else os.path.abspath(place)


def _open_node(store: str, inner: str) -> Any:
    with settled():
        return _package("zarr", "zarr", "Zarr").open(store, mode="r", path=inner or None)


def _inside(store: str, inner: str | None) -> str:
    """The arrays that there are instead of ``inner``, as the end of a sentence."""
    if inner is None:
        return ""
    try:
        arrays = zarr_arrays_in(store, "") if os.path.isdir(store) else zarr_arrays(_open_node(store, ""))
    except Exception:  # there is no group either: nothing to add to the message
        return ""
    return f"; the store holds {listed(arrays)}"


class Hdf5Source(Source):
    """An HDF5 dataset: of a file that is opened for every read, or one that the caller holds open."""

    kind: Kind = "hdf5"

    def __init__(self, dataset: Any, name: str, location: tuple[str, str] | None = None) -> None:
        self.name = name
        self.shape = _lengths(dataset.shape or (), 0)
        self.dtype = np.dtype(dataset.dtype)
        self.chunks = None if dataset.chunks is None else _lengths(dataset.chunks, 1)
        self._dataset: Any = None if location else dataset
        self._location = location

    def __reduce__(self) -> tuple[Any, ...]:
        path, inner = self._location or (self._dataset.file.filename, self._dataset.name)
        return (open_hdf5, (_absolute(path), inner))

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        if self._location is None:
            return np.asarray(self._dataset[key])
        path, inner = self._location
        with _open_file(path) as file:
            return np.asarray(file[inner][key])


def open_hdf5(path: str, inner: str | None) -> Hdf5Source:
    """The dataset ``inner`` of an HDF5 file; without it the only one with enough axes."""
    with reading(f"cannot open {path!r}", "write or copy it again"), _open_file(path) as file:
        if inner is not None and inner not in file:
            raise StreamError(f"{path!r} has no dataset '{inner}'; it holds {listed(hdf5_datasets(file, 0))}.")
        dataset = _the_dataset(file if inner is None else file[inner], path)
        _check_extent(dataset, os.path.getsize(path))
        return Hdf5Source(dataset, repr(f"{path}::{dataset.name}"), (path, dataset.name))


def _check_extent(dataset: Any, size: int) -> None:
    """Refuse a dataset that claims far more than its file holds: what was never written is read without an end."""
    claimed = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
    if claimed > MAX_COMPRESSED * size and not (dataset.is_virtual or dataset.external):
        raise ValueError(f"its shape {dataset.shape} has {claimed:.4g} bytes, and the file {size}")


def hdf5_source(node: Any) -> Hdf5Source:
    """An open h5py dataset, file or group as a source."""
    path = node.file.filename
    with reading(f"cannot use {path!r}", "write or copy it again"):
        dataset = _the_dataset(node, path)
        return Hdf5Source(dataset, repr(f"{path}::{dataset.name}"))


def _the_dataset(node: Any, path: str) -> Any:
    """``node`` if it is a dataset; in a group, the only one with enough axes."""
    if hasattr(node, "shape"):
        return node
    fit = hdf5_datasets(node, 3)
    if len(fit) == 1:
        return node[fit[0]]
    if fit:
        raise StreamError(f"{path!r} holds several datasets; name one after '::', such as {listed(fit)}.")
    others = listed(hdf5_datasets(node, 0))
    raise StreamError(f"{path!r} holds no dataset of at least 3 axes (n, d_1, ..., d_k); its datasets are {others}.")


@contextmanager
def _open_file(path: str) -> Iterator[Any]:
    h5py = _package("h5py", "hdf5", "HDF5")
    if not os.path.exists(path):
        raise StreamError(f"no such file or folder: {path!r}.")
    try:
        file = h5py.File(path, "r")
    except OSError as cause:
        with open(path, "rb") as raw:
            start = raw.read(len(HDF5_SIGNATURE))
        if start == HDF5_SIGNATURE:
            raise StreamError(f"cannot open {path!r}: {one_line(cause)}; write or copy it again.") from cause
        what = "is empty (0 bytes)" if not start else "is not an HDF5 file: it starts with other bytes"
        raise StreamError(f"{path!r} {what}; write it with h5py.") from cause
    with file:
        yield file


class DaskSource(Source):
    """A Dask array; whatever scheduler is active computes its chunks."""

    kind: Kind = "dask"
    name = "the Dask array"

    def __init__(self, array: Any) -> None:
        if any(np.isnan(length) for length in array.shape):
            raise StreamError(
                f"the Dask array has unknown lengths {array.shape}; call its compute_chunk_sizes() first."
            )
        self.shape = tuple(int(length) for length in array.shape)
        self.dtype = np.dtype(array.dtype)
        self.chunks = tuple(array.chunksize)
        self.edges = np.concatenate([[0], np.cumsum(array.chunks[0])])
        self._array = array

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
