"""What is known of a fit under way: the solver's callback, the pace, and the same in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpca.cli.screens import duration, number, size

MAX_POINTS = 200  # points kept of how the evidence and the samples grew


@dataclass
class Sight:
    """What is known of a fit under way; ``None`` where nothing is."""

    title: str
    total: int | None = None
    done: int = 0
    phase: str = "reading"
    rate: float = 0.0
    left: float | None = None
    seconds: float = 0.0
    evidence: float | None = None
    needed: float | None = None
    climb: list[float] = field(default_factory=list)
    strength: float | None = None
    strength_error: float | None = None
    found: bool | None = None
    candidate: str = ""
    state_bytes: int | None = None
    buffer_bytes: int | None = None


class Screen(Protocol):
    """Shows sights while it is open."""

    def open(self, sight: Sight) -> AbstractContextManager[object]:
        """Begin; what is returned ends it."""

    def show(self, sight: Sight) -> None:
        """What is known now."""


class Watch:
    """The solver's callback: keeps a :class:`Sight` up to date, shows it, and remembers the pace for the report."""

    def __init__(self, screen: Screen, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.sight = Sight(title)
        self.engine: Any = None  # asked for its buffer, if given
        self.trace: list[tuple[int, float]] = []  # samples read, those of all passes, and seconds
        self._screen, self._clock = screen, clock
        self._pace = Pace(clock)
        self._began = clock()
        self._read, self._place = 0, 0

    def watching(self, total: int | None) -> AbstractContextManager[object]:
        """The screen, open while the solver runs."""
        self.sight.total, self._began, self._pace = total, self._clock(), Pace(self._clock)
        return self._screen.open(self.sight)

    @property
    def seconds(self) -> float:
        """Since the solver began."""
        return self._clock() - self._began

    def __call__(self, record: dict[str, Any]) -> None:
        """Take a round's record."""
        sight = self.sight
        sight.done = int(record.get("position", record["samples"]))
        self._pace.note(sight.done)
        self._read += sight.done - self._place if sight.done >= self._place else sight.done
        self._place = sight.done
        sight.phase = _phase(record)
        sight.rate, sight.seconds = self._pace.rate, self.seconds
        sight.left = None if sight.total is None else self._pace.left(sight.total)
        self._take(record)
        if self.engine is not None:
            sight.buffer_bytes = self.engine.buffer_bytes
        self.trace = thinned([*self.trace, (self._read, sight.seconds)])
        self._screen.show(sight)

    def _take(self, record: dict[str, Any]) -> None:
        """What only some solvers know."""
        sight = self.sight
        sight.found = record.get("found")
        if "log_evidence" in record:
            sight.evidence, sight.needed = record["log_evidence"], record.get("needed")
            sight.climb = thinned([*sight.climb, float(record["log_evidence"])])
        if "strength" in record:
            sight.strength, sight.strength_error = record["strength"], record["strength_error"]
        elif "reward" in record:
            sight.strength = record["reward"]
        attempt = record.get("attempt")
        sight.candidate = str(record.get("candidate", "")) + (f", {_ordinal(attempt)} attempt" if attempt else "")
        sight.state_bytes = record.get("state_bytes", sight.state_bytes)


def _phase(record: dict[str, Any]) -> str:
    phase = str(record["phase"])
    if record.get("component"):
        phase += f" {record['component']}"
    return phase if record.get("pass", 1) == 1 else f"{phase}, pass {record['pass']}"


def _ordinal(count: int) -> str:
    last = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th") if count % 100 not in (11, 12, 13) else "th"
    return f"{count}{last}"


def thinned(points: list[Any], most: int = MAX_POINTS) -> list[Any]:
    """Every other point once there are too many; the last one always."""
    return points if len(points) <= most else [*points[:-1:2], points[-1]]


def known(sight: Sight) -> str:
    """Strength and proof in a few words."""
    if sight.strength is None:
        return ""
    if sight.strength_error is None:
        return f"mean reward {number(sight.strength, 3)}"
    proof = "found" if sight.found else "not yet proven"
    return f"strength {number(sight.strength, 3)} ± {number(sight.strength_error, 2)} ({proof})"


def line(sight: Sight) -> str:
    """All that is known in one line."""
    of = "" if sight.total is None else f" of {sight.total:,}"
    parts = [f"{sight.phase}: {sight.done:,}{of} samples", f"{sight.rate:,.0f} samples/s"]
    if sight.evidence is not None:
        parts.append(f"log evidence {number(sight.evidence, 3)}{needed(sight)}")
    parts += [known(sight), f"candidate {sight.candidate}" if sight.candidate else "", memory(sight)]
    if sight.left:
        parts.append(f"{duration(sight.left)} left")
    return ", ".join(part for part in parts if part)


def needed(sight: Sight) -> str:
    """What the evidence must reach; nothing while no candidate could prove anything."""
    known = sight.needed is not None and math.isfinite(sight.needed)
    return f" of {number(sight.needed, 3)} needed" if known else ""


def memory(sight: Sight) -> str:
    """State and buffer, as far as they are known."""
    both = (("state", sight.state_bytes), ("buffer", sight.buffer_bytes))
    return ", ".join(f"{name} {size(nbytes)}" for name, nbytes in both if nbytes is not None)


class Pace:
    """How fast it goes, and how long it will take: a round costs a little, and each of its samples a little."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = self._last = clock()
        self._first: int | None = None
        self._done, self._rounds = 0, 0
        self._each = math.inf  # seconds a sample: the best round so far, for rounds have a cost of their own

    def note(self, done: int) -> None:
        """So many samples of this pass are done."""
        now = self._clock()
        if self._first is None or done < self._done:  # the start, a resumed run, a new pass
            self._first, self._started, self._rounds = done, now, 0
        elif done > self._done:
            self._each = min(self._each, (now - self._last) / (done - self._done))
            self._rounds += 1
        self._done, self._last = done, now

    @property
    def rate(self) -> float:
        """Samples a second since the start."""
        return (self._done - (self._first or 0)) / max(self._last - self._started, 1e-9)

    def left(self, total: int) -> float:
        """Seconds to the end of the pass; rounds grow with the samples so far."""
        from tpca.solvers.race.rounds import round_sizes

        if not self._rounds or self._done >= total:
            return 0.0
        seen = self._done - (self._first or 0)
        each_round = max(0.0, self._last - self._started - seen * self._each) / self._rounds
        rounds = len(round_sizes(total)) - len(round_sizes(self._done))
        return (total - self._done) * self._each + rounds * each_round
