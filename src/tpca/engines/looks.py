"""What is noted of batches that were read; digests stand for samples, nothing is kept of them.

Whether samples differ at all: without noise there is nothing to tell a signal from.  Whoever reads a batch looks at it,
the engine compares what was seen.

The receipt for what was read, kept in a position and compared by whoever goes on from there: of samples that can be
read at any place a digest of the last batch, which is read again anyway.  Samples that can only be drawn one after the
other (iterables) are all drawn again: there, every batch leaves its trace.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import CheckpointWarning
from tpca.errors import CheckpointError
from tpca.tensors import Batch, DenseBatch, DeviceBatch
from tpca.tensors.digest import digest

PIECE = 2**16  # entries that are digested at a time
GLANCE = 2**10  # entries of every batch that is drawn, in runs: two or more of every sample of a batch of some dozens


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
        if isinstance(batch, DeviceBatch):
            self._compare(batch.alike(), digest(batch[:1].content()).encode())
            return
        # Whoever uses samples looks for NaN and Inf; all of them would be read for that here.  They are where
        # a batch of somebody else's does not say what it holds.
        held = batch.content()
        samples = batch.samples if held is None else held[0]
        alike = all(np.array_equal(sample, samples[0]) for sample in samples[:0:-1])
        self._compare(alike, _digest(samples[0]) if alike else b"")

    def _compare(self, alike: bool, found: bytes) -> None:
        """Whether the samples of a batch are alike, and the digest of the first."""
        if alike and found not in self.digests:
            self.digests.append(found)
        self.varied = not alike or len(self.digests) > 1


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
        digests = {one for outcome in outcomes for one in outcome.digests}
        digests |= set() if self._digest is None else {self._digest}
        self.varied = len(digests) > 1 or any(outcome.varied for outcome in outcomes)
        self.seen = max(self.seen, seen)
        self._digest = next(iter(digests), None)


class Receipt:
    """A digest of the batch in hand and, where samples are ``drawn``, of something of every batch before it."""

    def __init__(self, drawn: bool) -> None:
        self.drawn = drawn
        self._before, self._known = "", ""

    def take(self, batch: Batch) -> None:
        """A batch comes into the hand."""
        self._known = ""
        if self.drawn:
            self._before = hashlib.sha256(f"{self._before} {batch_digest(batch, GLANCE)}".encode()).hexdigest()

    def of(self, batch: Batch) -> str | None:
        """The receipt while ``batch`` is in hand; worked out once, and only if somebody asks."""
        if not self._known and (own := batch_digest(batch)) is not None:
            self._known = f"{own}{self._before}"
        return self._known or None


def batch_digest(batch: Batch, *most: int) -> str | None:
    """Of the samples of a batch; ``None`` of a user's own that does not say what it holds."""
    content = batch.content()
    return None if content is None else digest(content, *most)


def compare(before: str | None, now: str | None, first: int, stop: int) -> None:
    """Refuse to go on with samples ``first`` to ``stop`` if they are not those of the checkpoint."""
    if now is None or before is None:
        warnings.warn(
            "the data cannot be compared with those of the checkpoint: their batches have no content(); make sure that "
            "they are the same.",
            CheckpointWarning,
            stacklevel=2,
        )
    elif before != now:
        raise changed(f"samples {first} to {stop - 1} differ")


def changed(how: str) -> CheckpointError:
    """The error for data that are not those of the checkpoint."""
    return CheckpointError(
        f"the data have changed since the checkpoint: {how}; resume with the same data, or start afresh (--restart)."
    )
