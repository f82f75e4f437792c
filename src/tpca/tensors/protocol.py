"""A batch: some samples, in whatever form they come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.query import Query


class Batch(Protocol):
    """Some samples of a stream; a slice of a batch is a batch."""

    first: int
    """Place of the batch in its stream."""
    dropped: int
    """Samples that the stream left out of it."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: slice, /) -> Self: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""

    def content(self) -> Iterable[NDArray[Any]]:
        """Arrays that differ if the samples do; of samples that are never held, of some of them."""

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""


class SummableBatch(Batch, Protocol):
    """A batch whose samples can be added up: contraction is linear, so replicas need only the sum."""

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add ``weight`` times the sum of the samples to ``total``, in place; ``None`` stands for zero."""


class ContractingBatch(Batch, Protocol):
    """A batch whose samples are never built, or never in memory at once."""

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Add the gradients of all queries, summed over the samples, to ``sums``, one entry per query and block."""
