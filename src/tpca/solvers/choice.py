"""Which solver for which data: the mean where it fits into memory, else the race.

Where the mean of all samples can be held, its best rank-one fit, also with all vectors the same, uses all that the
samples know: in all that was measured its vectors were on average more accurate than the race's.  It mostly proves a
signal with fewer samples, too (order 3, d = 10, N = 60: half of all signals of strength one, the race one in eight).
The race is for what the mean cannot do: tensors that do not
fit, streams without an end, and stopping as soon as the result is accurate enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpca.engines import Data
from tpca.errors import MemoryBudgetError
from tpca.solvers.mean.memory import default_mean_memory, groups_needed, groups_within, mean_bytes
from tpca.solvers.memory import MIN_BYTES, parse_memory
from tpca.wording import amount


@dataclass(frozen=True)
class Choice:
    """The name of a solver, and why, in one sentence."""

    solver: str
    reason: str


def choose_solver(
    dims: Sequence[int],
    memory_limit: str | float | None = None,
    *,
    max_samples: int | None = None,
    tol: float | None = None,
    endless: bool = False,
    whole: bool = True,
    partial: bool = False,
    confidence: float = 0.95,
) -> Choice:
    """The solver for samples of shape ``dims``.

    Parameters
    ----------
    dims
        Shape of one sample.
    memory_limit
        Bound on the solver's state; ``None`` for the mean's default (what it takes, about seven samples, but no more
        than a tenth of this machine's memory).
    max_samples, tol
        What the solver is asked for.
    endless
        Whether the samples never end.
    whole
        Whether samples come in full, as arrays.  If not (sparse samples, samples read in slabs) they are meant never to
        be held, and the mean is only used where it is small or memory was given for it.
    partial
        Whether entries may be missing: the mean then counts every entry, which takes about as much memory again.
    confidence
        That of the test: the mean needs memory for more groups of samples where it is higher.
    """
    if endless and max_samples is None:
        return Choice("race", "the samples never end, and only the race knows when to stop")
    if tol is not None:
        return Choice("race", "it can stop as soon as the tolerance is reached")
    usual = default_mean_memory(dims, confidence, partial) if whole else MIN_BYTES
    given = usual if memory_limit is None else parse_memory(memory_limit)
    try:
        needed = mean_bytes(dims, groups_within(dims, given, confidence, partial=partial), partial)
    except MemoryBudgetError:
        needed = mean_bytes(dims, groups_needed(confidence), partial)
        return Choice("race", f"the mean of all samples needs {amount(needed)} of state, the memory is {amount(given)}")
    return Choice("mean", f"the mean of all samples fits into memory: {amount(needed)} of {amount(given)}")


def choose_for(data: Data, memory_limit: str | float | None = None, **asked: Any) -> Choice:
    """The solver for a stream or an engine; ``asked`` are ``max_samples``, ``tol`` and ``confidence``."""
    known = {"endless": data.endless, "whole": data.whole, "partial": data.partial}
    return choose_solver(data.dims, memory_limit, **known, **asked)
