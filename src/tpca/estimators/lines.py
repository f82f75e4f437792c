"""How far a fit is, as lines of text: ``verbose`` of an estimator."""

from __future__ import annotations

import sys
from typing import Any

KNOWN = ("strength", "error", "log_evidence", "reward")


class Lines:
    """A line on standard output whenever the samples have doubled, or (``verbose`` above 1) after every round."""

    def __init__(self, verbose: int) -> None:
        self._every = 2.0 if verbose == 1 else 1.0
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        """Tell what the record of a round says."""
        samples = int(record["samples"])
        if samples < self._next:
            return
        self._next = self._every * samples
        numbers = "  ".join(f"{name} {record[name]:.4g}" for name in KNOWN if name in record)
        say(f"{samples:,} sample{'s' if samples != 1 else ''}  {record['phase']}  {numbers}")


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(f"[TensorPCA] {text}".rstrip() + "\n")
