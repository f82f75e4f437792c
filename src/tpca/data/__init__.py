"""Streams: where samples come from."""

from tpca.data.base import KINDS, Stream
from tpca.data.open import open_stream
from tpca.data.rows import open_views

__all__ = ["KINDS", "Stream", "open_stream", "open_views"]
