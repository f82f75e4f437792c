"""What stores say of their arrays: names and coordinates of axes, packed numbers, missing values.

Zarr 3 has ``dimension_names``, xarray writes ``_ARRAY_DIMENSIONS`` into Zarr 2, HDF5 has dimension scales, and
NetCDF 4 is HDF5 with them.  An array of one axis that is called like an axis holds its coordinates.  The attributes
``scale_factor``, ``add_offset``, ``_FillValue`` and ``missing_value`` mean the same in all of them (CF conventions):
the value is ``scale_factor`` times what is stored plus ``add_offset``, and some stored values stand for missing ones.

Looks into stores, damaged ones among them: the arrays that there are.

Chunked stores: Zarr and Dask arrays.  Their packages are optional and imported where they are used.

HDF5 files, NetCDF 4 among them: h5py is optional and imported where it is used.

Arrays of xarray: in memory, on Dask, or in a file that xarray has opened and reads when it is asked.
"""

from __future__ import annotations

import base64
import copy
import importlib
import json
import math
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import ArraySource, Kind, Source, float_dtype
from tpca.data.trust import check_chunks, check_metadata, check_sources
from tpca.errors import StreamError, StreamWarning, one_line, reading
from tpca.labels import Axis, as_coords

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


class Unpacked(Source):
    """A source whose stored numbers stand for others: ``scale`` times them plus ``offset``; ``missing`` are NaN."""

    def __init__(self, source: Source, scale: float, offset: float, missing: Sequence[float]) -> None:
        self.kind, self.name, self.shape, self.shared = source.kind, source.name, source.shape, source.shared
        self.chunks, self.axes, self.parallel = source.chunks, source.axes, source.parallel
        self._source, self._scale, self._offset, self._missing = source, scale, offset, tuple(missing)
        packed = (scale, offset) != (1.0, 0.0)
        self.dtype = np.dtype(np.float64) if packed else float_dtype(source.dtype, f" in {source.name}")

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The numbers that are meant."""
        stored = self._source.read(key)
        block = stored.astype(self.dtype)
        for value in self._missing:
            block[stored == stored.dtype.type(value)] = np.nan
        if (self._scale, self._offset) != (1.0, 0.0):
            block *= self._scale
            block += self._offset
        return block


def unpacked(source: Source, attributes: Mapping[str, Any]) -> Source:
    """The source as its attributes say that it is meant."""
    if source.dtype.kind not in "fiu":
        return source
    usual = (1.0, 0.0, np.nan, np.nan)
    scale, offset, *found = (_one(attributes.get(name), other) for name, other in zip(PACKING, usual, strict=True))
    missing = sorted({value for value in found if not np.isnan(value) and _holds(source.dtype, value)})
    return source if (scale, offset) == (1.0, 0.0) and not missing else Unpacked(source, scale, offset, missing)


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a value can be among those stored."""
    return dtype.kind == "f" or (value == int(value) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def _one(value: Any, usual: float) -> float:
    """The one number of an attribute; xarray writes floats into Zarr 3 as base64."""
    if isinstance(value, str):
        try:
            value = np.frombuffer(base64.b64decode(value, validate=True), "<f8")
        except ValueError:
            return usual
    numbers: NDArray[Any] = np.asarray(usual if value is None else value)
    if numbers.size != 1 or numbers.dtype.kind not in "fiu":
        return usual
    return float(numbers.reshape(-1)[0])


def named_axes(
    names: Any, shape: tuple[int, ...], coordinate: Callable[[str], tuple[Any, Mapping[str, Any]] | None]
) -> tuple[Axis, ...]:
    """Axes from their names, with what ``coordinate`` finds of each: an array of one axis, and its attributes.

    ``names`` that do not fit the axes, as those of damaged metadata, are as good as none.
    """
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != len(shape):
        return ()
    axes = []
    for name, length in zip(names, shape, strict=True):
        told = name if isinstance(name, str) else ""
        found = coordinate(told) if told else None
        fits = found is not None and tuple(found[0].shape) == (length,)
        axes.append(Axis(told, decoded(found[0][:], found[1]) if found is not None and fits else None))
    return tuple(axes) if any(axis.name for axis in axes) else ()


def scaled_axes(dataset: Any) -> tuple[Axis, ...]:
    """Axes of an HDF5 dataset by its dimension scales."""
    axes = [_scaled_axis(dim, length) for dim, length in zip(dataset.dims, dataset.shape or (), strict=True)]
    return tuple(axes) if any(axis.name for axis in axes) else ()


def _scaled_axis(dim: Any, length: int) -> Axis:
    """One axis by its scale, the first if it has several."""
    if not len(dim):
        return Axis(dim.label)
    scale = dim[0]
    name = dim.label or str(scale.name or "").rpartition("/")[2]
    held = scale.shape == (length,) and not _is_only_a_length(scale)
    return Axis(name, decoded(scale[:], scale.attrs) if held else None)


def _is_only_a_length(scale: Any) -> bool:
    """Whether a scale holds no coordinates: NetCDF makes one for every axis, h5py one of zeros."""
    told = scale.attrs.get("NAME", b"")
    return (
        bytes(told).startswith(_NO_VARIABLE) if isinstance(told, bytes) else str(told).startswith(_NO_VARIABLE.decode())
    )


def decoded(values: Any, attributes: Mapping[str, Any]) -> NDArray[Any]:
    """Coordinates; numbers of days or seconds since a date become times, by xarray where that is installed."""
    coords = as_coords(values)
    told = {name: attributes.get(name) for name in ("units", "calendar")}
    words = {name: one.decode(errors="replace") if isinstance(one, bytes) else one for name, one in told.items() if one}
    if coords.dtype.kind not in "fiu" or " since " not in str(words.get("units")):
        return coords
    try:
        import xarray

        return np.asarray(xarray.decode_cf(xarray.Dataset({"t": ("t", coords, words)}))["t"].values)
    except Exception:  # not installed, or units and a calendar that it does not know: entries go by their numbers
        return coords


_LISTED = 12


def listed(paths: list[str]) -> str:
    """Some paths in quotes, and how many more there are."""
    shown = ", ".join(map(repr, sorted(paths)[:_LISTED]))
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return shown + more if paths else "(it has none)"


def zarr_arrays(group: Any) -> list[str]:
    """All arrays below a Zarr group."""
    return ["/" + path for path, node in group.members(max_depth=None) if hasattr(node, "shape")]


def zarr_arrays_in(store: str, inner: str) -> list[str]:
    """All arrays below a group in a folder, by their files: one with damaged metadata must not hide the others."""
    return ["/" + os.path.relpath(place, store).replace(os.sep, "/") for place in _array_folders(store, inner)]


def _array_folders(store: str, inner: str) -> Iterator[str]:
    for place, folders, files in os.walk(os.path.join(store, inner)):
        if ".zarray" in files or ("zarr.json" in files and _is_array(os.path.join(place, "zarr.json"))):
            folders.clear()  # only chunks
            yield place


def _is_array(path: str) -> bool:
    if not os.path.isfile(path):  # to read a pipe may take for ever
        return False
    try:
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["node_type"] == "array")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def hdf5_datasets(group: Any, least_axes: int) -> list[str]:
    """All datasets below an HDF5 group that have so many axes."""
    found: list[str] = []

    def visit(_: str, node: Any) -> None:
        if hasattr(node, "shape") and len(node.shape or ()) >= least_axes:
            found.append(node.name)

    group.visititems(visit)
    return found


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
        try:
            block = np.asarray(self._array[key])
        except Exception:
            if self._location is not None:
                self._array.store.settle()
            raise
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
        return None if tuple(node.shape) == array.shape else (_guarded(node), dict(node.attrs))
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
        return _zarr_array(node, name, location)


