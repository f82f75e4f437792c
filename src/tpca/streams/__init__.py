"""Streams: where samples come from."""

from tpca.streams.protocol import KINDS, Stream
from tpca.streams.sources import open_stream

__all__ = ["KINDS", "Stream", "open_stream"]
