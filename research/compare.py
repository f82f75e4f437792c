"""All methods on the same samples: success, error, time, state.  ``python -m research compare``, ``make compare``.

Samples are drawn from one seeded stream a trial and never held.  Methods that see nothing but the mean of all samples
share one pass, in which they are averaged; what a method then takes is counted on top of that pass, once for every
pass it makes.  One-pass methods are fed the same stream again, drawn again.  With ``law`` means of batches are drawn
from their exact law instead: the same law for every method, much faster, but no longer the very same samples for
one-pass methods (and those that step sample by sample take steps of N/400 samples).

A comparison is a study like the others: its trials are planted signals.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from research import StudyError
from research.law import AverageEngine, LawEngine, averaged, drawn_average
from research.methods import METHODS
from research.studies.store import Store, finite, run_studies
from research.studies.study import Params, Records, Study
from tpca.model import SpikedTensor
from tpca.planning import parse_samples, tensor_dims
from tpca.solvers.build import SOLVERS
from tpca.solvers.estimate import Estimate
from tpca.solvers.options import check_memory, default_memory, machine_memory
from tpca.solvers.paper.solver import planned_samples
from tpca.solvers.race.strategies import least_bytes
from tpca.wording import amount, count, duration, number, shape

GOOD = 0.9
LAW_STEPS = 400
SHARED = 10**8  # entries to draw, from which on processes share the trials
TITLES = {"race": "race (RaceSolver)", **{method.name: method.title for method in METHODS.values()}}


@dataclass(frozen=True)
class Setting:
    """What is compared on: N samples of a planted signal; ``memory_limit`` bounds every method's state."""

    dims: tuple[int, ...]
    samples: int
    strength: float = 1.0
    correlation: float | None = None
    symmetric: bool = False
    memory_limit: int | None = None
    law: bool = False

    def truth(self, seed: int) -> SpikedTensor:
        """The planted signal of a trial, in units of the noise."""
        inside = 1.0 if self.symmetric else self.correlation
        return SpikedTensor.random(self.dims, self.strength, inside, seed, self.symmetric)


def left_out(setting: Setting, asked: Sequence[str] = ()) -> dict[str, str]:
    """Methods that are not run, and why."""
    unknown = [name for name in asked if name not in TITLES]
    if unknown:
        raise StudyError(f"there is no method {unknown[0]!r}; the methods are: {', '.join(TITLES)}.")
    reasons = {name: "not asked for" if asked and name not in asked else _obstacle(setting, name) for name in TITLES}
    return {name: reason for name, reason in reasons.items() if reason}


def _obstacle(setting: Setting, name: str) -> str:
    """Why a method cannot run here, or nothing."""
    dims, limit = setting.dims, min(machine_memory(), setting.memory_limit or machine_memory())
    if name == "race":
        return f"needs at least {amount(least_bytes(dims))} of state" if least_bytes(dims) > limit else ""
    method = METHODS[name]
    if obstacle := method.obstacle(dims, setting.symmetric):
        return obstacle
    if 8 * method.state(dims) > limit:
        return f"needs {amount(8 * method.state(dims))} of state, the memory is {amount(limit)}"
    planned = min(planned_samples(dims, setting.strength).values()) if name == "paper" else 0
    return f"its schedule asks for {planned:,} samples" if planned > setting.samples else ""


def trial(params: Params) -> dict[str, Any]:
    """Every method on the samples of one planted signal; ``error`` is the mean squared error of a vector."""
    about = {name: value for name, value in params.items() if name not in ("methods", "seed")}
    setting, seed = Setting(**{**about, "dims": tuple(params["dims"])}), params["seed"]
    truth, outcomes = setting.truth(seed), []
    began, n = time.perf_counter(), setting.samples
    average = drawn_average(truth, n, seed) if setting.law else averaged(truth.stream(random_state=seed), n)
    reading = time.perf_counter() - began
    for name in params["methods"]:
        began = time.perf_counter()
        found = _run(setting, name, truth, seed, average)
        seconds = time.perf_counter() - began
        mean = _on_mean(name)
        outcomes.append(
            {
                "method": name,
                "success": bool(truth.overlaps(found.vectors).min() > GOOD),
                "error": float(truth.loss(found.vectors).mean()),
                "seconds": seconds + (reading * found.n_passes if mean else 0.0),
                "state_bytes": found.state_bytes,
                "buffer_bytes": average.buffer_bytes if mean else found.buffer_bytes,
                "passes": found.n_passes,
                "samples": found.n_samples,
            }
        )
    return {"outcomes": outcomes}


def _on_mean(name: str) -> bool:
    """Whether a method sees nothing but the mean of all samples."""
    return name in METHODS and bool(METHODS[name].baseline) and METHODS[name].sees == "mean"


