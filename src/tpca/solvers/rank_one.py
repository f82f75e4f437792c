"""Rank one inside a block: contraction with the partners' vectors, and the best unit vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca.tensors.blocks import Array

SQUARINGS = 5


def along(block: Array, vectors: Sequence[Array], place: int) -> Array:
    """``block`` contracted with the vectors of all its modes but the one at ``place``."""
    for v in vectors[:place]:
        block = v @ block.reshape(len(v), -1)
    for v in reversed(vectors[place + 1 :]):
        block = block.reshape(-1, len(v)) @ v
    return block.reshape(-1)


def rank_one(block: Array) -> list[Array]:
    """Fit unit vectors whose outer product is next to ``block``: SVD for two modes, alternating from three on."""
    if block.ndim == 2:
        left, _, right = np.linalg.svd(block, full_matrices=False)
        return [left[:, 0], right[0]]
    return [v[0] for v in rank_ones(block[None])]


def rank_ones(blocks: Array, start: Sequence[Array] | None = None) -> list[Array]:
    """Unit vectors ``(c, d_i)`` whose outer products are next to each of ``blocks``, alternating from ``start``.

    By default from the leading singular vectors of all unfoldings, near enough (:func:`_leading`).
    """
    if blocks.ndim == 2:
        return [_units(blocks)]
    vectors = [_leading(blocks, place) for place in range(1, blocks.ndim)] if start is None else list(start)
    for _ in range(4 if start is None else 2):
        for place in range(len(vectors)):
            vectors[place] = _units(_along(blocks, vectors, place))
    return vectors


def _along(blocks: Array, vectors: Sequence[Array], place: int) -> Array:
    """Every block contracted with its vectors of all modes but the one at ``place``."""
    count = len(blocks)
    for v in vectors[:place]:
        blocks = np.matmul(v[:, None, :], blocks.reshape(count, v.shape[1], -1))
    for v in reversed(vectors[place + 1 :]):
        blocks = np.matmul(blocks.reshape(count, -1, v.shape[1]), v[:, :, None])
    return blocks.reshape(count, -1)


def _leading(blocks: Array, place: int) -> Array:
    """About the leading singular vector of the unfolding ``place | rest`` of every block, for a start.

    From the Gram matrix of the shorter side, which has no more entries than the block itself.
    """
    matrices = np.moveaxis(blocks, place, 1).reshape(len(blocks), blocks.shape[place], -1)
    if matrices.shape[1] <= matrices.shape[2]:
        return _dominant(np.matmul(matrices, matrices.transpose(0, 2, 1)))
    right = _dominant(np.matmul(matrices.transpose(0, 2, 1), matrices))
    return _units(np.matmul(matrices, right[:, :, None])[:, :, 0])


def _dominant(power: Array) -> Array:
    """About the leading eigenvector of every Gram matrix P, which are used up.

    The column of P^(2^SQUARINGS) with the largest diagonal entry: as many steps of the power method as that, from the
    best unit vector, at the cost of a few small products.
    """
    for _ in range(SQUARINGS):
        scale = np.trace(power, axis1=1, axis2=2)[:, None, None]
        power /= np.where(scale > 0, scale, 1.0)
        power = np.matmul(power, power)
    best = np.argmax(np.einsum("cii->ci", power), axis=1)
    return _units(power[np.arange(len(power)), :, best])


def _units(rows: Array) -> Array:
    """Every row divided by its norm; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("ci,ci->c", rows, rows))[:, None]
    return rows / np.where(lengths > 0, lengths, 1.0)
