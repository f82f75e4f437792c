"""Streams that come batch by batch: iterables, synthetic samples, a user's own stream, sparse samples.

And a stream over another one: samples that a function of the user changes before anything else is done with them.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import (
    Items,
    NanPolicy,
    NumberedStream,
    Shape,
    Stream,
    are_samples,
    as_array,
    as_batch,
    float_dtype,
    sample_dims,
    shape_of,
    spread,
    to_floats,
    untracked,
    unwrapped,
    without_empty,
)
from tpca.errors import SampleError, StreamError
from tpca.model import BATCH_ENTRIES, Samples
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.accumulators import digest
from tpca.tensors.blocks import check_dims
from tpca.tensors.dense import copied
from tpca.tensors.namespaces import home_of, is_device_array, namespace, numpy_dtype
from tpca.tensors.sparse import SparseBatch

BATCH_SAMPLES = 256  # of sparse samples in a batch, at most


class IterableStream(Stream):
    """Batches ``(n, d_1, ..., d_k̄)``, or ``single`` samples, from any iterable; the first one fixes the shape.

    ``rereadable`` is false: an iterator can be consumed once only.  So many single samples are put ``together``.
    """

    kind = "iterable"
    _position = 0
    """Number of the next sample that will come."""

    def __init__(
        self, source: Iterable[Any], single: bool = False, nan_policy: NanPolicy = "raise", together: int | None = None
    ) -> None:
        arrays = self._arrays(source, single)
        head = next(arrays, None)
        if head is None:
            raise StreamError(
                f"the stream is empty: it ended before the first {'sample' if single else 'batch'}; give at least one."
            )
        way_out = '; wrap a single sample as sample[None], or say items="samples"'
        shape = tuple(head.shape)
        self.dims = check_dims(shape[1:], 1) if single else sample_dims(shape, "a batch", way_out)
        self.dtype = _working(head)
        self.like = None if isinstance(head, np.ndarray) else head
        self.nan_policy = nan_policy
        arrays = itertools.chain([head], arrays)
        step = together or max(1, BATCH_ENTRIES // math.prod(self.dims))
        self.blocks: Iterator[Any] = self._grouped(arrays, step) if single else arrays

    @property
    def identity(self) -> str:
        """Dims, dtype and options: what an iterator will give is not known before it was read."""
        return f"{self.kind} {self.dims} {self.dtype} {self.nan_policy}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The iterable's own batches, or groups of its samples; those before ``start`` are drawn and dropped."""
        if start < self._position:
            raise StreamError(
                f"cannot go back to sample {start}: an iterable is read once, and {self._position} samples are gone; "
                "open a new stream, or give an array or a file."
            )
        return without_empty(self._from(start))

    def _from(self, start: int) -> Iterator[Batch]:
        reached = False
        for block in self.blocks:
            first = self._position
            self._position += len(block) if isinstance(block, SparseBatch) else int(block.shape[0])
            reached = reached or first == start
            if reached:
                yield self._batch(block, first)
            elif first > start:
                break
        if not reached and self._position != start:
            raise StreamError(
                f"no batch of the iterable starts at sample {start}; go on with the data that the run was started with."
            )

    def _batch(self, block: Any, first: int) -> Batch:
        return as_batch(block, first, first, self.nan_policy)

    def _arrays(self, source: Iterable[Any], single: bool) -> Iterator[NDArray[Any]]:
        """The items as arrays of samples, single samples as batches of one.

        All must be of the library, device, shape and float dtype of the first.
        """
        first = 0
        for item in source:
            part = unwrapped(item, first)
            array = untracked(part) if is_device_array(part) else as_array(part, first)
            if single and array.ndim == 0:
                raise SampleError(
                    f"a sample must be an array of shape (d_1, ..., d_k), got a single number at sample {first}."
                )
            array = array[None, ...] if single else array
            if array.ndim and not array.shape[0]:
                continue  # an empty batch says nothing
            if first and home_of(array) != (home := home_of(self.like)):
                raise SampleError(
                    f"all samples of a stream are of one library and on one device, expected {home or 'NumPy'}, "
                    f"got {home_of(array) or 'NumPy'} at sample {first}; bring them to one."
                )
            if first and array.shape[1:] != self.dims:
                raise SampleError(
                    f"samples must have shape (n, {', '.join(map(str, self.dims))}), got {tuple(array.shape)} at "
                    f"sample {first}; all samples of a stream share one shape."
                )
            if first and _working(array, f" at sample {first}") != self.dtype:
                raise SampleError(
                    f"all samples of a stream share one dtype, expected {self.dtype}, got {array.dtype} at sample "
                    f"{first}; convert them to one."
                )
            yield array
            first += int(array.shape[0])

    def _grouped(self, singles: Iterator[NDArray[Any]], step: int) -> Iterator[NDArray[Any]]:
        """Groups of samples, copied one by one: a source may use the same buffer for all of them."""
        for head in singles:
            if self.like is not None:
                rest = itertools.islice(singles, step - 1)
                yield namespace(head).concat([copied(head), *map(copied, rest)], axis=0)
                continue
            group = np.empty((step, *self.dims), dtype=self.dtype)
            filled = 0
            for single in itertools.chain([head], itertools.islice(singles, step - 1)):
                group[filled] = to_floats(single)[0]
                filled += 1
            yield group[:filled]


