"""How far a fit is: one bar in a terminal, a line now and then in a log, nothing where nothing is wanted."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tpca.wording import duration, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

FIRST, MOST = 10.0, 60.0  # seconds between two lines of a log, with news and without


def bars(console: Console, known: bool = False) -> Bars:
    """Bars for whatever is counted, one a task, maybe with what is ``known`` beside it; nothing without a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description:10}"), BarColumn(bar_width=20), MofNCompleteColumn()]
    columns += [TextColumn("{task.fields[known]}")] if known else []
    shown = (*columns, TimeRemainingColumn(compact=True))
    return Progress(*shown, console=console, disable=not console.is_terminal, transient=True)


class FitProgress:
    """The callback of a fit, which shows what is known after every round."""

    def __init__(self, quiet: bool, console: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console

        self._console, self._quiet, self._clock = console or Console(stderr=True), quiet, clock
        self._bars: Bars | None = None
        self._total: int | None = None
        self._last = self._began = clock()
        self._place, self._done, self._told = 0, 0, False
        self._pass = 1

    @contextmanager
    def watching(self, total: int | None) -> Iterator[None]:
        """Show it while this is open; ``total`` samples are in a pass."""
        self._total = total
        self._last = self._began = self._clock()
        if self._quiet or not self._console.is_terminal:
            yield
            return
        with bars(self._console, known=True) as self._bars:
            self._task = self._bars.add_task("reading", total=total, known="")
            yield
        self._bars = None

    def __call__(self, record: dict[str, Any]) -> None:
        """Take a round's record, or one of how far a test is."""
        if "flips" in record:
            self._test(record["flips"], record["flips_in_all"])
            return
        self._count(record)
        phase = str(record.get("phase", "reading"))
        if record.get("component"):
            phase += f" {record['component']}"
        if self._pass > 1:
            phase += f", pass {self._pass}"
        if self._bars is not None:
            self._bars.update(self._task, completed=self._place, description=phase, known=known(record))
        elif not self._quiet:
            self._line(phase, record)

    def _test(self, done: int, total: int) -> None:
        """Show how many flips of a test are done."""
        if self._bars is not None:
            self._bars.update(self._task, completed=done, total=total, description="testing", known="")
            return
        now = self._clock()
        if not self._quiet and now - self._last >= MOST:
            self._last = now
            self._print(["testing", f"{done:,} of {total:,} flips", duration(now - self._began)])

    def _print(self, parts: list[str]) -> None:
        """Print a line of a log; nobody may read it any more, which is no reason to end the fit."""
        line = f"{parts[0]}: {', '.join(filter(None, parts[1:]))}"
        with contextlib.suppress(OSError):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _count(self, record: dict[str, Any]) -> None:
        """The place in this pass."""
        samples, number = int(record.get("position", record["samples"])), int(record.get("pass", 1))
        if number != self._pass and "new" in record:
            self._place = 0
        self._place = self._place + int(record["new"]) if number > 1 and "new" in record else samples
        self._pass = number

    def _line(self, phase: str, record: dict[str, Any]) -> None:
        """A line, if a minute is over, or after ten seconds if samples have doubled, a pass begun, or a signal come."""
        now, found = self._clock(), bool(record.get("found"))
        news = found != self._told or not self._done < self._place < 2 * self._done
        if now - self._last >= (FIRST if news else MOST):
            self._last, self._done, self._told = now, self._place, found
            of = "" if self._total is None else f" of {self._total:,}"
            self._print([phase, f"{self._place:,}{of} samples", duration(now - self._began), known(record)])


def known(record: dict[str, Any]) -> str:
    """Strength and proof in a few words, as far as a round knows them."""
    if "strength" in record and math.isfinite(record["strength"]):
        value = f"{number(record['strength'], 3)} ± {number(record['strength_error'], 2)}"
        return f"{record.get('measure', 'strength')} {value}{', found' if record.get('found') else ''}"
    return f"mean reward {number(record['reward'], 3)}" if "reward" in record else ""
