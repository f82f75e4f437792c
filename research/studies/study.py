"""What a study is: trials, what one does, conclusions.  Everything else about studies is shared.

A study is a value, not a class of its own.  ``trials`` lists its trials as plain values, ``run(params)`` makes one
(a function at the top of a module, so that any process can run it), and every entry of ``lines`` concludes something
from the stored trials.  Most conclusions are slopes (:class:`research.studies.estimates.Slope`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Params = dict[str, Any]
Scale = Literal["quick", "full"]
SEEDS = ("first", "count", "seed", "lengths")  # and what follows from the size
LADDERS = ("dim", "budget", "steps", "memory", "strength", "correlation")


@dataclass(frozen=True)
class Finding:
    """One line of the table: what was predicted, what was measured, and whether they agree; ``None``: too few data."""

    label: str
    predicted: str
    measured: str
    agrees: bool | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """In words."""
        return "not enough data" if self.agrees is None else "agrees" if self.agrees else "differs"


@dataclass(frozen=True)
class Record:
    """A stored trial."""

    params: Params
    result: dict[str, Any]
    seconds: float


Records = Sequence[Record]
Line = Callable[[Records], list[Finding]]


def key(params: Params, but: Sequence[str] = ()) -> str:
    """A trial's name: its parameters in one spelling; those ``but`` some name what it is one of."""
    return json.dumps({name: value for name, value in params.items() if name not in but}, sort_keys=True)


def _few(name: str, values: list[float]) -> list[float]:
    """Some values of a ladder."""
    if name == "budget":
        return values[::2]
    if name == "dim" and len(values) < 4:
        return values[: max(1, len(values) - 1)]
    return [values[0], values[len(values) // 2], values[-1]]


def chosen(records: Iterable[Record], **where: Any) -> list[Record]:
    """The records whose parameters have these values; one that is not there is ``None``."""
    return [r for r in records if all(r.params.get(name) == value for name, value in where.items())]


def places(records: Iterable[Record], *names: str) -> list[tuple[Any, ...]]:
    """All combinations of values that these parameters have, sorted."""
    return sorted({tuple(r.params.get(name) for name in names) for r in records})


def counted(records: Iterable[Record], what: str = "wins") -> tuple[int, int]:
    """Wins (or ``what``) and runs of all records."""
    results = [r.result for r in records]
    return sum(r[what] for r in results), sum(r["runs"] for r in results)


@dataclass(frozen=True)
class Study:
    """One claim, put on a machine.

    ``version`` is raised when a trial would come out differently, so that old results are not mistaken for new ones.
    ``planned(params)`` are numbers of a trial's result that no chance is in, such as the samples of its schedule, or a
    list of all that may be there, and how far ``rounding`` may move them: a test computes all of them again.
    ``laws(records)`` are the lines of the figure by name, if not those of the slopes; ``axes`` names its x and y.
    """

    name: str
    title: str
    claim: str
    trials: Sequence[Params]
    run: Callable[[Params], dict[str, Any]]
    lines: Sequence[Line] = ()
    version: int = 1
    planned: Callable[[Params], Mapping[str, float | Sequence[float]]] | None = None
    laws: Callable[[Records], Mapping[str, Any]] | None = None
    axes: tuple[str, str] = ("d", "samples at 50 % success")

    def grid(self, scale: Scale) -> list[Params]:
        """All trials, or a few for a quick run.

        These are the first seeds, every second budget, of other ladders of values the first, the middle and the last,
        and of two or three sizes all but the largest.
        """
        if scale == "full":
            return list(self.trials)
        kept = [p for p in self.trials if p.get("first", 0) == 0 and p.get("seed", 0) < 2]
        for name in LADDERS:
            steps: dict[str, set[float]] = {}
            rungs = [p for p in kept if isinstance(p.get(name), int | float)]
            for p in rungs:
                steps.setdefault(key(p, but=(name, *SEEDS)), set()).add(p[name])
            few = {cell: _few(name, sorted(values)) for cell, values in steps.items()}
            kept = [p for p in kept if p not in rungs or p[name] in few[key(p, but=(name, *SEEDS))]]
        return kept

    def findings(self, records: Records) -> list[Finding]:
        """What the stored trials say."""
        return [finding for line in self.lines for finding in line(records)]
