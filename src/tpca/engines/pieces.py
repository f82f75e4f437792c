"""Rewards of all samples, a bounded number at a time: for those who keep no more than a few numbers of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tpca.engines.protocol import Engine
from tpca.tensors import Rewards
from tpca.tensors.blocks import Array

PIECE = 2**20  # rewards that are held at once


def reward_pieces(engine: Engine, vectors: Sequence[Array], most: int | None = None) -> Iterator[Array]:
    """Rewards ``(n, c)`` of the next samples, at most ``most`` in all, piece after piece."""
    step = max(1, PIECE // max(1, len(vectors[0])))
    left = math.inf if most is None else most
    while (n := int(min(step, left))) > 0:
        part = engine.reduce(Rewards(vectors), n)
        if part.n:
            yield part.rewards
        if part.n < n:
            return
        left -= n


def mean_and_error(pieces: Iterable[Array], columns: int) -> tuple[Array, Array, int]:
    """Mean of every column of some rows, its standard error, and how many rows; NaN where these are too few.

    Sums of squared deviations are merged as in Chan, Golub and LeVeque (1979): nothing cancels.
    """
    n, mean, scatter = 0, np.zeros(columns), np.zeros(columns)
    for piece in pieces:
        own, both = piece.mean(axis=0), n + len(piece)
        shift = own - mean
        scatter += ((piece - own) ** 2).sum(axis=0) + shift**2 * (n * len(piece) / both)
        mean += shift * (len(piece) / both)
        n = both
    unknown = np.full(columns, math.nan)
    return (mean if n else unknown), (np.sqrt(scatter / (n - 1) / n) if n > 1 else unknown), n
