"""What a Zarr store may not do: run code, unpack to more than it declares, lead elsewhere, or leave chunks out unsaid.

A few hundred bytes of some codecs unpack to gigabytes, and one (``pickle``) runs whatever it holds.  So an array that
is opened by its path keeps only codecs of a short list, one compressor among them, which decodes a chunk into just the
bytes that the metadata declare.  All other codecs are refused by name.  Whoever opens an array with zarr and hands it
in has decided to trust it.  This is the only module that imports zarr and numcodecs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.storage import StorePath, WrapperStore

from tpca.data.places import is_url
from tpca.errors import JSON_BYTES, check_regular
from tpca.wording import amount

COMPRESSORS = ("blosc", "gzip", "lz4", "zlib", "zstd")
ALLOWED = (*COMPRESSORS, "bytes", "crc32c", "endian", "sharding_indexed", "shuffle", "transpose", "vlen-utf8")
LARGEST_CHUNK = 2**31  # bytes, with the index of a shard: blosc and lz4 hold no more
TEXT_BYTES = 1024  # of a name along an axis, at most
CRC_BYTES, SHARD_ENTRY = 4, 16  # of a checksum, and of a chunk in the index of its shard
SPARE = 2**20  # bytes that a chunk may have beside its own, which need not compress
# Chunks that were never written are read as their fill value; an array of hardly any others has damaged metadata.
MIN_WRITTEN = 1000
# A remote store that hangs must not hang whoever is to be told of the error, too.
WAIT_SECONDS = 10.0
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_SETTLING = "tpca-settle"
_BLOSC_HEAD = 16


def open_node(store: Any, inner: str) -> Any:
    """An array or group; refuses metadata, also of its groups in a folder, that are pipes, devices, or too long.

    zarr takes ``a::b`` for a chain of fsspec also where it is the name of a folder, so a path is given as a ``Path``.
    """
    if isinstance(store, str) and os.path.isdir(store):
        for place in itertools.accumulate(filter(None, inner.split("/")), os.path.join, initial=store):
            for path in (os.path.join(place, name) for name in _METADATA):
                if os.path.lexists(path):
                    check_regular(path, JSON_BYTES)
    if isinstance(store, str) and not is_url(store):
        store = Path(store)
    return zarr.open(store, mode="r", path=inner or None)


def check_chunks(array: Any, store: str, inner: str, name: str) -> str:
    """Refuse absurd chunks and links out of the store; what to say where chunks are not stored.

    Zarr stores no chunk that holds nothing but the fill value: nobody can tell it from one that was lost.
    """
    lengths = array.shards or array.chunks
    most = math.prod(lengths) * (2 * np.dtype(array.dtype).itemsize + SHARD_ENTRY) + SPARE
    claimed = math.prod(-(-length // chunk) for length, chunk in zip(array.shape, lengths, strict=True))
    there = sum(1 for _ in _chunk_files(os.path.join(store, inner), os.path.realpath(store), most))
    if there < claimed // MIN_WRITTEN:  # reading it never ends
        raise ValueError(f"its shape {array.shape} has {claimed:.4g} chunks, and there are {there} files")
    if there >= claimed:
        return ""
    value = array.fill_value if array.fill_value is not None else "anything"
    missing = f"{claimed - there:,} of the {claimed:,} chunks of {name} are not stored, and are read as {value}"
    return f"{missing}, as Zarr does with chunks of nothing else; if yours hold more, copy the store again."


def _chunk_files(folder: str, store: str, most: int) -> Iterator[str]:
    """All chunks below, as they are found: there may be millions.  None has more than so many bytes."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and os.path.commonpath([end := os.path.realpath(entry.path), store]) != store:
                raise ValueError(f"{entry.path!r} is a link out of the store, to {end!r}")
            if entry.is_dir():
                yield from _chunk_files(entry.path, store, most)
            elif not entry.is_file():  # to read a pipe may take for ever
                raise ValueError(f"{entry.path!r} is not a regular file")
            elif entry.name not in _METADATA:
                if (size := entry.stat().st_size) > most:
                    raise ValueError(f"{entry.path!r} has {size:,} bytes, and a chunk at most {most:,}")
                yield entry.path


def guarded(array: Any) -> Any:
    """The same Zarr array, which unpacks no chunk to more than is declared; refused where that cannot be told."""
    metadata, dtype = array.metadata, np.dtype(array.dtype)
    text = dtype.kind in "OT"
    entry, lengths = TEXT_BYTES if text else dtype.itemsize, array.shards or array.chunks
    if (largest := math.prod(lengths) * (entry + SHARD_ENTRY)) > LARGEST_CHUNK:
        raise ValueError(f"its metadata give chunks of {amount(largest)}, and {amount(LARGEST_CHUNK)} are the most")
    if metadata.zarr_format == 2:
        written = (*(metadata.filters or ()), metadata.compressor)
        *filters, compressor = _bounded(written, lengths, entry, text)
        metadata = replace(metadata, filters=tuple(filters) or None, compressor=compressor)
    else:
        metadata = replace(metadata, codecs=_bounded(metadata.codecs, lengths, entry, text))
    place = StorePath(LoopStore(array.store), array.path)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=place, config=array.config))


