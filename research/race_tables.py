r"""The tables of docs/race.md: ``python -m research table NAME --out docs/NAME.json`` runs one, row by row.

=================  ====================================================================================================
``race-targets``   ``RaceSolver`` with ``max_samples`` and ``memory_limit`` at the figures of the table, from fresh
                   seeds: how often every overlap with the planted vectors exceeds 0.9.  ``law`` rows draw batch means
                   from their exact law, ``samples`` rows every single sample.  And the squared error after T₃
                   refinement samples over the Cramér–Rao limit
``race-checks``    runs on pure noise that claim a signal, at confidence 0.95, at any time or at the end: noise of all
                   laws of :mod:`research.noise.laws`, and two whose skewness cancels over all entries.  And how
                   often nominal 95 % intervals of components and of the strength hold the truth, at the accuracy where
                   the run was told to stop
``race-memory``    the peak that ``tracemalloc`` counts while no sample is in memory: state, answers, working copies,
                   and Python's own objects, which do not grow with the samples
``detection``      samples until a signal is proven.  The 95th percentile, in units of d^(order/2)/λ², turns "nothing
                   found in N samples" into an upper confidence limit on the strength (:mod:`tpca.solvers.race.rounds`)
=================  ====================================================================================================
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import multiprocessing
import statistics
import string
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import typer

from research import StudyError, markdown_table
from research.law import LawEngine
from research.noise.laws import LAWS, exponential, half_negated, lognormal
from research.studies.estimates import rate_interval
from research.studies.store import finite, made
from research.theory import cramer_rao
from tpca.model import Samples, SpikedTensor
from tpca.solvers.race.run import RaceRun, RaceSolver
from tpca.solvers.race.strategies import least_bytes
from tpca.solvers.run import drive
from tpca.tensors import DenseBatch
from tpca.wording import amount

Dims = tuple[int, ...]
Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]
Map = Callable[..., list[Any]]


@dataclass(frozen=True)
class Table:
    """``rows(map, seeds)`` yields the name of a list of the file and a row of it; ``map`` runs trials in processes.

    ``shown`` are the tables that pages show of the file, by name.  ``fresh`` seeds are taken from the clock.
    """

    rows: Callable[[Map, Sequence[int]], Rows]
    seeds: int
    shown: dict[str, Callable[[Row], str]] = dataclasses.field(default_factory=dict)
    fresh: bool = False


def table(
    name: Annotated[str, typer.Argument(help="Which table.")],
    out: Annotated[Path | None, typer.Option(help="JSON to write.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds per row.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="The first of them.")] = None,
    processes: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
    show: Annotated[Path | None, typer.Option(help="Print a stored result as Markdown and stop.")] = None,
) -> None:
    """Run a table of docs/race.md, print every row as it is done, and write all of them as JSON."""
    if name not in TABLES:
        raise StudyError(f"there is no table {name!r}; the tables are: {', '.join(TABLES)}.")
    asked = TABLES[name]
    if show is not None:
        typer.echo("\n".join(shown(json.loads(show.read_text())) for shown in asked.shown.values()))
        return
    first = first_seed if first_seed is not None else int(time.time()) % 10**8 if asked.fresh else 0
    count, step = seeds or asked.seeds, 1000 if asked.fresh else 1  # far apart: trials use the seeds that follow, too
    content: Row = {"seeds": count, "first_seed": first, "versions": made()}
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        every = [first + step * i for i in range(count)]
        for part, row in asked.rows(functools.partial(pool.map, chunksize=1), every):
            content.setdefault(part, []).append(row)
            typer.echo(json.dumps(finite(row)))
    if out is not None:
        out.write_text(json.dumps(finite(content), indent=1) + "\n")


class _Cells(string.Formatter):
    """How a row becomes cells: ``bytes`` is a format, too, and what is not known is a dash."""

    def format_field(self, value: Any, spec: str) -> str:
        """One value."""
        return "—" if value is None else amount(value) if spec == "bytes" else format(value, spec)


def columns(part: str, cells: Mapping[str, str]) -> Callable[[Row], str]:
    """A table of a list of the file: by heading how a cell is made of its row."""

    def shown(content: Row) -> str:
        rows = []
        for row in content[part]:
            more = {"shape": "×".join(map(str, row.get("dims", ()))), "half": row.get("order", 0) / 2}
            rows.append([_Cells().format(form, **row, **more) for form in cells.values()])
        return markdown_table(list(cells), rows)

    return shown


# ---- targets

GOOD = 0.9
KINDS: dict[str, dict[str, Any]] = {
    "weak": {},
    "paired": {"correlation": 1.0},
    "equal": {"correlation": 1.0, "symmetric": True},
}


@dataclass(frozen=True)
class Target:
    """One cell of the target table: at most ``factor * d^(order/2)`` samples and ``state * d^power`` floats."""

    order: int
    dim: int
    kind: str
    factor: float
    state: float
    power: int
    source: str = "law"


TARGETS = (
    Target(3, 48, "weak", 3.0, 60, 2),
    Target(3, 48, "equal", 3.0, 60, 2),
    Target(4, 24, "weak", 2.0, 200, 2),
    Target(4, 24, "paired", 2.0, 200, 2),
    Target(4, 24, "equal", 1.0, 200, 2),
    Target(4, 32, "weak", 3.5, 30, 2),
    Target(5, 12, "weak", 3.2, 20, 3),
    Target(5, 12, "paired", 3.2, 20, 3),
    Target(5, 12, "equal", 1.4, 20, 3),
    Target(5, 16, "weak", 5.0, 50, 2),
    Target(6, 10, "weak", 3.0, 40, 3),
    Target(6, 10, "paired", 1.6, 40, 3),
    Target(6, 10, "equal", 0.4, 40, 3),
    Target(6, 10, "weak", 6.5, 50, 2),
    Target(3, 48, "weak", 3.0, 60, 2, "samples"),
    Target(4, 24, "weak", 2.0, 200, 2, "samples"),
    Target(5, 12, "weak", 3.2, 20, 3, "samples"),
)
REFINED = ((3, 24), (4, 12), (5, 8), (6, 6))


def run_target(job: tuple[Target, int]) -> Row:
    """One race: overlaps, samples until the signal was proven, state."""
    row, seed = job
    truth = SpikedTensor.random((row.dim,) * row.order, 1.0, random_state=seed, **KINDS[row.kind])
    drawn = LawEngine(truth, random_state=seed + 1) if row.source == "law" else truth.stream(random_state=seed + 1)
    memory, most = int(8 * row.state * row.dim**row.power), int(row.factor * row.dim ** (row.order / 2))
    began = time.perf_counter()
    estimate = RaceSolver(random_state=seed, memory_limit=memory, max_samples=most).run(drawn)
    spent, overlap = time.perf_counter() - began, float(truth.overlaps(estimate.vectors).min())
    about = {"overlap": overlap, "proven_at": _proven(estimate)}
    return {**about, "state_bytes": estimate.state_bytes, "seconds": spent}


def _proven(estimate: Any) -> float:
    """Samples until the signal is proven; infinite if it never is."""
    return next((float(record["samples"]) for record in estimate.history if record["found"]), math.inf)


def run_refinement(job: tuple[int, int, int]) -> float:
    """Squared error after the refinement divided by (d−1)/(λ²T₃), averaged over modes."""
    order, dim, seed = job
    truth = SpikedTensor.random((dim,) * order, 1.0, random_state=seed)
    limit = int(20 * dim ** (order / 2))
    estimate = RaceSolver(random_state=seed, max_samples=limit).run(LawEngine(truth, random_state=seed + 1))
    searched = [h["samples"] for h in estimate.history if h["phase"] == "search"][-1]
    refined = estimate.n_samples - searched
    return float(np.mean(truth.loss(estimate.vectors))) / cramer_rao(dim, truth.strength, max(refined, 1))


def _targets(pool: Map, seeds: Sequence[int]) -> Rows:
    """Success rates with their 95 % Clopper–Pearson intervals, and medians in the row's own units."""
    for row in TARGETS:
        trials = pool(run_target, [(row, seed) for seed in seeds])
        good, total = sum(t["overlap"] > GOOD for t in trials), len(trials)
        rate, proven = rate_interval(good, total), [t["proven_at"] / row.dim ** (row.order / 2) for t in trials]
        about = {"success": good, "trials": total, "interval": [rate.low, rate.high]}
        about |= {"proven": sum(map(math.isfinite, proven)), "proven_median": statistics.median(proven)}
        about |= {"proven_worst": max(proven), "ok": good >= math.ceil(0.9 * total)}
        about["state_floats"] = max(t["state_bytes"] for t in trials) / 8 / row.dim**row.power
        yield "rows", {**dataclasses.asdict(row), **about, "seconds": statistics.median(t["seconds"] for t in trials)}
    for order, dim in REFINED:
        ratios = pool(run_refinement, [(order, dim, seed) for seed in seeds])
        yield "refinement", {"order": order, "dim": dim, "trials": len(ratios), "ratio": statistics.fmean(ratios)}


