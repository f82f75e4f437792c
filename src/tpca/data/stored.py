"""One stream for everything that can be sliced: arrays, also on a device, npy files and folders, Zarr, HDF5, Dask.

Samples too large to be held are read in slabs: where to cut them, and how to read a piece.

Memory for batches is used again: fresh memory costs page faults, which take as long as reading from a cache.  A batch
that was read holds a :class:`Lease` through its array and all views of it; when the last of them is gone, the memory
goes back, and the next batch is read into it.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import (
    Layout,
    NanPolicy,
    NumberedStream,
    Source,
    all_finite,
    as_batch,
    depth,
    float_dtype,
    read_cost,
    sample_dims,
    spread,
    to_floats,
)
from tpca.errors import SampleError, StreamError, reading
from tpca.labels import labels_of
from tpca.model import BATCH_ENTRIES
from tpca.randomness import generator
from tpca.tensors import Batch, DenseBatch, SlabBatch
from tpca.tensors.accumulators import digest
from tpca.tensors.dense import missing
from tpca.tensors.namespaces import home_of
from tpca.threads import cores

# A stored sample with more entries than this is never held whole: it is read in slabs of about this size.
SLAB_ENTRIES = 2**22
SLAB_SAMPLES = 64
# Samples of a batch at least, if they are no larger together than a slab: one by one, reading and adding up cost more.
FILE_SAMPLES = 4
# Entries of a batch at most, where whole chunks would be more: chunks that hold a part of many samples are read again.
MAX_ENTRIES = 2**24
# Samples of a batch that is a view of an array in memory: so many are added up in one read of each.
ARRAY_SAMPLES = 16
# Entries of a batch, a range of an array on a device, that lies there anyway: a launch costs nothing beside it.
DEVICE_BATCH_ENTRIES = 2**26
MAX_IDLE = 17  # pieces of memory that wait at most: as many as can be in flight


class StoredStream(NumberedStream):
    """The samples of a source ``(n, d_1, ..., d_k̄)`` that can be sliced; may be read again.

    With ``shuffle`` (a seed) the batches come in a random order and the samples of each in a random order: the same
    on every pass, without a copy of the whole.
    """

    rereadable = True

    def __init__(self, source: Source, shuffle: int | None = None, nan_policy: NanPolicy = "raise") -> None:
        what = "an array of samples" if source.kind == "array" else source.name
        self.dims = sample_dims(source.shape, what)
        self.dtype = float_dtype(source.dtype, "" if source.kind == "array" else f" in {source.name}")
        self.kind, self.chunks, self.stored_dtype = source.kind, source.chunks, source.dtype
        self.length: int = source.shape[0]
        if self.length == 0:
            raise StreamError(f"{source.name} holds no samples, its shape is {source.shape}; give at least one.")
        self._source, self.shuffle, self.nan_policy = source, shuffle, nan_policy
        self.files, self.like = source.files, source.like
        self.labels = labels_of(source.axes, source.name) if source.axes else None
        entries = math.prod(self.dims)
        self._slabs = source.kind != "array" and entries > SLAB_ENTRIES
        # A block of a Dask array stays where it is: no batch has a part of one.
        edges = None if self._slabs else source.edges
        step = SLAB_SAMPLES if self._slabs else _batch_length(self.dims, source.chunks)
        if source.kind == "array":
            step = max(step, ARRAY_SAMPLES, 0 if self.like is None else DEVICE_BATCH_ENTRIES // entries)
        self._edges = even_edges(self.length, step) if edges is None else _thinned(edges, entries)
        self._longest, count = int(np.diff(self._edges).max()), len(self._edges) - 1
        self._order = np.arange(count) if shuffle is None else generator(shuffle, "shuffle").permutation(count)
        chunks = None if source.chunks is None else source.chunks[1:]
        self._cut = cut(self.dims, chunks, SLAB_ENTRIES) if self._slabs else (0, [slice(0, self.dims[0])])
        self.whole = not self._slabs
        self.readable_elsewhere = source.shared and not (self._slabs and source.kind == "dask")
        # Where the batches begin, in the order of the stream.
        bounds = np.concatenate([[0], np.cumsum(np.diff(self._edges)[self._order])])
        alone, private = self.kind == "dask", self.kind == "array"
        self.layout: Layout = Layout(bounds, nan_policy == "raise", entries, not self._slabs, alone, private)
        if not private and not self._slabs:  # slabs are read when they are needed
            self.ahead = depth(self._longest * entries * self.dtype.itemsize, self.layout.count)
            self.readers = cores() if source.parallel else 1

    @cached_property
    def identity(self) -> str:
        """Kind, shape, dtype, a digest of some samples (of a slab of each), and what changes the batches.

        Of samples on a device no more than a few numbers come to the host.
        """
        options = "" if self.shuffle is None else f" shuffle={self.shuffle}"
        options += "" if self.nan_policy == "raise" else f" nan_policy={self.nan_policy}"
        about = f"{self._source.shape} {self._source.dtype}"
        if self.like is not None:
            return f"{home_of(self.like)} {about} {digest(DenseBatch(self.like).content())}{options}"
        mode, parts = self._cut
        lengths = [*self.dims[:mode], parts[0].stop - parts[0].start, *self.dims[mode + 1 :]]
        places = spread(self.length, read_cost(self._source, tuple(lengths)))
        some = [parts[number * len(parts) // len(places)] for number in range(len(places))]
        keys = (
            (slice(place, place + 1), *[slice(None)] * mode, part) for place, part in zip(places, some, strict=True)
        )
        return f"{self.kind} {about} {digest(map(self._read, keys))}{options}"

    @property
    def chunk_bytes(self) -> int | None:
        """Bytes of the largest piece that can only be read whole; ``None`` if any range can be read by itself."""
        if self.chunks is None:
            return None
        lengths = (min(chunk, length) for chunk, length in zip(self.chunks, (self.length, *self.dims), strict=True))
        return math.prod(lengths) * self.stored_dtype.itemsize

    @property
    def reading_bytes(self) -> int:
        """Bytes that reading takes at most: chunks that are decompressed, and the slab or batches made of them."""
        if self._slabs:
            mode, ranges = self._cut
            held = math.prod(self.dims) // self.dims[mode] * max(int(part.stop - part.start) for part in ranges)
        else:
            held = min((1 + self.ahead) * self._longest, self.length) * math.prod(self.dims)
        at_once = max(1, self.ahead) if self._source.parallel else 1
        return at_once * (self.chunk_bytes or 0) + held * self.dtype.itemsize

    def reading_ahead_within(self, nbytes: int) -> Self:
        """The same samples, of which no more than so many bytes are read ahead."""
        batch_bytes = self._longest * math.prod(self.dims) * self.dtype.itemsize
        twin = copy.copy(self)
        twin.ahead = min(self.ahead, nbytes // batch_bytes)
        return twin

    def for_workers(self) -> Self:
        """What a worker needs of it: all but a Dask array, whose blocks come by themselves."""
        twin = copy.copy(self)
        twin._source = self._source.for_workers()
        return twin

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The samples of a batch as a Dask array, if they are in one."""
        part = self._source.part(*self._range(number))
        return None if part is None else [part]

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Batch:
        """Batch ``number`` in the order of the stream; it may be empty.  A range of an array is not copied."""
        a, b = self._range(number)
        first = int(self.layout.bounds[number])
        if self._slabs:
            return self._slab_batch(np.arange(a, b), first)
        if self.like is None:
            block = self._read((slice(a, b),)) if parts is None else parts[0]
            if block.shape != (b - a, *self.dims):
                raise SampleError(
                    f"{self._source.name} gave samples of shape {block.shape[1:]} at sample {a}, expected {self.dims}; "
                    "all samples of a stream share one shape."
                )
            batch = as_batch(block, first, a, self.nan_policy)
        else:
            batch = as_batch(self.like[a:b, ...], first, a, self.nan_policy)
        if self.shuffle is None:
            return batch
        turned = batch.taken(self._permutation(a, len(batch)))
        turned.first, turned.dropped = first, batch.dropped
        return turned

    def _range(self, number: int) -> tuple[int, int]:
        """The samples of batch ``number`` as they are stored."""
        place = self._order[number]
        return int(self._edges[place]), int(self._edges[place + 1])

    def _slab_batch(self, indices: NDArray[np.int64], first: int) -> SlabBatch:
        mode, parts = self._cut
        kept = indices
        if self.nan_policy != "raise":  # all is read, to see which samples are to be kept
            enough = np.all if self.nan_policy == "omit" else np.any
            kept = indices[[bool(enough([enough(self._observed(int(i), p)) for p in parts])) for i in indices]]
        if self.shuffle is not None:
            kept = kept[self._permutation(int(indices[0]), len(kept))]
        observed = self._observed if self.nan_policy == "zero" else None
        dropped = len(indices) - len(kept)
        return SlabBatch(self.dims, mode, parts, kept, self._slab, first, dropped, observed=observed)

    def _slab(self, index: int, part: slice, clean: bool = True) -> NDArray[Any]:
        """The range ``part`` of the mode that is cut, of one sample; missing entries are refused, or read as 0."""
        slab: NDArray[Any] = to_floats(self._read((slice(index, index + 1), *[slice(None)] * self._cut[0], part)))[0]
        if not clean or all_finite(slab):
            return slab
        if self.nan_policy != "zero":
            raise missing(index)
        return np.where(np.isfinite(slab), slab, slab.dtype.type(0))

    def _observed(self, index: int, part: slice) -> NDArray[Any]:
        """Ones where there are entries in that range, and zeros where they are missing."""
        there: NDArray[Any] = np.isfinite(self._slab(index, part, clean=False)).astype(np.float64)
        return there

    def _permutation(self, start: int, count: int) -> NDArray[np.int64]:
        """An order of the samples of the batch at ``start``, that does not depend on what was read before."""
        assert self.shuffle is not None
        return generator(self.shuffle, f"shuffle samples from {start}").permutation(count)

    def _read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        return read_samples(self._source, key, "samples")


