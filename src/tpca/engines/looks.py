"""Whether samples differ at all: without noise there is nothing to tell a signal from.

Whoever reads a batch looks at it, the engine compares what was seen.  Digests stand for samples: nothing is kept of
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca.tensors import Batch, DenseBatch

PIECE = 2**16  # entries that are digested at a time


class Seen(Protocol):
    """What a worker has seen: whether samples differed, and digests of some."""

    @property
    def varied(self) -> bool:
        """Whether two samples differed."""

    @property
    def digests(self) -> Sequence[bytes]:
        """Of the first sample of every batch."""


class Looks:
    """Whether samples differ: a digest of the first of every batch, and whether the others are the same."""

    def __init__(self, wanted: bool) -> None:
        self.varied, self.digests = not wanted, list[bytes]()

    def at(self, batch: Batch) -> None:
        """Look at all samples of a batch, until some differ."""
        if self.varied or not len(batch):
            return
        if not isinstance(batch, DenseBatch):
            self.varied = True
            return
        samples = batch.samples
        self.varied = not all(np.array_equal(sample, samples[0]) for sample in samples[:0:-1])
        if not self.varied and (digest := _digest(samples[0])) not in self.digests:
            self.digests.append(digest)
        self.varied = self.varied or len(self.digests) > 1


def _digest(sample: NDArray[Any]) -> bytes:
    found, flat = hashlib.sha256(), sample.reshape(-1)
    for first in range(0, flat.size, PIECE):
        found.update((flat[first : first + PIECE] + 0.0).tobytes())  # -0 and 0 are the same
    return found.digest()


class DigestWatch:
    """Notices samples that are all the same, from what workers have seen."""

    def __init__(self, seen: int = 0, varied: bool = False) -> None:
        self.seen, self.varied = seen, varied
        self._digest: bytes | None = None

    @property
    def constant(self) -> bool:
        """Whether at least two samples were seen and no two differed."""
        return self.seen > 1 and not self.varied

    def take(self, outcomes: Sequence[Seen], seen: int) -> None:
        """Compare what some workers have seen, up to sample ``seen`` of the stream."""
        if self.varied:
            return
        digests = {digest for outcome in outcomes for digest in outcome.digests}
        digests |= set() if self._digest is None else {self._digest}
        self.varied = len(digests) > 1 or any(outcome.varied for outcome in outcomes)
        self.seen = max(self.seen, seen)
        self._digest = next(iter(digests), None)
