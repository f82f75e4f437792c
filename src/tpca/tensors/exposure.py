"""How much entries of samples count, where some are missing: sums over samples, and over slices of modes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpca.tensors.blocks import Array
from tpca.tensors.dense import DenseBatch
from tpca.tensors.namespaces import cast, namespace, to_host, working_dtype
from tpca.tensors.slabs import SlabBatch


def exposure_sum(batch: Any) -> Array | None:
    """How much every entry counts in all samples of a batch together; ``None``: as many times as there are samples."""
    if isinstance(batch, DenseBatch):
        if batch.exposure is None:
            return None
        if isinstance(batch.exposure, np.ndarray):
            return np.asarray(np.sum(batch.exposure, axis=0, dtype=np.float64))
        amounts = cast(batch.exposure, working_dtype(batch.exposure))
        return to_host(namespace(amounts).sum(amounts, axis=0)).astype(np.float64)
    if isinstance(batch, SlabBatch) and (exposure := batch.exposure) is not None:
        return np.asarray(exposure.add_to(None), dtype=np.float64)
    return None
