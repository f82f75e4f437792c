"""Samples of another batch, in whatever form they come, that are contracted otherwise than as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from tpca.tensors.protocol import Batch


class WrappedBatch:
    """What a batch of other samples has from those: their place, number, shares, bytes and content."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.first, self.dropped, self.summable = batch.first, batch.dropped, batch.summable
        self.shares = batch.shares

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""
        return self._batch.nbytes

    def content(self) -> Iterable[NDArray[Any]] | None:
        """What the samples hold, as they are."""
        return self._batch.content()
