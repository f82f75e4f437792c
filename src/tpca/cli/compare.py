"""``tpca compare``: all methods on the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.live import bars
from tpca.cli.outputs import check_file, put_json
from tpca.wording import count, shape

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.lab.studies.compare import Outcome, Setting
    from tpca.lab.studies.comparison import Comparison


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
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json, written after every trial; it goes on from there.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a report, one HTML file; needs --out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run all methods on the same planted signals."""
    from rich.console import Console

    from tpca.errors import StudyError
    from tpca.lab.planning.problem import Problem, parse_samples, tensor_dims
    from tpca.lab.studies.compare import NAMES, Setting, left_out
    from tpca.lab.studies.comparison import Comparison, settings_of, stored_trials, write_comparison
    from tpca.solvers.memory import parse_memory

    lengths = tensor_dims(order, dim, dims)
    problem = Problem(lengths, strength, 1.0, correlation, symmetric)
    bound = None if memory_limit is None else parse_memory(memory_limit)
    setting = Setting(problem, parse_samples(samples, lengths), bound, law)
    asked = [] if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    reasons = left_out(setting, asked)
    chosen = [name for name in NAMES if name not in reasons]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason != "not asked for")
        raise StudyError(f"none of the methods can run here: {why}.")
    if report is not None:
        if out is None:
            raise StudyError("--report needs --out: a folder for the trials that it shows.")
        check_file(report, out)
    found = Comparison(settings_of(setting, chosen), reasons, {})
    seeds = range(random_state, random_state + trials)
    if out is not None:
        found.trials |= stored_trials(out, found.settings)
        write_comparison(out, found)  # a folder that cannot be written to is refused before the work
    whole = _run(Console(stderr=True), setting, [s for s in seeds if s not in found.trials], chosen, found, out)
    asked_for = {
        "dims": lengths,
        "strength": strength,
        "correlation": correlation,
        "symmetric": symmetric,
        "memory": bound,
    }
    asked_for |= {"samples": setting.samples, "trials": len(found.trials), "seed": random_state, "law": law}
    if as_json:
        put_json({**asked_for, "methods": found.rows, "left_out": reasons})
    elif found.trials:
        _print(Console(), setting, len(found.trials), found.rows, reasons)
    if report is not None and out is not None:
        from tpca.lab.pages import write_page

        write_page(out, report)
        Console(stderr=True).print(f"Report: {report}", soft_wrap=True)
    if not whole:
        raise typer.Exit(130)


def _run(
    console: Console, setting: Setting, seeds: list[int], chosen: list[str], found: Comparison, out: Path | None
) -> bool:
    """Run the trials, keeping each as it is finished; false if they were interrupted."""
    from tpca.lab.studies.compare import compare as run
    from tpca.lab.studies.comparison import write_comparison

    def finished(random_state: int, outcomes: list[Outcome]) -> None:
        found.trials[random_state] = outcomes
        if out is not None:
            write_comparison(out, found)

    if not seeds:
        return True
    try:
        with bars(console, transient=True) as progress:
            bar = progress.add_task("", total=len(seeds) * (len(chosen) + 1))
            run(setting, seeds, chosen, lambda name: progress.update(bar, advance=1, description=name), finished)
    except KeyboardInterrupt:
        kept = f", kept in {out}: the same command goes on from there" if out is not None else ""
        done = count(len(found.trials), "finished trial")
        console.print(f"Interrupted with {done}{kept}.", soft_wrap=True, highlight=False)
        return False
    return True


def _print(
    console: Console, setting: Setting, trials: int, rows: list[dict[str, Any]], reasons: dict[str, str]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tpca.lab.studies.compare import TITLES
    from tpca.lab.studies.comparison import cells

    problem = setting.problem
    kind = ", equal vectors" if problem.symmetric else ""
    kind += f", correlation {problem.correlation:g}" if problem.correlation is not None else ""
    title = f"{shape(problem.dims)}, strength {problem.strength:g}{kind}: {setting.samples:,} samples, trials: {trials}"
    narrow = console.width < 110  # the least telling columns go first
    table = Table(title=title, title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    heads = ["method", "success", "error", "time", "state", "passes", *([] if narrow else ["buffer", "samples"])]
    for head in heads:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=head != "method")
    for row in map(cells, rows):
        table.add_row(*(row[head] for head in heads))
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
