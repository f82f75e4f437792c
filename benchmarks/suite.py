"""What all benchmarks share: a row of the table, and ratios by interleaved repeats.

The machine may be busy with other things, so no figure stands alone: the reference (a floor of the machine, or a peer)
is measured right before and right after every repeat of the job, the ratio of a repeat is job ÷ mean of the two, and
the row shows the median of the ratios.  ``spread`` holds the least and the largest.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
REPEATS = 5
most_repeats = 99  # set by --repeats, for a quick look


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio that should be at most ``target``; without one it is there for orientation."""

    job: str
    reference: str
    ratio: float | None = None  # None: not measured, and the note says why
    target: float | None = None
    spread: tuple[float, float] | None = None
    seconds: float | None = None
    reference_seconds: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Measured:
    """Ratios of interleaved repeats; medians of the seconds."""

    ratios: list[float]
    seconds: float
    reference_seconds: float
    least: float  # seconds of the quickest repeat

    def row(self, job: str, reference: str, target: float | None, note: str = "") -> Row:
        """The median ratio as a row."""
        spread = (min(self.ratios), max(self.ratios))
        ratio = statistics.median(self.ratios)
        return Row(job, reference, ratio, target, spread, self.seconds, self.reference_seconds, note)


def seconds_of(job: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def interleave(
    jobs: dict[str, Callable[[], float]], reference: Callable[[], float], repeats: int = REPEATS, warm: bool = True
) -> dict[str, Measured]:
    """Ratios of several jobs to one reference; every job and the reference give their own seconds."""
    if warm:  # compilers, caches and allocators
        reference()
        for job in jobs.values():
            job()
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for _ in range(min(repeats, most_repeats)):
        before = reference()
        for name, job in jobs.items():
            own = job()
            after = reference()
            took[name].append((own, (before + after) / 2))
            before = after
    return {name: ratios(pairs) for name, pairs in took.items()}


def compare(
    job: Callable[[], object], reference: Callable[[], object], repeats: int = REPEATS, warm: bool = True
) -> Measured:
    """Ratio of one job to its reference."""
    return interleave({"job": lambda: seconds_of(job)}, lambda: seconds_of(reference), repeats, warm)["job"]


def ratios(pairs: list[tuple[float, float]]) -> Measured:
    own, floor = zip(*pairs, strict=True)
    return Measured([a / b for a, b in pairs], statistics.median(own), statistics.median(floor), min(own))
