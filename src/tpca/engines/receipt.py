"""The receipt for what was read: kept in a position, compared by whoever goes on from there.

Of samples that can be read at any place it is a digest of the last batch, which is read again anyway.  Samples that can
only be drawn one after the other (iterables) are all drawn again: there, every batch leaves its trace.
"""

from __future__ import annotations

import hashlib
import warnings

from tpca.checkpoint import CheckpointWarning
from tpca.errors import CheckpointError
from tpca.tensors import Batch
from tpca.tensors.digest import digest

GLANCE = 2**14  # entries of every batch that is drawn: 0.1 ms


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
