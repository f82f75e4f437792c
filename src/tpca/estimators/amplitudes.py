"""Amplitudes of samples along the components that were found, and what new samples say of these."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tpca.errors import SampleError
from tpca.estimators.learnt import LearntComponents
from tpca.estimators.score import Score, reward_score, slope_score, variance_score
from tpca.solvers.recovery import StopReason
from tpca.streams.conditions import read_conditions
from tpca.tensors import Rewards
from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import is_device_array, namespace, to_device, working_like


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
        return slope_score(amplitudes, self._regressors(told.covariates), told.nuisance)

    def _labels(self) -> tuple[str, ...] | None:
        """Labels that were fitted, so that a part of the samples may have fewer."""
        return next((one.labels for one in self._effects if one.labels), None)

    def _regressors(self, covariates: Any) -> list[tuple[Array, Array]]:
        """For every component what its amplitudes follow, of strength one, and the covariates beside that."""
        if covariates.stacked:
            assert self.label_amplitudes_ is not None
            each = self.label_amplitudes_ / self.strengths_[:, None]
            return [(covariates.columns @ own, np.zeros((len(covariates.columns), 0))) for own in each]
        places = [covariates.questions.index(effect) for effect in self.effects_]
        return [(covariates.columns[:, j], np.delete(covariates.columns, j, axis=1)) for j in places]

    def _warn(self) -> None:
        recovery = self.recovery_
        if recovery.stop_reason in (StopReason.NO_SIGNAL, StopReason.NOT_ACCURATE, StopReason.STREAM_ENDED_EARLY):
            warnings.warn(recovery.advice, ConvergenceWarning, stacklevel=3)
