r"""The same answers in plain NumPy, by other means than those of tpca: what the package is compared with.

Mean: the mean of every entry.  Dose: the slope of ``numpy.linalg.lstsq``.  Two labels: a difference of means.  More:

.. math:: D_{k} = \sqrt{n_k/n}\,(\bar T_k - \bar T),

one more axis in front.  The best rank-one fit of D is its singular vectors where D is a matrix, else the best of many
alternating fits.  Variation is the rank-one fit of the centred samples themselves, the axis of samples in front.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from research.real.sets import Samples
from tpca.tensors.blocks import Array

STARTS, SWEEPS = 10, 500


def estimate(data: Samples, question: str) -> Array:
    """D of the question: the tensor whose best rank-one fit is asked for."""
    X = np.asarray(data.X)
    if question == "mean":
        return np.asarray(np.nanmean(X, axis=0))
    if question == "variation":
        return np.asarray(X - X.mean(axis=0))
    if question == "dose":
        columns = np.column_stack([np.ones(len(X)), data.y])
        return np.asarray(np.linalg.lstsq(columns, X.reshape(len(X), -1), rcond=None)[0][1].reshape(X.shape[1:]))
    labels, counts = np.unique(data.y, return_counts=True)
    means = np.stack([X[data.y == label].mean(axis=0) for label in labels])
    if len(labels) == 2:
        return np.asarray(means[1] - means[0])
    weights = np.sqrt(counts / len(X)).reshape(-1, *[1] * (X.ndim - 1))
    return np.asarray(weights * (means - X.mean(axis=0)))


def _climb(D: Array, vectors: list[Array]) -> tuple[float, list[Array]]:
    """Alternating least squares of rank one."""
    length = 0.0
    for _ in range(SWEEPS):
        before = length
        for mode in range(D.ndim):
            rest = D
            for other in reversed(range(D.ndim)):
                if other != mode:
                    rest = np.tensordot(rest, vectors[other], axes=(other, 0))
            length = float(np.linalg.norm(rest))
            vectors[mode] = rest / max(length, 1e-300)
        if length - before <= 1e-15 * length:
            break
    return length, vectors


def rank_one(D: Array) -> tuple[float, list[Array]]:
    """Length and unit vectors of the best rank-one fit of a tensor."""
    if D.ndim == 1:
        return float(np.linalg.norm(D)), [D / np.linalg.norm(D)]
    if D.ndim == 2:
        left, sizes, right = np.linalg.svd(D, full_matrices=False)
        return float(sizes[0]), [left[:, 0], right[0]]
    rng = np.random.default_rng(0)
    leading: list[Array] = [
        np.linalg.svd(np.moveaxis(D, mode, 0).reshape(d, -1), full_matrices=False)[0][:, 0]
        for mode, d in enumerate(D.shape)
    ]
    starts = [leading, *([np.asarray(rng.standard_normal(d)) for d in D.shape] for _ in range(STARTS))]
    found = [_climb(D, [v / np.linalg.norm(v) for v in start]) for start in starts]
    return max(found, key=lambda one: one[0])


def cosine(one: Any, other: Any) -> float:
    """Of two rank-one tensors, without regard to sign."""
    products = [abs(float(np.dot(np.ravel(u), np.ravel(v)))) for u, v in zip(one, other, strict=True)]
    return functools.reduce(float.__mul__, products, 1.0)