class BatchStream(Stream):
    """One batch, an array of NumPy ``(n, d_1, ..., d_k)`` with a sample at least, in float32 or float64."""

    kind = "iterable"

    def __init__(self, batch: NDArray[Any], nan_policy: NanPolicy) -> None:
        self.dims = batch.shape[1:]
        self.dtype = batch.dtype
        self.nan_policy = nan_policy
        self._batch = batch

    @property
    def identity(self) -> str:
        """As of any iterable."""
        return f"{self.kind} {self.dims} {self.dtype} {self.nan_policy}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batch, from its first sample on."""
        if start:
            raise StreamError(f"no batch starts at sample {start}: there is one, that of sample 0.")
        yield as_batch(self._batch, 0, 0, self.nan_policy)


def _working(array: Any, where: str = "") -> np.dtype[Any]:
    """The dtype in which samples in an array of any library are worked on."""
    return float_dtype(array.dtype, where) if isinstance(array, np.ndarray) else numpy_dtype(array, where)


def _onwards(items: Iterator[Any]) -> Iterator[Any]:
    """What an iterator still has.  Some iterables are iterators of themselves, and to iterate begins them anew."""
    while (item := next(items, _onwards)) is not _onwards:
        yield item


def stacked(samples: Sequence[Any]) -> NDArray[Any]:
    """Single samples as one array of floats, each of them checked."""
    whole: NDArray[Any] = next(IterableStream(samples, single=True, together=len(samples)).blocks)
    return whole


def open_iterable(source: Iterable[Any], items: Items, dims: Shape | None, nan_policy: NanPolicy) -> IterableStream:
    """A stream over samples or batches, sparse ones or not; where a list holds dense samples, they are stacked."""
    looked_at = source
    if isinstance(source, Sequence):
        head = source[0] if source else None
    else:
        rest = iter(source)
        head = next(rest, None)
        looked_at = () if head is None else itertools.chain([head], _onwards(rest))
    if is_sparse(head):
        if nan_policy != "raise":
            raise StreamError(
                f"nan_policy={nan_policy!r} is for dense samples; take NaN and Inf out of the sparse ones first."
            )
        return SparseStream(looked_at)
    says_batches = items == "auto" and isinstance(getattr(source, "batch_size", None), int)  # a data loader
    single = head is not None and not says_batches and not isinstance(source, list | tuple)
    alike = None if hasattr(source, "batch_size") else 1  # a loader that does not say how many it puts together
    single = single and are_samples([shape_of(head)], items, dims, "items", alike)
    return IterableStream(looked_at, single, nan_policy)


class SamplesStream(Stream):
    """The endless samples of a spiked tensor."""

    kind = "synthetic"
    endless = True

    def __init__(self, samples: Samples) -> None:
        self.dims = samples.dims
        self.dtype = np.dtype(samples.dtype)
        self._samples = samples

    @cached_property
    def identity(self) -> str:
        """How the samples are drawn, and a hash of the first."""
        head = hashlib.sha256(next(iter(self._samples))[0].tobytes()).hexdigest()[:16]
        return f"{self.kind} {self._samples!r} {self.dtype} {head}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Fresh samples for ever, finite by construction; those before ``start`` are drawn and dropped."""
        first = 0
        for samples in self._samples:
            if first >= start:
                yield DenseBatch(samples, first)
            first += len(samples)


