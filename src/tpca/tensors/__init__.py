"""Samples as arrays: blocks of modes, batches in whatever form they come, contraction, and what is kept of them."""

from tpca.tensors.accumulators import Accumulator, Rewards, SampleGradients, TensorSum
from tpca.tensors.clipped import Clipped
from tpca.tensors.contraction import contract, contract_all
from tpca.tensors.dense import DenseBatch
from tpca.tensors.device import DeviceBatch
from tpca.tensors.gradients import Gradients
from tpca.tensors.observed import Observed, SliceCounts, in_full
from tpca.tensors.projected import Projected
from tpca.tensors.projection import Basis, Projection
from tpca.tensors.protocol import Batch
from tpca.tensors.query import Answer, Query, RankOne, SubBatches
from tpca.tensors.slabs import SlabBatch
from tpca.tensors.sparse import SparseBatch
from tpca.tensors.together import Together
from tpca.tensors.view_scores import Scores
from tpca.tensors.views import ViewsBatch

__all__ = [
    "Accumulator",
    "Answer",
    "Basis",
    "Batch",
    "Clipped",
    "DenseBatch",
    "DeviceBatch",
    "Gradients",
    "Observed",
    "Projected",
    "Projection",
    "Query",
    "RankOne",
    "Rewards",
    "SampleGradients",
    "Scores",
    "SlabBatch",
    "SliceCounts",
    "SparseBatch",
    "SubBatches",
    "TensorSum",
    "Together",
    "ViewsBatch",
    "contract",
    "contract_all",
    "in_full",
]
