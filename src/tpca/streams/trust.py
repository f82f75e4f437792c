"""What a file of samples may not do: lead elsewhere, leave a part out unsaid, or unpack to more than it declares.

Some formats refer to other files.  One that is gone would be read as zeros, and any file of the user as samples; both
are refused here.  Whoever opens a dataset with h5py and hands it in has decided so.
"""

from __future__ import annotations

import functools
import gzip
import io
import math
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tpca.errors import StreamError

LARGEST_CHUNK = 2**40  # bytes: no machine can read a larger one, for a chunk is read whole
SPARE = 2**16  # bytes that a codec may add to a chunk: checksums, lengths
# Chunks that were never written are read as their fill value; an array of hardly any others has damaged metadata.
MIN_WRITTEN = 1000
_BLOSC_HEAD = 16  # bytes
_ZARR_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def check_regular(path: str) -> None:
    """Refuse pipes, sockets and devices: they have no length, and may never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise StreamError(f"{path!r} is not a regular file but a pipe, socket or device; write the samples to a file.")


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


def check_chunks(array: Any, store: str, inner: str, name: str) -> str:
    """Refuse absurd chunks and links out of the store; what to say where chunks are missing, read as fill values."""
    lengths = getattr(array, "shards", None) or array.chunks
    nbytes = math.prod(lengths) * np.dtype(array.dtype).itemsize
    if nbytes > LARGEST_CHUNK:
        raise ValueError(f"its metadata give chunks of {nbytes:.4g} bytes, which cannot be read")
    claimed = math.prod(-(-length // chunk) for length, chunk in zip(array.shape, lengths, strict=True))
    found = _files(os.path.join(store, inner), os.path.realpath(store))
    there = sum(entry.name not in _ZARR_FILES for entry in found)
    if there < claimed // MIN_WRITTEN:  # reading it never ends
        raise ValueError(f"its shape {array.shape} has {claimed:.4g} chunks, and there are {there} files")
    if there >= claimed:
        return ""
    value = array.fill_value if array.fill_value is not None else "anything"
    missing = f"{claimed - there:,} of the {claimed:,} chunks of {name} are missing, and are read as {value}"
    return f"{missing}; if they were written once, bring them back."


def _files(folder: str, store: str) -> Iterator[os.DirEntry[str]]:
    """All files below, as they are found: there may be millions."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                _check_link(entry.path, store)
            if entry.is_dir():
                yield from _files(entry.path, store)
            else:
                yield entry


def _check_link(path: str, store: str) -> None:
    end = os.path.realpath(path)
    if os.path.commonpath([end, store]) != store:
        raise ValueError(f"{path!r} is a link out of the store, to {end!r}")


def guard_codecs(array: Any) -> None:
    """Let an array that was opened here refuse chunks that would crash a codec, or unpack to more than is declared."""
    most = math.prod(array.chunks) * np.dtype(array.dtype).itemsize + SPARE
    several = getattr(array, "compressors", None)  # none, of an array that is not compressed
    for codec in (getattr(array, "compressor", None),) if several is None else several:
        # zarr-python 3 wraps those of numcodecs, each under a name of its own
        inside = [getattr(codec, name, None) for name in ("_blosc_codec", "_gzip_codec", "_zstd_codec")]
        inner: Any = next((one for one in inside if one is not None), codec)
        unpack = _UNPACK.get(getattr(inner, "codec_id", ""))
        if unpack is not None:
            inner.decode = functools.partial(unpack, inner.decode, most)


def _checked(unpacked: bytes, most: int) -> bytes:
    if len(unpacked) > most:
        raise ValueError(f"a chunk unpacks to more than {most} bytes, more than its metadata declare")
    return unpacked


def _unblosc(decode: Callable[..., Any], most: int, chunk: Any, out: Any = None) -> Any:
    """Blosc believes its header: if that says more bytes than there are, the process may crash."""
    size = memoryview(chunk).nbytes
    head = np.frombuffer(bytes(memoryview(chunk).cast("B")[:_BLOSC_HEAD]), "<u4")
    says = int(head[3]) if len(head) == _BLOSC_HEAD // 4 else _BLOSC_HEAD
    if says != size:
        raise ValueError(f"a chunk has {size} bytes, and its header says {says}")
    if int(head[1]) > most:
        raise ValueError(f"a chunk unpacks to {head[1]} bytes, more than its metadata declare")
    return decode(chunk, out)


def _gunzip(_: Callable[..., Any], most: int, chunk: Any, out: Any = None) -> Any:
    with gzip.GzipFile(fileobj=io.BytesIO(memoryview(chunk).cast("B"))) as packed:
        return _handed(_checked(packed.read(most + 1), most), out)


def _inflate(_: Callable[..., Any], most: int, chunk: Any, out: Any = None) -> Any:
    return _handed(_checked(zlib.decompressobj().decompress(memoryview(chunk).cast("B"), most + 1), most), out)


def _unzstd(decode: Callable[..., Any], most: int, chunk: Any, out: Any = None) -> Any:
    """The header of a frame tells its size (RFC 8878, 3.1.1.1)."""
    head = bytes(memoryview(chunk).cast("B")[:18])
    if len(head) > 5 and head[:4] == b"\x28\xb5\x2f\xfd":
        flag, single, names = head[4] >> 6, (head[4] >> 5) & 1, (0, 1, 2, 4)[head[4] & 3]
        width, first = (single, 2, 4, 8)[flag], 5 + (not single) + names
        says = int.from_bytes(head[first : first + width], "little") + (256 if flag == 1 else 0)
        if says > most:
            raise ValueError(f"a chunk unpacks to {says} bytes, more than its metadata declare")
    return decode(chunk, out)


def _handed(unpacked: bytes, out: Any) -> Any:
    if out is None:
        return unpacked
    np.asarray(out).reshape(-1).view(np.uint8)[:] = np.frombuffer(unpacked, np.uint8)
    return out


_UNPACK: dict[str, Callable[..., Any]] = {"blosc": _unblosc, "gzip": _gunzip, "zlib": _inflate, "zstd": _unzstd}
