"""A stream yields batches; it may be endless, and may be read again if it says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from tpca.batches import Batch

Kind = Literal["array", "npy", "folder", "zarr", "hdf5", "dask", "iterable", "synthetic"]
Items = Literal["batches", "samples"]
NanPolicy = Literal["raise", "skip", "zero"]

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

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
