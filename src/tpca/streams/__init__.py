"""Streams: where samples come from."""

from tpca.streams.protocol import KINDS, Stream
from tpca.streams.sources import open_stream
from tpca.streams.table_rows import open_rows
from tpca.streams.views import open_views

__all__ = ["KINDS", "Stream", "open_rows", "open_stream", "open_views"]
