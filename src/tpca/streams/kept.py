"""Views that are kept in memory, for those who read the same rows many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tpca.streams.protocol import Layout
from tpca.streams.views import ViewsStream
from tpca.tensors.views import ViewsBatch


class KeptViews(ViewsStream):
    """Views that are kept once they were read, as what ``prepared`` makes of every batch."""

    rereadable = True

    def __init__(self, stream: ViewsStream, prepared: Callable[[ViewsBatch], ViewsBatch]) -> None:
        self.dims, self.length, self.dtype = stream.dims, stream.length, stream.dtype
        self._stream, self._prepared = stream, prepared
        self._kept: list[ViewsBatch] | None = None

    @property
    def layout(self) -> Layout | None:
        """Where the batches begin."""
        return self._stream.layout

    def batches(self, start: int = 0) -> Iterator[ViewsBatch]:
        """All batches; ``start`` is 0."""
        assert start == 0, "passes over kept rows are whole"
        if self._kept is None:
            self._kept = [self._prepared(batch) for batch in self._stream.batches()]
        return iter(self._kept)
