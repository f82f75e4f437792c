"""The pictures of "How it works", of the README and of the pages on the paper, from real runs and stored studies.

python docs/_site/pictures.py --out docs/figures
"""

import argparse
import contextlib
import io
import re
from pathlib import Path

import numpy as np

import tpca
from research.figures import draw_alignments, draw_collapse
from research.law import LawEngine
from research.studies.memory import MEMORY, points_of
from research.studies.store import Store
from tpca.report.style import COLOURS, MARKERS, drawing

ROOT = Path(__file__).parent.parent.parent


def races(seeds=(1, 2, 3)):
    """Runs with a signal (order 4, d = 16, strength 1, half a megabyte, a sample has 512 kB) and without."""
    runs, errors = [], []
    for seed in seeds:
        truth = tpca.SpikedTensor.random((16,) * 4, 1.0, random_state=seed)
        rows = []

        def watch(record, truth=truth, rows=rows):
            rows.append((record["samples"], np.sqrt(np.mean(truth.loss(record["vectors"])))))

        solver = tpca.RaceSolver(random_state=seed, memory_limit="400kB", max_samples=4000, tol=0.01, callbacks=[watch])
        runs.append(solver.run(LawEngine(truth, random_state=seed)))
        errors.append(np.array(rows).T)
    noise = [
        tpca.RaceSolver(random_state=s, memory_limit="400kB", max_samples=4000).run(
            LawEngine(None, random_state=s, dims=(16,) * 4)
        )
        for s in seeds
    ]
    return runs, noise, errors


def draw_race(path):
    """Evidence over the samples; error over the samples."""
    runs, noise, errors = races()
    with drawing() as plt:
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        for group, colour, style, label in (
            (runs, COLOURS[0], "-", "signal of strength 1"),
            (noise, COLOURS[1], "--", "nothing but noise"),
        ):
            for i, run in enumerate(group):
                rows = [(h["samples"], h["log_evidence"] / np.log(10)) for h in run.history if "log_evidence" in h]
                left.plot(*np.array(rows).T, color=colour, ls=style, label=None if i else label)
        marks = []
        for run, (samples, error) in zip(runs, errors, strict=True):
            proven = next(h["samples"] for h in run.history if h["found"])
            evidence = next(h["log_evidence"] for h in run.history if h["found"]) / np.log(10)
            marks.append((proven, evidence, np.interp(proven, samples, error)))
            right.plot(samples, error, color=COLOURS[0])
        marks = np.array(marks).T
        left.scatter(marks[0], marks[1], color=COLOURS[2], marker="D", zorder=3, s=40, label="proven at 95 %")
        right.scatter(marks[0], marks[2], color=COLOURS[2], marker="D", zorder=3, s=40, label="proven at 95 %")
        n = np.geomspace(30, 4000, 50)
        right.plot(n, np.sqrt(15 / n), color=COLOURS[3], ls=":", lw=2, label="Cramér–Rao limit for N samples")
        left.set(xscale="log", ylim=(-2, 14), xlabel="samples", ylabel="evidence (powers of ten)")
        left.set_title("is there a signal?")
        right.set(xscale="log", yscale="log", ylim=(0.03, 2), xlabel="samples", ylabel="error of a vector")
        right.set_title("how far off are the vectors?")
        left.legend(loc="upper left")
        right.legend(loc="lower left")
        figure.suptitle(
            "the race: order 4, 65,536 entries a sample, each with noise 1 and a signal of typical size 0.004; "
            f"{max(r.state_bytes for r in runs) / 1000:.0f} kB of state",
            fontsize=10,
        )
        figure.savefig(path, dpi=110, transparent=True)


def draw_found(path):
    """What the first example of the README draws."""
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)[1]
    names = {}
    with drawing(), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "README.md", "exec"), names)
        names["figure"].savefig(path, dpi=110, transparent=True)


