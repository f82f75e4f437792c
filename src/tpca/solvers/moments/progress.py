"""What is told of a fit of views under way: a record after every pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpca.solvers.base import Callback


class Progress:
    """Counts rows and tells the callbacks what is being done, pass after pass."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.component, self.phase = 1, "reading"
        self._callbacks, self._rows = tuple(callbacks), 0
        self._known: dict[str, Any] = {}

    def after_pass(self, rows: int) -> None:
        """One more pass over so many rows."""
        self._rows += rows
        self._tell()

    def judged(self, correlation: float, error: float, proven: bool) -> None:
        """What held-out rows say of a component."""
        self._known = {"strength": correlation, "strength_error": error, "found": proven, "measure": "correlation"}
        self.phase = "judged"
        self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback({"phase": f"component {self.component}, {self.phase}", "samples": self._rows, **self._known})
