"""What a solver returns, and why it stopped."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import StreamError
from tpca.tensors.blocks import Array

MAX_ERROR = math.sqrt(2) * (1 + 1e-9)  # the distance of unit vectors that have nothing in common


class Verdict(enum.StrEnum):
    """What a run says of the signal: proven, looked for and not proven, or not tested at all."""

    SIGNAL = "signal"
    NO_SIGNAL = "no signal"
    NOT_TESTED = "not tested"


@kept
class StopReason(enum.Enum):
    """Why a run ended; the value is a sentence with advice."""

    SCHEDULE_DONE = "The schedule ran to its end; the algorithm has no test of whether there is a signal."
    ACCURATE = "A signal was found and its vectors are as accurate as asked for."
    STREAM_ENDED = "The stream ended after a signal was found; all of it was used."
    MAX_SAMPLES = "max_samples was reached after a signal was found; all of it was used."
    NOT_ACCURATE = (
        "A signal was found, but the samples ended before its vectors were accurate; "
        "see standard_errors, and give more samples."
    )
    STREAM_ENDED_EARLY = (
        "The stream ended before the schedule did; the vectors are what was reached and may be far off: "
        "give more samples, or use RaceSolver, which needs far fewer."
    )
    NO_SIGNAL = (
        "No signal was found in these samples; strength_interval bounds what may be hidden. "
        "Give more samples or more memory."
    )
    ITERATED = "The method ran to its end; it has no test of whether there is a signal."

    def __str__(self) -> str:
        return self.value

    @property
    def verdict(self) -> Verdict:
        """What a run that ended like this says of the signal."""
        if self in (StopReason.SCHEDULE_DONE, StopReason.STREAM_ENDED_EARLY, StopReason.ITERATED):
            return Verdict.NOT_TESTED
        return Verdict.NO_SIGNAL if self is StopReason.NO_SIGNAL else Verdict.SIGNAL


@dataclass(frozen=True)
class Recovery:
    """Vectors in the user's mode order, each of unit length, and how they were come by.

    One vector alone is known up to sign; together they have the sign for which the strength is positive.

    ``n_samples`` counts every sample consumed (N), ``n_passes`` the passes (K), ``state_bytes`` the most that the
    solver held in its own arrays (S), ``buffer_bytes`` the most that the engine held for samples in flight.

    ``standard_errors`` has one for every component of every vector; ``strength_interval`` is a confidence interval at
    the solver's ``confidence``.  If the ``verdict`` is ``NO_SIGNAL`` the vectors are a best guess that proves nothing,
    ``strength`` is NaN, there are no standard errors, and ``strength_interval`` runs from 0 to an upper 95 % confidence
    limit.  If it is ``NOT_TESTED`` the method has no test: there are vectors and a strength, but neither errors nor an
    interval, and nothing says that there is a signal at all.

    A claim that later samples contradict is withdrawn, which is ``NO_SIGNAL``, too; a record of ``history`` with a
    ``"flaw"`` says why.

    ``strength_sequence`` is an interval of the strength that holds at all times at once, so that a stream may be
    stopped whenever one likes what one sees; wider than ``strength_interval``, which holds at a time fixed in advance.

    ``n_skipped`` counts samples that were left out (``nan_policy="omit"``); ``further`` holds the components found
    after this one, if more than one was asked for.
    """

    vectors: tuple[Array, ...]
    strength: float
    n_samples: int
    state_bytes: int
    buffer_bytes: int
    stop_reason: StopReason
    n_passes: int = 1
    standard_errors: tuple[Array, ...] | None = None
    strength_interval: tuple[float, float] | None = None
    n_skipped: int = 0
    further: tuple[Recovery, ...] = ()
    strength_sequence: tuple[float, float] | None = None
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def verdict(self) -> Verdict:
        """Whether a signal was proven, was not, or was never tested for."""
        return self.stop_reason.verdict

    @property
    def found(self) -> bool:
        """Whether a signal was proven: the verdict is ``SIGNAL``."""
        return self.verdict is Verdict.SIGNAL

    @property
    def advice(self) -> str:
        """Why the run ended and what to do, in words; also what was claimed on the way and withdrawn."""
        return " ".join([str(self.stop_reason), *map(withdrawal, flaws(self.history))])


@dataclass(frozen=True)
class Claim:
    """What is said of a signal: its strength, an interval of that, and the errors of its vectors."""

    strength: float
    interval: tuple[float, float]
    errors: tuple[Array, ...] | None
    contradiction: str | None = None
    """What samples after the claim say against it, in words."""

    @classmethod
    def nothing(cls, limit: float) -> Claim:
        """What is said where none was found: it may be as strong as ``limit``."""
        return cls(math.nan, (0.0, limit), None)

    @property
    def flaw(self) -> str | None:
        """What is impossible about a signal that was found, in words; ``None`` if nothing is."""
        low, high = self.interval
        worst = max((float(np.linalg.norm(e)) for e in self.errors or ()), default=0.0)
        if not 0 < self.strength < math.inf:
            return f"a strength of {self.strength:.3g}"
        if not 0 <= low <= self.strength <= high < math.inf:
            return f"a strength of {self.strength:.3g} with an interval from {low:.3g} to {high:.3g}"
        if not worst <= MAX_ERROR:
            return f"a vector with an error of {worst:.3g}, where √2 is the most"
        return self.contradiction

    def converted(self, to_data: Callable[[float], float]) -> Claim:
        """The same in the units of the data; refused if it can be, but not in floats."""
        strength, low, high = (to_data(value) for value in (self.strength, *self.interval))
        if self.flaw is None and not math.isfinite(high):
            raise StreamError(
                f"the strength is more than the largest float, {sys.float_info.max:.1e}; divide the samples by some "
                "power of ten."
            )
        return Claim(strength, (low, high), self.errors, self.contradiction)


def flaws(history: Sequence[dict[str, Any]]) -> list[str]:
    """What was wrong with the claims that were withdrawn."""
    return [str(record["flaw"]) for record in history if record.get("flaw")]


def withdrawal(flaw: str) -> str:
    """A sentence about a claim that was withdrawn."""
    return (
        f"A claim was withdrawn: with all samples it comes to {flaw}. The noise may be far stronger in one direction "
        "than in others."
    )
