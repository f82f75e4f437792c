"""``tpca compare``: all methods on the same samples."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.plan import time_text
from tpca.cli.screens import number, put_json, shape, size

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.studies.compare import Outcome, Setting


def compare(
    order: Annotated[int | None, typer.Option(help="Number of modes.", show_default=False)] = None,
    dim: Annotated[int | None, typer.Option(help="Length of every mode.", show_default=False)] = None,
    dims: Annotated[str | None, typer.Option(help="Lengths of the modes instead, such as 10,20,30.")] = None,
    strength: Annotated[float, typer.Option(help="Strength of the signal, in units of the noise.")] = 1.0,
    samples: Annotated[str, typer.Option(help="Samples: a number, or as 4d^2.")] = "4d^2",
    correlation: Annotated[float | None, typer.Option(help="Cor inside pairs of modes, 0 to 1.")] = None,
    equal: Annotated[bool, typer.Option("--equal", help="All modes have the same vector.")] = False,
    trials: Annotated[int, typer.Option(help="Planted signals to try.", min=1)] = 3,
    methods: Annotated[str | None, typer.Option(help="Only these, with commas, such as race,mean,als.")] = None,
    memory: Annotated[str | None, typer.Option(help="Bound on every method's state, such as 100MB.")] = None,
    law: Annotated[bool, typer.Option("--law", help="Draw means of batches from their law: much faster.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the first trial.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run every method that applies on the same samples of planted signals, and print how each did."""
    from rich.console import Console

    from tpca.errors import StudyError
    from tpca.planning.problem import Problem, parse_samples, tensor_dims
    from tpca.solvers.memory import parse_memory
    from tpca.studies.compare import NAMES, Setting, left_out

    lengths = tensor_dims(order, dim, dims)
    problem = Problem(lengths, strength, 1.0, correlation, equal)
    bound = None if memory is None else parse_memory(memory)
    setting = Setting(problem, parse_samples(samples, lengths), bound, law)
    asked = [] if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    reasons = left_out(setting, asked)
    chosen = [name for name in NAMES if name not in reasons]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason != "not asked for")
        raise StudyError(f"none of the methods can run here: {why}.")
    outcomes = _run(Console(stderr=True), setting, range(seed, seed + trials), chosen)
    rows = [_summary(name, [o for o in outcomes if o.method == name]) for name in chosen]
    rows.sort(key=lambda row: (-row["successes"], row["error"]))
    if as_json:
        asked_for = {"dims": lengths, "strength": strength, "correlation": correlation, "equal": equal, "memory": bound}
        asked_for |= {"samples": setting.samples, "trials": trials, "seed": seed, "law": law}
        put_json({**asked_for, "methods": rows, "left_out": reasons})
    else:
        _print(Console(), setting, trials, rows, reasons)


def _run(console: Console, setting: Setting, seeds: range, chosen: list[str]) -> list[Outcome]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from tpca.studies.compare import compare as run

    columns = (TextColumn("{task.description:22s}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=len(seeds) * (len(chosen) + 1))
        return run(setting, seeds, chosen, lambda name: progress.update(bar, advance=1, description=name))


def _summary(name: str, outcomes: list[Outcome]) -> dict[str, Any]:
    from tpca.studies.compare import TITLES

    return {
        "method": name,
        "title": TITLES[name],
        "successes": sum(o.success for o in outcomes),
        "error": statistics.fmean(o.error for o in outcomes),
        "seconds": statistics.fmean(o.seconds for o in outcomes),
        "state_bytes": max(o.state_bytes for o in outcomes),
        "buffer_bytes": max(o.buffer_bytes for o in outcomes),
        "passes": statistics.median(o.passes for o in outcomes),
        "samples": max(o.samples for o in outcomes),
    }


def _print(
    console: Console, setting: Setting, trials: int, rows: list[dict[str, Any]], reasons: dict[str, str]
) -> None:
    from rich.table import Table

    from tpca.studies.compare import TITLES

    problem = setting.problem
    kind = ", equal vectors" if problem.equal else ""
    kind += f", correlation {problem.correlation:g}" if problem.correlation is not None else ""
    title = f"{shape(problem.dims)}, strength {problem.strength:g}{kind}: {setting.samples:,} samples, trials: {trials}"
    table = Table(title=title, title_style="bold")
    for head in ("method", "success", "error", "time", "state", "buffer", "passes", "samples"):
        table.add_column(head, justify="left" if head == "method" else "right")
    for row in rows:
        table.add_row(
            row["title"],
            f"{row['successes']}/{trials}",
            number(row["error"], 2),
            time_text(row["seconds"]),
            size(row["state_bytes"]),
            size(row["buffer_bytes"]),
            f"{row['passes']:.0f}",
            f"{row['samples']:,}",
        )
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
