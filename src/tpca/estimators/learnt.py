"""What the estimators of rows share, of views or of a table: what a fit tells, shows, and draws."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tpca.result import Result
from tpca.solvers.estimate import Verdict
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.report.words import Summary

F = TypeVar("F")


class RowsEstimator(Generic[F]):
    """The fit of rows, ``fit_``."""

    _fitted: F | None = None

    @property
    def fit_(self) -> F:
        """What the fit gave."""
        if self._fitted is None:
            raise not_fitted(self)
        return self._fitted

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    @property
    def _told(self) -> Any:
        return self.fit_

    @property
    def significant_(self) -> NDArray[np.bool_]:
        """Which components are proven."""
        return np.asarray(self._told.significant)

    @property
    def n_samples_seen_(self) -> int:
        """Rows that were used."""
        return int(self._told.n_samples)

    @property
    def n_skipped_(self) -> int:
        """Those left out."""
        return int(self._told.n_skipped)

    @property
    def verdict_(self) -> Verdict:
        """``"signal"``, ``"no signal"`` or ``"not tested"``."""
        return self.result_.verdict

    @property
    def found_(self) -> bool:
        """Whether a component was proven."""
        return self.verdict_ is Verdict.SIGNAL

    @property
    def p_values_(self) -> Array:
        """Chance of as much by accident, for every component."""
        raise NotImplementedError

    @property
    def result_(self) -> Result:
        """All that is known, to save, show and draw."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        left_out = ("callbacks", "random_state")
        return {name: value for name, value in self.get_params(deep=False).items() if name not in left_out}  # type: ignore[attr-defined]

    def _warn(self) -> None:
        if self.verdict_ is Verdict.NO_SIGNAL:
            told = f"{self.result_.advice[0]} (p = {float(np.min(self.p_values_)):.3g})"
            warnings.warn(told, ConvergenceWarning, stacklevel=3)

    def summary(self) -> Summary:
        """What was found, in a few lines; ``print`` gives text, a notebook shows a table."""
        return self.result_.summary()

    def plot(self, X: Any = None, y: Any = None) -> Any:
        """Draw the components, and with ``X`` the scores of its rows, over ``y``; a ``matplotlib`` figure."""
        result = self.result_
        return result.plot(None if X is None else result.transform(X), y)

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None) -> Path:
        """Write a report, one HTML file that needs no network; returns its path."""
        result = self.result_
        return result.report(path, None if X is None else result.transform(X), y)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save the result to a folder; :func:`tpca.load` reads it."""
        return self.result_.save(path)


def not_fitted(estimator: object) -> NotFittedError:
    """What is said where there is nothing to tell yet."""
    first = "fit or partial_fit" if hasattr(estimator, "partial_fit") else "fit"
    return NotFittedError(f"this {type(estimator).__name__} is not fitted yet; call {first} first.")
