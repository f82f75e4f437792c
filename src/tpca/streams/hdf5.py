"""HDF5 files, NetCDF 4 among them: h5py is optional and imported where it is used."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import StreamError, one_line, reading
from tpca.streams.conventions import PACKING, scaled_axes, unpacked
from tpca.streams.protocol import Kind, Source
from tpca.streams.store_looks import hdf5_datasets, listed
from tpca.streams.stores import absolute, package, stored_lengths
from tpca.streams.trust import check_sources

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