def _run(setting: Setting, name: str, truth: SpikedTensor, seed: int, average: AverageEngine) -> Estimate:
    """One method on the mean, or on the stream drawn again."""
    if _on_mean(name):
        average.rewind()
        return METHODS[name].run(average, seed)
    limit = setting.samples
    source: Any = LawEngine(truth, random_state=seed) if setting.law else truth.stream(random_state=seed)
    if name in METHODS and METHODS[name].baseline:
        options: dict[str, Any] = {"strength": truth.strength}
        if setting.law:
            options["batch_size"] = max(1, limit // LAW_STEPS)
        return METHODS[name].run(source, seed, max_samples=limit, **options)
    if name == "paper":
        options = {"strength": truth.strength}
    else:
        least = setting.memory_limit if name == "mean" or setting.memory_limit else default_memory(truth.dims)
        options = {"memory_limit": least, "max_samples": limit}
    estimate: Estimate = SOLVERS["least_squares" if name == "mean" else name](random_state=seed, **options).run(source)
    return estimate


def comparison(setting: Setting, methods: Sequence[str], seeds: Sequence[int]) -> Study:
    """The methods on a planted signal a seed."""
    about = {**asdict(setting), "dims": list(setting.dims), "methods": list(methods)}
    trials = [{**about, "seed": seed} for seed in seeds]
    return Study("comparison", "Methods on the same samples", "", trials, trial)


def summary(records: Records) -> list[dict[str, Any]]:
    """A row for every method, the best first: means of errors and times, the most memory."""
    own: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        for outcome in record.result["outcomes"]:
            own.setdefault(outcome["method"], []).append(outcome)
    rows = []
    for name, each in own.items():
        row: dict[str, Any] = {"method": name, "title": TITLES[name]}
        row |= {"successes": sum(o["success"] for o in each), "trials": len(each)}
        row |= {what: statistics.fmean(o[what] for o in each) for what in ("error", "seconds")}
        row |= {what: max(o[what] for o in each) for what in ("state_bytes", "buffer_bytes", "samples")}
        rows.append(row | {"passes": statistics.median(o["passes"] for o in each)})
    return sorted(rows, key=lambda row: (-row["successes"], row["error"]))


def compare(
    order: Annotated[int | None, typer.Option(help="Number of modes.", show_default=False)] = None,
    dim: Annotated[int | None, typer.Option(help="Length of every mode.", show_default=False)] = None,
    dims: Annotated[str | None, typer.Option(help="Lengths of the modes instead, such as 10,20,30.")] = None,
    strength: Annotated[float, typer.Option(help="Strength of the signal, in units of the noise.")] = 1.0,
    samples: Annotated[str, typer.Option(help="Samples: a number, or as 4d^2.")] = "4d^2",
    correlation: Annotated[float | None, typer.Option(help="Cor inside pairs of modes, 0 to 1.")] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="All modes have the same vector.")] = False,
    trials: Annotated[int, typer.Option(help="Planted signals to try.", min=1)] = 3,
    methods: Annotated[str | None, typer.Option(help="Only these, with commas, such as race,mean,als.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="Bound on every method's state, such as 100MB.")] = None,
    law: Annotated[bool, typer.Option("--law", help="Draw means of batches from their law: much faster.")] = False,
    random_state: Annotated[int, typer.Option(help="Seed of the first trial.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run all methods on the same planted signals."""
    lengths = tensor_dims(order, dim, dims)
    if symmetric and correlation is not None:
        raise StudyError("--symmetric has equal vectors; leave --correlation out.")
    bound = None if memory_limit is None else check_memory("memory_limit", memory_limit)
    setting = Setting(lengths, parse_samples(samples, lengths), strength, correlation, symmetric, bound, law)
    setting.truth(random_state)  # refuses what cannot be
    asked = [] if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    reasons = left_out(setting, asked)
    chosen = [name for name in TITLES if name not in reasons]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason != "not asked for")
        raise StudyError(f"none of the methods can run here: {why}.")
    study = comparison(setting, chosen, range(random_state, random_state + trials))
    few = law or setting.samples * math.prod(lengths) < SHARED
    with tempfile.TemporaryDirectory() as lost:
        store = Store(lost)
        run_studies([study], "full", store, processes=0 if few else None)
        rows = summary(store.records(study))
    if as_json:
        told = {**asdict(setting), "trials": trials, "seed": random_state, "methods": rows, "left_out": reasons}
        typer.echo(json.dumps(finite(told)))
    else:
        _print(Console(), setting, trials, rows, reasons)


def _print(
    console: Console, setting: Setting, trials: int, rows: list[dict[str, Any]], reasons: dict[str, str]
) -> None:
    kind = ", equal vectors" if setting.symmetric else ""
    kind += f", correlation {setting.correlation:g}" if setting.correlation is not None else ""
    title = f"{shape(setting.dims)}, strength {setting.strength:g}{kind}: {setting.samples:,} samples, "
    table = Table(title=title + count(trials, "trial"), title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for head in ("method", "success", "error", "time", "state", "buffer", "passes", "samples"):
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=head != "method")
    for row in rows:
        cells = [row["title"], f"{row['successes']}/{row['trials']}", number(row["error"], 2)]
        cells += [duration(row["seconds"]), amount(row["state_bytes"]), amount(row["buffer_bytes"])]
        table.add_row(*cells, f"{row['passes']:.0f}", f"{row['samples']:,}")
    console.print(table)
    for reason in dict.fromkeys(reasons.values()):
        if reason != "not asked for":
            names = ", ".join(TITLES[name] for name in reasons if reasons[name] == reason)
            console.print(f"Left out: {names}: {reason}", highlight=False)
    source = (
        "Means of batches are drawn from their law."
        if setting.law
        else "All methods see the same samples; time includes drawing them, once for every pass."
    )
    console.print(f"success: every overlap above 0.9. error: mean squared error of a vector. {source}", highlight=False)
