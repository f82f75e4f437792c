"""``tpca demo``: one planted signal, recovered twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpca.cli.options import AsJson, Overwrite, option, place
from tpca.cli.output import check_place, put_json
from tpca.cli.progress import bars
from tpca.wording import amount, shape

if TYPE_CHECKING:
    from rich.console import Console

    from tpca.model import SpikedTensor
    from tpca.solvers.estimate import Estimate
    from tpca.tensors.blocks import Array

ORDER, DIM, STRENGTH = 4, 10, 1.0
NAMES = ("race", "paper's algorithm")


@dataclass(frozen=True)
class Watched:
    """An estimate and, for the figure, the alignment of its vectors or blocks with the truth over the samples."""

    estimate: Estimate
    samples: list[int]
    alignments: list[Array]


def demo(
    out: Annotated[Path, place("Folder for the figure.")] = Path("demo"),
    random_state: Annotated[int, option("Seed of the planted signal and of the samples.")] = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Plant a signal, find it in two ways, and draw both."""
    from rich.console import Console

    from tpca.errors import TpcaError
    from tpca.files import check_replaceable
    from tpca.model import SpikedTensor
    from tpca.report.style import FIGURE

    figure = out / "alignment.png"
    check_place(out)
    check_replaceable(figure, FIGURE, overwrite)
    console = Console(stderr=as_json)
    truth = SpikedTensor.random((DIM,) * ORDER, STRENGTH, correlation=0.0, random_state=random_state)
    console.print(
        f"Planted: order {truth.order}, dims {truth.dims}, strength {truth.strength:g} in unit Gaussian noise; "
        "pairs of vectors uncorrelated."
    )
    both = _both(console, truth, random_state)
    try:
        _draw(truth, both, figure, overwrite)
        drawn = f"Figure: {figure}"
    except TpcaError as missing:  # matplotlib is an extra; the answer does not depend on it
        drawn = f"No figure: {missing}"
    if as_json:
        names = ("strength", "n_samples", "state_bytes", "verdict")
        put_json(
            {
                name: {
                    "overlaps": truth.overlaps(one.estimate.vectors),
                    "sample_bytes": 8 * math.prod(truth.dims),
                    "stop_reason": one.estimate.stop_reason.name,
                    **{field: getattr(one.estimate, field) for field in names},
                }
                for name, one in zip(("race", "paper"), both, strict=True)
            }
        )
    else:
        _print(console, truth, [one.estimate for one in both])
    console.print(drawn, soft_wrap=True, markup=False)


def _both(console: Console, truth: SpikedTensor, seed: int) -> list[Watched]:
    """The race in half the memory of one sample, and the paper's algorithm, under one progress display.

    Of the race, overlaps of the candidate's vectors after every round; of the paper's algorithm, alignments of the best
    start's blocks after every block's turn.
    """
    import numpy as np

    from tpca.solvers.paper.solver import PaperSolver, planned_samples
    from tpca.solvers.race.run import RaceSolver
    from tpca.tensors.blocks import Partition

    blocks = Partition.pairs(truth.dims).outer(truth.vectors)

    def best_start(record: dict[str, Any]) -> Array:
        pairs = zip(record["blocks"], blocks, strict=True)
        each = np.array([np.abs(np.tensordot(w, b, b.ndim)) for w, b in pairs])
        return np.asarray(each[:, int(np.argmax(each.min(axis=0)))])

    def watched(name: str, total: int | None, solver: Any, aligned: Callable[[dict[str, Any]], Array]) -> Watched:
        samples: list[int] = []
        alignments: list[Array] = []
        bar = progress.add_task(name, total=total)

        def watch(record: dict[str, Any]) -> None:
            samples.append(int(record["samples"]))
            alignments.append(aligned(record))
            progress.update(bar, completed=samples[-1])

        solver.callbacks = [watch]
        estimate = solver.run(truth.stream(random_state=seed + 1))
        progress.update(bar, total=estimate.n_samples, completed=estimate.n_samples)
        return Watched(estimate, samples, alignments)

    planned = planned_samples(truth.dims, truth.strength)["Case II"]  # the worst case, no correlation
    race = RaceSolver(random_state=seed, memory_limit=4 * math.prod(truth.dims))
    paper = PaperSolver(random_state=seed, strength=truth.strength)
    with bars(console) as progress:
        return [
            watched(NAMES[0], None, race, lambda record: truth.overlaps(record["vectors"])),
            watched(NAMES[1], planned, paper, best_start),
        ]


def _print(console: Console, truth: SpikedTensor, both: list[Estimate]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="Overlap with the planted vectors", title_justify="left", title_style="", box=SIMPLE_HEAD)
    for heading in ("", *NAMES):
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
    console.print(
        f"One sample takes {amount(8 * math.prod(truth.dims))}. The race used "
        f"{both[1].n_samples / both[0].n_samples:,.0f} times fewer samples, and was given neither the strength nor the "
        "noise level."
    )


def _draw(truth: SpikedTensor, both: list[Watched], path: Path, overwrite: bool) -> None:
    """Both, side by side."""
    import numpy as np

    from tpca.report.style import COLOURS, INK, drawing, save

    with drawing() as plt:
        figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True, layout="constrained")
        for axis, one, name, word, place in zip(
            axes, both, NAMES, ("axis", "block"), ("lower right", "upper left"), strict=True
        ):
            for i, curve in enumerate(np.array(one.alignments).T[: len(COLOURS)]):
                marker = "o" if len(one.samples) < 40 else None
                axis.plot(one.samples, curve, label=f"{word} {i}", color=COLOURS[i], marker=marker, markersize=4)
            proven = next((h["samples"] for h in one.estimate.history if h.get("found")), None)
            if proven is not None:
                axis.axvline(proven, color=INK, linestyle="--", linewidth=1)
                axis.text(1.15 * proven, 0.5, f"proven after {proven:,}")
            axis.set(title=f"{name}: {one.estimate.n_samples:,} samples", xscale="log", xlabel="samples")
            axis.legend(loc=place)
        axes[0].set(ylabel="alignment with the planted vectors", ylim=(0, 1.02))
        figure.suptitle(f"{shape(truth.dims)}: {math.prod(truth.dims):,} entries a sample, strength {truth.strength:g}")
        save(figure, path, overwrite)
