"""A user's own stream: anything with ``dims`` and ``batches``, given here what it does not say of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tpca.streams.protocol import NanPolicy, Passing
from tpca.tensors import Batch


class OwnStream(Passing):
    """A user's stream, which passes by once unless it says otherwise; only this process reads it.

    Where a run goes on from a checkpoint its samples are drawn again from the first; only of an endless one is
    ``batches(start)`` asked for.
    """

    def __init__(self, stream: Any) -> None:
        def told(name: str, usual: Any) -> Any:
            return getattr(stream, name, usual)

        self.dims: tuple[int, ...] = tuple(stream.dims)
        self.kind: str = told("kind", "own")
        self.dtype: np.dtype[Any] = np.dtype(told("dtype", np.float64))
        self.length: int | None = told("length", None)
        self.endless: bool = told("endless", False)
        self.rereadable: bool = told("rereadable", False)
        self.nan_policy: NanPolicy = told("nan_policy", "raise")
        self.shuffle: int | None = told("shuffle", None)
        self._whole: bool = told("whole", True)
        self._stream = stream

    @property
    def identity(self) -> str:
        """What it says of itself, or its class and shape."""
        return str(getattr(self._stream, "identity", f"{type(self._stream).__name__} {self.dims}"))

    @property
    def whole(self) -> bool:
        """Whether samples come as arrays that are held in full."""
        return self._whole

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Its batches; one that does not say what it holds cannot be compared with that of a checkpoint."""
        for batch in self._stream.batches(start) if start else self._stream.batches():
            if getattr(batch, "content", None) is None:
                batch.content = lambda: None
            yield batch
