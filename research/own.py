"""Your own method, or your own schedule of the paper's algorithm, through the same studies.

A method is anything with ``run(samples) -> Estimate`` (or an object with ``vectors``); a schedule is a function of the
truth and the budget, ``schedule(truth, budget) -> Schedule``, run on the exact law of its iterates at any d.  Both give
a study like the others: N₅₀ and N₉₀ with intervals, the slope in d, a table and a figure.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.law import LawEngine
from research.simulate import SimulatedRun
from research.studies.climbs import COARSE, GOOD, cells, drawn_runs, half_law
from research.studies.estimates import Slope
from research.studies.runner import run_studies
from research.studies.store import Store
from research.studies.study import Finding, Params, Study
from tpca.model import SpikedTensor
from tpca.solvers.paper.schedule import Schedule

FOUND = 0.9


def study_of_schedule(
    name: str, schedule: Callable[[SpikedTensor, float], Schedule], exponent: float, **grid: Any
) -> Study:
    """Success of the climb, all alignments above ½, at budgets 2^(j/2); N ~ d^exponent is what you expect."""

    def run(rng: np.random.Generator, truth: SpikedTensor, budget: float) -> tuple[bool, float]:
        taken, climb = schedule(truth, budget), SimulatedRun(truth, rng, coarse=COARSE)
        climb.climb(taken)
        climb.select(taken.selection)
        return bool(np.abs(climb.alignments).min() > GOOD), float(climb.samples)

    return _study(name, exponent, run, **{"rungs": (-8, 2), "runs": 20, **grid})


def study_of_method(name: str, method: Callable[[Any], Any], exponent: float, **grid: Any) -> Study:
    """Success, every overlap above 0.9, of ``method(samples).vectors`` on 2^(j/2)·d^exponent samples at λ = 1.

    ``samples`` is a source that every solver of tpca reads, drawn from the law of Gaussian samples.
    """

    def run(rng: np.random.Generator, truth: SpikedTensor, budget: float) -> tuple[bool, float]:
        n = max(2, round(budget * truth.dims[0] ** exponent))
        found = method(LawEngine(truth, int(rng.integers(2**31)), max_samples=n))
        return bool(truth.overlaps(found.vectors).min() > FOUND), float(n)

    return _study(name, exponent, run, **{"rungs": (-4, 8), "runs": 8, **grid})


def _study(
    name: str,
    exponent: float,
    run: Callable[[np.random.Generator, SpikedTensor, float], tuple[bool, float]],
    *,
    order: int,
    dims: Sequence[int],
    correlation: float = 0.0,
    rungs: tuple[int, int],
    runs: int,
) -> Study:
    """``runs`` at every d and every budget 2^(j/2), j from ``rungs[0]`` to ``rungs[1]``."""

    def trial(params: Params) -> dict[str, Any]:
        ends = [run(rng, truth, params["budget"]) for rng, truth in drawn_runs(params)]
        return {"wins": sum(won for won, _ in ends), "runs": len(ends), "samples": ends[0][1]}

    grid = cells(dims, range(rungs[0], rungs[1] + 1), (runs,), order=order, correlation=correlation)
    slope = Slope(f"{name}, N₅₀ against d", exponent, half_law(), line=name)
    return Study(name, name, f"N ~ d^{exponent:g}.", grid, trial, [slope])


def measure(study: Study, folder: str | Path | None = None) -> list[Finding]:
    """Run what is not stored in ``folder`` yet, in this process, and say what the trials say."""
    with tempfile.TemporaryDirectory() as temporary:
        store = Store(folder or temporary)
        run_studies([study], "full", store, processes=0)
        return study.findings(store.records(study))
