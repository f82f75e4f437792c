"""What a race holds beside the samples: ``python -m research.studies.race_memory --out docs/race-memory.json``.

The peak that ``tracemalloc`` counts while no sample is in memory: state, answers, working copies, and Python's own
objects, which do not grow with the samples.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from research.studies.runner import table_command
from tpca.solvers.race.run import RaceSolver
from tpca.solvers.race.strategies import least_bytes
from tpca.tensors import DenseBatch
from tpca.wording import amount, markdown_table

# Shapes, and samples that are enough for all phases of a first look, or more.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    *(((2, 2000, 2000), 5), ((100_000, 2), 20), ((2,) * 12, 40), ((32,) * 4, 12), ((10,) * 6, 12)),
)
TIMES = (1.05, 5.0)  # limits, over the least that works


def peak_of_a_race(dims: tuple[int, ...], n: int, components: int, limit: int) -> tuple[int, int]:
    """The most that a race of noise allocates while no sample is in memory, and what it says that it holds."""
    rng, peak = np.random.default_rng(0), 0
    data: Any = SimpleNamespace(dims=dims, length=None, endless=False, rereadable=False, whole=True, partial=False)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    run = RaceSolver(memory_limit=limit, max_samples=n, n_components=components).start(data)
    while (ask := run.ask()) is not None:
        part = ask.blank.fresh()
        for place in range(ask.n):
            part.add(DenseBatch(rng.standard_normal((1, *dims), dtype=np.float32)), place)
        part.finish()
        tracemalloc.reset_peak()
        run.tell(part)
        peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return peak, run.estimate().state_bytes


def measured(job: tuple[tuple[int, ...], int, int, float]) -> dict[str, Any]:
    """One race of one shape, components and limit; what is loaded at first use is loaded before."""
    dims, n, components, times = job
    RaceSolver(max_samples=5).run(np.random.default_rng(0).standard_normal((5, 3, 4)))
    limit = int(times * components * least_bytes(dims))
    peak, state = peak_of_a_race(dims, n, components, limit)
    known = {"dims": dims, "components": components, "least": least_bytes(dims), "limit": limit}
    return {**known, "state": state, "peak": peak}


def rows(pool_map: Callable[..., list[Any]], seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ARG001
    """Every shape, one and two components, at both limits."""
    jobs = [(dims, n, components, times) for dims, n in SHAPES for components in (1, 2) for times in TIMES]
    for row in pool_map(measured, jobs):
        yield "rows", row


def markdown(content: dict[str, Any]) -> str:
    """The table of docs/race.md, from the stored results."""
    head = ("samples", "components", "least memory", "limit", "state as said", "peak")
    shown = []
    for row in content["rows"]:
        sizes = (amount(row[name]) for name in ("least", "limit", "state", "peak"))
        shown.append(("×".join(map(str, row["dims"])), str(row["components"]), *sizes))
    return markdown_table(head, shown)


if __name__ == "__main__":
    table_command(None, __doc__, rows, seeds=1, markdown=markdown)
