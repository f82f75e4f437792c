"""What a study is: a grid of trials, how to run one, and what to conclude from the stored results."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Params = dict[str, Any]
Scale = Literal["quick", "full"]


class Verdict(enum.Enum):
    """Whether the measurement agrees with the prediction."""

    AGREES = "agrees"
    DIFFERS = "differs"
    OPEN = "not enough data"

    @classmethod
    def of(cls, agrees: bool) -> Verdict:
        """Of what was enough data."""
        return cls.AGREES if agrees else cls.DIFFERS

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One line of the table: what was predicted, what was measured, and what to make of it."""

    label: str
    predicted: str
    measured: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Record:
    """A stored trial."""

    params: Params
    result: dict[str, Any]
    seconds: float


class Study(Protocol):
    """One claim, put on a machine.  Trials are plain values, so that they can be stored and run in any process."""

    name: str
    title: str
    claim: str
    """The prediction in words, and where it comes from."""
    version: int
    """Raised when a trial would come out differently, so that old results are not mistaken for new ones."""

    def grid(self, scale: Scale) -> list[Params]:
        """All trials, the quick ones among the full ones."""

    def cost(self, params: Params) -> float:
        """About how many seconds a trial takes, for the time remaining."""

    def run(self, params: Params) -> dict[str, Any]:
        """One trial."""

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """What the stored trials say."""
