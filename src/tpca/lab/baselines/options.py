"""Options and limits that several methods share, each refused with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca.errors import MemoryBudgetError, ModelError, SolverError
from tpca.solvers import memory
from tpca.tensors.blocks import Array, unit

Start = str | Sequence[Array]


def check_positive(name: str, value: float) -> float:
    """A positive finite number."""
    if not (np.isfinite(value) and value > 0):
        raise SolverError(f"{name} must be a positive finite number, got {value}.")
    return float(value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """One of some words."""
    if value not in choices:
        raise SolverError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return str(value)


def check_start(init: Start, words: Sequence[str]) -> Start:
    """A word, or one vector per mode."""
    if isinstance(init, str):
        return check_choice("init", init, words)
    vectors = tuple(np.asarray(v, dtype=np.float64) for v in init)
    for n, v in enumerate(vectors):
        if v.ndim != 1 or not np.isfinite(v).all() or not v.any():
            raise SolverError(f"init: vector {n} must be finite, one-dimensional and not zero, got shape {v.shape}.")
    return tuple(unit(v) for v in vectors)


def fit_start(init: Sequence[Array], dims: tuple[int, ...]) -> list[Array]:
    """The given start, if it fits samples of shape ``dims``."""
    lengths = tuple(len(v) for v in init)
    if lengths != dims:
        raise SolverError(f"init has vectors of lengths {lengths}, the samples need {dims}; give one per mode.")
    return [np.array(v) for v in init]


def check_order(method: str, dims: tuple[int, ...], least: int) -> None:
    """Samples of at least this order."""
    if len(dims) < least:
        raise ModelError(f"{method} needs samples of order {least} or more, got dims {dims}; use Unfolding.")


def check_equal_dims(method: str, dims: tuple[int, ...]) -> None:
    """A method for the symmetric model: one vector serves all modes."""
    if len(set(dims)) > 1:
        raise ModelError(
            f"{method} is for the symmetric model, one vector for all modes, which needs equal dims, got {dims}; "
            "use ALS, Unfolding or RaceSolver."
        )


def check_fits(what: str, nbytes: int) -> None:
    """``nbytes`` at most the memory of this machine."""
    limit = memory.machine_memory()
    if nbytes > limit:
        raise MemoryBudgetError(
            f"{what} takes {nbytes:.3g} bytes, this machine has {limit:.3g}; "
            "use a method that does not hold it: Oja, Unfolding(method='power') or RaceSolver."
        )
