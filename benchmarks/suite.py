"""What all benchmarks share: a row of the table, and ratios by interleaved repeats.

The machine may be busy with other things, so no figure stands alone: the reference (a floor of the machine, or a peer)
is measured right before and right after every repeat of the job, the ratio of a repeat is job ÷ mean of the two, and
the row shows the median of the ratios.  ``spread`` holds the least and the largest.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
REPEATS = 5
most_repeats = 99  # set by --repeats, for a quick look


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio that should be at most ``target`` or, with ``within``, that close to it."""

    job: str
    reference: str
    ratio: float
    target: float
    within: float | None = None
    spread: tuple[float, float] | None = None
    seconds: float | None = None
    reference_seconds: float | None = None
    note: str = ""
    also: bool = True  # what else must hold, such as "at equal or better overlap"

    @property
    def ok(self) -> bool:
        """Whether the target is reached."""
        near = self.ratio <= self.target if self.within is None else abs(self.ratio - self.target) <= self.within
        return near and self.also


@dataclass(frozen=True)
class Measured:
    """Ratios of interleaved repeats; medians of the seconds."""

    ratios: list[float]
    seconds: float
    reference_seconds: float
    least: float  # seconds of the quickest repeat, for figures without a reference

    def row(self, job: str, reference: str, target: float, note: str = "", also: bool = True) -> Row:
        """The median ratio as a row."""
        spread = (min(self.ratios), max(self.ratios))
        ratio = statistics.median(self.ratios)
        return Row(job, reference, ratio, target, None, spread, self.seconds, self.reference_seconds, note, also)


def seconds_of(job: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """This process, all of its threads and those it will start, on some cores only."""
    before = os.sched_getaffinity(0)
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)
    try:
        yield
    finally:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), before)


def interleave(
    jobs: dict[str, Callable[[], float]], reference: Callable[[], float], repeats: int = REPEATS, warm: bool = True
) -> dict[str, Measured]:
    """Ratios of several jobs to one reference; every job and the reference give their own seconds."""
    repeats = min(repeats, most_repeats)
    if warm and repeats > 1:  # compilers, caches and allocators
        reference()
        for job in jobs.values():
            job()
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for _ in range(repeats):
        before = reference()
        for name, job in jobs.items():
            own = job()
            after = reference()
            took[name].append((own, (before + after) / 2))
            before = after
    return {name: _measured(pairs) for name, pairs in took.items()}


def compare(
    job: Callable[[], object], reference: Callable[[], object], repeats: int = REPEATS, warm: bool = True
) -> Measured:
    """Ratio of one job to its reference."""
    jobs = {"job": lambda: seconds_of(job)}
    return interleave(jobs, lambda: seconds_of(reference), repeats, warm)["job"]


def _measured(pairs: list[tuple[float, float]]) -> Measured:
    own, floor = zip(*pairs, strict=True)
    return Measured([a / b for a, b in pairs], statistics.median(own), statistics.median(floor), min(own))