# ---- checks

MORE_LAWS = {
    **LAWS,
    "half-negated exponential": half_negated(exponential),
    "half-negated lognormal": half_negated(lognormal),
}
NOISES: list[tuple[Dims, str, int]] = [
    *((dims, noise, samples)
      for dims, samples in (((6,) * 3, 400), ((10,) * 3, 600), ((5,) * 4, 600), ((2, 2), 200))
      for noise in ("gaussian", "correlated", "rademacher", "student-t")),
    *(((8,) * 3, law, 300) for law in MORE_LAWS),
]  # fmt: skip
SIGNALS: tuple[tuple[Dims, float], ...] = (
    *(((6, 7, 8), 0.08), ((6, 7, 8), 0.2), ((40, 40), 0.3), ((10,) * 4, 0.1), ((6,) * 5, 0.15), ((5,) * 6, 0.15)),
)


def claims(job: tuple[Dims, str, int, int]) -> tuple[bool, bool]:
    """Whether one run on pure noise claims a signal at any time, and at the end."""
    dims, noise, samples, seed = job
    source: Any = Samples(dims, noise=noise, random_state=seed) if noise not in MORE_LAWS else None
    if source is None:
        source = MORE_LAWS[noise](np.random.default_rng(seed), samples, dims)
    estimate = RaceSolver(random_state=seed, max_samples=samples).run(source)
    return any(record["found"] for record in estimate.history), estimate.found


