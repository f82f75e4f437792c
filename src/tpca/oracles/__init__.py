"""Oracles: mean gradients of replicas over the next samples, from a stream or from the law."""

from tpca.oracles.law import LawOracle
from tpca.oracles.protocol import Oracle, Round

__all__ = ["LawOracle", "Oracle", "Round"]
