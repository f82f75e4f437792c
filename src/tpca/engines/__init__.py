"""Oracles: mean gradients of replicas over the next samples, from a stream, a cluster or the law."""

from typing import Any

from tpca.engines.dask.cluster import active_client
from tpca.engines.dask.engine import DaskOracle
from tpca.engines.law import LawOracle
from tpca.engines.local import LocalOracle
from tpca.engines.protocol import Oracle, Round

__all__ = ["DaskOracle", "LawOracle", "LocalOracle", "Oracle", "Round", "is_oracle", "on_active_cluster", "open_oracle"]


def is_oracle(source: Any) -> bool:
    """Whether ``source`` answers questions itself."""
    return hasattr(source, "mean") and hasattr(source, "each")


def on_active_cluster(stream: Any) -> Any:
    """An oracle on the active Dask client for the samples of a Dask array, where there is one; else the stream."""
    if getattr(stream, "kind", "") != "dask" or not stream.readable_elsewhere:
        return stream
    client = active_client()
    return stream if client is None else DaskOracle(client, stream)


def open_oracle(source: Any) -> Oracle:
    """``source`` itself if it is an oracle, else a local oracle over it as a stream."""
    if is_oracle(source):
        oracle: Oracle = source
        return oracle
    return LocalOracle(source)
