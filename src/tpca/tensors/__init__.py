"""Samples as arrays: blocks of modes, batches in whatever form they come, contraction, and what is kept of them."""

from tpca.tensors.accumulators import Accumulator, Rewards, SampleGradients, TensorSum
from tpca.tensors.contraction import contract, contract_all
from tpca.tensors.dense import Batch, DenseBatch, DeviceBatch
from tpca.tensors.gradients import Gradients
from tpca.tensors.query import Answer, Query, RankOne, SubBatches
from tpca.tensors.rows import RowsBatch, Scores
from tpca.tensors.slabs import SlabBatch
from tpca.tensors.sparse import SparseBatch

__all__ = [
    "Accumulator",
    "Answer",
    "Batch",
    "DenseBatch",
    "DeviceBatch",
    "Gradients",
    "Query",
    "RankOne",
    "Rewards",
    "RowsBatch",
    "SampleGradients",
    "Scores",
    "SlabBatch",
    "SparseBatch",
    "SubBatches",
    "TensorSum",
    "contract",
    "contract_all",
]