def zarr_source(node: Any, name: str) -> Source:
    """An open Zarr array as a source."""
    source = _zarr_array(node, name)
    return unpacked(source, source.attributes)


def _zarr_array(node: Any, name: str, location: tuple[str, str] | None = None) -> ZarrSource:
    """``node`` as a source if it is an array; a group is refused, with the names of its arrays."""
    by_hand = "" if location is None else ", or open it with zarr and give the array, if you trust it"
    with reading(f"cannot use {name}", f"write it again{by_hand}"):
        if hasattr(node, "shape"):
            return ZarrSource(node if location is None else _guarded(node), name, location)
        local = location is not None and os.path.isdir(location[0])
        arrays = listed(zarr_arrays_in(*location) if location and local else zarr_arrays(node))
    raise StreamError(f"{name} is a Zarr group; name one of its arrays, in a path after '::', such as {arrays}.")


def absolute(place: str) -> str:
    """A path that means the same in a process that was started elsewhere; URLs do anyway."""
    return place if "://" in place else os.path.abspath(place)


def _guarded(node: Any) -> Any:
    from tpca.data.codecs import guarded  # which imports zarr

    return guarded(node)


def _open_node(store: str, inner: str) -> Any:
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


MAX_COMPRESSED = 2000  # times: the deflate of HDF5 can do 1032, and noise hardly 2
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class Hdf5Source(Source):
    """An HDF5 dataset: of a file that is opened for every read, or one that the caller holds open."""

    kind: Kind = "hdf5"

    def __init__(self, dataset: Any, name: str, location: tuple[str, str] | None = None) -> None:
        self.name = name
        self.shape = stored_lengths(dataset.shape or (), 0)
        self.dtype = np.dtype(dataset.dtype)
        self.chunks = None if dataset.chunks is None else stored_lengths(dataset.chunks, 1)
        self.axes, self.attributes = scaled_axes(dataset), _packing(dataset)
        self._dataset: Any = None if location else dataset
        self._location = location

    def __reduce__(self) -> tuple[Any, ...]:
        path, inner = self._location or (self._dataset.file.filename, self._dataset.name)
        return (_hdf5_at, (absolute(path), inner))

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        if self._location is None:
            return np.asarray(self._dataset[key])
        path, inner = self._location
        with _open_file(path) as file:
            return np.asarray(file[inner][key])


