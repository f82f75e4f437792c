"""Batches: some samples, in whatever form they come; each knows how to contract itself with blocks."""

from tpca.batches.dense import DenseBatch, contract
from tpca.batches.query import Answer, Query

__all__ = ["Answer", "DenseBatch", "Query", "contract"]
