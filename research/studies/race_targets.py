"""The race against its targets, from fresh seeds.

``python -m research.studies.race_targets --out docs/race-targets.json``

Every row runs ``RaceSolver`` with ``max_samples`` and ``memory_limit`` at the figures of the table, once per seed, and
counts how often every overlap with the planted vectors exceeds 0.9.  ``law`` rows draw batch means from their exact
law; ``samples`` rows draw every single sample.  The refinement rows compare the squared error after T₃ refinement
samples with the Cramér–Rao limit.  ``docs/race.md`` shows the file.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.law import LawEngine
from research.studies.estimates import rate_interval
from research.studies.runner import table_command
from research.theory import cramer_rao
from tpca.model import SpikedTensor
from tpca.solvers.race.run import RaceSolver
from tpca.wording import markdown_table

KINDS: dict[str, dict[str, Any]] = {
    "weak": {},
    "paired": {"correlation": 1.0},
    "equal": {"correlation": 1.0, "symmetric": True},
}
GOOD = 0.9


@dataclass(frozen=True)
class Row:
    """One cell of the target table: at most ``factor * d^(order/2)`` samples and ``state * d^power`` floats."""

    order: int
    dim: int
    kind: str
    factor: float
    state: float
    power: int
    source: str = "law"

    @property
    def samples(self) -> int:
        """max_samples of the row."""
        return int(self.factor * self.dim ** (self.order / 2))

    @property
    def memory(self) -> int:
        """Memory of the row in bytes."""
        return int(8 * self.state * self.dim**self.power)


ROWS = (
    Row(3, 48, "weak", 3.0, 60, 2),
    Row(3, 48, "equal", 3.0, 60, 2),
    Row(4, 24, "weak", 2.0, 200, 2),
    Row(4, 24, "paired", 2.0, 200, 2),
    Row(4, 24, "equal", 1.0, 200, 2),
    Row(4, 32, "weak", 3.5, 30, 2),
    Row(5, 12, "weak", 3.2, 20, 3),
    Row(5, 12, "paired", 3.2, 20, 3),
    Row(5, 12, "equal", 1.4, 20, 3),
    Row(5, 16, "weak", 5.0, 50, 2),
    Row(6, 10, "weak", 3.0, 40, 3),
    Row(6, 10, "paired", 1.6, 40, 3),
    Row(6, 10, "equal", 0.4, 40, 3),
    Row(6, 10, "weak", 6.5, 50, 2),
    Row(3, 48, "weak", 3.0, 60, 2, "samples"),
    Row(4, 24, "weak", 2.0, 200, 2, "samples"),
    Row(5, 12, "weak", 3.2, 20, 3, "samples"),
)
REFINEMENT_ROWS = ((3, 24), (4, 12), (5, 8), (6, 6))


def run_trial(job: tuple[Row, int]) -> dict[str, Any]:
    """One race: overlaps, samples until the signal was proven, state."""
    row, seed = job
    truth = SpikedTensor.random((row.dim,) * row.order, 1.0, random_state=seed, **KINDS[row.kind])
    source: Any = (
        LawEngine(truth, random_state=seed + 1) if row.source == "law" else truth.stream(random_state=seed + 1)
    )
    began = time.perf_counter()
    estimate = RaceSolver(random_state=seed, memory_limit=row.memory, max_samples=row.samples).run(source)
    proven = [h["samples"] for h in estimate.history if h["found"]]
    return {
        "overlap": float(truth.overlaps(estimate.vectors).min()),
        "proven_at": proven[0] if proven else None,
        "state_bytes": estimate.state_bytes,
        "n_samples": estimate.n_samples,
        "seconds": time.perf_counter() - began,
    }


def run_refinement(job: tuple[int, int, int]) -> float:
    """Squared error after the refinement divided by (d−1)/(λ²T₃), averaged over modes."""
    order, dim, seed = job
    truth = SpikedTensor.random((dim,) * order, 1.0, random_state=seed)
    limit = int(20 * dim ** (order / 2))
    estimate = RaceSolver(random_state=seed, max_samples=limit).run(LawEngine(truth, random_state=seed + 1))
    searched = [h["samples"] for h in estimate.history if h["phase"] == "search"][-1]
    refined = estimate.n_samples - searched
    return float(np.mean(truth.loss(estimate.vectors))) / cramer_rao(dim, truth.strength, max(refined, 1))


def summarise(row: Row, trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Success rate with its 95 % Clopper–Pearson interval, and medians in the row's own units."""
    good, total = sum(t["overlap"] > GOOD for t in trials), len(trials)
    unit, rate = row.dim ** (row.order / 2), rate_interval(good, total)
    proven = [t["proven_at"] / unit if t["proven_at"] else math.inf for t in trials]
    return {
        **dataclasses.asdict(row),
        "success": good,
        "trials": total,
        "interval": [rate.low, rate.high],
        "proven": sum(math.isfinite(p) for p in proven),
        "proven_median": statistics.median(proven),
        "proven_worst": max(proven),
        "state_floats": max(t["state_bytes"] for t in trials) / 8 / row.dim**row.power,
        "seconds": statistics.median(t["seconds"] for t in trials),
        "ok": good >= math.ceil(0.9 * total),
    }


def rows(pool_map: Callable[..., list[Any]], seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row over all seeds."""
    for row in ROWS:
        yield "rows", summarise(row, pool_map(run_trial, [(row, seed) for seed in seeds]))
    for order, dim in REFINEMENT_ROWS:
        ratios = pool_map(run_refinement, [(order, dim, seed) for seed in seeds])
        yield "refinement", {"order": order, "dim": dim, "trials": len(ratios), "ratio": statistics.fmean(ratios)}


def targets_table(content: dict[str, Any]) -> str:
    """Success and samples until proven, row by row."""
    head = ("order, dims", "source", "signal", "samples", "state (floats)", "success, 95 % interval")
    return markdown_table((*head, "proven: median, worst"), map(_cells, content["rows"]))


def refinement_table(content: dict[str, Any]) -> str:
    """Squared errors over their limit."""
    each = (
        (f"{row['order']}, {row['dim']}", f"{row['ratio']:.2f}", str(row["trials"])) for row in content["refinement"]
    )
    return markdown_table(("order, d", "squared error / Cramér–Rao limit", "runs"), each)


def markdown(content: dict[str, Any]) -> str:
    """The tables of docs/race.md, from the stored results."""
    return f"{targets_table(content)}\n{refinement_table(content)}"


def _cells(row: dict[str, Any]) -> list[str]:
    order, dim, trials = row["order"], row["dim"], row["trials"]
    low, high = row["interval"]
    median, worst = ("—" if value is None else f"{value:.2f}" for value in (row["proven_median"], row["proven_worst"]))
    return [
        f"{order}, {dim}^{order}",
        row["source"],
        row["kind"],
        f"{row['factor']:g}·d^{order / 2:g}",
        f"{row['state_floats']:.0f} of {row['state']:g}·d^{row['power']}",
        f"{row['success']}/{trials}, {low:.2f}–{high:.2f}",
        f"{row['proven']}/{trials}: {median}, {worst}",
    ]


if __name__ == "__main__":
    table_command(None, __doc__, rows, seeds=20, markdown=markdown, fresh=True)
