"""One stream for everything that can be sliced: arrays, npy files and folders, Zarr, HDF5, Dask."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.batches import Batch, DenseBatch, SlabBatch
from tpca.errors import SampleError, StreamError
from tpca.model.sampling import BATCH_ENTRIES
from tpca.prefetch import prefetch
from tpca.randomness import generator
from tpca.streams.checks import clean, float_dtype, one_line, sample_dims, to_floats, without_empty
from tpca.streams.protocol import Kind, NanPolicy, Source
from tpca.streams.slabs import SlabReader, cut

# A stored sample with more entries than this is never held whole: it is read in slabs of about this size.
SLAB_ENTRIES = 2**22
SLAB_SAMPLES = 64


class ArraySource:
    """An array in memory."""

    kind: Kind = "array"
    name = "the array"
    chunks: tuple[int, ...] | None = None

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self._array = array

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """A view of the entries."""
        return self._array[key]


class StoredStream:
    """The samples of a source ``(n, d_1, ..., d_k̄)`` that can be sliced; may be read again.

    With ``shuffle`` (a seed) the batches come in a random order and the samples of each in a random order: the same
    on every pass, without a copy of the whole.
    """

    rereadable = True
    endless = False

    def __init__(self, source: Source, shuffle: int | None = None, nan_policy: NanPolicy = "raise") -> None:
        what = "an array of samples" if source.kind == "array" else source.name
        self.dims = sample_dims(source.shape, what)
        self.dtype = float_dtype(source.dtype, "" if source.kind == "array" else f" in {source.name}")
        self.kind, self.chunks, self.stored_dtype = source.kind, source.chunks, source.dtype
        self.length = source.shape[0]
        if self.length == 0:
            raise StreamError(f"{source.name} holds no samples, its shape is {source.shape}; give at least one.")
        self._source, self._shuffle, self._policy = source, shuffle, nan_policy
        self._slabs = source.kind != "array" and math.prod(self.dims) > SLAB_ENTRIES
        self._step = SLAB_SAMPLES if self._slabs else _batch_length(self.dims, source.chunks)

    @cached_property
    def identity(self) -> str:
        """Kind, shape, dtype and a hash of the first sample (of its first slab), and what changes the batches."""
        if self._slabs:
            mode, parts = self._cut
            key: tuple[slice, ...] = (slice(0, 1), *[slice(None)] * mode, parts[0])
        else:
            key = (slice(0, 1),)
        head = hashlib.sha256(np.ascontiguousarray(self._read(key)).tobytes()).hexdigest()[:16]
        options = "" if self._shuffle is None else f" shuffle={self._shuffle}"
        options += "" if self._policy == "raise" else f" nan_policy={self._policy}"
        return f"{self.kind} {self._source.shape} {self._source.dtype} {head}{options}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from the one whose ``first`` is ``start``; files are read one batch ahead."""
        batches = without_empty(self._batches(start))
        return batches if self.kind == "array" else prefetch(batches)

    def _batches(self, start: int) -> Iterator[Batch]:
        count = -(-self.length // self._step)
        order = np.arange(count) if self._shuffle is None else generator(self._shuffle, "shuffle").permutation(count)
        ends = np.cumsum(np.minimum((order + 1) * self._step, self.length) - order * self._step)
        firsts = np.concatenate([[0], ends])
        begin = int(np.searchsorted(firsts, start))
        if begin > count or firsts[begin] != start:
            raise StreamError(
                f"no batch of {self._source.name} starts at sample {start}; "
                "go on with the data and the options that the run was started with."
            )
        for number, first in zip(order[begin:], firsts[begin:], strict=False):
            indices = np.arange(number * self._step, min((number + 1) * self._step, self.length))
            yield self._slab_batch(indices, int(first)) if self._slabs else self._dense_batch(indices, int(first))

    def _dense_batch(self, indices: NDArray[np.int64], first: int) -> DenseBatch:
        start = int(indices[0])
        block = self._read((slice(start, start + len(indices)),))
        if block.shape != (len(indices), *self.dims):
            raise SampleError(
                f"{self._source.name} gave samples of shape {block.shape[1:]} at sample {start}, expected {self.dims}; "
                "all samples of a stream share one shape."
            )
        samples, dropped = clean(to_floats(block), start, self._policy)
        if self._shuffle is not None:
            samples = samples[self._permutation(start, len(samples))]
        return DenseBatch(samples, first, dropped)

    def _slab_batch(self, indices: NDArray[np.int64], first: int) -> SlabBatch:
        mode, parts = self._cut
        reader = SlabReader(self._read, mode, self._policy)
        kept = indices
        if self._policy != "raise":
            kept = indices[[reader.scan(int(index), parts) for index in indices]]
        if self._shuffle is not None:
            kept = kept[self._permutation(int(indices[0]), len(kept))]
        return SlabBatch(self.dims, mode, parts, kept, reader, first, len(indices) - len(kept))

    @cached_property
    def _cut(self) -> tuple[int, list[slice]]:
        chunks = self._source.chunks
        return cut(self.dims, None if chunks is None else chunks[1:], SLAB_ENTRIES)

    def _permutation(self, start: int, count: int) -> NDArray[np.int64]:
        """An order of the samples of the batch at ``start``, that does not depend on what was read before."""
        assert self._shuffle is not None
        return generator(self._shuffle, f"shuffle samples from {start}").permutation(count)

    def _read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        try:
            return self._source.read(key)
        except (SampleError, MemoryError):
            raise
        except Exception as cause:  # codecs, file systems and schedulers raise what they like
            raise self._unreadable(key[0], cause) from cause

    def _unreadable(self, samples: slice, cause: Exception) -> StreamError:
        return StreamError(
            f"cannot read samples {samples.start} to {samples.stop - 1} of {self._source.name}: {one_line(cause)}; "
            "the data are damaged or gone: restore them and try again."
        )


def _batch_length(dims: tuple[int, ...], chunks: tuple[int, ...] | None) -> int:
    """Samples per batch: about ``BATCH_ENTRIES`` entries, in whole chunks, since no less than a chunk can be read."""
    length = max(1, BATCH_ENTRIES // math.prod(dims))
    unit = 1 if chunks is None else chunks[0]
    return -(-length // unit) * unit