def covered(job: tuple[Dims, float, int]) -> tuple[int, int, bool, float]:
    """Components inside their interval, all components, strength inside its own, squared error over the claimed."""
    dims, tolerance, seed = job
    truth = SpikedTensor.random(dims, 1.0, random_state=seed)
    estimate = RaceSolver(random_state=seed, tol=tolerance).run(LawEngine(truth, random_state=seed))
    signed = [np.sign(v @ w) * v for v, w in zip(estimate.vectors, truth.vectors, strict=True)]
    triples = list(zip(signed, truth.vectors, estimate.standard_errors or (), strict=True))
    inside = sum(int(np.sum(np.abs(v - w) <= 1.96 * e)) for v, w, e in triples)
    low, high = estimate.strength_interval or (0.0, 0.0)
    ratio = float(np.mean([np.sum((v - w) ** 2) / np.sum(e**2) for v, w, e in triples]))
    return inside, sum(dims), bool(low <= truth.strength <= high), ratio


def _checks(pool: Map, seeds: Sequence[int]) -> Rows:
    for dims, noise, samples in NOISES:
        found = pool(claims, [(dims, noise, samples, seed) for seed in seeds])
        alarms = {"dims": dims, "noise": noise, "samples": samples, "runs": len(seeds)}
        yield "false_alarms", {**alarms, "claims": sum(r[0] for r in found), "at_end": sum(r[1] for r in found)}
    for shape, tolerance in SIGNALS:
        inside, entries, strength, ratio = zip(*pool(covered, [(shape, tolerance, s) for s in seeds]), strict=True)
        row = {"dims": shape, "tolerance": tolerance, "runs": len(seeds), "components": sum(inside) / sum(entries)}
        yield "coverage", {**row, "strength": sum(strength) / len(seeds), "error_ratio": float(np.mean(ratio))}


# ---- memory

# Shapes, and samples that are enough for all phases of a first look, or more.
SHAPES: tuple[tuple[Dims, int], ...] = (
    *(((2, 2000, 2000), 5), ((100_000, 2), 20), ((2,) * 12, 40), ((32,) * 4, 12), ((10,) * 6, 12)),
)
TIMES = (1.05, 5.0)  # limits, over the least that works


def peak_of_a_race(dims: Dims, n: int, components: int, limit: int) -> tuple[int, int]:
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


def measured(job: tuple[Dims, int, int, float]) -> Row:
    """One race of one shape, components and limit; what is loaded at first use is loaded before."""
    dims, n, components, times = job
    RaceSolver(max_samples=5).run(np.random.default_rng(0).standard_normal((5, 3, 4)))
    limit = int(times * components * least_bytes(dims))
    peak, state = peak_of_a_race(dims, n, components, limit)
    known = {"dims": dims, "components": components, "least": least_bytes(dims), "limit": limit}
    return {**known, "state": state, "peak": peak}


