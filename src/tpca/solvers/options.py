"""Options that several solvers share, checked in one way."""

from __future__ import annotations

from typing import Any

from tpca.errors import SolverError


def check_confidence(confidence: float) -> float:
    """Strictly between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise SolverError(f"confidence must lie strictly between 0 and 1, got {confidence}.")
    return confidence


def check_max_samples(max_samples: int | None) -> int | None:
    """At least 1, or no limit."""
    if max_samples is not None and max_samples < 1:
        raise SolverError(f"max_samples must be at least 1, got {max_samples}.")
    return max_samples


def check_components(n_components: int) -> int:
    """At least 1."""
    if n_components < 1:
        raise SolverError(f"n_components must be at least 1, got {n_components}.")
    return n_components


def check_resume(resume: bool, checkpoint: Any) -> bool:
    """Only from a folder."""
    if resume and checkpoint is None:
        raise SolverError("resume=True needs checkpoint=..., the folder to go on from.")
    return resume
