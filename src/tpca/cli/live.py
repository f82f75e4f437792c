"""Displays for a fit under way: a bar, a live view, plain lines where there is no terminal, or nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tpca.cli.progress import Nothing, Progress, known, line, memory, needed
from tpca.wording import duration, number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bars

WIDE = 100  # columns of a terminal that has room for everything
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


def sparkline(values: list[float], width: int, blocks: str = BLOCKS) -> str:
    """The values as up to ``width`` small bars, scaled from the least to the largest; evenly spread ones are drawn."""
    if not values:
        return ""
    count = min(width, len(values))
    chosen = [values[(i + 1) * len(values) // count - 1] for i in range(count)]
    low, high = min(chosen), max(chosen)
    step = (high - low) / (len(blocks) - 1) or 1.0
    return "".join(blocks[round((value - low) / step)] for value in chosen)


def bars(console: Console, transient: bool = False) -> Bars:
    """Bars for whatever is counted, one a task; nothing where there is no terminal."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description:22s}"), BarColumn(), TaskProgressColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, *times, console=console, disable=not console.is_terminal, transient=transient)


class Lines(Nothing):
    """Plain lines for logs and pipes: at first often, then whenever the samples have doubled, or a minute is over."""

    def __init__(
        self, console: Console, least: float = 2.0, most: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._least, self._most, self._clock = console, least, most, clock
        self._last, self._done, self._told = -math.inf, 0, ""

    def open(self, progress: Progress) -> AbstractContextManager[object]:
        """Say what begins."""
        of = "" if progress.total is None else f", {progress.total:,} samples"
        self._put(f"{progress.title}{of}")
        return nullcontext()

    def show(self, progress: Progress) -> None:
        """A line, if it is time for one."""
        now = self._clock()
        proven = "found" if progress.found else ""
        grown = progress.done >= 2 * self._done or progress.done < self._done
        due = now - self._last >= self._most or (now - self._last >= self._least and grown)
        if due or proven != self._told:
            self._last, self._done, self._told = now, progress.done, proven
            self._put(line(progress))

    def _put(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class Bar(Nothing):
    """One progress bar with the strength beside it."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, progress: Progress) -> AbstractContextManager[object]:
        """The bar, gone dark where there is no terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        texts = [TextColumn(f"{{task.fields[{name}]}}") for name in ("rate", "known", "left")]
        columns = (TextColumn("{task.description:14s}"), BarColumn(bar_width=24), MofNCompleteColumn(), *texts)
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._bar = self._progress.add_task("reading", total=progress.total, rate="", known="", left="")
        return self._progress if self._console.is_terminal else nullcontext()  # before Rich 15 a dark bar ends a line

    def show(self, progress: Progress) -> None:
        """Move the bar."""
        left = f"{duration(progress.left)} left" if progress.left else ""
        rate = f"{progress.rate:,.0f} samples/s" if self._console.width >= WIDE else ""  # the least of what is told
        told: dict[str, Any] = {"rate": rate, "known": known(progress), "left": left}
        self._progress.update(self._bar, completed=progress.done, description=progress.phase, **told)


class Panel(Nothing):
    """The live view: all that is known of the run, in a frame that stays in its place."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, progress: Progress) -> AbstractContextManager[object]:
        """Take the last lines of the terminal."""
        from rich.live import Live

        self._live = Live(self.render(progress), console=self._console, refresh_per_second=8)
        return self._live

    def show(self, progress: Progress) -> None:
        """Draw; at most as often as the terminal is refreshed."""
        self._live.update(self.render(progress))

    def render(self, progress: Progress) -> RenderableType:
        """The frame."""
        from rich.panel import Panel as Frame
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(ratio=1)
        bar = ProgressBar(total=progress.total, completed=progress.done, pulse=progress.total is None)
        table.add_row(Text(progress.phase), bar)
        for name, text in self._rows(progress):
            table.add_row(name, Text(text, overflow="ellipsis", no_wrap=True))
        return Frame(table, title=Text(progress.title, overflow="ellipsis"), title_align="left")

    def _rows(self, progress: Progress) -> list[tuple[str, str]]:
        of = "" if progress.total is None else f" of {progress.total:,}"
        left = f", about {duration(progress.left)} left" if progress.left else ""
        rows = [("samples", f"{progress.done:,}{of}, {progress.rate:,.0f} a second{left}")]
        if progress.evidence is not None:
            blocks = BLOCKS if self._console.encoding.lower().startswith("utf") else ASCII_BLOCKS
            drawn = sparkline(progress.climb, max(8, min(40, self._console.width - 60)), blocks)
            rows.append(("log evidence", f"{drawn} {number(progress.evidence, 3)}{needed(progress)}"))
        if progress.strength is not None:
            rows.append(("signal", known(progress)))
        if progress.candidate:
            rows.append(("candidate", progress.candidate))
        used = memory(progress)
        return [*rows, ("memory", used)] if used else rows


def display_for(console: Console, live: bool, quiet: bool) -> Nothing:
    """The display that was asked for and that the console can show."""
    if quiet:
        return Nothing()
    if not live:
        return Bar(console)
    return Panel(console) if console.is_terminal else Lines(console)
