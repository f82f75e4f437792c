"""Oracles: mean gradients of replicas over the next samples, from a stream, a cluster or the law."""

from typing import Any

from tpca.oracles.dask import DaskOracle
from tpca.oracles.law import LawOracle
from tpca.oracles.local import LocalOracle
from tpca.oracles.protocol import Oracle, Round

__all__ = ["DaskOracle", "LawOracle", "LocalOracle", "Oracle", "Round", "open_oracle"]


def open_oracle(source: Any) -> Oracle:
    """``source`` itself if it is an oracle, else a local oracle over it as a stream."""
    if hasattr(source, "mean") and hasattr(source, "each"):
        oracle: Oracle = source
        return oracle
    return LocalOracle(source)
