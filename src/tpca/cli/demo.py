"""``tpca demo``: one planted signal, recovered twice."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.output import check_place, put_json
from tpca.cli.progress import bars
from tpca.wording import amount, shape

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.model import SpikedTensor
    from tpca.solvers.estimate import Recovery
    from tpca.tensors.blocks import Array

ORDER, DIM, STRENGTH = 4, 10, 1.0
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Climb:
    """A recovery and, for the figure, the alignment of its blocks or vectors with the truth over the samples."""

    recovery: Recovery
    samples: list[int]
    alignments: list[Array]


@dataclass(frozen=True)
class Demo:
    """The truth and both climbs."""

    truth: SpikedTensor
    paper: Climb
    race: Climb


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    random_state: Annotated[int, typer.Option(help="Seed of the planted signal and of the samples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Plant a signal, find it in two ways, and draw both."""
    from rich.console import Console

    from tpca.errors import TpcaError

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
    with bars(console, transient=True) as progress:

        def watched(name: str, run: Callable[..., Climb], total: int | None) -> Climb:
            bar = progress.add_task(name, total=total)
            climb = run(truth, random_state, lambda n: progress.update(bar, completed=n))
            progress.update(bar, total=climb.recovery.n_samples, completed=climb.recovery.n_samples)
            return climb

        race = watched("race", run_race, None)
        return Demo(truth, watched("paper's algorithm", run_paper, paper_samples(truth)), race)


def _print_demo(console: Console, result: Demo) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    truth, both = result.truth, (result.race.recovery, result.paper.recovery)
    sample = 8 * math.prod(truth.dims)
    table = Table(title="Overlap with the planted vectors", title_justify="left", title_style="", box=SIMPLE_HEAD)
    for heading in ("", "race", "paper's algorithm"):
        table.add_column(heading, justify="right" if heading else "left")
    overlaps = [truth.overlaps(r.vectors) for r in both]
    for mode in range(truth.order):
        table.add_row(f"axis {mode}", *(f"{each[mode]:.4f}" for each in overlaps))
    table.add_section()
    table.add_row("samples", *(f"{r.n_samples:,}" for r in both))
    proven = next((f"{h['samples']:,}" for h in both[0].history if h["found"]), "not proven")
    table.add_row("signal proven after", proven, str(both[1].verdict))
    table.add_row("strength", *(f"{r.strength:.3f}" for r in both))
    table.add_row("memory of the solver", *(amount(r.state_bytes) for r in both))
    console.print(table)
    ratio = both[1].n_samples / both[0].n_samples
    console.print(
        f"One sample takes {amount(sample)}. The race used {ratio:,.0f} times fewer samples, and was given neither the "
        "strength nor the noise level."
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


def planted(seed: int) -> SpikedTensor:
    """The signal of the demonstration: order 4, d = 10, strength 1, no correlation inside the pairs."""
    from tpca.model import SpikedTensor

    return SpikedTensor.random((DIM,) * ORDER, STRENGTH, correlation=0.0, random_state=seed)


def paper_samples(truth: SpikedTensor) -> int:
    """What the paper's schedule will ask for (the worst case, no correlation)."""
    from tpca.solvers.paper.solver import planned_samples

    return planned_samples(truth.dims, truth.strength)["Case II"]


def run_paper(truth: SpikedTensor, seed: int, progress: Progress) -> Climb:
    """The paper's algorithm; alignment of the best start's blocks after every block's turn."""
    import numpy as np

    from tpca.solvers.paper.solver import PaperSolver
    from tpca.tensors.blocks import Partition

    blocks = Partition.pairs(truth.dims).outer(truth.vectors)

    def aligned(record: dict[str, Any]) -> Array:
        pairs = zip(record["blocks"], blocks, strict=True)
        each = np.array([np.abs(np.tensordot(w, b, b.ndim)) for w, b in pairs])
        best: Array = each[:, int(np.argmax(each.min(axis=0)))]
        return best

    make = functools.partial(PaperSolver, random_state=seed, strength=truth.strength)
    return _climb(truth, seed, make, aligned, progress)


def run_race(truth: SpikedTensor, seed: int, progress: Progress) -> Climb:
    """The race, in half the memory of one sample; overlaps of the candidate's vectors after every round."""
    from tpca.solvers.race.solver import RaceSolver

    make = functools.partial(RaceSolver, random_state=seed, memory_limit=4 * math.prod(truth.dims))
    return _climb(truth, seed, make, lambda record: truth.overlaps(record["vectors"]), progress)


def _climb(
    truth: SpikedTensor, seed: int, make: Callable[..., Any], aligned: Callable[[dict[str, Any]], Array], tell: Progress
) -> Climb:
    """A run of a solver, watched."""
    seen: list[tuple[int, Array]] = []

    def watch(record: dict[str, Any]) -> None:
        seen.append((int(record["samples"]), aligned(record)))
        tell(seen[-1][0])

    recovery = make(callbacks=[watch]).run(truth.stream(random_state=seed + 1))
    return Climb(recovery, [samples for samples, _ in seen], [each for _, each in seen])


def draw_demo(demo: Demo, path: Path) -> None:
    """Both climbs, side by side."""
    import numpy as np

    from tpca.report.style import COLOURS, INK, drawing, save

    truth = demo.truth
    with drawing() as plt:
        figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True, layout="constrained")
        for axis, climb, name, word in zip(
            axes, (demo.race, demo.paper), ("race", "paper's algorithm"), ("mode", "block"), strict=True
        ):
            for i, curve in enumerate(np.array(climb.alignments).T[: len(COLOURS)]):
                label = f"{word} {i if climb is demo.race else i + 1}"
                marker = "o" if len(climb.samples) < 40 else None
                axis.plot(climb.samples, curve, label=label, color=COLOURS[i], marker=marker, markersize=4)
            proven = next((h["samples"] for h in climb.recovery.history if h.get("found")), None)
            if proven is not None:
                axis.axvline(proven, color=INK, linestyle="--", linewidth=1)
                axis.text(1.15 * proven, 0.5, f"proven after {proven:,}")
            axis.set(title=f"{name}: {climb.recovery.n_samples:,} samples", xscale="log", xlabel="samples")
            axis.legend(loc="lower right" if climb is demo.race else "upper left")
        axes[0].set(ylabel="alignment with the planted vectors", ylim=(0, 1.02))
        entries = float(np.prod(truth.dims))
        figure.suptitle(f"{shape(truth.dims)}: {entries:,.0f} entries a sample, strength {truth.strength:g}")
        save(figure, path)
