"""The demonstration's figure: how alignment with the truth grows with the samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tpca.drafts import replacing
from tpca.lab.studies.demo import Climb, Demo
from tpca.report.style import COLOURS, pyplot


def draw_demo(demo: Demo, path: Path) -> None:
    """Write the figure."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True, layout="constrained")
    panels = [
        (axes[0], demo.race, "race", [f"mode {i}" for i in range(demo.truth.order)]),
        (axes[1], demo.paper, "paper's algorithm", [f"block {m + 1}" for m in range(len(demo.paper.alignments[0]))]),
    ]
    for axis, climb, name, labels in panels:
        _draw(axis, climb, labels)
        proven = next((h["samples"] for h in climb.recovery.history if h.get("found")), None)
        if proven is not None:
            axis.axvline(proven, color="0.5", linestyle="--", linewidth=1)
            axis.text(1.15 * proven, 0.5, f"proven after {proven:,}", color="0.4")
        axis.set_title(f"{name}: {climb.recovery.n_samples:,} samples")
        axis.set_xscale("log")
        axis.set_xlabel("samples")
        axis.set_ylim(0, 1.02)
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right" if climb is demo.race else "upper left", frameon=False)
    axes[0].set_ylabel("alignment with the planted vectors")
    entries = float(np.prod(demo.truth.dims))
    truth = demo.truth
    figure.suptitle(
        f"order {truth.order}, dims {truth.dims}: {entries:,.0f} entries a sample, strength {truth.strength:g}"
    )
    with replacing(path) as (draft,):
        figure.savefig(draft, dpi=120, format="png")
    plt.close(figure)


def _draw(axis: object, climb: Climb, labels: list[str]) -> None:
    curves = np.array(climb.alignments).T
    marker = "o" if len(climb.samples) < 40 else None
    for curve, label, colour in zip(curves, labels, COLOURS, strict=False):
        axis.plot(climb.samples, curve, label=label, color=colour, marker=marker, markersize=4)  # type: ignore[attr-defined]
