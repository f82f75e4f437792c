"""What is known of a fit under way: the solver's callback, the pace, and the same in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tpca.wording import amount, duration, number

MAX_POINTS = 200  # points kept of how the evidence and the samples grew


@dataclass
class Progress:
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
    measure: str = "strength"
    found: bool | None = None
    candidate: str = ""
    state_bytes: int | None = None
    buffer_bytes: int | None = None


class Nothing:
    """Shows nothing; the base of what shows what is known while it is open."""

    def open(self, progress: Progress) -> AbstractContextManager[object]:  # noqa: ARG002
        """Begin; what is returned ends it."""
        return nullcontext()

    def show(self, progress: Progress) -> None:
        """What is known now."""


class ProgressCallback:
    """The solver's callback: keeps a :class:`Progress` up to date, shows it, and remembers the pace for the report."""

    def __init__(self, display: Nothing, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.progress = Progress(title)
        self.engine: Any = None  # asked for its buffer, if given
        self.trace: list[tuple[int, float]] = []  # samples read, those of all passes, and seconds
        self._display, self._clock = display, clock
        self._pace = Pace(clock)
        self._began = clock()
        self._read, self._place = 0, 0

    def watching(self, total: int | None) -> AbstractContextManager[object]:
        """The display, open while the solver runs."""
        self.progress.total, self._began, self._pace = total, self._clock(), Pace(self._clock)
        return self._display.open(self.progress)

    @property
    def seconds(self) -> float:
        """Since the solver began."""
        return self._clock() - self._began

    def __call__(self, record: dict[str, Any]) -> None:
        """Take a round's record."""
        progress = self.progress
        progress.done = int(record.get("position", record["samples"]))
        self._pace.note(progress.done)
        self._read += progress.done - self._place if progress.done >= self._place else progress.done
        self._place = progress.done
        progress.phase = _phase(record)
        progress.rate, progress.seconds = self._pace.rate, self.seconds
        progress.left = None if progress.total is None else self._pace.left(progress.total)
        self._take(record)
        if self.engine is not None:
            progress.buffer_bytes = self.engine.buffer_bytes
        self.trace = thinned([*self.trace, (self._read, progress.seconds)])
        self._display.show(progress)

    def _take(self, record: dict[str, Any]) -> None:
        """What only some solvers know."""
        progress = self.progress
        progress.found = record.get("found")
        if "log_evidence" in record:
            progress.evidence, progress.needed = record["log_evidence"], record.get("needed")
            progress.climb = thinned([*progress.climb, float(record["log_evidence"])])
        if "strength" in record:
            progress.strength, progress.strength_error = record["strength"], record["strength_error"]
            progress.measure = record.get("measure", "strength")
        elif "reward" in record:
            progress.strength = record["reward"]
        attempt = record.get("attempt")
        progress.candidate = str(record.get("candidate", "")) + (f", {_ordinal(attempt)} attempt" if attempt else "")
        progress.state_bytes = record.get("state_bytes", progress.state_bytes)


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


def known(progress: Progress) -> str:
    """Strength and proof in a few words."""
    if progress.strength is None:
        return ""
    if progress.strength_error is None:
        return f"mean reward {number(progress.strength, 3)}"
    proof = "found" if progress.found else "not yet proven"
    return f"{progress.measure} {number(progress.strength, 3)} ± {number(progress.strength_error, 2)} ({proof})"


def line(progress: Progress) -> str:
    """All that is known in one line."""
    of = "" if progress.total is None else f" of {progress.total:,}"
    parts = [f"{progress.phase}: {progress.done:,}{of} samples", f"{progress.rate:,.0f} samples/s"]
    if progress.evidence is not None:
        parts.append(f"log evidence {number(progress.evidence, 3)}{needed(progress)}")
    parts += [known(progress), f"candidate {progress.candidate}" if progress.candidate else "", memory(progress)]
    if progress.left:
        parts.append(f"{duration(progress.left)} left")
    return ", ".join(part for part in parts if part)


def needed(progress: Progress) -> str:
    """What the evidence must reach; nothing while no candidate could prove anything."""
    known = progress.needed is not None and math.isfinite(progress.needed)
    return f" of {number(progress.needed, 3)} needed" if known else ""


def memory(progress: Progress) -> str:
    """State and buffer, as far as they are known."""
    both = (("state", progress.state_bytes), ("buffer", progress.buffer_bytes))
    return ", ".join(f"{name} {amount(nbytes)}" for name, nbytes in both if nbytes is not None)


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
