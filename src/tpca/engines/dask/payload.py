"""Queries on their way to workers, without what is of no use there."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors import Query


def pack_queries(queries: Sequence[Query], whole: bool) -> bytes:
    """Some queries as bytes; unless ``whole``, without known components, and replicas that no gradient needs."""
    sent = [(q.partition, _blocks(q, whole), q.wanted, q.less if whole else ()) for q in queries]
    return pickle.dumps(sent, protocol=5)


def unpack_queries(packed: bytes) -> tuple[Query, ...]:
    """The queries again."""
    return tuple(
        Query(partition, tuple(np.broadcast_to(small, shape) for small, shape in blocks), wanted, less)
        for partition, blocks, wanted, less in pickle.loads(packed)
    )


def _blocks(query: Query, whole: bool) -> list[tuple[NDArray[Any], tuple[int, ...]]]:
    """Every block, and its shape; what is the same along an axis goes once, and zeros for what is not needed."""
    blocks = []
    for m, block in enumerate(query.replicas):
        if not whole and query.blocks == (m,):  # a block's own replicas have no part in its gradient
            small: NDArray[Any] = np.zeros((1,) * block.ndim, block.dtype)
        else:
            small = np.ascontiguousarray(
                block[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in block.strides)]
            )
        blocks.append((small, block.shape))
    return blocks
