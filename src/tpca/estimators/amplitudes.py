"""Amplitudes of samples along the components that were found, and scores of samples that were not fitted."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tpca.engines import Engine, mean_and_error, reward_pieces
from tpca.errors import SampleError
from tpca.estimators.learnt import LearntComponents
from tpca.solvers.recovery import StopReason
from tpca.streams.conditions import Covariates, read_conditions
from tpca.tensors import Rewards
from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import is_device_array, namespace, to_device, working_like


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


def regressors(
    covariates: Covariates, effects: Sequence[str], label_amplitudes: Array | None, strengths: Array
) -> list[tuple[Array, Array]]:
    """For every component what its amplitudes follow, of strength one, and the covariates beside that.

    ``effects`` are what components are the effects of; of more than two labels these have ``label_amplitudes``.
    """
    if covariates.stacked:
        assert label_amplitudes is not None
        each = label_amplitudes / strengths[:, None]
        return [(covariates.columns @ own, np.zeros((len(covariates.columns), 0))) for own in each]
    places = [covariates.questions.index(effect) for effect in effects]
    return [(covariates.columns[:, j], np.delete(covariates.columns, j, axis=1)) for j in places]


class Amplitudes(LearntComponents):
    """What a fitted estimator says of samples."""

    target: str

    def transform(self, X: Any, *, sample_dim: str | int | None = None) -> Any:
        """Scores ``(n, n_components_)``: the amplitude of every sample, its contraction with the components found.

        ``X`` is whatever :meth:`fit` takes, and read by whom it would be there: also by the workers of a Dask client.
        ``sample_dim`` is that of :meth:`fit` if it is not given.  Names that differ from those fitted are refused.
        Of samples on a device the scores are an array of the same library there, in the dtype they were worked on in.
        """
        scores, like = self._amplitudes(X, sample_dim)
        return scores if like is None else to_device(scores, working_like(like))

    def _amplitudes(self, X: Any, sample_dim: str | int | None) -> tuple[Array, Any]:
        """Scores on the host, and an array like the samples where these are on a device."""
        components = self.components_  # first: what was not fitted says so
        reader = self._reader(X, sample_dim)
        rewards = reader.reduce(Rewards(components)).rewards
        if reader.n_skipped:
            raise SampleError(
                f"{reader.n_skipped} samples have no observed entry at all, and so no amplitude; leave them out: "
                "rows of amplitudes must be those of samples."
            )
        return rewards, reader.like

    def inverse_transform(self, X: Any) -> Any:
        """Tensors ``(n, d_1, ..., d_k)`` from scores ``(n, n_components_)``: ``sum_c X[:, c] v_1c ⊗ ... ⊗ v_kc``."""
        scores = X if is_device_array(X) else np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise SampleError(f"scores must have shape (n, {self.n_components_}), got {tuple(scores.shape)}.")
        rays = [functools.reduce(np.multiply.outer, vectors) for vectors in zip(*self.components_, strict=True)]
        whole = np.reshape(rays, (len(rays), *self.shape_in_))
        return namespace(scores).tensordot(scores, to_device(whole, scores), axes=1)

    def score(self, X: Any, y: Any = None, *, nuisance: Any = None, sample_dim: str | int | None = None) -> Score:
        """The strength that samples show which were not fitted, with its standard error.

        Of the mean, the mean reward; of variation, the variance of the amplitudes, noise included, as in scikit-learn's
        ``explained_variance_``; of an effect, the slope of the amplitudes on ``y`` (and ``nuisance``, whose slope is
        left out), on the amplitudes of labels where there are more than two.  With several components, the sum over
        them; exactly 0 if no component was found.
        """
        components = self.components_
        if self.target == "mean":
            return reward_score(self._reader(X, sample_dim), components)
        if self.target == "variance":
            return variance_score(self._amplitudes(X, sample_dim)[0])
        amplitudes, _ = self._amplitudes(X, sample_dim)
        told = read_conditions(self.target, len(amplitudes), y, nuisance, labels=self._labels())
        assert told.covariates is not None
        each = regressors(told.covariates, self.effects_, self.label_amplitudes_, self.strengths_)
        return slope_score(amplitudes, each, told.nuisance)

    def _labels(self) -> tuple[str, ...] | None:
        """Labels that were fitted, so that a part of the samples may have fewer."""
        return next((one.labels for one in self._effects if one.labels), None)

    def _warn(self) -> None:
        recovery = self.recovery_
        if recovery.stop_reason in (StopReason.NO_SIGNAL, StopReason.NOT_ACCURATE, StopReason.STREAM_ENDED_EARLY):
            warnings.warn(recovery.advice, ConvergenceWarning, stacklevel=3)
