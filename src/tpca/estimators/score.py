"""Scores of samples that were not fitted: a mean, with its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tpca.engines import Engine, mean_and_error, reward_pieces
from tpca.tensors.blocks import Array


class Score(float):
    """A mean, with its standard error: a float that also has ``standard_error``."""

    standard_error: float

    def __new__(cls, value: float, standard_error: float) -> Self:
        """The mean ``value`` and its ``standard_error``."""
        score = super().__new__(cls, value)
        score.standard_error = standard_error
        return score

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.standard_error:.2g}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Score, (float(self), self.standard_error))


def reward_score(engine: Engine, components: Sequence[Array]) -> Score:
    """Mean reward of all samples of an engine, summed over components, which are the rows of every mode."""
    pieces = reward_pieces(engine, components)
    mean, error, _ = mean_and_error((piece.sum(axis=1, keepdims=True) for piece in pieces), 1)
    return Score(float(mean[0]), float(error[0]))


def variance_score(amplitudes: Array) -> Score:
    """Sum over components of the variance of their amplitudes, with the error of a mean of squares."""
    n = len(amplitudes)
    if n < 2:
        return Score(math.nan if amplitudes.shape[1] else 0.0, math.nan)
    squares = ((amplitudes - amplitudes.mean(axis=0)) ** 2).sum(axis=1) * (n / (n - 1))
    return Score(float(squares.mean()), float(squares.std(ddof=1)) / math.sqrt(n))


def slope_score(amplitudes: Array, regressors: Sequence[tuple[Array, Array]], nuisance: Array) -> Score:
    r"""Sum over components of the slope of their amplitudes on what they follow, beside a constant and all else.

    With w what is left of y, and e the residuals of the amplitudes, the slope is :math:`w^\top a/w^\top y`; its error,
    with errors of unequal size (White, 1980), is that of :math:`\sum_i w_ie_i/w^\top y`.
    """
    n, total, influence = len(amplitudes), 0.0, np.zeros(len(amplitudes))
    lost = 0
    for own, (y, others) in zip(amplitudes.T, regressors, strict=True):
        design = np.column_stack([np.ones(n), others, nuisance])
        w = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        energy = float(w @ y)
        rest = own - design @ np.linalg.lstsq(design, own, rcond=None)[0]
        slope = float(w @ own) / energy
        total += slope
        influence += w * (rest - slope * w) / energy
        lost = max(lost, design.shape[1] + 1)
    error = math.sqrt(float(influence @ influence) * n / (n - lost)) if n > lost and regressors else math.nan
    return Score(total, error)
