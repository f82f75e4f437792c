"""What the engines over a stream share: what the stream says of its samples, and what was seen of them."""

from __future__ import annotations

from typing import Any

from tpca.engines.looks import DigestWatch
from tpca.streams import Stream


class StreamEngine:
    """Reads the samples of a stream."""

    stream: Stream

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.dims, self.length, self.endless = stream.dims, stream.length, stream.endless
        self.rereadable, self.whole, self.partial = stream.rereadable, stream.whole, stream.partial
        self.labels, self.like = stream.labels, stream.like
        self.buffer_bytes = 0
        self._watch = DigestWatch()

    @property
    def identity(self) -> str:
        """Which data these are."""
        return self.stream.identity

    @property
    def constant(self) -> bool:
        """Whether there were several samples, and all of them the same."""
        return self._watch.constant

    def _seen(self) -> dict[str, Any]:
        """What was seen so far, for a position."""
        return {"buffer_bytes": self.buffer_bytes, "seen": self._watch.seen, "varied": self._watch.varied}

    def _see_again(self, position: dict[str, Any]) -> None:
        """Take up what had been seen at a position."""
        self.buffer_bytes = int(position["buffer_bytes"])
        self._watch = DigestWatch(int(position["seen"]), bool(position["varied"]))
