"""Arrays of other libraries (Zarr, HDF5 with NetCDF 4, Dask, xarray) and what they say of themselves.

Zarr 3 has ``dimension_names``, xarray writes ``_ARRAY_DIMENSIONS`` into Zarr 2, HDF5 has dimension scales, and
NetCDF 4 is HDF5 with them.  An array of one axis that is called like an axis holds its coordinates.  The attributes
``scale_factor``, ``add_offset``, ``_FillValue`` and ``missing_value`` mean the same in all of them (CF conventions):
the value is ``scale_factor`` times what is stored plus ``add_offset``, and some stored values stand for missing ones.

All packages are optional and imported where they are used.
"""

from __future__ import annotations

import base64
import copy
import importlib
import math
import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import ArraySource, Source, float_dtype
from tpca.data.places import is_url
from tpca.errors import StreamError, StreamWarning, check_regular, reading
from tpca.labels import Axis, as_coords

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
LONGEST = 2**53  # entries along an axis; far beyond them places do not fit into 64 bits
LISTED = 12  # names that a message shows
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"


def package(name: str, extra: str, what: str) -> Any:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise StreamError(f"{what} needs the {name} package; install tpca[{extra}].") from None


def listed(names: Sequence[str]) -> str:
    """Some names in quotes, and how many more there are."""
    shown = ", ".join(map(repr, sorted(names)[:LISTED]))
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return shown + more if names else "(it has none)"


def the_only(what: str, shapes: Mapping[str, Sequence[int]], inner: str | None = None) -> str:
    """The array ``inner`` of several, or the only one of three axes or more; where none has so many, the only table."""
    if inner is not None:
        found = [name for name in shapes if name.strip("/") == inner.strip("/")]
        if not found:
            raise StreamError(f"{what} has no array {inner!r}; it holds {listed(list(shapes))}.")
        return found[0]
    fit = next(filter(None, ([name for name, shape in shapes.items() if len(shape) >= n] for n in (3, 2))), [])
    if not fit:
        held = listed(list(shapes))
        raise StreamError(f"{what} holds no array of at least 2 axes (n, d_1, ..., d_k); its arrays are {held}.")
    if len(fit) > 1:
        raise StreamError(f"{what} holds several arrays; name one, in a path after '::', such as {listed(fit)}.")
    return fit[0]


def absolute(place: str) -> str:
    """A path that means the same in a process that was started elsewhere; URLs do anyway."""
    return place if is_url(place) else os.path.abspath(place)


# ---------------------------------------------------------------------------------------------------------------------
# What metadata and attributes say.


