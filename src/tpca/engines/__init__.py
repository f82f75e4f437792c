"""Engines: the next samples reduced into an accumulator, from a stream, a cluster, or as they are handed in."""

from tpca.engines.base import Data, Engine, StreamEngine
from tpca.engines.dask.engine import DaskEngine
from tpca.engines.local import LocalEngine, PushEngine, is_engine, mean_and_error, open_engine, reward_pieces

__all__ = [
    "DaskEngine",
    "Data",
    "Engine",
    "LocalEngine",
    "PushEngine",
    "StreamEngine",
    "is_engine",
    "mean_and_error",
    "open_engine",
    "reward_pieces",
]
