"""Scores of samples that were not fitted: a mean, with its standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

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
