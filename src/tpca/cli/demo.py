"""``tpca demo``: one planted signal, recovered twice."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpca.cli.outputs import check_place

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.lab.studies.demo import Climb, Demo


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    random_state: Annotated[int, typer.Option(help="Seed of the planted signal and of the samples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Plant a signal, recover it with the race and with the paper's algorithm, and draw both climbs."""
    from rich.console import Console

    from tpca.errors import TpcaError
    from tpca.lab.pages.figures import draw_demo
    from tpca.lab.studies.demo import planted

    check_place(out)
    console = Console(stderr=as_json)
    truth = planted(random_state)
    console.print(
        f"Planted: order {truth.order}, dims {truth.dims}, strength {truth.strength:g} in unit Gaussian noise; "
        "pairs of vectors uncorrelated."
    )
    result = _run_demo(console, truth, random_state)
    figure = out / "alignment.png"
    try:
        draw_demo(result, figure)
        drawn = f"Figure: {figure}"
    except TpcaError as missing:  # matplotlib is an extra; the answer does not depend on it
        drawn = f"No figure: {missing}"
    if as_json:
        sys.stdout.write(
            json.dumps({"race": _numbers(result, result.race), "paper": _numbers(result, result.paper)}) + "\n"
        )
    else:
        _print_demo(console, result)
    console.print(drawn, soft_wrap=True, markup=False)


def _run_demo(console: Console, truth: object, random_state: int) -> Demo:
    """Both solvers under one progress display."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tpca.lab.studies.demo import Demo, paper_samples, run_paper, run_race
    from tpca.model import SpikedTensor

    assert isinstance(truth, SpikedTensor)
    columns = (
        TextColumn("{task.description:18s}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("samples"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        race_bar = progress.add_task("race", total=None)
        race = run_race(truth, random_state, lambda n: progress.update(race_bar, completed=n))
        progress.update(race_bar, total=race.recovery.n_samples, completed=race.recovery.n_samples)
        paper_bar = progress.add_task("paper's algorithm", total=paper_samples(truth))
        paper = run_paper(truth, random_state, lambda n: progress.update(paper_bar, completed=n))
        progress.update(paper_bar, total=paper.recovery.n_samples, completed=paper.recovery.n_samples)
    return Demo(truth, paper, race)


def _print_demo(console: Console, result: Demo) -> None:
    from rich.table import Table

    truth = result.truth
    table = Table(
        title="Overlap with the planted vectors", caption=f"d^order = {math.prod(truth.dims):,} entries a sample"
    )
    for heading in ("", "race", "paper's algorithm"):
        table.add_column(heading, justify="left" if not heading else "right")
    overlaps = [truth.overlaps(c.recovery.vectors) for c in (result.race, result.paper)]
    for mode in range(truth.order):
        table.add_row(f"mode {mode}", *(f"{each[mode]:.4f}" for each in overlaps))
    table.add_section()
    both = (result.race.recovery, result.paper.recovery)
    table.add_row("samples", *(f"{r.n_samples:,}" for r in both))
    proven = next((f"{h['samples']:,}" for h in both[0].history if h["found"]), "not proven")
    table.add_row("signal proven after", proven, str(both[1].verdict))
    table.add_row("strength", *(f"{r.strength:.3f}" for r in both))
    table.add_row("state", *(f"{r.state_bytes / 1000:,.1f} kB" for r in both))
    table.add_row("one sample", *(f"{8 * math.prod(truth.dims) / 1000:,.1f} kB" for _ in both))
    console.print(table)
    ratio = both[1].n_samples / both[0].n_samples
    console.print(
        f"The race used {ratio:,.0f} times fewer samples, and was told neither the strength nor the noise level."
    )


def _numbers(result: Demo, climb: Climb) -> dict[str, object]:
    recovery = climb.recovery
    return {
        "overlaps": [float(o) for o in result.truth.overlaps(recovery.vectors)],
        "strength": recovery.strength,
        "n_samples": recovery.n_samples,
        "state_bytes": recovery.state_bytes,
        "sample_bytes": 8 * math.prod(result.truth.dims),
        "verdict": recovery.verdict,
        "stop_reason": recovery.stop_reason.name,
    }
