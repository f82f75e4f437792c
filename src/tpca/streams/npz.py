"""``.npz`` files: one array of samples; names of its axes in ``dims``, coordinates in arrays called like an axis.

``np.savez("x.npz", data=X, dims=["trial", "channel", "time"], channel=["Fz", "Cz"], time=seconds)``.  What is stored
uncompressed, as ``numpy.savez`` does, is read batch by batch where it lies; what is compressed must be held whole.
The checksum of samples is compared, as numpy does, unless they are so many that to read them once more takes long.
"""

from __future__ import annotations

import math
import os
import zipfile
from typing import Any

import numpy as np

from tpca.errors import StreamError, reading
from tpca.streams.conventions import named_axes
from tpca.streams.npy import NpyFile, read_header
from tpca.streams.protocol import ArraySource, Source
from tpca.streams.store_looks import listed

_Header = tuple[tuple[int, ...], bool, np.dtype[Any], int]
CHECKED = 2**28  # bytes of samples whose checksum is compared: a fraction of a second
_LOCAL_HEADER = 30  # bytes of a zip file before the name of a member


def open_npz(path: str, inner: str | None) -> Source:
    """The array ``inner`` of a ``.npz`` file; without it the only one with enough axes."""
    with reading(f"cannot open {path!r}", "write it with numpy.savez"), zipfile.ZipFile(path) as whole:
        members = {entry.filename.removesuffix(".npy"): entry for entry in whole.infolist()}
        headers = {name: _header(whole, entry, path) for name, entry in members.items()}
        name = _chosen(path, inner, {name: header[0] for name, header in headers.items()})
        shape, fortran, dtype, _ = headers[name]
        with np.load(path, allow_pickle=False) as arrays:
            axes = named_axes(
                arrays["dims"].tolist() if "dims" in members else None,
                shape,
                lambda axis: (arrays[axis], {}) if axis in members and axis != name else None,
            )
            entry = members[name]
            if entry.compress_type != zipfile.ZIP_STORED or dtype.hasobject:
                return ArraySource(arrays[name], axes, repr(f"{path}::{name}"))
        offset = _offset(path, entry, headers[name])
        if entry.file_size <= CHECKED:
            _compare_checksum(whole, entry)
    return Member(path, name, (shape, dtype, fortran, offset), axes)


class Member(NpyFile):
    """An array that lies in a ``.npz`` file as it is."""

    def __init__(self, path: str, name: str, how: tuple[tuple[int, ...], np.dtype[Any], bool, int], axes: Any) -> None:
        super().__init__(path, *how)
        self.name, self.axes = repr(f"{path}::{name}"), axes


def _header(whole: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str) -> _Header:
    """Shape, order and dtype of a member, and the bytes that say so."""
    with whole.open(entry) as file:
        return (*read_header(file, f"{path}::{entry.filename}", entry.file_size), file.tell())


def _compare_checksum(whole: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    with whole.open(entry) as file:
        while file.read(2**20):  # at its end an error, if that is another
            pass


def _offset(path: str, entry: zipfile.ZipInfo, header: _Header) -> int:
    """Where the numbers of a member begin: after its own header in the zip file, and that of the ``.npy`` file."""
    shape, _, dtype, length = header
    with open(path, "rb") as file:
        file.seek(entry.header_offset)
        head = file.read(_LOCAL_HEADER)
        size = os.fstat(file.fileno()).st_size
    name, extra = (int.from_bytes(head[at : at + 2], "little") for at in (26, 28))
    begin = entry.header_offset + _LOCAL_HEADER + name + extra
    expected = length + math.prod(shape) * dtype.itemsize
    if entry.file_size != expected or begin + expected > size:
        raise ValueError(f"{entry.filename} has {entry.file_size} bytes, its header says {expected}")
    return begin + length


def _chosen(path: str, inner: str | None, shapes: dict[str, tuple[int, ...]]) -> str:
    """The array that is asked for, or the only one with enough axes."""
    if inner is not None:
        name = inner.strip("/")
        if name not in shapes:
            raise StreamError(f"{path!r} has no array {inner!r}; it holds {listed(list(shapes))}.")
        return name
    return the_only(path, shapes)


def the_only(path: str, shapes: dict[str, tuple[int, ...]]) -> str:
    """The name of the only array with at least three axes."""
    fit = [name for name, shape in shapes.items() if len(shape) >= 3]
    if len(fit) == 1:
        return fit[0]
    if fit:
        raise StreamError(f"{path!r} holds several arrays; name one after '::', such as {listed(fit)}.")
    raise StreamError(
        f"{path!r} holds no array of at least 3 axes (n, d_1, ..., d_k); its arrays are {listed(list(shapes))}."
    )