def read_samples(source: Source, key: tuple[slice, ...], word: str) -> NDArray[Any]:
    """What a source holds in these ranges; its codecs, file system or scheduler may fail in any way."""
    failure = f"cannot read {word} {key[0].start} to {key[0].stop - 1} of {source.name}"
    with reading(failure, "the data are damaged or gone: restore them and try again", passing=SampleError):
        return source.read(key)


def even_edges(length: int, step: int) -> NDArray[np.int64]:
    """Batches of equal length."""
    return np.minimum(np.arange(-(-length // step) + 1) * step, length)


def _thinned(edges: NDArray[np.int64], entries: int) -> NDArray[np.int64]:
    """Blocks put together until a batch is worth the while, where they are small."""
    kept = [int(edges[0])]
    for edge in edges[1:-1]:
        if (edge - kept[-1]) * entries >= BATCH_ENTRIES:
            kept.append(int(edge))
    return np.array([*kept, int(edges[-1])])


def _batch_length(dims: tuple[int, ...], chunks: tuple[int, ...] | None) -> int:
    """Samples per batch: about ``BATCH_ENTRIES`` entries, in whole chunks, since no less than a chunk can be read."""
    length = max(1, BATCH_ENTRIES // math.prod(dims), min(FILE_SAMPLES, SLAB_ENTRIES // math.prod(dims)))
    unit = 1 if chunks is None else chunks[0]
    whole = -(-length // unit) * unit
    parted = chunks is not None and math.prod(chunks[1:]) < math.prod(dims)
    return max(length, MAX_ENTRIES // math.prod(dims)) if parted and whole * math.prod(dims) > MAX_ENTRIES else whole


def cut(dims: tuple[int, ...], chunks: tuple[int, ...] | None, entries: int) -> tuple[int, list[slice]]:
    """The mode to cut, and its ranges: whole chunks, each slab of at most ``entries`` entries where that is possible.

    ``chunks`` are those of a sample (``None``: stored in one piece); the mode with the most of them is cut, so that
    a slab touches as few chunks in vain as can be.  Of one piece the first mode is cut, whose ranges are neighbours, or
    if a single place of that is too much, the next, or the longest.
    """
    total = math.prod(dims)
    mode, unit = next((n for n, d in enumerate(dims) if total // d <= entries), dims.index(max(dims))), 1
    if chunks is not None:
        counts = [-(-length // chunk) for length, chunk in zip(dims, chunks, strict=True)]
        mode = counts.index(max(counts))
        unit = chunks[mode]
    fits = entries // (total // dims[mode])
    step = max(unit, fits // unit * unit)
    return mode, [slice(a, min(a + step, dims[mode])) for a in range(0, dims[mode], step)]


class Lease:
    """Some memory, until nobody has it any more."""

    def __init__(self, memory: NDArray[Any], idle: deque[NDArray[Any]]) -> None:
        self._memory, self._idle = memory, idle
        # NumPy's way to hand over memory: arrays made of this hold this object, and so do all views of them.
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._idle.append(self._memory)


class Leases:
    """Memory for arrays of one size at a time; what is not in use is kept, at most for the last size asked for."""

    def __init__(self) -> None:
        self._idle: deque[NDArray[Any]] = deque(maxlen=MAX_IDLE)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Leases, ())  # memory stays in its process

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array of this shape with anything in it."""
        nbytes, memory = math.prod(shape) * dtype.itemsize, None
        while memory is None or not nbytes <= memory.nbytes <= 2 * nbytes:  # what does not fit is let go
            try:
                memory = self._idle.pop()  # the one that was used last is still in the processor's cache
            except IndexError:
                memory = np.empty(nbytes, np.uint8)
        return np.asarray(Lease(memory, self._idle))[:nbytes].view(dtype).reshape(shape)