class OwnStream(Stream):
    """A user's stream, anything with ``dims`` and ``batches``; only this process reads it.

    It passes by once unless it says otherwise.  Where a run goes on from a checkpoint its samples are drawn again from
    the first; only of an endless one is ``batches(start)`` asked for.
    """

    kind, dtype = "own", np.dtype(np.float64)

    def __init__(self, stream: Any) -> None:
        for name in ("kind", "length", "endless", "rereadable", "nan_policy", "shuffle", "whole"):
            setattr(self, name, getattr(stream, name, getattr(self, name)))
        self.dims, self.dtype = tuple(stream.dims), np.dtype(getattr(stream, "dtype", self.dtype))
        self._stream = stream

    @property
    def identity(self) -> str:
        """What it says of itself, or its class and shape."""
        return str(getattr(self._stream, "identity", f"{type(self._stream).__name__} {self.dims}"))

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Its batches; one that does not say what it holds cannot be compared with that of a checkpoint."""
        for batch in self._stream.batches(start) if start else self._stream.batches():
            if getattr(batch, "content", None) is None:
                batch.content = lambda: None
            yield batch


def is_sparse(item: Any) -> bool:
    """Whether an item of an iterable is a sparse sample, or a batch of them."""
    coordinates = hasattr(item, "coords") and hasattr(item, "data")
    return isinstance(item, SparseBatch) or hasattr(item, "tocoo") or coordinates


class SparseStream(IterableStream):
    """Sparse samples, or sparse batches, from a sequence (which may be read again) or any iterable (which may not).

    A sample is a ``scipy.sparse`` matrix, or anything with ``coords``, ``data`` and ``shape``, as ``sparse.COO`` has.
    """

    kind = "sparse"
    dtype = np.dtype(np.float64)
    whole = False

    def __init__(self, source: Iterable[Any]) -> None:
        self.rereadable = isinstance(source, Sequence)
        items = iter(source)
        head = next(items, None)
        if head is None:
            raise StreamError("the stream is empty: it ended before the first sample; give at least one.")
        self.dims = check_dims(head.dims if isinstance(head, SparseBatch) else head.shape)
        self.length = sum(len(i) if isinstance(i, SparseBatch) else 1 for i in source) if self.rereadable else None
        self._source = source
        self.blocks = self._together(itertools.chain([head], _onwards(items)))

    @property
    def identity(self) -> str:
        """Dims and length, and a digest of some samples where all are there already."""
        if not self.rereadable:
            return f"sparse {self.dims} {self.length}"
        items: Any = self._source
        some = self._together(items[place] for place in spread(len(items), cost=0))
        return f"sparse {self.dims} {self.length} {digest(array for batch in some for array in batch.content())}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Samples put together, a bounded number of entries at a time."""
        if self.rereadable:
            self._position, self.blocks = 0, self._together(self._source)
        return super().batches(start)

    def _batch(self, block: SparseBatch, first: int) -> SparseBatch:
        if block.dims != self.dims:
            raise SampleError(
                f"samples must have shape {self.dims}, got {block.dims} at sample {first}; "
                "all samples of a stream share one shape."
            )
        block.first = first
        return block

    def _together(self, items: Iterable[Any]) -> Iterator[SparseBatch]:
        waiting: list[Any] = []
        entries = 0
        for item in itertools.chain(items, [None]):
            single = item is not None and not isinstance(item, SparseBatch)
            if single:
                waiting.append(item)
                entries += int(getattr(item, "nnz", 0))
            if waiting and (not single or len(waiting) == BATCH_SAMPLES or entries >= BATCH_ENTRIES):
                yield SparseBatch.from_coo(waiting)
                waiting, entries = [], 0
            if isinstance(item, SparseBatch):
                yield item


class Preprocessed(NumberedStream):
    """The samples of another stream, each batch ``(n, d_1, ..., d_k)`` as ``function`` gives it, of the same shape.

    They can be read by any process that can unpickle the function.
    """

    def __init__(self, stream: Any, function: Callable[[Any], Any]) -> None:
        if not callable(function):
            raise StreamError(f"preprocess must be a function of a batch of samples, got {function!r}.")
        if not stream.whole or stream.partial:
            why = "missing entries" if stream.partial else "samples that are never held whole"
            raise StreamError(f"preprocess does not work with {why}; change the samples before, or leave it out.")
        for name in Stream.__annotations__:
            setattr(self, name, getattr(stream, name))
        self._stream, self._function = stream, function

    @property
    def identity(self) -> str:
        """That of the samples, and the function's name."""
        return f"{self._stream.identity} {getattr(self._function, '__qualname__', type(self._function).__name__)}"

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches, changed."""
        return map(self._changed, self._stream.batches(start))

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``, changed."""
        return self._changed(self._stream.batch(number, parts))

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The Dask arrays that a batch of the samples consists of."""
        found: list[Any] | None = self._stream.lazy_parts(number)
        return found

    def reading_ahead_within(self, nbytes: int) -> Preprocessed:
        """The same samples, of which no more than so many bytes are read ahead."""
        return Preprocessed(self._stream.reading_ahead_within(nbytes), self._function)

    def for_workers(self) -> Preprocessed:
        """What a worker needs of it."""
        return Preprocessed(self._stream.for_workers(), self._function)

    def _changed(self, batch: Any) -> Any:
        if not len(batch):
            return batch
        samples = batch.samples
        own = self._function(samples)
        if isinstance(samples, np.ndarray):
            own = np.asarray(own)
            if own.dtype.kind not in "fiub":
                raise SampleError(f"preprocess must give real numbers, got {own.dtype}.")
            own = np.ascontiguousarray(own, dtype=samples.dtype)
        if tuple(own.shape) != (len(batch), *self.dims):
            raise SampleError(f"preprocess must keep the shape {(len(batch), *self.dims)}, gave {tuple(own.shape)}.")
        return type(batch)(own, batch.first, batch.dropped, int(batch.places[0]), places=batch.places)
