"""A claim: what a run says of a signal before it is a recovery, and what would be impossible about it."""

from __future__ import annotations

import enum
import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.errors import StreamError
from tpca.tensors.blocks import Array

MAX_ERROR = math.sqrt(2) * (1 + 1e-9)  # the distance of unit vectors that have nothing in common, and rounding


class Verdict(enum.StrEnum):
    """What a run says of the signal: proven, looked for and not proven, or not tested at all."""

    SIGNAL = "signal"
    NO_SIGNAL = "no signal"
    NOT_TESTED = "not tested"


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

    @functools.cached_property
    def flaw(self) -> str | None:
        """What is impossible about a signal that was found, in words; ``None`` if nothing is."""
        low, high = self.interval
        worst = max((math.sqrt(np.vdot(e, e)) for e in self.errors or ()), default=0.0)
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


def headline(verdict: Verdict, doubts: Sequence[str], said: str = "") -> str:
    """A verdict, or what is ``said`` for it, with its doubts, in one line."""
    said = said or str(verdict)
    if not doubts or verdict is Verdict.NOT_TESTED:
        return said
    return f"{said}{', but' if verdict is Verdict.SIGNAL else ';'} {'; '.join(doubts)}"
