"""Samples that a function of the user's own changes, batch by batch, before anything else is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tpca.data.base import NumberedStream, Stream
from tpca.errors import SampleError, StreamError
from tpca.tensors import DenseBatch, DeviceBatch

Function = Callable[[Any], Any]


def preprocessed(stream: Stream, function: Function) -> Stream:
    """The same samples, each batch ``(n, d_1, ..., d_k)`` as ``function`` gives it, of the same shape."""
    if not callable(function):
        raise StreamError(f"preprocess must be a function of a batch of samples, got {function!r}.")
    if not stream.whole or stream.partial:
        why = "missing entries" if stream.partial else "samples that are never held whole"
        raise StreamError(f"preprocess does not work with {why}; change the samples before, or leave it out.")
    return PreprocessedNumbered(stream, function) if stream.layout is not None else Preprocessed(stream, function)


class Preprocessed(Stream):
    """A stream over another one; what is not said here is as there."""

    def __init__(self, stream: Any, function: Function) -> None:
        self._stream, self._function = stream, function
        names = (
            "dims",
            "dtype",
            "kind",
            "length",
            "endless",
            "rereadable",
            "layout",
            "ahead",
            "readable_elsewhere",
            "files",
        )
        for name in (*names, "whole", "nan_policy", "shuffle", "labels", "like"):
            setattr(self, name, getattr(stream, name))

    @property
    def identity(self) -> str:
        """That of the samples, and the function's name."""
        return f"{self._stream.identity} {getattr(self._function, '__qualname__', type(self._function).__name__)}"

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches, changed."""
        return map(self._changed, self._stream.batches(start))

    def _changed(self, batch: Any) -> Any:
        if not len(batch):
            return batch
        if isinstance(batch, DeviceBatch):
            own = self._function(batch.samples)
            changed: Any = DeviceBatch(own, batch.first, batch.dropped, int(batch.places[0]), places=batch.places)
        else:
            own = np.asarray(self._function(batch.samples))
            if own.dtype.kind not in "fiub":
                raise SampleError(f"preprocess must give real numbers, got {own.dtype}.")
            own = np.ascontiguousarray(own, dtype=batch.samples.dtype)
            changed = DenseBatch(own, batch.first, batch.dropped, int(batch.places[0]), places=batch.places)
        if tuple(own.shape) != (len(batch), *self.dims):
            raise SampleError(f"preprocess must keep the shape {(len(batch), *self.dims)}, gave {tuple(own.shape)}.")
        return changed


class PreprocessedNumbered(Preprocessed, NumberedStream):
    """The same of batches that can be read in any order, by any process that can unpickle the function."""

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches, changed."""
        return map(self._changed, self._stream.batches(start))

    def batch(self, number: int, parts: Any = None) -> Any:
        """Batch ``number``, changed."""
        return self._changed(self._stream.batch(number, parts) if parts is not None else self._stream.batch(number))

    def lazy_parts(self, number: int) -> list[Any] | None:
        """As of the samples."""
        found: list[Any] | None = self._stream.lazy_parts(number)
        return found

    def for_workers(self) -> PreprocessedNumbered:
        """What a worker needs of it."""
        return PreprocessedNumbered(self._stream.for_workers(), self._function)
