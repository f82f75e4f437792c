"""NumPy's own files: one, or a folder of them, read batch by batch and never loaded whole; and files that are loaded.

``.npz`` files: one array of samples; names of its axes in ``dims``, coordinates in arrays called like an axis.
``np.savez("x.npz", data=X, dims=["trial", "channel", "time"], channel=["Fz", "Cz"], time=seconds)``.

``.mat`` files of MATLAB: version 7.3 is HDF5 and read in batches, older ones are loaded by SciPy.  Axes are counted as
MATLAB does: ``size(X, 1)`` is the length of the first.  HDF5 lists those of a version 7.3 file the other way round, and
they are turned back.  Samples that lie along the last axis (channels × times × trials) need ``dim=-1``.
"""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from io import FileIO
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import MIN_ALIKE, ArraySource, Items, Source, are_samples, float_dtype, to_floats, turned
from tpca.data.stored import Leases
from tpca.data.stores import HDF5_SIGNATURE, named_axes, open_hdf5, the_only
from tpca.errors import SampleError, StreamError, check_regular, reading

PIECE_BYTES = 2**22  # of which parts are wanted and that are read whole, at most
_USER_BLOCK = 512  # bytes that MATLAB puts before the HDF5 file

_Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
# Version 3 exists only for structured dtypes with names beyond latin-1: never samples.
_HEADERS: dict[tuple[int, int], Callable[[Any], _Header]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What a header may consist of.  NumPy parses it as Python, which has more to say to a damaged one than its error.
_PLAIN = re.compile(rb"""\s*\{(?:[\s:,()\[\]\dL-]|True|False|'[^'\\]*'|"[^"\\]*")*\}\s*""")


class NpyFile(Source):
    """One ``.npy`` file; in Fortran order every batch walks through the whole file, in bounded memory."""

    kind = "npy"
    parallel = True

    def __init__(self, path: str) -> None:
        check_regular(path)
        self.path, self.name, self.leases = path, repr(path), Leases()
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.shape, self.fortran, self.dtype = read_header(file, path, size)
            self.offset = file.tell()
        if self.dtype.hasobject:
            raise SampleError(
                f"{path!r} holds pickled Python objects, which are never loaded; save an array of numbers instead."
            )
        promised = self.offset + math.prod(self.shape) * self.dtype.itemsize
        if size < promised:
            raise StreamError(
                f"{path!r} is truncated: its header says {promised} bytes, the file has {size}; write or copy it again."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "path": os.path.abspath(self.path)}  # for processes that were started elsewhere

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """A copy of the entries in these ranges of the leading axes."""
        key = (*key, *[slice(None)] * (len(self.shape) - len(key)))
        if self.fortran:  # the same bytes are an array in C order with its axes reversed
            return self._read(self.shape[::-1], key[::-1]).T
        return self._read(self.shape, key)

    def _read(self, shape: tuple[int, ...], key: tuple[slice, ...]) -> NDArray[Any]:
        """These ranges of all axes of an array in C order; a file that was cut meanwhile is an error, no signal."""
        ranges = [range(*part.indices(length)) for part, length in zip(key, shape, strict=True)]
        block = self.leases.array(tuple(map(len, ranges)), self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            missing = _read_into(block, file, self.offset, shape, ranges)
        if missing:
            raise StreamError(f"{self.path!r} ends {missing} bytes too early; write or copy it again.")
        return block


def _read_into(block: NDArray[Any], file: FileIO, offset: int, shape: tuple[int, ...], ranges: Sequence[range]) -> int:
    """Fill ``block`` with these ranges of the array that begins at ``offset``; how many bytes the file has too few.

    Neighbouring rows that are wanted whole go straight to their place; of small ones, some at a time are read whole and
    cut; large ones are entered one by one.
    """
    if 0 in block.shape:
        return 0
    first, row = ranges[0].start, math.prod(shape[1:]) * block.itemsize
    if all(len(some) == length for some, length in zip(ranges[1:], shape[1:], strict=True)):
        file.seek(offset + first * row)
        return _fill(file, block)
    if row > PIECE_BYTES:
        places = (offset + (first + i) * row for i in range(len(block)))
        return sum(_read_into(inner, file, at, shape[1:], ranges[1:]) for inner, at in zip(block, places, strict=True))
    step = max(1, PIECE_BYTES // row)
    rows = np.empty((min(step, len(block)), *shape[1:]), block.dtype)
    cut = (slice(None), *(slice(some.start, some.stop) for some in ranges[1:]))
    file.seek(offset + first * row)
    for a in range(0, len(block), step):
        piece = rows[: len(block) - a]
        if missing := _fill(file, piece):
            return missing
        block[a : a + step] = piece[cut]
    return 0


def _fill(file: FileIO, array: NDArray[Any]) -> int:
    """Read as many bytes as an array has into it; how many the file has too few."""
    rest = array.reshape(-1).view(np.uint8).data
    while rest and (count := file.readinto(rest)):
        rest = rest[count:]
    return len(rest)


def read_header(file: IO[bytes], path: str, size: int) -> _Header:
    """Shape, whether in Fortran order, and dtype of a ``.npy`` file of ``size`` bytes, read up to its numbers."""
    if file.read(6) != np.lib.format.MAGIC_PREFIX:
        raise StreamError(f"{path!r} is not a .npy file: it starts with other bytes; write it with numpy.save.")
    with reading(f"{path!r} has no readable .npy header", "write it with numpy.save"):
        file.seek(0)
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"no numbers have one of version {version}")
        length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
        if not _PLAIN.fullmatch(file.read(min(length, size))):
            raise ValueError("it is no dict of plain values")
        file.seek(np.lib.format.MAGIC_LEN)
        shape, fortran, dtype = _HEADERS[version](file)
        if min(shape, default=0) < 0:
            raise ValueError(f"it gives the shape {shape}")
        return shape, fortran, dtype


def npz_bytes(path: str | os.PathLike[str]) -> bytes:
    """A whole ``.npz`` file; nothing of what is none, as its end tells: it may have become as long as it likes."""
    check_regular(path)
    with open(path, "rb") as file:
        return file.read() if zipfile.is_zipfile(file) and not file.seek(0) else b""


def read_npz(content: bytes) -> dict[str, NDArray[Any]]:
    """All arrays of a ``.npz`` file; what is damaged is told from the checksums, before any of it is interpreted."""
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        declared = sum(entry.file_size for entry in whole.infolist())
        if declared > len(content):  # those of tpca are not compressed
            raise ValueError(f"it unpacks to {declared} bytes, more than it has")
        damaged = whole.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} does not match")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


class NpyFolder(Source):
    """The ``.npy`` files of a folder in the order of their names: each a batch, or each one sample."""

    kind = "folder"
    parallel = True

    def __init__(self, path: str, items: Items, dims: tuple[int, ...] | None = None) -> None:
        self.name, self._leases = repr(path), Leases()
        self._last: tuple[int, NpyFile] | None = None
        found = sorted(f for f in os.listdir(path) if f.endswith(".npy") and not f.startswith("."))
        if not found:
            raise StreamError(f"folder {path!r} holds no .npy files and no Zarr array; give one that does.")
        self._paths = [os.path.join(path, file) for file in found]
        self.files = tuple(self._paths)  # of what else is in the folder nothing is read
        shapes = (NpyFile(file).shape for file in self._paths)
        self._single = are_samples(shapes, items, dims, f"files in {path!r}", MIN_ALIKE)
        head = NpyFile(self._paths[0])
        if len(head.shape) < (1 if self._single else 2):
            expected = "(d_1, ..., d_k)" if self._single else "(n, d_1, ..., d_k)"
            other = 'items="batches"' if self._single else 'items="samples" if it holds a single sample'
            raise SampleError(f"{head.name} must have shape {expected}, got {head.shape}; give {other}.")
        self.dtype = float_dtype(head.dtype, f" in {head.name}")
        if self._single:  # headers are read with their samples: there may be millions of files
            self._dims, self._starts = head.shape, np.arange(len(found) + 1)
        else:
            self._dims = head.shape[1:]
            lengths = [self._open(i).shape[0] for i in range(len(found))]
            self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.shape = (int(self._starts[-1]), *self._dims)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes, from as many files as they touch."""
        start, stop, _ = key[0].indices(self.shape[0])
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        if not self._single and start < stop <= self._starts[number + 1]:  # all in one file
            first = int(self._starts[number])
            return to_floats(self._open(number).read((slice(start - first, stop - first), *key[1:])))
        inner = (*key[1:], *[slice(None)] * (len(self._dims) - len(key) + 1))
        lengths = [len(range(*part.indices(length))) for part, length in zip(inner, self._dims, strict=True)]
        block = np.empty((stop - start, *lengths), dtype=self.dtype)
        while number < len(self._paths) and self._starts[number] < stop:
            begin, end = int(self._starts[number]), int(self._starts[number + 1])
            a, b = max(start, begin), min(stop, end)
            within = inner if self._single else (slice(a - begin, b - begin), *inner)
            block[a - start : b - start] = to_floats(self._open(number).read(within))
            number += 1
        return block

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_paths": [os.path.abspath(path) for path in self._paths]}

    def _open(self, number: int) -> NpyFile:
        """File ``number``, which must have the shape and float dtype of the first; the last one is known already."""
        known = self._last  # most batches are of the same file as the one before
        if known is not None and known[0] == number:
            return known[1]
        file = NpyFile(self._paths[number])
        dims = file.shape if self._single else file.shape[1:]
        if dims != self._dims:
            raise SampleError(
                f"all files of a folder hold samples of one shape, expected {self._dims}, got {dims} in {file.name}; "
                "move it elsewhere."
            )
        if float_dtype(file.dtype, f" in {file.name}") != self.dtype:
            raise SampleError(
                f"all files of a folder share one dtype, expected {self.dtype}, got {file.dtype} in {file.name}; "
                "convert them to one."
            )
        file.leases = self._leases
        self._last = number, file
        return file


def open_npz(path: str, inner: str | None) -> Source:
    """The array ``inner`` of a ``.npz`` file; without it the only one with enough axes.  It is loaded."""
    shapes: dict[str, tuple[int, ...]] = {}
    with reading(f"cannot open {path!r}", "write it with numpy.savez"), zipfile.ZipFile(path) as whole:
        for entry in whole.infolist():
            with whole.open(entry) as file:
                shape, _, dtype = read_header(file, f"{path}::{entry.filename}", entry.file_size)
                expected = file.tell() + math.prod(shape) * dtype.itemsize
            if entry.file_size != expected and not dtype.hasobject:  # so much memory is asked for
                raise ValueError(f"{entry.filename} has {entry.file_size} bytes, its header says {expected}")
            shapes[entry.filename.removesuffix(".npy")] = shape
        name = the_only(repr(path), shapes, inner)
        with np.load(path, allow_pickle=False) as arrays:
            axes = named_axes(
                arrays["dims"].tolist() if "dims" in shapes else None,
                shapes[name],
                lambda axis: (arrays[axis], {}) if axis in shapes and axis != name else None,
            )
            found = ArraySource(arrays[name], axes, repr(f"{path}::{name}"))
            found.kind = "npy"  # which has the batches of a file
            return found


def open_mat(path: str, inner: str | None) -> Source:
    """The variable ``inner``; without it the only one with enough axes."""
    with open(path, "rb") as file:
        head = file.read(_USER_BLOCK + len(HDF5_SIGNATURE))
    if head.startswith(HDF5_SIGNATURE):  # not written by MATLAB
        return open_hdf5(path, inner)
    if head[_USER_BLOCK:] == HDF5_SIGNATURE:
        source = open_hdf5(path, inner)
        return turned(source, range(len(source.shape))[::-1])
    from scipy.io import loadmat, whosmat

    with reading(f"cannot open {path!r} as a .mat file", "save it again, with save(..., '-v7.3') if it is large"):
        name = the_only(repr(path), {name: shape for name, shape, _ in whosmat(path)}, inner)
        array = loadmat(path, variable_names=[name])[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OV":
            raise StreamError(f"variable {name!r} of {path!r} must be an array of numbers; save it as full(double(X)).")
        return ArraySource(array, (), repr(f"{path}::{name}"))
