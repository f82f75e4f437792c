"""A stream yields batches; it may be endless, and may be read again if it says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.tensors import Batch

Kind = Literal["array", "npy", "folder", "zarr", "hdf5", "dask", "iterable", "synthetic"]
Items = Literal["auto", "batches", "samples"]
NanPolicy = Literal["raise", "omit", "zero"]

KINDS: tuple[str, ...] = get_args(Kind)


class Stream(Protocol):
    """Samples of one shape, batch by batch."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def length(self) -> int | None:
        """Number of samples; ``None`` if unknown or endless."""

    @property
    def endless(self) -> bool:
        """Whether the samples are known never to end."""

    @property
    def rereadable(self) -> bool:
        """Whether :meth:`batches` may be called again for another pass over the same finite data."""

    @property
    def identity(self) -> str:
        """Says which data these are, the same in every process; a checkpoint compares it."""

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The batches from the one whose ``first`` is ``start``, with the same bounds and contents every time."""

    @property
    def kind(self) -> str:
        """Which sort of data."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries as they are worked on."""

    @property
    def layout(self) -> Layout | None:
        """Where the batches begin; ``None`` where they cannot be read at any place."""

    @property
    def reads_ahead(self) -> bool:
        """Whether a second batch is in memory while the first is worked on."""

    @property
    def readable_elsewhere(self) -> bool:
        """Whether another machine can read the samples."""

    @property
    def whole(self) -> bool:
        """Whether samples come as arrays that are held in full: neither sparse, nor products of views, nor in slabs."""

    @property
    def nan_policy(self) -> NanPolicy:
        """What is done about NaN and Inf."""

    @property
    def shuffle(self) -> int | None:
        """Seed of the order of the samples, if that is a random one."""


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


class Passing:
    """Base of all streams here: what is so of samples that pass by once, unless a stream says otherwise."""

    nan_policy: NanPolicy = "raise"
    shuffle: int | None = None
    layout: Layout | None = None
    endless = rereadable = reads_ahead = readable_elsewhere = False
    whole = True
    length: int | None = None


class NumberedStream(Stream, Protocol):
    """A stream whose batches can be read in any order, by any process."""

    @property
    def layout(self) -> Layout:
        """Where the batches begin."""

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Batch:
        """Batch ``number``, which may be empty; from ``parts``, what :meth:`lazy_parts` gave, if these are given."""

    def lazy_parts(self, number: int) -> list[Any] | None:
        """The Dask arrays that batch ``number`` consists of; ``None`` where it is read from a file."""

    def for_workers(self) -> NumberedStream:
        """What a worker needs of it: all but a Dask array, whose blocks come by themselves."""


class Source(Protocol):
    """Samples that are stored and can be sliced: what a stored stream reads."""

    @property
    def kind(self) -> Kind:
        """Which sort of store."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape ``(n, d_1, ..., d_k̄)`` of the whole."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries as they are stored."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Length, along every axis, of the pieces it is stored in; ``None`` if it is stored in one."""

    @property
    def shared(self) -> bool:
        """Whether other processes can open it."""

    @property
    def edges(self) -> NDArray[np.int64] | None:
        """Of a Dask array: the first sample of every block, and the end; ``None`` of what is read from a store."""

    def part(self, start: int, stop: int) -> Any:
        """Of a Dask array: some samples, as one block that stays where it is; ``None`` of all else."""

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""


class FileSource:
    """What is so of sources that any process can read."""

    edges: NDArray[np.int64] | None = None
    shared = True

    def part(self, start: int, stop: int) -> Any:  # noqa: ARG002
        """No part of a Dask array."""
        return None