def draw_blocks(path):
    """One sample, the mean of many, and what is found in it, as matrices of pairs of modes."""
    rng = np.random.default_rng(0)
    waves = [np.sin(np.arange(8) * f + p) for f, p in zip((0.4, 0.8, 0.55, 1.0), rng.uniform(0, 3, 4), strict=True)]
    truth = tpca.SpikedTensor(tuple(w / np.linalg.norm(w) for w in waves), 2.0)
    X = next(iter(truth.stream(random_state=1, batch_size=400)))
    pca = tpca.TensorPCA(solver="race", memory_limit="60kB", random_state=0).fit(X)
    found = pca.inverse_transform(pca.strengths_[None])[0]
    panels = (
        (X[0], "one sample"),
        (X.mean(axis=0), "mean of 400"),
        (found, "found by the race"),
        (truth.signal(), "planted"),
    )
    with drawing() as plt:
        figure, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained")
        for axis, (tensor, title) in zip(axes, panels, strict=True):
            matrix = tensor.reshape(64, 64)
            limit = np.abs(matrix).max()
            shown = axis.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
            axis.set(xticks=[0, 32, 63], yticks=[0, 32, 63], xlabel="modes 3 and 4", ylabel="modes 1 and 2")
            axis.set_title(title)
            axis.grid(False)
            figure.colorbar(shown, ax=axis, shrink=0.8)
        figure.savefig(path, dpi=110, transparent=True)


def draw_memory(path, order=4, dim=16):
    """Samples against memory at one size: the race along its dial, and every other method."""
    points = points_of(Store(ROOT / "docs" / "reproduction").records(MEMORY))
    points = [p for p in points if p.order == order]
    points = [p for p in points if p.dim == dim and not p.symmetric]
    dial = sorted((p for p in points if p.method == "race"), key=lambda p: p.state)
    others = [p for p in points if not p.method.startswith("race")]
    with drawing() as plt:
        figure, axis = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
        axis.plot(
            [8 * p.state / 1000 for p in dial], [p.samples.value for p in dial],
            color=COLOURS[0], marker=MARKERS[0], label="the race, one pass, any memory",
        )  # fmt: skip
        for one, marker, colour, label in (
            (True, MARKERS[1], COLOURS[1], "other methods, one pass"),
            (False, MARKERS[2], COLOURS[2], "other methods, several passes"),
        ):
            chosen = [p for p in others if (p.passes == 1) == one]
            axis.scatter(
                [8 * p.state / 1000 for p in chosen], [p.samples.value for p in chosen],
                color=colour, marker=marker, label=label, zorder=3,
            )  # fmt: skip
        size = 8 * dim**order / 1000
        for p in others:
            if 8 * p.state / 1000 < size:
                place = (8 * p.state / 1000, p.samples.value)
                axis.annotate(p.method, place, textcoords="offset points", xytext=(0, 8), ha="center", fontsize=8.5)
        whole = sorted(p.method for p in others if 8 * p.state / 1000 >= size)
        axis.text(size * 1.1, 2e4, "hold a tensor:\n" + "\n".join(whole), va="top", fontsize=8)
        axis.axvline(size, color="0.5", ls=":")
        axis.text(size * 1.1, 8e4, "size of\none sample", va="top", fontsize=8)
        axis.set_ylim(30, 1e5)
        axis.set(xscale="log", yscale="log", xlabel="state (kB)", ylabel="samples for success in half of all runs")
        axis.set_title(f"order {order}, d = {dim}, strength 1: memory buys samples")
        axis.legend(loc="upper left", bbox_to_anchor=(0.33, 0.78))
        figure.savefig(path, dpi=110, transparent=True)


def main():
    """All pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    draw_found(out / "found.png")
    draw_race(out / "race.png")
    draw_blocks(out / "blocks.png")
    draw_memory(out / "memory.png")
    paper, store = out / "paper", Store(ROOT / "docs" / "reproduction")
    paper.mkdir(exist_ok=True)
    draw_alignments(paper / "alignments.png")
    draw_collapse(paper / "collapse.png", store)


if __name__ == "__main__":
    main()