def _memory(pool: Map, _: Sequence[int]) -> Rows:
    for row in pool(measured, [(dims, n, k, times) for dims, n in SHAPES for k in (1, 2) for times in TIMES]):
        yield "rows", row


# ---- detection

# dims, and memory in bytes (None: the default)
SETTINGS: tuple[tuple[Dims, int | None], ...] = (
    *(((20, 30), None), ((6,) * 3, None), ((16,) * 3, None), ((32,) * 3, None)),
    *(((5,) * 4, None), ((10,) * 4, None), ((5,) * 5, None), ((16,) * 4, 16_000), ((16,) * 4, 60_000)),
    *(((24,) * 4, 8 * 50 * 24**2), ((24,) * 4, 8 * 200 * 24**2)),
    *(((10,) * 5, 8 * 10 * 10**3), ((10,) * 5, 8 * 40 * 10**3), ((8,) * 5, 8 * 25 * 8**2), ((8,) * 5, 8 * 50 * 8**2)),
    *(((12,) * 5, 8 * 50 * 12**2), ((8,) * 6, 8 * 20 * 8**3), ((8,) * 6, 8 * 50 * 8**2)),
)
MAX_UNITS = 40.0  # units of d^(order/2) after which a run is given up


def run_detection(job: tuple[Dims, int | None, int]) -> Row:
    """One race at λ = 1, left as soon as a signal is proven."""
    dims, memory, seed = job
    engine = LawEngine(SpikedTensor.random(dims, 1.0, random_state=seed), random_state=seed)
    most = int(MAX_UNITS * math.sqrt(math.prod(dims))) + 400
    run = RaceRun(RaceSolver(random_state=seed, memory_limit=memory, max_samples=most, tol=1e3), engine)
    strategy = run.races[0].candidates[0].strategy
    return {"strategy": strategy.name, "size": strategy.size, "samples": _proven(drive(run, engine))}


def _detection(pool: Map, seeds: Sequence[int]) -> Rows:
    for dims, memory in SETTINGS:
        trials = pool(run_detection, [(dims, memory, seed) for seed in seeds])
        counts = [trial["samples"] for trial in trials]
        high = float(np.quantile(counts, 0.95, method="higher"))
        row = {"dims": dims, "memory": memory, "strategy": trials[0]["strategy"], "size": trials[0]["size"]}
        row |= {"median": float(np.median(counts)), "p95": high, "p95_units": high / math.sqrt(math.prod(dims))}
        yield "rows", row


TABLES = {
    "race-targets": Table(_targets, 20, fresh=True, shown={
        "targets": columns("rows", {
            "order, dims": "{order}, {dim}^{order}", "source": "{source}", "signal": "{kind}",
            "samples": "{factor:g}·d^{half:g}", "state (floats)": "{state_floats:.0f} of {state:g}·d^{power}",
            "success, 95 % interval": "{success}/{trials}, {interval[0]:.2f}–{interval[1]:.2f}",
            "proven: median, worst": "{proven}/{trials}: {proven_median:.2f}, {proven_worst:.2f}",
        }),
        "refinement": columns("refinement", {
            "order, d": "{order}, {dim}", "squared error / Cramér–Rao limit": "{ratio:.2f}", "runs": "{trials}",
        }),
    }),
    "race-checks": Table(_checks, 60, {
        "claims": columns("false_alarms", {
            "pure noise": "{shape}, {noise}", "samples": "{samples}", "claims at any time": "{claims} of {runs}",
            "at the end": "{at_end}",
        }),
        "coverage": columns("coverage", {
            "signal": "{shape}", "tolerance": "{tolerance:g}", "components": "{components:.3f}",
            "strength": "{strength:.2f}", "error ratio": "{error_ratio:.2f}", "runs": "{runs}",
        }),
    }),
    "race-memory": Table(_memory, 1, {
        "memory": columns("rows", {
            "samples": "{shape}", "components": "{components}", "least memory": "{least:bytes}",
            "limit": "{limit:bytes}", "state as said": "{state:bytes}", "peak": "{peak:bytes}",
        }),
    }),
    "detection": Table(_detection, 40),
}  # fmt: skip
