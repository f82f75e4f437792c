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
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tpca.errors import StreamError, check_regular

LARGEST_CHUNK = 2**40  # bytes: no machine can read a larger one, for a chunk is read whole
SPARE = 2**16  # bytes that a codec may add to a chunk: checksums, lengths
# Chunks that were never written are read as their fill value; an array of hardly any others has damaged metadata.
MIN_WRITTEN = 1000
_BLOSC_HEAD = 16  # bytes
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
            elif not entry.is_file():  # to read a pipe may take for ever
                raise ValueError(f"{entry.path!r} is not a regular file")
            else:
                yield entry


def _check_link(path: str, store: str) -> None:
    end = os.path.realpath(path)
    if os.path.commonpath([end, store]) != store:
        raise ValueError(f"{path!r} is a link out of the store, to {end!r}")


def guard_codecs(array: Any) -> None:
    """Let an array that was opened here refuse chunks that would crash a codec, or unpack to more than is declared."""
    most = math.prod(array.chunks) * np.dtype(array.dtype).itemsize + SPARE
    for codec in array.compressors:  # those of numcodecs are wrapped, each under a name of its own
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
    """Frames that do not all tell their size unpack into just the bytes that are declared, or not at all."""
    says = _zstd_bytes(memoryview(chunk).cast("B"))
    if says is not None and says > most:
        raise ValueError(f"a chunk unpacks to {says} bytes, more than its metadata declare")
    if says is not None or out is not None:
        return decode(chunk, out)
    declared = np.empty(most - SPARE, np.uint8)
    try:
        return decode(chunk, declared)
    except RuntimeError as error:
        raise ValueError(f"a chunk does not tell its size, and does not unpack to {declared.nbytes} bytes") from error


def _zstd_bytes(chunk: memoryview) -> int | None:
    """What the headers of all frames say they unpack to (RFC 8878, 3.1); ``None`` if one of them does not say."""
    said, at = 0, 0
    while len(chunk) > at + 5:
        word = int.from_bytes(chunk[at : at + 4], "little")
        if word >> 4 == 0x184D2A5:  # a frame that is skipped
            at += 8 + int.from_bytes(chunk[at + 4 : at + 8], "little")
            continue
        if word != 0xFD2FB528:
            break  # no frame, which the codec will say
        about = chunk[at + 4]
        flag, single, names = about >> 6, (about >> 5) & 1, (0, 1, 2, 4)[about & 3]
        width, first = (single, 2, 4, 8)[flag], at + 5 + (not single) + names
        if not width:
            return None
        said += int.from_bytes(chunk[first : first + width], "little") + (256 if flag == 1 else 0)
        at = _after_blocks(chunk, first + width) + 4 * ((about >> 2) & 1)
    return said


def _after_blocks(chunk: memoryview, at: int) -> int:
    """The end of the blocks of a frame that begin there."""
    last = False
    while not last and at < len(chunk):
        head = int.from_bytes(chunk[at : at + 3], "little")
        last, repeated = bool(head & 1), (head >> 1) & 3 == 1
        at += 3 + (1 if repeated else head >> 3)
    return at


def _handed(unpacked: bytes, out: Any) -> Any:
    if out is None:
        return unpacked
    np.asarray(out).reshape(-1).view(np.uint8)[:] = np.frombuffer(unpacked, np.uint8)
    return out


_UNPACK: dict[str, Callable[..., Any]] = {"blosc": _unblosc, "gzip": _gunzip, "zlib": _inflate, "zstd": _unzstd}
