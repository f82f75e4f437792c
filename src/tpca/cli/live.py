"""Screens for a fit under way: a bar, a live view, plain lines where there is no terminal, or nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tpca.cli.screens import duration, number
from tpca.cli.watch import Screen, Sight, known, line, memory, needed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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


class Nothing:
    """Shows nothing."""

    def open(self, sight: Sight) -> AbstractContextManager[object]:  # noqa: ARG002
        """Nothing to open."""
        return nullcontext()

    def show(self, sight: Sight) -> None:
        """Show nothing."""


class Lines:
    """Plain lines for logs and pipes: at first often, then whenever the samples have doubled, or a minute is over."""

    def __init__(
        self, console: Console, least: float = 2.0, most: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._least, self._most, self._clock = console, least, most, clock
        self._last, self._done, self._told = -math.inf, 0, ""

    def open(self, sight: Sight) -> AbstractContextManager[object]:
        """Say what begins."""
        of = "" if sight.total is None else f", {sight.total:,} samples"
        self._put(f"{sight.title}{of}")
        return nullcontext()

    def show(self, sight: Sight) -> None:
        """A line, if it is time for one."""
        now = self._clock()
        proven = "found" if sight.found else ""
        grown = sight.done >= 2 * self._done or sight.done < self._done
        due = now - self._last >= self._most or (now - self._last >= self._least and grown)
        if due or proven != self._told:
            self._last, self._done, self._told = now, sight.done, proven
            self._put(line(sight))

    def _put(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class Bar:
    """One progress bar with the strength beside it."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, sight: Sight) -> AbstractContextManager[object]:
        """The bar, gone dark where there is no terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        texts = [TextColumn(f"{{task.fields[{name}]}}") for name in ("rate", "known", "left")]
        columns = (TextColumn("{task.description:14s}"), BarColumn(bar_width=24), MofNCompleteColumn(), *texts)
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._bar = self._progress.add_task("reading", total=sight.total, rate="", known="", left="")
        return self._progress

    def show(self, sight: Sight) -> None:
        """Move the bar."""
        left = "" if sight.left is None else f"{duration(sight.left)} left"
        rate = f"{sight.rate:,.0f} samples/s"
        self._progress.update(
            self._bar, completed=sight.done, description=sight.phase, rate=rate, known=known(sight), left=left
        )


class Panel:
    """The live view: all that is known of the run, in a frame that stays in its place."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, sight: Sight) -> AbstractContextManager[object]:
        """Take the last lines of the terminal."""
        from rich.live import Live

        self._live = Live(self.render(sight), console=self._console, refresh_per_second=8)
        return self._live

    def show(self, sight: Sight) -> None:
        """Draw; at most as often as the terminal is refreshed."""
        self._live.update(self.render(sight))

    def render(self, sight: Sight) -> RenderableType:
        """The frame."""
        from rich.panel import Panel as Frame
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(ratio=1)
        bar = ProgressBar(total=sight.total, completed=sight.done, pulse=sight.total is None)
        table.add_row(Text(sight.phase), bar)
        for name, text in self._rows(sight):
            table.add_row(name, Text(text, overflow="ellipsis", no_wrap=True))
        return Frame(table, title=Text(sight.title, overflow="ellipsis"), title_align="left")

    def _rows(self, sight: Sight) -> list[tuple[str, str]]:
        of = "" if sight.total is None else f" of {sight.total:,}"
        left = f", about {duration(sight.left)} left" if sight.left else ""
        rows = [("samples", f"{sight.done:,}{of}, {sight.rate:,.0f} a second{left}")]
        if sight.evidence is not None:
            blocks = BLOCKS if self._console.encoding.lower().startswith("utf") else ASCII_BLOCKS
            drawn = sparkline(sight.climb, max(8, min(40, self._console.width - 60)), blocks)
            rows.append(("log evidence", f"{drawn} {number(sight.evidence, 3)}{needed(sight)}"))
        if sight.strength is not None:
            rows.append(("signal", known(sight)))
        if sight.candidate:
            rows.append(("candidate", sight.candidate))
        used = memory(sight)
        return [*rows, ("memory", used)] if used else rows


def screen_for(console: Console, live: bool, quiet: bool) -> Screen:
    """The screen that was asked for and that the console can show."""
    if quiet:
        return Nothing()
    if not live:
        return Bar(console)
    return Panel(console) if console.is_terminal else Lines(console)
