"""What was learnt, as attributes whose shapes do not depend on what was found.

With C components found in samples of shape (d_1, ..., d_k): ``components_[m]`` is (C, d_m), ``strengths_`` (C,).  After
"no signal" C = 0; the guess that proves nothing, and the limit on the strength, are in ``recovery_`` only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from tpca.engines import Engine, is_engine
from tpca.estimators.handed import EffectFit, HandedEffects
from tpca.estimators.opening import HandedIn, reader
from tpca.estimators.units import merged
from tpca.noise import Check
from tpca.solvers.claim import Verdict
from tpca.solvers.moments.symmetric_options import TableRecovery
from tpca.solvers.moments.views_recovery import ViewsRecovery
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Component, Recovery, StopReason
from tpca.streams import Stream
from tpca.tensors.blocks import Array


class Learnt:
    """What all fits tell, whatever they were of."""

    @property
    def recovery_(self) -> Recovery | ViewsRecovery | TableRecovery:
        """What the fit gave."""
        raise NotImplementedError

    @property
    def n_samples_seen_(self) -> int:
        """Samples, or rows of views or of a table, that were used."""
        return self.recovery_.n_samples

    @property
    def n_skipped_(self) -> int:
        """Those left out."""
        return self.recovery_.n_skipped

    @property
    def verdict_(self) -> Verdict:
        """Whether a signal was proven, was not, or was never tested for."""
        return self.recovery_.verdict

    @property
    def found_(self) -> bool:
        """Whether a signal was proven."""
        return self.verdict_ is Verdict.SIGNAL

    @property
    def stop_reason_(self) -> StopReason:
        """Why the fit ended."""
        return self.recovery_.stop_reason


class LearntPatterns(Learnt):
    """What fits of samples and of views tell."""

    @property
    def recovery_(self) -> Recovery | ViewsRecovery:
        """What the fit gave."""
        raise NotImplementedError

    @property
    def n_components_(self) -> int:
        """Components that were proven; of a method without a test, those there are."""
        return len(self.recovery_.components)


class LearntComponents(LearntPatterns):
    """Attributes of a fitted estimator, from its recovery."""

    _recovery: Recovery | None = None
    _handed: HandedIn | HandedEffects | None = None
    _effects: Sequence[EffectFit] = ()
    _sample_dim: str | int | None = None
    shape_in_: tuple[int, ...]
    nan_policy: str

    @property
    def recovery_(self) -> Recovery:
        """What the solver gave; after ``partial_fit``, what it would give if the samples ended now."""
        if self._recovery is None:
            if self._handed is None:
                raise not_fitted(self)
            if isinstance(self._handed, HandedEffects):
                self._effects = self._handed.fits()
                self._recovery = merged([one.recovery for one in self._effects])
            else:
                self._recovery = self._handed.recovery()
        return self._recovery

    def _reader(self, X: Any, sample_dim: str | int | None) -> Engine:
        """Reads samples to be scored, whose axes are named as those fitted, or not at all."""
        if sample_dim is None and not (isinstance(X, Stream) or is_engine(X)):
            sample_dim = self._sample_dim
        return reader(X, self.shape_in_, self.nan_policy, sample_dim, self.recovery_.labels)

    @property
    def effects_(self) -> list[str]:
        """What every component is the effect of: a covariate, one label less another, or labels; empty for the mean."""
        return [c.effect for c in self._found]

    @property
    def recoveries_(self) -> list[Recovery]:
        """What was found for every covariate by itself, each with its own test."""
        recovery = self.recovery_
        return [one.recovery for one in self._effects] or [recovery]

    @property
    def label_amplitudes_(self) -> Array | None:
        """Amplitude ``(n_components_, K)`` of every label, in sorted order, of more than two; they sum to zero."""
        self.recovery_  # noqa: B018 (works out what was handed in)
        return self._effects[0].amplitudes if self._effects else None

    def __sklearn_is_fitted__(self) -> bool:
        return self._recovery is not None or self._handed is not None

    @property
    def components_(self) -> list[Array]:
        """Unit vectors, ``(n_components_, d_m)`` for every mode m, the strongest component first."""
        return self._stacked([oriented(c.vectors) for c in self._found])

    @property
    def strengths_(self) -> Array:
        """λ of every component."""
        return np.array([c.strength for c in self._found])

    @property
    def strength_intervals_(self) -> Array:
        """Lower and upper end of the confidence interval of every strength; NaN where the method has none."""
        ends = [c.strength_interval or (math.nan, math.nan) for c in self._found]
        return np.reshape(np.array(ends), (len(ends), 2))

    @property
    def explained_variance_(self) -> Array:
        """Variance of the samples along every component, as in scikit-learn's PCA; NaN unless it was looked for."""
        return np.array([c.variance for c in self._found])

    @property
    def explained_variance_ratio_(self) -> Array:
        """Its share of the variance of all entries together."""
        return np.array([c.variance_ratio for c in self._found])

    @property
    def standard_errors_(self) -> list[Array]:
        """Standard error of every entry of ``components_``; NaN where the method has none."""
        unknown = tuple(np.full(d, math.nan) for d in self.shape_in_)
        return self._stacked([c.standard_errors or unknown for c in self._found])

    @property
    def p_values_(self) -> Array:
        """Share of fits to pure noise that come as far, at most, for every component; NaN where it is not known."""
        return np.array([c.p_value for c in self._found])

    @property
    def noise_variance_(self) -> float:
        """σ², of one entry of one sample; NaN where the method does not tell it."""
        return self.recovery_.noise_level**2

    @property
    def noise_covariances_(self) -> list[Array]:
        """Covariance of the noise along every mode, of mean variance 1; NaN where the method did not look at it."""
        noise = self.recovery_.noise
        if noise is None:
            return [np.full((d, d), math.nan) for d in self.shape_in_]
        return [np.eye(d) for d in self.shape_in_] if noise.whitening is None else list(noise.whitening.covariances)

    @property
    def observed_rates_(self) -> list[Array]:
        """Share of the entries of every slice that was observed, ``(d_m,)`` for every mode m; 1 if nothing was missing.

        Where it is 0, vectors are 0 and their standard errors infinite: nothing is known there.
        """
        rates = self.recovery_.observed
        return [np.ones(d) for d in self.shape_in_] if rates is None else list(rates)

    @property
    def checks_(self) -> tuple[Check, ...]:
        """Whether the noise is as the test assumes; what is not is in the warning of the fit, too."""
        return self.recovery_.checks

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What happened, round by round."""
        return self.recovery_.history

    @property
    def _found(self) -> tuple[Component, ...]:
        return self.recovery_.components

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _stacked(self, each: Sequence[Sequence[Array]]) -> list[Array]:
        """One vector per mode of every component as the rows of every mode."""
        return [np.reshape(np.array([v[m] for v in each]), (len(each), d)) for m, d in enumerate(self.shape_in_)]


def not_fitted(estimator: object) -> NotFittedError:
    """What is said where there is nothing to tell yet."""
    return NotFittedError(f"this {type(estimator).__name__} is not fitted yet; call fit or partial_fit first.")
