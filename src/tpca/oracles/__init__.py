"""Oracles: mean gradients of replicas over the next samples, from a stream or from the law."""

from typing import Any

from tpca.oracles.law import LawOracle
from tpca.oracles.local import LocalOracle
from tpca.oracles.protocol import Oracle, Round

__all__ = ["LawOracle", "LocalOracle", "Oracle", "Round", "open_oracle"]


def open_oracle(source: Any) -> Oracle:
    """``source`` itself if it is an oracle, else a local oracle over it as a stream."""
    if hasattr(source, "mean") and hasattr(source, "each"):
        oracle: Oracle = source
        return oracle
    return LocalOracle(source)
