"""Batches: some samples, in whatever form they come; each knows how to contract itself with blocks."""

from tpca.batches.contraction import contract, contract_all
from tpca.batches.dense import DenseBatch
from tpca.batches.protocol import Batch
from tpca.batches.query import Answer, Query, RankOne
from tpca.batches.reductions import Reduction, reduction
from tpca.batches.slabs import SlabBatch
from tpca.batches.sparse import SparseBatch
from tpca.batches.views import ViewsBatch

__all__ = [
    "Answer",
    "Batch",
    "DenseBatch",
    "Query",
    "RankOne",
    "Reduction",
    "SlabBatch",
    "SparseBatch",
    "ViewsBatch",
    "contract",
    "contract_all",
    "reduction",
]