def _bounded(codecs: Iterable[Any], lengths: Sequence[int], entry: int, text: bool) -> list[Any]:
    """Codecs in the order of writing; the compressor gives no more than a chunk of these lengths has."""
    bounded: list[Any] = []
    size, packed = math.prod(lengths) * entry, False
    for codec in codecs:
        name = "" if codec is None else _name(codec)
        if name and (name not in ALLOWED or (packed and name != "crc32c") or (name == "vlen-utf8" and not text)):
            raise ValueError(
                f"its chunks are written with the codec {name!r}{' after a compressor' if packed else ''}; from a path "
                f"only these are read, and one compressor: {', '.join(ALLOWED)}"
            )
        if name in COMPRESSORS:
            codec = (PackedV3 if isinstance(codec, BytesBytesCodec) else PackedV2)(name, size, text)
            packed = True  # from there on nobody knows the size
        elif name == "crc32c":
            size += CRC_BYTES
        elif isinstance(codec, ShardingCodec):
            if any(_name(one) not in ("bytes", "crc32c") for one in codec.index_codecs):
                raise ValueError("the index of its shards is compressed")
            codec = replace(codec, codecs=tuple(_bounded(codec.codecs, codec.chunk_shape, entry, text)))
        bounded.append(codec)
    return bounded


def _name(codec: Any) -> str:
    name = codec.codec_id if hasattr(codec, "codec_id") else codec.to_dict()["name"]
    return str(name).removeprefix("numcodecs.")


class PackedV2(numcodecs.abc.Codec):  # type: ignore[misc]
    """A compressor of format 2 that decodes into ``size`` bytes: just so many or, of text, at most."""

    codec_id = "packed"

    def __init__(self, name: str, size: int, text: bool) -> None:
        self.name, self.size, self.text = name, size, text

    def decode(self, chunk: Any) -> Any:
        """The bytes of a chunk."""
        return decompressed(self.name, chunk, self.size, self.text)

    def encode(self, chunk: Any) -> Any:
        """Nothing is written."""
        raise NotImplementedError


@dataclass(frozen=True)
class PackedV3(BytesBytesCodec):
    """The same of format 3."""

    name: str
    size: int
    text: bool
    is_fixed_size = False

    async def decode(self, chunks_and_specs: Iterable[tuple[Any, Any]]) -> list[Any]:
        """The bytes of some chunks."""
        found = []
        for chunk, spec in chunks_and_specs:
            if chunk is not None:
                packed = chunk.as_numpy_array()
                block = await asyncio.to_thread(decompressed, self.name, packed, self.size, self.text)
                chunk = spec.prototype.buffer.from_array_like(np.frombuffer(block, np.uint8))
            found.append(chunk)
        return found

    def to_dict(self) -> dict[str, Any]:
        """For whoever looks at the metadata."""
        return {"name": self.name}

    def compute_encoded_size(self, _: int, __: Any) -> int:
        """Nobody knows."""
        raise NotImplementedError


def decompressed(name: str, chunk: Any, size: int, text: bool) -> Any:
    """What a compressed chunk holds, if that is ``size`` bytes; of text, at most so many."""
    packed = np.ascontiguousarray(chunk).data.cast("B")
    if name in ("gzip", "zlib"):
        reader = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # which sees what of both it is
        found = reader.decompress(packed, size + 1)
        if len(found) > size or not reader.eof or (len(found) < size and not text):
            raise ValueError(f"a chunk unpacks to other than the {size} bytes that its metadata declare")
        return found
    if name == "blosc" and (says := int.from_bytes(packed[12:_BLOSC_HEAD], "little")) != len(packed):
        raise ValueError(f"a chunk has {len(packed)} bytes, and its header says {says}")  # which it would believe
    out = np.zeros(size, np.uint8)
    for last in (165, 90):
        out[-1] = last
        try:
            numcodecs.get_codec({"id": name}).decode(packed, out)
        except (ValueError, RuntimeError) as cause:
            raise ValueError(f"a chunk does not unpack to the {size} bytes that its metadata declare") from cause
        if text or out[-1] != last:  # that byte was written, so all were
            return out
    raise ValueError(f"a chunk unpacks to fewer than the {size} bytes that its metadata declare")


class LoopStore(WrapperStore):  # type: ignore[type-arg]
    """A store that knows the event loop in which it is read.

    zarr-python asks for all chunks of a call at once, and gives up at the first that fails.  The others go on, are cut
    off when the process ends, and write that to standard error (50 lines, where a read takes 10 ms); so whoever meets
    an error waits for them.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    async def get(self, *what: Any, **more: Any) -> Any:
        """What the store has there."""
        self._loop = asyncio.get_running_loop()
        return await super().get(*what, **more)

    def settle(self) -> None:
        """Wait until nothing is read any more."""
        if self._loop is not None and self._loop.is_running():
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_others(), self._loop).result(WAIT_SECONDS)


async def _others() -> None:
    """Wait for all tasks, not cancel them: some may belong to other threads, whose reading is none of our business."""
    me = asyncio.current_task()
    assert me is not None
    me.set_name(_SETTLING)  # two that wait for each other would do so for ever
    while tasks := [task for task in asyncio.all_tasks() if task is not me and task.get_name() != _SETTLING]:
        await asyncio.gather(*tasks, return_exceptions=True)
