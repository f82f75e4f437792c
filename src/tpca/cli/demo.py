"""``tpca demo``: one planted signal, recovered twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpca.cli.live import bars
from tpca.cli.outputs import check_place, put_json
from tpca.wording import amount

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.lab.studies.demo import Climb, Demo
    from tpca.model import SpikedTensor


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    random_state: Annotated[int, typer.Option(help="Seed of the planted signal and of the samples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Plant a signal, find it in two ways, and draw both."""
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
        put_json({"race": _numbers(result, result.race), "paper": _numbers(result, result.paper)})
    else:
        _print_demo(console, result)
    console.print(drawn, soft_wrap=True, markup=False)


def _run_demo(console: Console, truth: SpikedTensor, random_state: int) -> Demo:
    """Both solvers under one progress display."""
    from tpca.lab.studies.demo import Demo, paper_samples, run_paper, run_race

    with bars(console) as progress:

        def watched(name: str, run: Callable[..., Climb], total: int | None) -> Climb:
            bar = progress.add_task(name, total=total)
            climb = run(truth, random_state, lambda n: progress.update(bar, completed=n))
            progress.update(bar, total=climb.recovery.n_samples, completed=climb.recovery.n_samples)
            return climb

        race = watched("race", run_race, None)
        return Demo(truth, watched("paper's algorithm", run_paper, paper_samples(truth)), race)


def _print_demo(console: Console, result: Demo) -> None:
    from rich.table import Table

    truth, both = result.truth, (result.race.recovery, result.paper.recovery)
    sample = 8 * math.prod(truth.dims)
    table = Table(title="Overlap with the planted vectors", caption=f"d^order = {sample // 8:,} entries a sample")
    for heading in ("", "race", "paper's algorithm"):
        table.add_column(heading, justify="left" if not heading else "right")
    overlaps = [truth.overlaps(r.vectors) for r in both]
    for mode in range(truth.order):
        table.add_row(f"mode {mode}", *(f"{each[mode]:.4f}" for each in overlaps))
    table.add_section()
    table.add_row("samples", *(f"{r.n_samples:,}" for r in both))
    proven = next((f"{h['samples']:,}" for h in both[0].history if h["found"]), "not proven")
    table.add_row("signal proven after", proven, str(both[1].verdict))
    table.add_row("strength", *(f"{r.strength:.3f}" for r in both))
    table.add_row("state", *(amount(r.state_bytes) for r in both))
    table.add_row("one sample", *[amount(sample)] * 2)
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
        "verdict": recovery.verdict,
        "sample_bytes": 8 * math.prod(result.truth.dims),
        "stop_reason": recovery.stop_reason.name,
    }
