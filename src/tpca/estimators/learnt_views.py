"""What was learnt of views, as attributes whose shapes do not depend on what was found."""

from __future__ import annotations

import numpy as np

from tpca.estimators.learnt import LearntPatterns
from tpca.estimators.learnt_rows import LearntRows
from tpca.estimators.views_fit import PassingViews
from tpca.solvers.moments.views_recovery import ViewsRecovery
from tpca.tensors.blocks import Array


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
