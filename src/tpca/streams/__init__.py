"""Streams: where samples come from."""

from tpca.streams.protocol import Stream
from tpca.streams.sources import open_stream

__all__ = ["Stream", "open_stream"]
