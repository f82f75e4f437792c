"""Batches: some samples, in whatever form they come; each knows how to contract itself with blocks."""

from tpca.tensors.contraction import contract, contract_all
from tpca.tensors.dense import DenseBatch
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Answer, Query, RankOne
from tpca.tensors.reductions import Reduction, reduction
from tpca.tensors.slabs import SlabBatch
from tpca.tensors.sparse import SparseBatch
from tpca.tensors.views import ViewsBatch

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
