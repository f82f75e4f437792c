"""A batch: some samples, in whatever form they come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from tpca.errors import StreamError
from tpca.tensors.blocks import Array
from tpca.tensors.query import Query


class Batch(Protocol):
    """Some samples of a stream; a slice of a batch is a batch."""

    first: int
    """Place of the batch in its stream."""
    dropped: int
    """Samples that the stream left out of it."""
    summable: bool
    """Whether samples come whole, so that adding them up costs less than contracting each."""
    shares: Array | None
    """How much of the signal every sample holds, one on average over the stream; ``None``: one each."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: slice, /) -> Self: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""

    def content(self) -> Iterable[NDArray[Any]] | None:
        """Arrays that differ if the samples do, of samples that are never held, of some; ``None``: it cannot tell."""

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add ``weight`` times the sum of the samples to ``total``, used up by it; ``None`` stands for zero."""

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Add the gradients of all queries, summed over the samples, to ``sums``, one entry per query and block."""

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients ``(n, *block shape)`` of every sample, sample j with replica ``(at + j) mod R``."""

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""


def one_by_one(batch: Batch) -> StreamError:
    """The error of samples that are never built."""
    return StreamError(
        f"PaperSolver needs samples one by one, which a {type(batch).__name__} never builds; use RaceSolver."
    )
