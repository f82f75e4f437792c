"""What was learnt of a table, as attributes whose shapes do not depend on what was found."""

from __future__ import annotations

import math

import numpy as np

from tpca.estimators.learnt_rows import LearntRows
from tpca.solvers.moments.symmetric_options import TableRecovery
from tpca.solvers.moments.symmetric_passing import PassingTable
from tpca.tensors.blocks import Array


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
