"""Engines: the next samples reduced into an accumulator, from a stream, a cluster, or as they are handed in."""

from tpca.engines.base import Data, Engine, is_engine, mean_and_error, reward_pieces
from tpca.engines.dask.engine import DaskEngine
from tpca.engines.local import LocalEngine, StreamEngine
from tpca.engines.opening import open_engine
from tpca.engines.push import PushEngine

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
