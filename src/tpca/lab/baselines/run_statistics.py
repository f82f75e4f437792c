"""Statistics of a run that every method keeps: samples, passes, the most bytes of its own arrays; its recovery."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.engines import open_engine
from tpca.errors import SolverError, StreamError
from tpca.solvers.memory import held_bytes
from tpca.solvers.rank_one import positive
from tpca.solvers.recovery import Recovery, StopReason
from tpca.tensors.blocks import Array, Partition


class RunStatistics:
    """A source that was opened, and what was taken from it."""

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
