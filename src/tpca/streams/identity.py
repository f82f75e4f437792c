"""Which data these are: a look at some samples spread over a store, that costs no more than a few reads."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tpca.streams.protocol import Source

MAX_SAMPLES = 8
MAX_BYTES = 2**26  # read for them, unless two samples are more


def spread(length: int, cost: int) -> list[int]:
    """The samples to look at, where one costs so many bytes to read: the first, the last, and others between."""
    count = min(max(2, MAX_BYTES // max(1, cost)), MAX_SAMPLES, length)
    return [place * (length - 1) // max(1, count - 1) for place in range(count)]


def read_cost(source: Source, lengths: tuple[int, ...]) -> int:
    """Bytes that are read for the first ``lengths`` entries of one sample: no less than whole chunks."""
    chunks = source.chunks or (1,) * len(source.shape)
    return math.prod(_whole(chunks, (1, *lengths))) * source.dtype.itemsize


def _whole(chunks: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[int]:
    return (-(-length // chunk) * chunk for chunk, length in zip(chunks, lengths, strict=True))
