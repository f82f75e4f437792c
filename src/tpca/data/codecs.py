"""What a Zarr chunk may unpack to: just the bytes that the metadata declare, by codecs of a short list.

A few hundred bytes of some codecs unpack to gigabytes, and one (``pickle``) runs whatever it holds.  So an array that
is opened by its path keeps only codecs of which it is known, from the metadata alone, how many bytes they give; all
others are refused by name.  The bytes of a chunk are followed through its filters to the one compressor, which then
decodes into that many bytes and no more.  This is the only module that needs zarr and numcodecs to be imported.
"""

from __future__ import annotations

import asyncio
import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.storage import StorePath, WrapperStore

from tpca.data.trust import SHARD_ENTRY
from tpca.wording import amount

NUMERIC_FILTERS = ("bitround", "delta", "fixedscaleoffset", "quantize")  # of format 2: as many numbers, of known types
SAME_SIZE = ("bytes", "endian", "shuffle", "transpose")
CRC_BYTES = 4
COMPRESSORS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
ALLOWED = (*COMPRESSORS, *NUMERIC_FILTERS, *SAME_SIZE, "crc32c", "sharding_indexed", "vlen-utf8")
TEXT_BYTES = 1024  # of a name along an axis, at most
LZMA_MEMORY = 2**27  # bytes: twice what its highest level needs
# A remote store that hangs must not hang whoever is to be told of the error, too.
WAIT_SECONDS = 10.0
_SETTLING = "tpca-settle"
_BLOSC_HEAD = 16


def guarded(array: Any) -> Any:
    """The same Zarr array, which unpacks no chunk to more than is declared; refused where that cannot be told."""
    metadata, dtype = array.metadata, np.dtype(array.dtype)
    largest = math.prod(array.shards or array.chunks) * _entry_bytes(dtype)
    if largest > (memory := available_memory()):
        raise ValueError(f"its metadata give chunks of {amount(largest)}, and there are {amount(memory)} of memory")
    if metadata.zarr_format == 2:
        size = math.prod(array.chunks) * _entry_bytes(dtype)
        *filters, compressor = _bounded((*(metadata.filters or ()), metadata.compressor), size, _is_text(dtype))
        metadata = replace(metadata, filters=tuple(filters) or None, compressor=compressor)
    else:
        metadata = replace(metadata, codecs=_bounded_v3(metadata.codecs, array.shards or array.chunks, dtype))
    place = StorePath(Watched(array.store), array.path)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=place, config=array.config))


class Watched(WrapperStore):  # type: ignore[type-arg]
    """A store that knows the event loop in which it is read.

    zarr-python asks for all chunks of a call at once, and gives up at the first that fails.  The others go on, are cut
    off when the process ends, and write that to standard error; so whoever meets an error waits for them.
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


def available_memory() -> int:
    """Bytes that a process may still ask for."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _is_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "OT"


def _entry_bytes(dtype: np.dtype[Any]) -> int:
    return TEXT_BYTES if _is_text(dtype) else dtype.itemsize


def _name(codec: Any) -> str:
    name = codec.codec_id if hasattr(codec, "codec_id") else codec.to_dict()["name"]
    return str(name).removeprefix("numcodecs.")


def _bounded(codecs: Iterable[Any], size: int, text: bool) -> list[Any]:
    """The codecs in the order of writing, the compressor among them bounded; ``size`` is what a chunk has at first."""
    bounded: list[Any] = []
    packed = False  # from there on nobody knows the size
    for codec in codecs:
        name = "" if codec is None else _name(codec)
        if name and (name not in ALLOWED or (packed and name != "crc32c") or (name == "vlen-utf8" and not text)):
            raise ValueError(
                f"its chunks are written with the codec {name!r}{' after a compressor' if packed else ''}; from a path "
                f"only these are read, and one compressor: {', '.join(ALLOWED)}"
            )
        if name in COMPRESSORS:
            codec = (PackedV3 if isinstance(codec, BytesBytesCodec) else PackedV2)(name, size, text)
            packed = True
        elif name in NUMERIC_FILTERS:
            size = size // _type(codec.dtype) * _type(codec.astype) if name != "bitround" else size
        elif name == "crc32c":
            size += CRC_BYTES
        bounded.append(codec)
    return bounded


def _type(dtype: Any) -> int:
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"its filters have the type {dtype}, which is no number")
    return int(np.dtype(dtype).itemsize)


def _bounded_v3(codecs: Sequence[Any], lengths: Sequence[int], dtype: np.dtype[Any]) -> list[Any]:
    """The codecs of format 3, those inside a shard of these lengths too."""
    inside = []
    for codec in codecs:
        if isinstance(codec, ShardingCodec):
            if any(_name(one) not in ("bytes", "crc32c") for one in codec.index_codecs):
                raise ValueError("the index of its shards is compressed")
            chunks = math.prod(-(-length // inner) for length, inner in zip(lengths, codec.chunk_shape, strict=True))
            if chunks * SHARD_ENTRY > available_memory():
                raise ValueError(f"its metadata give shards of {chunks:.4g} chunks")
            codec = replace(codec, codecs=tuple(_bounded_v3(codec.codecs, codec.chunk_shape, dtype)))
        elif _name(codec) in NUMERIC_FILTERS and hasattr(codec, "to_dict"):
            raise ValueError(f"its chunks have the filter {_name(codec)!r}, which is read in format 2 only")
        inside.append(codec)
    return _bounded(inside, math.prod(lengths) * _entry_bytes(dtype), _is_text(dtype))


class PackedV2(numcodecs.abc.Codec):  # type: ignore[misc]
    """A compressor of format 2 that decodes into ``size`` bytes: just so many or, of text, at most."""

    codec_id = "packed"

    def __init__(self, name: str, size: int, text: bool) -> None:
        self.name, self.size, self.text = name, size, text

    def decode(self, chunk: Any) -> Any:
        """The bytes of a chunk."""
        return unpacked(self.name, chunk, self.size, self.text)

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

    async def _decode_single(self, chunk: Any, spec: Any) -> Any:
        found = await asyncio.to_thread(unpacked, self.name, chunk.as_numpy_array(), self.size, self.text)
        return spec.prototype.buffer.from_array_like(np.frombuffer(found, np.uint8))

    def to_dict(self) -> dict[str, Any]:
        """For whoever looks at the metadata."""
        return {"name": self.name}

    def compute_encoded_size(self, _: int, __: Any) -> int:
        """Nobody knows."""
        raise NotImplementedError


def unpacked(name: str, chunk: Any, size: int, text: bool) -> Any:
    """What a compressed chunk holds, if that is ``size`` bytes; of text, at most so many."""
    packed = np.ascontiguousarray(chunk).data.cast("B")
    if name in _READERS:
        found = _READERS[name](packed, size + 1)
        if len(found) > size or (len(found) < size and not text):
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


def _gunzip(packed: memoryview, most: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        return file.read(most)


def _with(decompressor: Callable[[], Any]) -> Callable[[memoryview, int], bytes]:
    """Reader of a compressor of the standard library."""

    def read(packed: memoryview, most: int) -> bytes:
        one = decompressor()
        found: bytes = one.decompress(packed, most)
        if len(found) < most and not one.eof:
            raise ValueError("a chunk ends before its compressed data do")
        return found

    return read


_READERS: dict[str, Callable[[memoryview, int], bytes]] = {
    "gzip": _gunzip,
    "zlib": _with(zlib.decompressobj),
    "bz2": _with(bz2.BZ2Decompressor),
    "lzma": _with(lambda: lzma.LZMADecompressor(memlimit=LZMA_MEMORY)),
}
