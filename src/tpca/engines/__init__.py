"""Engines: the next samples reduced into an accumulator, from a stream, a cluster, or as they are handed in."""

from typing import Any, TypeGuard

from tpca.data import Stream
from tpca.engines.base import Data, Engine, mean_and_error, reward_pieces
from tpca.engines.dask.cluster import active_client
from tpca.engines.dask.engine import DaskEngine
from tpca.engines.local import LocalEngine, StreamEngine
from tpca.engines.push import PushEngine

__all__ = [
    "DaskEngine",
    "Data",
    "Engine",
    "LocalEngine",
    "PushEngine",
    "StreamEngine",
    "active_client",
    "is_engine",
    "mean_and_error",
    "on_active_cluster",
    "open_engine",
    "reward_pieces",
]


def is_engine(source: Any) -> TypeGuard[Engine]:
    """Whether ``source`` reduces samples itself: labelled arrays have ``dims`` and ``reduce`` too, but no passes."""
    return all(hasattr(source, name) for name in ("dims", "reduce", "rewind"))


def on_active_cluster(stream: Stream) -> Stream | Engine:
    """An engine on the active Dask client for the samples of a Dask array, where there is one; else the stream."""
    if stream.kind != "dask" or not stream.readable_elsewhere:
        return stream
    client = active_client()
    return stream if client is None else DaskEngine(client, stream)


def open_engine(source: Any) -> Engine:
    """``source`` itself if it is an engine, else a local engine over it as a stream."""
    return source if is_engine(source) else LocalEngine(source)
