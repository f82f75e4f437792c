"""``tpca plan``: what every method would need for a tensor, and which to take."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.outputs import check_file, put_json
from tpca.wording import amount, approximately, duration, shape

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.lab.planning.plan import Plan, Row

BOUND = "S·K·N / bound"
BASIS = {"measured": "m", "extrapolated": "m*", "theory": "t", "": ""}


def plan(
    order: Annotated[int | None, typer.Option(help="Number of modes.", show_default=False)] = None,
    dim: Annotated[int | None, typer.Option(help="Length of every mode.", show_default=False)] = None,
    dims: Annotated[str | None, typer.Option(help="Lengths of the modes instead, such as 10,20,30.")] = None,
    strength: Annotated[float, typer.Option(help="Strength of the signal.")] = 1.0,
    noise: Annotated[float, typer.Option(help="Standard deviation of an entry's noise.")] = 1.0,
    correlation: Annotated[str | None, typer.Option(help="Cor inside pairs, 0 to 1: one number, or as 1,0,0.")] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="All modes have the same vector.")] = False,
    samples: Annotated[str | None, typer.Option(help="Samples at hand: a number, or as 4d^2.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="Memory for a method, such as 2GB.")] = None,
    rate: Annotated[float | None, typer.Option(help="Samples a second that arrive.")] = None,
    workers: Annotated[int, typer.Option(help="Workers that share the samples.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw samples needed against memory into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Estimate samples, memory and time that methods need.

    Nothing is run: constants are measured ones from the study of memory, kept with the package.
    """
    from rich.console import Console

    from tpca.lab.planning.plan import make_plan
    from tpca.lab.planning.problem import Problem, parse_correlation, tensor_dims

    if plot is not None:
        check_file(plot)
    problem = Problem(tensor_dims(order, dim, dims), strength, noise, parse_correlation(correlation), symmetric)
    made = make_plan(problem, samples=samples, memory_limit=memory_limit, rate=rate, workers=workers)
    if plot is not None:
        from tpca.lab.pages.figures import draw_plan

        draw_plan(made, plot)
    if as_json:
        put_json(_numbers(made))
        return
    _print(Console(), made)
    if plot is not None:
        print(f"Figure: {plot}")


def _numbers(made: Plan) -> dict[str, Any]:
    from tpca.lab.planning.constants import stored

    return {**dataclasses.asdict(made), "constants": stored()["provenance"]}


def _print(console: Console, made: Plan) -> None:
    from rich.table import Table

    from tpca.lab.planning.constants import provenance

    problem = made.problem
    # What only takes too long is shown with its time: how many samples it needs is still worth knowing.
    shown = sorted((r for r in made.rows if not r.obstacle or r.endless), key=lambda r: r.samples)
    each = problem.inside_pairs if len(set(problem.inside_pairs)) > 1 else problem.inside_pairs[:1]
    inside = ", ".join(f"{c:g}" for c in each)
    kind = "all vectors equal" if problem.symmetric else f"correlation {inside} inside pairs" * (inside != "0")
    about = [shape(problem.dims), f"strength {problem.strength:g}", f"noise {problem.noise:g}", kind]
    console.print(made.recommendation, style="bold", highlight=False)
    table = Table(title=", ".join(filter(None, [*about, f"memory {amount(made.memory_limit)}"])))
    heads = ["method", "samples", "from", "state", "buffer", "passes", "time"]
    heads += [f"{made.workers} workers"] if made.workers > 1 else []
    heads += [BOUND] + ([f"{made.samples:,} are"] if made.samples is not None else [])
    # A narrow screen goes without what matters least.
    kept = [i for i, head in enumerate(heads) if console.width >= 100 or head not in ("buffer", BOUND)]
    for i in kept:
        table.add_column(heads[i], justify="left" if heads[i] in ("method", "from") else "right")
    for row in shown:
        cells = _cells(row, made)
        table.add_row(*(cells[i] for i in kept), style="bold" if row.name == made.recommended else "")
    console.print(table)
    impossible = [r for r in made.rows if r not in shown]
    if impossible:
        console.print("Not possible:", highlight=False)
        for obstacle in dict.fromkeys(r.obstacle for r in impossible):
            titles = "; ".join(r.title for r in impossible if r.obstacle == obstacle)
            console.print(f"  {titles}: {obstacle}", highlight=False)
    console.print(_legend(made, BOUND in [heads[i] for i in kept]), highlight=False)
    console.print(f"Constants: {provenance()}.", highlight=False)


def _cells(row: Row, made: Plan) -> list[str]:
    mark = "→ " if row.name == made.recommended else "  "
    cells = [mark + row.title, _count(row.samples), BASIS[row.basis], amount(row.state_bytes), amount(row.buffer_bytes)]
    cells += [f"{row.passes:.0f}", duration(row.seconds)]
    cells += [duration(row.seconds_by_workers)] if made.workers > 1 else []
    return cells + [_count(row.product)] + ([row.suffices] if made.samples is not None else [])


def _legend(made: Plan, with_bound: bool) -> str:
    speed = f"{made.rate:g} samples a second" if made.rate else "as fast as memory delivers them"
    legend = (
        "samples: for every overlap above 0.9 in half of all runs; twice that is enough. "
        "from: m constant measured at such sizes, m* measured at others and extrapolated, t theory with constant 1. "
        f"time: dense samples that come {speed} ({made.machine.bandwidth / 1e9:.1f} GB/s here)."
    )
    bound = (
        f" {BOUND}: state times passes times samples over the least that vectors which differ from mode to mode "
        f"allow, {_count(made.least_product)} up to constants (Dudeja & Hsu 2024)."
    )
    return legend + (bound if with_bound else "")


def _count(value: float) -> str:
    if not math.isfinite(value):
        return "—"
    return approximately(value) if value >= 10 else f"{value:.2g}"
