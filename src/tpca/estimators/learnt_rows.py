"""What was learnt of rows, of views or of a table, while they may still be handed in."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from tpca.estimators.learnt import Learnt, not_fitted
from tpca.solvers.moments.symmetric_options import TableRecovery
from tpca.solvers.moments.views_recovery import ViewsRecovery

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
