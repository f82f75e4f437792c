"""What a study is: a grid, a trial, predictions, conclusions.  Everything else about studies is shared.

A study is a value, not a class of its own.  ``grid(scale)`` lists its trials as plain values, ``run(params)`` makes one
(a function at the top of a module, so that any process can run it), and every entry of ``lines`` concludes something
from the stored trials.  Most conclusions are slopes: a :class:`Slope` has its prediction and the way to measure it, and
is a line of the figure as well.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from research.studies.estimates import PowerLaw

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


Records = Sequence[Record]
Line = Callable[[Records], list[Finding]]


@dataclass(frozen=True)
class Slope:
    """The prediction of a slope and how it is measured; ``line`` is its name in the figure, if it is drawn.

    A claim that is an upper ``bound`` agrees unless all of the interval lies above it; other claims agree if the
    interval holds the prediction.  ``form`` names what the law divides out.
    """

    label: str
    predicted: float
    law: Callable[[Records], PowerLaw]
    note: str | Callable[[PowerLaw, Records], str] = ""
    form: str = ""
    bound: bool = True
    line: str = ""

    def __call__(self, records: Records) -> list[Finding]:
        """What the trials say."""
        from research.studies.estimates import slope_finding

        law = self.law(records)
        note = self.note if isinstance(self.note, str) else self.note(law, records)
        return [slope_finding(self.label, law, self.predicted, note, self.form, self.bound)]


@dataclass(frozen=True)
class Study:
    """One claim, put on a machine.

    ``grid`` lists all trials, the quick ones among the full ones; ``cost`` is about how many seconds one takes.
    ``version`` is raised when a trial would come out differently, so that old results are not mistaken for new ones.
    ``planned(params)`` are numbers of a trial's result that no chance is in, such as the samples of its schedule, or a
    list of all that may be there, and how far ``rounding`` may move them.  The store keeps a digest of them, and a test
    computes all of them again.  ``figure(records)`` are the lines of the figure by name, if not those of the slopes.
    """

    name: str
    title: str
    claim: str
    grid: Callable[[Scale], list[Params]]
    run: Callable[[Params], dict[str, Any]]
    cost: Callable[[Params], float]
    lines: Sequence[Line]
    version: int = 1
    planned: Callable[[Params], Mapping[str, float | Sequence[float]]] | None = None
    figure: Callable[[Records], Mapping[str, PowerLaw]] | None = None

    def findings(self, records: Records) -> list[Finding]:
        """What the stored trials say."""
        return [finding for line in self.lines for finding in line(records)]

    def laws(self, records: Records) -> dict[str, PowerLaw]:
        """The lines of the figure, by name."""
        if self.figure is not None:
            return dict(self.figure(records))
        return {s.line: s.law(records) for s in self.lines if isinstance(s, Slope) and s.line}
