"""What was learnt of rows, of views or of a table, also while they are handed in; shapes do not depend on findings."""

from __future__ import annotations

import math
from typing import Generic, Protocol, TypeVar

import numpy as np

from tpca.estimators.learnt import Learnt, LearntPatterns, not_fitted
from tpca.estimators.views_fit import PassingViews
from tpca.solvers.moments.symmetric_options import TableRecovery
from tpca.solvers.moments.symmetric_passing import PassingTable
from tpca.solvers.moments.views_recovery import ViewsRecovery
from tpca.tensors.blocks import Array

R = TypeVar("R", ViewsRecovery, TableRecovery)
R_co = TypeVar("R_co", ViewsRecovery, TableRecovery, covariant=True)


class Passing(Protocol[R_co]):
    """A fit of rows that are handed in."""

    @property
    def n(self) -> int:
        """How many there were so far."""

    def recovery(self) -> R_co:
        """What it would give if they ended now."""


class LearntRows(Learnt, Generic[R]):
    """The recovery of a fit, or of one that is under way."""

    _recovery: R | None = None
    _passing: Passing[R] | None = None

    @property
    def recovery_(self) -> R:
        """What the fit gave; after ``partial_fit``, what it would give if the rows ended now."""
        if self._recovery is None:
            if self._passing is None or not self._passing.n:
                raise not_fitted(self)
            self._recovery = self._passing.recovery()
        return self._recovery

    def __sklearn_is_fitted__(self) -> bool:
        return self._recovery is not None or (self._passing is not None and self._passing.n > 0)


class LearntViews(LearntRows[ViewsRecovery], LearntPatterns):
    """Attributes of a fitted estimator of views, from its recovery."""

    _passing: PassingViews | None = None
    shape_in_: tuple[int, ...]

    @property
    def weights_(self) -> list[Array]:
        """Weights ``(n_components_, d_i)`` on the columns of every view."""
        return self.recovery_.weights

    @property
    def loadings_(self) -> list[Array]:
        """Correlations ``(n_components_, d_i)`` of the columns of every view with its scores."""
        return self.recovery_.loadings

    @property
    def means_(self) -> list[Array]:
        """What is subtracted from the columns of every view."""
        return [whitener.mean for whitener in self.recovery_.whiteners]

    @property
    def correlations_(self) -> Array:
        """Mean product of the standardised scores on rows that were not fitted."""
        return np.array([m.correlation for m in self.recovery_.components])

    @property
    def correlation_errors_(self) -> Array:
        """Standard errors of ``correlations_``."""
        return np.array([m.correlation_error for m in self.recovery_.components])

    @property
    def p_values_(self) -> Array:
        """Chance of such a correlation without any relation."""
        return np.array([m.p_value for m in self.recovery_.components])

    @property
    def moments_(self) -> Array:
        """The moment that was maximised."""
        return np.array([m.moment for m in self.recovery_.components])


class LearntTable(LearntRows[TableRecovery]):
    """Attributes of a fitted estimator of tables, from its recovery."""

    _passing: PassingTable | None = None
    model: str

    @property
    def components_(self) -> Array:
        """Weights ``(n_components_, d)`` of the columns."""
        return self._proven(self.recovery_.weights)

    @property
    def directions_(self) -> Array:
        """What a score stands for, ``(n_components_, d)``, in units of the rows."""
        return self._proven(self.recovery_.directions)

    @property
    def standard_errors_(self) -> Array:
        """Standard errors of ``directions_``."""
        return self._proven(self.recovery_.errors)

    @property
    def strengths_(self) -> Array:
        """Skewness or excess kurtosis of the scores; 1/√share for a mixture or topics."""
        return self._proven(self.recovery_.strengths)

    @property
    def shares_(self) -> Array:
        """Share of the rows in every component of a mixture or topic; NaN for sources."""
        if self.model == "sources":
            return np.full(self.n_components_, math.nan)
        return np.asarray(self.strengths_**-2.0)

    @property
    def p_values_(self) -> Array:
        """Chance of any such claim without a moment; NaN where there was no test."""
        return self._proven(self.recovery_.p_values)

    @property
    def mean_(self) -> Array:
        """What is subtracted from rows."""
        return self.recovery_.centre

    @property
    def noise_variance_(self) -> float:
        """σ² of the Gaussians of a mixture; NaN for others."""
        return self.recovery_.noise_variance if self.model == "mixture" else math.nan

    @property
    def n_components_(self) -> int:
        """Components that were proven; all, where there was no test."""
        return self.recovery_.proven

    @property
    def state_bytes_(self) -> int:
        """Bytes of the largest sums held."""
        return self.recovery_.state_bytes

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _proven(self, values: Array) -> Array:
        return values[: self.n_components_]
