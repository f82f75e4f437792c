"""Samples as arrays: blocks of modes, batches in whatever form they come, contraction, and what is kept of them."""

from tpca.tensors.accumulators import Accumulator, Gradients, Rewards, SampleGradients, TensorSum
from tpca.tensors.contraction import Answer, Query, RankOne, SubBatches, contract, contract_all
from tpca.tensors.dense import Batch, DenseBatch
from tpca.tensors.rows import RowsBatch
from tpca.tensors.slabs import SlabBatch
from tpca.tensors.sparse import SparseBatch

__all__ = [
    "Accumulator",
    "Answer",
    "Batch",
    "DenseBatch",
    "Gradients",
    "Query",
    "RankOne",
    "Rewards",
    "RowsBatch",
    "SampleGradients",
    "SlabBatch",
    "SparseBatch",
    "SubBatches",
    "TensorSum",
    "contract",
    "contract_all",
]
