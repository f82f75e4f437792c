"""What lies at a path or URL, as something that can be sliced."""

from __future__ import annotations

import os
import re
import urllib.parse
import urllib.request

from tpca.errors import StreamError, check_regular, reading
from tpca.streams.checks import only_batches
from tpca.streams.hdf5 import HDF5_SIGNATURE, open_hdf5
from tpca.streams.mat import open_mat
from tpca.streams.npy import NpyFolder, open_npy
from tpca.streams.npz import open_npz
from tpca.streams.protocol import Items, Source
from tpca.streams.stores import open_zarr

_HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".h5py", ".nc", ".nc4")
_FILES = (".npy", ".npz", ".mat", *_HDF5_SUFFIXES)
TABLES = (".csv", ".tsv", ".parquet", ".pq")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
SUPPORTED = (
    "a .npy or .npz file, a folder of .npy files, a Zarr store (.zarr), an HDF5 or NetCDF 4 file (.h5, .nc), "
    "a .mat file, or a long table (.csv, .parquet)"
)


def stored_at(text: str, items: Items, dims: tuple[int, ...] | None) -> Source:
    """What lies at a path or URL, with the path of an array inside it after ``::``."""
    place, inner = _split(text)
    if re.match(r"file://", place):
        place = urllib.request.url2pathname(urllib.parse.urlsplit(place).path)
    if "://" in place:
        if place.endswith((*_FILES, *TABLES)):
            raise StreamError(f"only Zarr stores are read from URLs, got {place!r}; copy the file here first.")
        only_batches(items, "Zarr arrays")
        return open_zarr(place, inner)
    if not os.path.exists(place):
        raise StreamError(f"no such file or folder: {place!r}.")
    with reading(f"cannot read {place!r}", "check its permissions and its disk, or write it again"):
        return _folder(place, inner, items, dims) if os.path.isdir(place) else _file(place, inner, items)


def _split(text: str) -> tuple[str, str | None]:
    """Place and inner path; the ``::`` of a chained URL (``simplecache::s3://...``) is part of the place."""
    place, mark, inner = text.rpartition("::")
    return (text, None) if not mark or "://" in inner else (place, inner)


def _folder(place: str, inner: str | None, items: Items, dims: tuple[int, ...] | None) -> Source:
    zarr = place.rstrip("/").endswith(".zarr") or any(os.path.exists(os.path.join(place, f)) for f in _ZARR_FILES)
    if zarr or inner is not None:
        only_batches(items, "Zarr arrays")
        return open_zarr(place, inner)
    return NpyFolder(place, items, dims)


def _file(place: str, inner: str | None, items: Items) -> Source:
    check_regular(place)
    with open(place, "rb") as file:
        head = file.read(len(HDF5_SIGNATURE))
    suffix = os.path.splitext(place)[1].lower()
    only_batches(items, f"{suffix} files" if suffix in _FILES else "HDF5 datasets")
    if suffix == ".npy":
        if inner is not None:
            raise StreamError(f"a .npy file holds one array, got {place + '::' + inner!r}; leave out '::{inner}'.")
        return open_npy(place)
    if suffix == ".npz":
        return open_npz(place, inner)
    if suffix == ".mat":
        return open_mat(place, inner)
    if head.startswith(b"CDF") and suffix in (".nc", ".cdf"):
        raise StreamError(
            f"{place!r} is a NetCDF 3 file; open it with xarray.open_dataset and give one of its variables, or write "
            "it again as NetCDF 4."
        )
    if suffix in _HDF5_SUFFIXES or head == HDF5_SIGNATURE:
        return open_hdf5(place, inner)
    raise StreamError(f"cannot read samples from {place!r} ({suffix or 'no suffix'}); give {SUPPORTED}.")
