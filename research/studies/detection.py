"""How many samples until a signal is proven: ``python -m research.studies.detection --out docs/detection.json``.

The 95th percentile of these counts, in units of d^(order/2)/λ², is what turns "nothing found in N samples" into an
upper confidence limit on the strength (:mod:`tpca.solvers.race.rounds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from research.law import LawEngine
from research.studies.runner import table_command
from tpca.model import SpikedTensor
from tpca.solvers.race.run import RaceRun, RaceSolver
from tpca.solvers.run import drive

# dims, and memory in bytes (None: the default)
SETTINGS: tuple[tuple[tuple[int, ...], int | None], ...] = (
    *(((20, 30), None), ((6,) * 3, None), ((16,) * 3, None), ((32,) * 3, None)),
    *(((5,) * 4, None), ((10,) * 4, None), ((5,) * 5, None), ((16,) * 4, 16_000), ((16,) * 4, 60_000)),
    *(((24,) * 4, 8 * 50 * 24**2), ((24,) * 4, 8 * 200 * 24**2)),
    *(((10,) * 5, 8 * 10 * 10**3), ((10,) * 5, 8 * 40 * 10**3), ((8,) * 5, 8 * 25 * 8**2), ((8,) * 5, 8 * 50 * 8**2)),
    *(((12,) * 5, 8 * 50 * 12**2), ((8,) * 6, 8 * 20 * 8**3), ((8,) * 6, 8 * 50 * 8**2)),
)
MAX_UNITS = 40.0  # units of d^(order/2) after which a run is given up


def run_trial(job: tuple[tuple[int, ...], int | None, int]) -> dict[str, Any]:
    """One race at λ = 1, left as soon as a signal is proven."""
    dims, memory, seed = job
    unit = math.sqrt(math.prod(dims))
    engine = LawEngine(SpikedTensor.random(dims, 1.0, random_state=seed), random_state=seed)
    solver = RaceSolver(random_state=seed, memory_limit=memory, max_samples=int(MAX_UNITS * unit) + 400, tol=1e3)
    run = RaceRun(solver, engine)
    strategy = run.races[0].candidates[0].strategy
    proven = [h["samples"] for h in drive(run, engine).history if h["found"]]
    return {"strategy": strategy.name, "size": strategy.size, "samples": proven[0] if proven else math.inf}


def rows(pool_map: Callable[..., list[Any]], seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Percentiles of the samples of every setting."""
    for dims, memory in SETTINGS:
        trials = pool_map(run_trial, [(dims, memory, seed) for seed in seeds])
        counts = [trial["samples"] for trial in trials]
        high = float(np.quantile(counts, 0.95, method="higher"))
        row = {"dims": dims, "memory": memory, "strategy": trials[0]["strategy"], "size": trials[0]["size"]}
        row |= {"median": float(np.median(counts)), "p95": high, "p95_units": high / math.sqrt(math.prod(dims))}
        yield "rows", row


if __name__ == "__main__":
    table_command(None, __doc__, rows, seeds=40)