class DescribedSource(Source):
    """An array of a store, as its metadata describe it; what is stored may be packed, or stand for missing numbers."""

    packing: tuple[float, float, list[float]] | None = None
    """Factor, offset, and what stands for NaN; ``None`` if all is as it is stored."""

    def __init__(self, array: Any, name: str, attributes: Mapping[str, Any]) -> None:
        for lengths, least in ((array.shape or (), 0), (array.chunks or (), 1)):
            if not all(least <= operator.index(length) <= LONGEST for length in lengths):  # damaged metadata
                given = tuple(lengths)
                raise ValueError(f"its metadata give the lengths {given}, and they go from {least} to {LONGEST:.0e}")
        self.name, self.shape, self.dtype = name, tuple(array.shape or ()), np.dtype(array.dtype)
        self.chunks = tuple(array.chunks) if array.chunks else None
        if self.dtype.kind not in "fiu":
            return
        scale, offset, *found = (_number(attributes.get(name)) for name in PACKING)
        missing = {value for value in found if value is not None and not math.isnan(value)}
        factor, shift = 1.0 if scale is None else scale, offset or 0.0
        if (factor, shift) != (1.0, 0.0) or missing:
            self.packing = factor, shift, sorted(missing)
            self.dtype = float_dtype(self.dtype) if (factor, shift) == (1.0, 0.0) else np.dtype(np.float64)

    def stored(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """What is stored in these ranges of the leading axes."""
        raise NotImplementedError

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The numbers that are meant."""
        found = self.stored(key)
        if self.packing is None:
            return found
        factor, shift, missing = self.packing
        plain = found.astype(float_dtype(found.dtype))
        block = plain.astype(self.dtype)
        with np.errstate(over="ignore"):  # a missing value beyond single precision stands for Inf
            for value in missing:
                block[plain == plain.dtype.type(value)] = np.nan
        if (factor, shift) != (1.0, 0.0):
            block *= factor
            block += shift
        return block


def _number(value: Any) -> float | None:
    """The one number of an attribute, if it is one; xarray writes floats into Zarr 3 as base64."""
    if isinstance(value, str):
        try:
            value = np.frombuffer(base64.b64decode(value, validate=True), "<f8")
        except ValueError:
            return None
    numbers: NDArray[Any] = np.asarray(value)
    return float(numbers.reshape(-1)[0]) if numbers.size == 1 and numbers.dtype.kind in "fiu" else None


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


# ---------------------------------------------------------------------------------------------------------------------
# Zarr.


class ZarrSource(DescribedSource):
    """A Zarr array of format 2 or 3: at a ``location``, store and path inside it, or one that was handed in."""

    kind = "zarr"
    parallel = True

    def __init__(self, array: Any, name: str, location: tuple[str, str] | None = None) -> None:
        if not hasattr(array, "shape"):
            known = _zarr_arrays(array, location)
            raise StreamError(f"{name} is a Zarr group; name one of its arrays, in a path after '::', such as {known}.")
        self.array = array if location is None else _trust().guarded(array)
        self._location = location
        super().__init__(self.array, name, dict(array.attrs))
        self.shared = location is not None or "Memory" not in type(array.store).__name__
        # Names of the axes: of Zarr 3 itself, or as xarray writes them into Zarr 2.
        names = array.metadata.to_dict().get("dimension_names") or array.attrs.get("_ARRAY_DIMENSIONS")
        self.axes = named_axes(names, self.shape, self._beside)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._location is None:  # Zarr knows how to open its own stores again
            return (ZarrSource, (self.array, self.name))
        store, inner = self._location
        return (zarr_at, (absolute(store), inner or None))

    def _beside(self, name: str) -> tuple[Any, Mapping[str, Any]] | None:
        """The array of that name in the same group, and its attributes; ``None`` if there is none that can be read."""
        path = f"{self.array.path.strip('/').rpartition('/')[0]}/{name}".strip("/")
        try:
            node = _trust().open_node(self.array.store if self._location is None else self._location[0], path)
            return None if tuple(node.shape) == self.shape else (_trust().guarded(node), dict(node.attrs))
        except Exception:  # none of that name, a group, damaged metadata: entries go by their numbers
            return None

    def stored(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        try:
            block = np.asarray(self.array[key])
        except Exception:
            if self._location is not None:
                self.array.store.settle()
            raise
        if self._location is not None and block.size:
            fill, last = self.array.fill_value, block[(-1,) * block.ndim]
            if fill is None or last == fill or last != last:  # looks as if it was never written
                _trust().open_node(*self._location)  # raises if the store is gone: Zarr takes lost chunks for empty
        return block


def open_zarr(store: str, inner: str | None) -> Source:
    """The Zarr array at a path or fsspec URL, or at ``inner`` in the group there."""
    source = zarr_at(store, inner)
    if os.path.isdir(store):
        with reading(f"cannot open {source.name} as a Zarr array", "check the path, or write it again"):
            missing = _trust().check_chunks(source.array, store, (inner or "").strip("/"), source.name)
        if missing:
            warnings.warn(missing, StreamWarning, stacklevel=2)
    return source


def zarr_at(store: str, inner: str | None) -> ZarrSource:
    """The same, without a look at all its files."""
    name = repr(store if inner is None else f"{store}::{inner}")
    location = (store, (inner or "").strip("/"))
    with reading(f"cannot open {name} as a Zarr array", "check the path, or write it again"):
        try:
            node = _trust().open_node(*location)
        except Exception as cause:  # the names differ between the versions of zarr-python
            if type(cause).__name__ not in ("GroupNotFoundError", "NodeNotFoundError", "PathNotFoundError"):
                raise
            others = "" if inner is None else f"; the store holds {_zarr_arrays(None, (store, ''))}"
            raise StreamError(f"there is no Zarr array at {name}; check the path{others}.") from cause
    with reading(f"cannot use {name}", "write it again, or open it with zarr and give the array, if you trust it"):
        return ZarrSource(node, name, location)


def _trust() -> Any:
    """The module that opens Zarr stores."""
    package("zarr", "zarr", "reading Zarr")
    return importlib.import_module("tpca.data.trust")


def _zarr_arrays(group: Any, location: tuple[str, str] | None) -> str:
    """The arrays below a group; in a folder by their files: damaged metadata, or a pipe, must not hide the others."""
    if location is None or not os.path.isdir(location[0]):
        try:
            members = (group if location is None else _trust().open_node(*location)).members(max_depth=None)
            return listed(["/" + path for path, node in members if hasattr(node, "shape")])
        except Exception:  # there is no group either
            return listed([])
    found = []
    for place, folders, files in os.walk(os.path.join(*location)):
        inside = any(os.path.lexists(os.path.join(place, folder, "zarr.json")) for folder in folders)
        if ".zarray" in files or ("zarr.json" in files and not inside):
            folders.clear()  # only chunks
            found.append("/" + os.path.relpath(place, location[0]).replace(os.sep, "/"))
    return listed(found)


# ---------------------------------------------------------------------------------------------------------------------
# Dask, and DataArrays of xarray.


class DaskSource(Source):
    """A Dask array; whatever scheduler is active computes its chunks."""

    kind = "dask"
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

    def for_workers(self) -> DaskSource:
        """All but the array, whose blocks come by themselves."""
        hollow = copy.copy(self)
        hollow._array = None
        return hollow

    def part(self, start: int, stop: int) -> Any:
        """Some samples, as one block."""
        return self._array[start:stop].rechunk(-1)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes, computed."""
        return np.asarray(self._array[key].compute())


class LazySource(Source):
    """A DataArray of a file, whose entries may still be there."""

    kind = "xarray"

    def __init__(self, array: Any, axes: tuple[Axis, ...], name: str) -> None:
        self.name, self.shape, self.dtype, self.axes = name, tuple(array.shape), np.dtype(array.dtype), axes
        chunks = array.encoding.get("preferred_chunks") or {}
        lengths = tuple(int(chunks.get(dim, length)) for dim, length in zip(array.dims, array.shape, strict=True))
        self.chunks = lengths if chunks else None
        self._array = array

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes; the array itself keeps none of them."""
        return np.asarray(self._array[key].values)


def labelled_source(array: Any) -> Source:
    """A DataArray, or the only variable of a Dataset."""
    if type(array).__name__ == "Dataset":
        array = array[the_only("the Dataset", {str(name): one.shape for name, one in array.data_vars.items()})]
    if type(array).__name__ != "DataArray":
        raise StreamError(f"of xarray, a DataArray is read, got {type(array).__name__}; give one variable.")
    axes = tuple(Axis(str(dim), as_coords(array[dim].values) if dim in array.coords else None) for dim in array.dims)
    if array.chunks is not None:
        return DaskSource(array.data, axes)
    name = "the DataArray" if array.name is None else f"the DataArray {str(array.name)!r}"
    with reading(f"cannot read {name}", "the data are damaged or gone: restore them and try again"):
        # Two looks at one entry see the same memory where the array is held, and a copy each where it is in a file.
        entry, again = (array[(slice(0, 1),) * array.ndim].values for _ in range(2))
        held = np.may_share_memory(entry, again)
    return ArraySource(array.values, axes, name) if held else LazySource(array, axes, name)


# ---------------------------------------------------------------------------------------------------------------------
# HDF5, NetCDF 4 among it.

MAX_COMPRESSED = 2000  # times: the deflate of HDF5 can do 1032, and noise hardly 2
MAX_LINKS = 16  # soft links on the way to a dataset, as many as HDF5 itself follows
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class Hdf5Source(DescribedSource):
    """An HDF5 dataset: of a file that is opened for every read, or one that the caller holds open."""

    kind = "hdf5"

    def __init__(self, dataset: Any, path: str, held: bool) -> None:
        # Other attributes, such as references, may not be readable at all.
        attributes = {name: dataset.attrs[name] for name in PACKING if name in dataset.attrs}
        super().__init__(dataset, repr(f"{path}::{dataset.name}"), attributes)
        axes = []
        for dim, length in zip(dataset.dims, self.shape, strict=True):
            name, coords = dim.label, None
            for scale in [dim[0]] if len(dim) else []:  # the first if there are several
                name = name or str(scale.name or "").rpartition("/")[2]
                # NetCDF makes a scale for every axis, also for one without coordinates; h5py fills it with zeros.
                if scale.shape == (length,) and _NO_VARIABLE not in str(scale.attrs.get("NAME", "")):
                    coords = decoded(scale[:], scale.attrs)
            axes.append(Axis(name, coords))
        self.axes = tuple(axes) if any(axis.name for axis in axes) else ()
        self._place, self._dataset = (path, dataset.name), dataset if held else None

    def __reduce__(self) -> tuple[Any, ...]:
        path, inner = self._place
        return (open_hdf5, (absolute(path), inner))

    def stored(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        if self._dataset is not None:
            return np.asarray(self._dataset[key])
        path, inner = self._place
        with _hdf5_file(path) as file:
            return np.asarray(file[inner][key])


def open_hdf5(path: str, inner: str | None) -> Source:
    """The dataset ``inner`` of an HDF5 file; without ``inner`` the only one."""
    with reading(f"cannot open {path!r}", "write or copy it again"), _hdf5_file(path) as file:
        node = None if inner is None else _follow(file, inner, path)
        dataset = _the_dataset(file if node is None else node, path, inner, check=_check_stored)
        size = _check_stored(dataset, path)
        for dimension in dataset.dims:
            if len(dimension):
                _check_stored(dimension[0], path)
        claimed = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
        if claimed > MAX_COMPRESSED * size:  # what was never written is read without an end
            raise ValueError(f"its shape {dataset.shape} has {claimed:.4g} bytes, and the file with its parts {size}")
        return Hdf5Source(dataset, path, held=False)


def hdf5_source(node: Any) -> Source:
    """An open h5py dataset, file or group as a source."""
    path = node.file.filename
    with reading(f"cannot use {path!r}", "write or copy it again"):
        return Hdf5Source(_the_dataset(node, path), path, held=True)


def _the_dataset(node: Any, path: str, inner: str | None = None, check: Callable[[Any, str], Any] | None = None) -> Any:
    """``node`` if it is a dataset; in a group, the one that is named, or the only one with enough axes.

    ``check`` sees every dataset before its shape is asked for, for which HDF5 may open other files.
    """
    if hasattr(type(node), "shape"):
        return node
    shapes: dict[str, tuple[int, ...]] = {}

    def visit(_: str, member: Any) -> None:
        if hasattr(type(member), "shape"):
            if check is not None:
                check(member, path)
            shapes[member.name] = member.shape or ()

    node.visititems(visit)
    return node[the_only(repr(path), shapes, inner if node.name == "/" else None)]


def _follow(file: Any, inner: str, path: str) -> Any:
    """The object at a path inside an HDF5 file, ``None`` if there is none; a link to another file is refused unopened.

    Any file could be read as samples through such a link, and HDF5 waits for ever where it leads to a pipe.
    """
    h5l = importlib.import_module("h5py").h5l
    names = inner.split("/")
    node = file["/"]
    followed = 0
    while names:
        name = names.pop(0)
        if name in ("", "."):
            continue
        if hasattr(type(node), "shape") or not node.id.links.exists(name.encode()):
            return None
        kind = node.id.links.get_info(name.encode()).type
        if kind == h5l.TYPE_HARD:
            node = node[name]
        elif kind == h5l.TYPE_SOFT and followed < MAX_LINKS:
            target = node.id.links.get_val(name.encode()).decode()
            followed += 1
            names = target.split("/") + names
            node = file["/"] if target.startswith("/") else node
        elif kind == h5l.TYPE_EXTERNAL:
            raise _elsewhere(path, node.id.links.get_val(name.encode())[0].decode(errors="replace"))
        else:
            raise ValueError(f"the link {name!r} in it leads nowhere")
    return node


def _check_stored(dataset: Any, path: str) -> int:
    """Refuse a dataset that lies in other files, unless it is put together of plain ones; bytes of all its files.

    Any file could be read as samples, and one that is gone as zeros.  HDF5 waits for ever where a part is a pipe, and
    crashes where a part is virtual and leads back.  Whoever opens a dataset with h5py and hands it in has decided to
    trust it.
    """
    if dataset.external:
        raise _elsewhere(path, dataset.external[0][0])
    size = os.path.getsize(path)
    if not dataset.is_virtual:
        return size
    parts = {(part.file_name, part.dset_name) for part in dataset.virtual_sources()}
    for name, inner in sorted(parts):
        place = path if name == "." else os.path.join(os.path.dirname(os.path.abspath(path)), name)
        _check_part(path, place, name, inner)
        size += os.path.getsize(place)
    return size


def _check_part(path: str, place: str, name: str, inner: str) -> None:
    """Refuse a part of a virtual dataset that is not there, or is anything but a plain dataset."""
    if not os.path.exists(place):
        raise _part_missing(path, name, inner)
    check_regular(place)
    with _hdf5_file(place) as file:
        part = _follow(file, inner, place)
        if part is None or not hasattr(type(part), "shape"):
            raise _part_missing(path, name, inner)
        if part.is_virtual:
            raise StreamError(
                f"{path!r} is put together from parts, and {inner!r} of {name!r} is put together itself; name a "
                "dataset of plain parts, or open it with h5py and give the dataset if you trust it."
            )
        if part.external:
            raise _elsewhere(place, part.external[0][0])


def _elsewhere(path: str, other: str) -> StreamError:
    return StreamError(
        f"the samples of {path!r} lie in another file, {other!r}; name that one, or open it with h5py and give the "
        "dataset if you trust it."
    )


def _part_missing(path: str, name: str, inner: str) -> StreamError:
    return StreamError(
        f"{path!r} is put together from several files, and {inner!r} of {name!r} is missing, which would be read as "
        "zeros; bring it back."
    )


def _hdf5_file(path: str) -> Any:
    h5py = package("h5py", "hdf5", "reading HDF5")
    with reading(f"cannot open {path!r}", "check that it is an HDF5 file, or write or copy it again"):
        return h5py.File(path, "r")
