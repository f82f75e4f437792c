"""What all methods share: options that are checked in one way, statistics of a run, and its recovery."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.engines import open_engine
from tpca.errors import MemoryBudgetError, ModelError, SolverError, StreamError, check_integer
from tpca.solvers import memory
from tpca.solvers.estimate import Recovery, StopReason
from tpca.solvers.memory import held_bytes
from tpca.solvers.options import Check, check_options, check_seed, option
from tpca.solvers.rank_one import positive
from tpca.tensors.blocks import Array, Partition, unit

Start = str | Sequence[Array]


@dataclass(kw_only=True, eq=False)
class Baseline:
    """A method.

    Parameters
    ----------
    random_state
        Of its random numbers; not used by methods that have none.
    max_samples
        Use no more than this many; needed for samples that never end.
    """

    random_state: int = option(0, check_seed)
    max_samples: int | None = option(None, check_integer)

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from the samples of ``source``."""
        raise NotImplementedError


def one_of(*words: str) -> Check:
    """One of some words."""

    def check(name: str, value: Any) -> str:
        if value not in words:
            raise SolverError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}.")
        return str(value)

    return check


def check_start(name: str, init: Start) -> Start:
    """``"spectral"``, ``"random"``, or one vector per mode."""
    if isinstance(init, str):
        return str(one_of("spectral", "random")(name, init))
    vectors = tuple(np.asarray(v, dtype=np.float64) for v in init)
    for n, v in enumerate(vectors):
        if v.ndim != 1 or not np.isfinite(v).all() or not v.any():
            raise SolverError(f"{name}: vector {n} must be finite, one-dimensional and not zero, got shape {v.shape}.")
    return tuple(unit(v) for v in vectors)


def check_order(method: str, dims: tuple[int, ...], least: int) -> None:
    """Samples of at least this order."""
    if len(dims) < least:
        raise ModelError(f"{method} needs samples of order {least} or more, got dims {dims}; use Unfolding.")


def check_symmetric(method: str, dims: tuple[int, ...], least: int = 3) -> None:
    """A method for the symmetric model, where one vector serves all modes; and something to trace."""
    check_order(method, dims, least)
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


class RunStatistics:
    """A source that was opened, and what was taken from it: samples, passes, the most bytes of a method's arrays."""

    def __init__(self, source: Any, max_samples: int | None) -> None:
        self.engine = open_engine(source)
        if max_samples is None and self.engine.endless:
            raise SolverError("the samples never end and max_samples is None; give max_samples=..., how many to use.")
        self.limit = sys.maxsize if max_samples is None else max_samples
        self.dims = self.engine.dims
        self.singles = Partition.singles(self.dims)
        self.n = self.passes = self.state_bytes = 0

    def note(self, *arrays: Array, working: int = 0) -> None:
        """Remember the most that was held: ``arrays``, and ``working`` bytes beside them."""
        self.state_bytes = max(self.state_bytes, held_bytes(arrays) + working)

    def recovery(
        self, vectors: Sequence[Array], strength: float, history: list[dict[str, Any]] | None = None
    ) -> Recovery:
        """The vectors with definite signs, such that the strength is positive."""
        check_found(vectors)
        signed, size = positive(vectors, strength)
        return Recovery.of_one(
            solver="baseline",
            vectors=signed,
            strength=size,
            n_samples=self.n,
            state_bytes=self.state_bytes,
            buffer_bytes=self.engine.buffer_bytes,
            stop_reason=StopReason.ITERATED,
            n_passes=self.passes,
            n_skipped=self.engine.n_skipped,
            history=history or [],
        )


def no_samples() -> StreamError:
    """The stream had nothing to give."""
    return StreamError("the stream is empty: there is no sample to work with; give at least one.")


def all_zero() -> StreamError:
    """The samples hold nothing but zeros, or cancel."""
    return StreamError("the mean of all samples is zero in every entry that counts: there is nothing to recover.")


def check_found(vectors: Sequence[Array]) -> None:
    """Unit vectors, as they should be."""
    if not all(math.isclose(float(np.linalg.norm(v)), 1.0, rel_tol=1e-6) for v in vectors):
        raise StreamError("contractions of the samples vanish or overflow: check the scale of the data.")
