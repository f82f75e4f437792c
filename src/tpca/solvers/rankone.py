"""Rank one inside a block: contraction with the partners' vectors, and the best unit vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca.blocks import Array, unit


def along(block: Array, vectors: Sequence[Array], place: int) -> Array:
    """``block`` contracted with the vectors of all its modes but the one at ``place``."""
    for v in vectors[:place]:
        block = v @ block.reshape(len(v), -1)
    for v in reversed(vectors[place + 1 :]):
        block = block.reshape(-1, len(v)) @ v
    return block.reshape(-1)


def rank_one(block: Array, start: Sequence[Array] | None = None) -> list[Array]:
    """Fit unit vectors whose outer product is next to ``block``: SVD for two modes, alternating from three on."""
    if block.ndim == 1:
        return [unit(block)]
    if block.ndim == 2 and start is None:
        left, _, right = np.linalg.svd(block, full_matrices=False)
        return [left[:, 0], right[0]]
    vectors = _leading(block) if start is None else list(start)
    for _ in range(4 if start is None else 2):
        for place in range(block.ndim):
            vectors[place] = unit(along(block, vectors, place))
    return vectors


def _leading(block: Array) -> list[Array]:
    """Return the leading singular vector of every unfolding."""
    vectors = []
    for place in range(block.ndim):
        matrix = np.moveaxis(block, place, 0).reshape(block.shape[place], -1)
        vectors.append(np.linalg.eigh(matrix @ matrix.T)[1][:, -1])
    return vectors