def _packing(dataset: Any) -> dict[str, Any]:
    """Those attributes that change what is meant; others, such as references, may not be readable at all."""
    return {name: dataset.attrs[name] for name in PACKING if name in dataset.attrs}


def open_hdf5(path: str, inner: str | None) -> Source:
    """The dataset ``inner`` of an HDF5 file, as its attributes say it is meant; without ``inner`` the only one."""
    source = _hdf5_at(path, inner)
    return unpacked(source, source.attributes)


def _hdf5_at(path: str, inner: str | None) -> Hdf5Source:
    """Without ``inner`` the only dataset with enough axes."""
    with reading(f"cannot open {path!r}", "write or copy it again"), _open_file(path) as file:
        if inner is not None and inner not in file:
            raise StreamError(f"{path!r} has no dataset '{inner}'; it holds {listed(hdf5_datasets(file, 0))}.")
        dataset = _the_dataset(file if inner is None else file[inner], path)
        check_sources(dataset, path)
        _check_extent(dataset, os.path.getsize(path))
        return Hdf5Source(dataset, repr(f"{path}::{dataset.name}"), (path, dataset.name))


def _check_extent(dataset: Any, size: int) -> None:
    """Refuse a dataset that claims far more than its file holds: what was never written is read without an end."""
    claimed = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
    if claimed > MAX_COMPRESSED * size and not dataset.is_virtual:
        raise ValueError(f"its shape {dataset.shape} has {claimed:.4g} bytes, and the file {size}")


def hdf5_source(node: Any) -> Source:
    """An open h5py dataset, file or group as a source."""
    path = node.file.filename
    with reading(f"cannot use {path!r}", "write or copy it again"):
        dataset = _the_dataset(node, path)
        source = Hdf5Source(dataset, repr(f"{path}::{dataset.name}"))
        return unpacked(source, source.attributes)


def _the_dataset(node: Any, path: str) -> Any:
    """``node`` if it is a dataset; in a group, the only one with three axes or more, or the only table."""
    if hasattr(node, "shape"):
        return node
    fit = hdf5_datasets(node, 3) or hdf5_datasets(node, 2)
    if len(fit) == 1:
        return node[fit[0]]
    if fit:
        raise StreamError(f"{path!r} holds several datasets; name one after '::', such as {listed(fit)}.")
    others = listed(hdf5_datasets(node, 0))
    raise StreamError(f"{path!r} holds no dataset of at least 2 axes (n, d_1, ..., d_k); its datasets are {others}.")


@contextmanager
def _open_file(path: str) -> Iterator[Any]:
    h5py = package("h5py", "hdf5", "reading HDF5")
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


def is_labelled(source: Any) -> bool:
    """Whether it is one of xarray's objects, which is told without importing it."""
    return type(source).__module__.partition(".")[0] == "xarray"


class LazySource(Source):
    """A DataArray of a file, whose entries may still be there."""

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
