"""Arrays and Python iterables as streams."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.batches import DenseBatch
from tpca.blocks import check_dims
from tpca.errors import SampleError, StreamError
from tpca.model import Samples
from tpca.model.sampling import BATCH_ENTRIES
from tpca.streams.protocol import Stream


class ArrayStream:
    """The samples of an array ``(n, d_1, ..., d_k̄)``, in order; may be read again."""

    rereadable = True
    endless = False

    def __init__(self, samples: NDArray[Any]) -> None:
        if samples.ndim < 3:
            raise SampleError(
                f"an array of samples must have shape (n, d_1, ..., d_k) with at least two modes, got {samples.shape}."
            )
        self.dims = check_dims(samples.shape[1:])
        self.length = len(samples)
        self._samples = samples
        self._step = max(1, BATCH_ENTRIES // math.prod(self.dims))

    def batches(self) -> Iterator[DenseBatch]:
        """Slices of the array, each about a million entries."""
        for first in range(0, self.length, self._step):
            yield DenseBatch.checked(self._samples[first : first + self._step], self.dims, first)


class IterableStream:
    """Batches ``(n, d_1, ..., d_k̄)`` from any iterable; the first one fixes the shape.

    ``rereadable`` is false: an iterator can be consumed once only.
    """

    rereadable = False
    endless = False
    length = None

    def __init__(self, source: Iterable[Any]) -> None:
        iterator = iter(source)
        try:
            head = np.asarray(next(iterator))
        except StopIteration:
            raise StreamError("the stream is empty: it ended before the first batch; give at least one.") from None
        if head.ndim < 3:
            raise SampleError(
                f"a batch must have shape (n, d_1, ..., d_k) with at least two modes, got {head.shape}; "
                "wrap a single sample as sample[None]."
            )
        self.dims = check_dims(head.shape[1:])
        self._dtype = head.dtype
        self._rest: Iterator[Any] = itertools.chain([head], iterator)

    def batches(self) -> Iterator[DenseBatch]:
        """The iterable's own batches, checked."""
        first = 0
        for item in self._rest:
            batch = DenseBatch.checked(item, self.dims, first, self._dtype)
            first += len(batch)
            yield batch


class SamplesStream:
    """The endless samples of a spiked tensor."""

    rereadable = False
    endless = True
    length = None

    def __init__(self, samples: Samples) -> None:
        self.dims = samples.dims
        self._samples = samples

    def batches(self) -> Iterator[DenseBatch]:
        """Fresh samples for ever; finite by construction, so they need no check."""
        return map(DenseBatch, self._samples)


def open_stream(source: Any) -> Stream:
    """A stream over ``source``: an array of samples, an iterable of batches, synthetic samples, or a stream."""
    if hasattr(source, "batches") and hasattr(source, "dims"):
        stream: Stream = source
        return stream
    if isinstance(source, Samples):
        return SamplesStream(source)
    if isinstance(source, np.ndarray):
        return ArrayStream(source)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return IterableStream(source)
    raise StreamError(
        f"cannot read samples from {type(source).__name__}; give an array (n, d_1, ..., d_k) or an iterable of batches."
    )
