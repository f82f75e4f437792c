"""What a file of samples may not do: lead elsewhere, or leave a part out unsaid.

Some formats refer to other files.  One that is gone would be read as zeros, and any file of the user as samples; both
are refused here.  Whoever opens a dataset with h5py and hands it in has decided so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from tpca.errors import StreamError, check_regular

# Chunks that were never written are read as their fill value; an array of hardly any others has damaged metadata.
MIN_WRITTEN = 1000
SPARE = 2**20  # bytes that a chunk may have beside its own, which need not compress
SHARD_ENTRY = 16  # bytes of a chunk in the index of its shard
LARGEST_METADATA = 2**28  # bytes of a JSON file
_ZARR_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


# ---------------------------------------------------------------------------------------------------------------------
# HDF5.


def check_sources(dataset: Any, path: str) -> None:
    """Refuse a dataset in another file than ``path``, in raw files, or put together from parts that are gone."""
    if not os.path.samefile(dataset.file.filename, path):
        raise StreamError(
            f"{path!r} leads to another file, {dataset.file.filename!r}; name that one, or open it with h5py."
        )
    if dataset.external:
        raise StreamError(
            f"the samples of {path!r} lie in another file, {dataset.external[0][0]!r}, which may hold anything; copy "
            "them into one file (h5repack), or open it with h5py and give the dataset if you trust it."
        )
    for file, name in _parts(dataset):
        if file != "." and not _holds(os.path.join(os.path.dirname(os.path.abspath(path)), file), name):
            raise StreamError(
                f"{path!r} is put together from several files, and {name!r} of {file!r} is missing, which would be "
                "read as zeros; bring it back."
            )


def _parts(dataset: Any) -> set[tuple[str, str]]:
    """Files and datasets that a virtual dataset consists of; of numbered ones (``%b``) the first."""
    if not dataset.is_virtual:
        return set()
    return {
        (part.file_name.replace("%b", "0"), part.dset_name.replace("%b", "0")) for part in dataset.virtual_sources()
    }


def _holds(path: str, name: str) -> bool:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return name in file
    except OSError:
        return False


# ---------------------------------------------------------------------------------------------------------------------
# Zarr.


def check_metadata(store: str, inner: str) -> None:
    """Refuse metadata that are pipes, devices or too long to be any: of an array, its groups, and what is beside it."""
    above, beside = [store], []
    for name in filter(None, inner.split("/")):
        beside += [entry.path for entry in _entries(above[-1]) if entry.is_dir()]
        above.append(os.path.join(above[-1], name))
    for path in (os.path.join(folder, name) for folder in (*above, *beside) for name in _ZARR_FILES):
        if os.path.lexists(path):
            check_regular(path, LARGEST_METADATA)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):  # there is no such array, which is said elsewhere
        return []


def check_chunks(array: Any, store: str, inner: str, name: str) -> str:
    """Refuse absurd chunks and links out of the store; what to say where chunks are missing, read as fill values."""
    lengths = getattr(array, "shards", None) or array.chunks
    most = math.prod(lengths) * (2 * np.dtype(array.dtype).itemsize + SHARD_ENTRY) + SPARE
    claimed = math.prod(-(-length // chunk) for length, chunk in zip(array.shape, lengths, strict=True))
    found = _files(os.path.join(store, inner), os.path.realpath(store), most)
    there = sum(entry.name not in _ZARR_FILES for entry in found)
    if there < claimed // MIN_WRITTEN:  # reading it never ends
        raise ValueError(f"its shape {array.shape} has {claimed:.4g} chunks, and there are {there} files")
    if there >= claimed:
        return ""
    value = array.fill_value if array.fill_value is not None else "anything"
    missing = f"{claimed - there:,} of the {claimed:,} chunks of {name} are missing, and are read as {value}"
    return f"{missing}; if they were written once, bring them back."


def _files(folder: str, store: str, most: int) -> Iterator[os.DirEntry[str]]:
    """All files below, as they are found: there may be millions.  None has more than so many bytes."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                _check_link(entry.path, store)
            if entry.is_dir():
                yield from _files(entry.path, store, most)
            elif not entry.is_file():  # to read a pipe may take for ever
                raise ValueError(f"{entry.path!r} is not a regular file")
            elif (size := entry.stat().st_size) > most and entry.name not in _ZARR_FILES:
                raise ValueError(f"{entry.path!r} has {size:,} bytes, and a chunk at most {most:,}")
            else:
                yield entry


def _check_link(path: str, store: str) -> None:
    end = os.path.realpath(path)
    if os.path.commonpath([end, store]) != store:
        raise ValueError(f"{path!r} is a link out of the store, to {end!r}")
