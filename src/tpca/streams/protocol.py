"""A stream yields batches; it may be endless, and may be read again if it says so.  A source is what can be sliced."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.labels import Axis, Labels
from tpca.prefetch import read_ahead
from tpca.tensors import Batch

Kind = Literal["array", "npy", "folder", "zarr", "hdf5", "dask", "xarray", "table", "iterable", "synthetic"]
Items = Literal["auto", "batches", "samples"]
NanPolicy = Literal["raise", "omit", "zero"]

AnyBatch = TypeVar("AnyBatch", bound=Batch)

KINDS: tuple[str, ...] = get_args(Kind)
# What tells data apart is a look at some samples spread over a store, that costs no more than a few reads.
MAX_LOOKS = 8
MAX_LOOK_BYTES = 2**26  # read for them, unless two samples are more


@dataclass(frozen=True)
class Layout:
    """How a stream that can be read at any place is cut into batches."""

    bounds: NDArray[np.int64]
    """Place of the first sample of every batch, and of the end."""
    certain: bool
    """Whether every batch has all its samples; if not, some may be left out when it is read."""
    entries: int
    """Numbers that have to be read for one sample."""
    summable: bool
    """Whether samples come whole, as arrays that can be added up."""
    alone: bool = False
    """Whether every batch stays by itself, wherever it is (the blocks of a Dask array)."""
    private: bool = False
    """Whether it is in the memory of this process, which nobody else can read."""

    @property
    def count(self) -> int:
        """Number of batches."""
        return len(self.bounds) - 1


class Stream:
    """Samples of one shape, batch by batch; they pass by once, unless a stream says otherwise."""

    dims: tuple[int, ...]
    """Shape of one sample."""
    dtype: np.dtype[Any]
    """Type of the entries as they are worked on."""
    kind: str
    """Which sort of data."""
    length: int | None = None
    """Number of samples; ``None`` if unknown or endless."""
    endless: bool = False
    """Whether the samples are known never to end."""
    rereadable: bool = False
    """Whether :meth:`batches` may be called again for another pass over the same finite data."""
    layout: Layout | None = None
    """Where the batches begin; ``None`` where they cannot be read at any place."""
    ahead: int = 0
    """Batches that may be in memory beside the one that is worked on."""
    readable_elsewhere: bool = False
    """Whether another machine can read the samples."""
    whole: bool = True
    """Whether samples come as arrays that are held in full: neither sparse, nor products of views, nor in slabs."""
    nan_policy: NanPolicy = "raise"
    """What is done about NaN and Inf."""
    shuffle: int | None = None
    """Seed of the order of the samples, if that is a random one."""
    labels: Labels | None = None
    """Names of the modes and of their entries, where the data have them."""
    like: Any = None
    """Of samples on a device: an array there; ``None`` of those of the host."""

    @property
    def partial(self) -> bool:
        """Whether entries of samples may be missing, those that are there being used."""
        return self.nan_policy == "zero"

    @property
    def identity(self) -> str:
        """Says which data these are, the same in every process; a checkpoint compares it."""
        raise NotImplementedError

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from the one whose ``first`` is ``start``, with the same bounds and contents every time."""
        raise NotImplementedError


class NumberedStream(Stream):
    """A stream whose batches can be read in any order, by any process, where it has a layout."""

    layout: Layout

    def batches(self, start: int = 0) -> Iterator[Any]:
        """The batches from the one whose ``first`` is ``start``; one is read ahead, where the stream says so."""
        numbers = range(int(np.searchsorted(self.layout.bounds, start)), self.layout.count)
        return without_empty(read_ahead(self.batch, numbers) if self.ahead else map(self.batch, numbers))

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Any:
        """Batch ``number``, which may be empty; from ``parts``, what :meth:`lazy_parts` gave, if these are given."""
        raise NotImplementedError

    def lazy_parts(self, number: int) -> list[Any] | None:  # noqa: ARG002
        """The Dask arrays that batch ``number`` consists of; ``None`` where it is read from a file."""
        return None

    def for_workers(self) -> Self:
        """What a worker needs of it: all but a Dask array, whose blocks come by themselves."""
        return self

    def _range(self, number: int) -> tuple[int, int]:
        """The places of batch ``number``."""
        first, stop = self.layout.bounds[number : number + 2]
        return int(first), int(stop)


def without_empty(batches: Iterable[AnyBatch]) -> Iterator[AnyBatch]:
    """The batches, an empty one made part of the next, so that its dropped samples are counted there.

    If nothing is left at the very end, a last empty batch carries the count.
    """
    waiting: AnyBatch | None = None
    for batch in batches:
        if waiting is not None:
            batch.first, batch.dropped = waiting.first, waiting.dropped + batch.dropped
        waiting = None if len(batch) else batch
        if waiting is None:
            yield batch
    if waiting is not None:
        yield waiting


class Source:
    """Samples that are stored and can be sliced: what a stored stream reads."""

    kind: Kind
    """Which sort of store."""
    name: str
    """What messages call it."""
    shape: tuple[int, ...]
    """Shape ``(n, d_1, ..., d_k̄)`` of the whole."""
    dtype: np.dtype[Any]
    """Type of the entries as they are stored."""
    chunks: tuple[int, ...] | None = None
    """Length, along every axis, of the pieces it is stored in; ``None`` if it is stored in one."""
    shared: bool = True
    """Whether other processes can open it."""
    edges: NDArray[np.int64] | None = None
    """Of a Dask array: the first sample of every block, and the end; ``None`` of what is read from a store."""
    axes: tuple[Axis, ...] = ()
    """Names and coordinates of all axes; empty where the store gives none."""

    def transposed(self, order: tuple[int, ...]) -> Source | None:  # noqa: ARG002
        """The same with its axes in another order, where that moves no data; ``None``: batches are to be turned."""
        return None

    at_once: int = 1
    """Samples of a batch at least."""
    parallel: bool = False
    """Whether several threads may read at once, and gain by it; not where a library has one lock for all of them."""

    def part(self, start: int, stop: int) -> Any:  # noqa: ARG002
        """Of a Dask array: some samples, as one block that stays where it is; ``None`` of all else."""
        return None

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        raise NotImplementedError


class ArraySource(Source):
    """An array in memory."""

    kind: Kind = "array"
    shared = False

    def __init__(self, array: NDArray[Any], axes: tuple[Axis, ...] = (), name: str = "the array") -> None:
        self.shape, self.dtype, self.axes, self.name = array.shape, array.dtype, axes, name
        self._array = array

    def transposed(self, order: tuple[int, ...]) -> ArraySource:
        """A view of the same array."""
        axes = tuple(self.axes[i] for i in order) if self.axes else ()
        return ArraySource(self._array.transpose(order), axes, self.name)

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """A view of the entries."""
        return self._array[key]


def spread(length: int, cost: int) -> list[int]:
    """The samples to look at, where one costs so many bytes to read: the first, the last, and others between."""
    count = min(max(2, MAX_LOOK_BYTES // max(1, cost)), MAX_LOOKS, length)
    return [place * (length - 1) // max(1, count - 1) for place in range(count)]


def read_cost(source: Source, lengths: tuple[int, ...]) -> int:
    """Bytes that are read for the first ``lengths`` entries of one sample: no less than whole chunks."""
    chunks = source.chunks or (1,) * len(source.shape)
    return math.prod(_whole(chunks, (1, *lengths))) * source.dtype.itemsize


def _whole(chunks: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[int]:
    return (-(-length // chunk) * chunk for chunk, length in zip(chunks, lengths, strict=True))
