"""Two conditions: which channels, which frequencies and when differ between rare targets and standard tones?

An oddball experiment in the form in which MNE users have it: power of epoch × channel × frequency × time with the names
of electrodes, and a condition for every epoch; one in five is a target.  Both tones evoke the same large response,
which is of no interest.  Targets have something on top, over the back of the head, that no single cell shows.  What an
electrode measures, its neighbours measure as well: the noise is not white.  The data are made here.

    python examples/oddball_contrast.py [--out oddball.png] [--quick]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import xarray
from scipy.stats import norm
from scipy.stats import t as student

import tpca
from tpca.report.style import COLOURS, drawing

# Electrodes of the 10-20 system row by row from the front: y of the row, and x of each.
ROWS = {0.9: {"Fp1": -0.3, "Fp2": 0.3}, 0.5: {"F7": -0.8, "F3": -0.4, "Fz": 0, "F4": 0.4, "F8": 0.8},
        0.25: {"FC5": -0.65, "FC1": -0.22, "FC2": 0.22, "FC6": 0.65},
        0.0: {"T7": -1, "C3": -0.5, "Cz": 0, "C4": 0.5, "T8": 1},
        -0.25: {"CP5": -0.65, "CP1": -0.22, "CP2": 0.22, "CP6": 0.65},
        -0.5: {"P7": -0.8, "P3": -0.4, "Pz": 0, "P4": 0.4, "P8": 0.8},
        -0.9: {"O1": -0.3, "Oz": 0, "O2": 0.3}}  # fmt: skip
PLACES = {name: (x, y) for y, row in ROWS.items() for name, x in row.items()}
FREQUENCIES = np.array([3, 4, 5, 6, 8, 10, 13, 17, 22, 30])  # Hz
TIMES = np.arange(16) / 20  # seconds after the tone
MODES = ["channel", "freq", "time"]


def bumps(place, hertz, second):
    """Unit vectors over channels, frequencies and times, each with one peak."""
    distance = np.linalg.norm(np.array(list(PLACES.values())) - place, axis=1)
    parts = [np.exp(-((distance / 0.5) ** 2)), np.exp(-(np.log2(FREQUENCIES / hertz) ** 2) / 0.3)]
    parts.append(np.exp(-(((TIMES - second) / 0.12) ** 2)))
    return tuple(part / np.linalg.norm(part) for part in parts)


def truth():
    """What targets have on top: around Pz, at 5 Hz, after 0.4 seconds."""
    return tpca.SpikedTensor(bumps((0, -0.45), 5, 0.4), 3.0)


def experiment(epochs):
    """Power as a DataArray, with the condition of every epoch."""
    rng = np.random.default_rng(1)
    condition = np.where(rng.random(epochs) < 0.2, "target", "standard")
    shared = 25 * np.einsum("i,j,k->ijk", *bumps((0, 0.1), 10, 0.15)) + 2 * rng.standard_normal(truth().dims)
    places = np.array(list(PLACES.values()))
    near = np.exp(-(np.linalg.norm(places[:, None] - places, axis=2) ** 2) / 0.15)
    mixing = np.linalg.cholesky(0.6 * near + 0.4 * np.eye(len(places)))  # every channel has the variance 1
    noise = np.einsum("ij,njkl->nikl", mixing, rng.standard_normal((epochs, *truth().dims)))
    power = shared + (condition == "target")[:, None, None, None] * truth().signal() + noise
    coords = dict(zip(MODES, (list(PLACES), FREQUENCIES, TIMES), strict=True)) | {"condition": ("epoch", condition)}
    return xarray.DataArray(power, coords, ("epoch", *MODES), "power")


def from_file_to_figure(path, plt, out):
    """Six lines from the file to the labelled figure, which is then finished for the gallery."""
    power = xarray.load_dataarray(path)
    pca = tpca.TensorPCA(target="effect", random_state=0).fit(power, power.condition)
    found = pca.result_.to_xarray()
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained", width_ratios=(1.5, 1))
    for axis, mode in zip(axes.flat, MODES, strict=False):
        axis.errorbar(found[mode], found[f"vector_{mode}"][0], 2 * found[f"standard_error_{mode}"][0], fmt="o")
    finish(figure, axes, found, out)
    return pca, found


def finish(figure, axes, found, out):
    """Titles, a head, and the planted answer, for the gallery."""
    for axis, mode, planted in zip(axes.flat, MODES, truth().vectors, strict=False):
        axis.plot(found[mode], planted, color=COLOURS[1], marker="_", ms=12, mew=2, ls="", label="planted")
        axis.axhline(0, color="0.5", lw=0.8)
    axes[0, 0].set(title="which channels", ylabel="weight ± 2 errors")
    axes[0, 0].tick_params(axis="x", labelrotation=90)
    axes[0, 0].margins(x=0.03)
    axes[0, 0].legend(loc="upper left")
    axes[0, 1].set(title="which frequencies", xlabel="Hz", xscale="log", xticks=[3, 5, 10, 20, 30])
    axes[0, 1].set_xticklabels(["3", "5", "10", "20", "30"])
    axes[0, 1].minorticks_off()
    axes[1, 0].set(title="when", xlabel="seconds after the tone", ylabel="weight ± 2 errors")
    head(figure, axes[1, 1], found["vector_channel"].values[0])
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def head(figure, axis, weights):
    """The channels where they are."""
    limit, places = np.abs(weights).max(), np.array(list(PLACES.values()))
    dots = axis.scatter(*places.T, c=weights, s=330, cmap="RdBu_r", vmin=-limit, vmax=limit, edgecolors="0.5")
    for (name, place), weight in zip(PLACES.items(), weights, strict=True):
        axis.annotate(name, place, ha="center", va="center", size=7, color="w" if abs(weight) > 0.6 * limit else "k")
    angle = np.linspace(0, 2 * np.pi, 100)
    axis.plot(1.17 * np.cos(angle), 1.17 * np.sin(angle), color="0.5")
    axis.plot([-0.12, 0, 0.12], [1.165, 1.3, 1.165], color="0.5")
    axis.set(aspect="equal", title="target - standard")
    axis.axis("off")
    figure.colorbar(dots, ax=axis, shrink=0.7, label="weight of a channel")


def cell_by_cell(power):
    """The obvious alternative: a t-test between the conditions for every cell, corrected for their number."""
    target, standard = (power[power.condition == one].values for one in ("target", "standard"))
    n, m = len(target), len(standard)
    pooled = ((n - 1) * target.var(axis=0, ddof=1) + (m - 1) * standard.var(axis=0, ddof=1)) / (n + m - 2)
    t = (target.mean(axis=0) - standard.mean(axis=0)) / np.sqrt(pooled * (1 / n + 1 / m))
    return t, student.isf(0.025 / t.size, n + m - 2)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("oddball_contrast.png"))
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    options = parser.parse_args(arguments)
    power = experiment(300 if options.quick else 500)
    with tempfile.TemporaryDirectory() as folder, drawing() as plt:
        power.to_netcdf(Path(folder) / "epochs.nc")
        pca, found = from_file_to_figure(Path(folder) / "epochs.nc", plt, options.out)
    n = int(np.sum(power.condition == "target"))
    told = f"{pca.verdict_}, p = {pca.p_values_[0]:.3f}, effect {pca.effects_[0]}"
    print(f"{len(power)} epochs, {n} of them targets: {told}")
    (strength,), ((low, high),) = pca.strengths_, pca.strength_intervals_
    print(f"  strength {strength:.2f}, interval {low:.2f} to {high:.2f}; planted {truth().strength}")
    for mode, planted in zip(MODES, truth().vectors, strict=True):
        vector, error = found[f"vector_{mode}"].values[0], found[f"standard_error_{mode}"].values[0]
        best, sure = np.argmax(np.abs(vector)), np.abs(vector) > norm.isf(0.025 / len(vector)) * error
        largest = f"largest {found[mode].values[best]}: {vector[best]:.2f} ± {error[best]:.2f}"
        print(f"  {mode}: {largest}; {sure.sum()} of {len(vector)} are not zero; overlap {abs(vector @ planted):.3f}")
    sure = int(np.sum(pca.entry_p_values_ <= 0.05))
    print(f"  cells that differ, by the same flips: {sure} of {pca.entry_p_values_.size}")
    t, limit = cell_by_cell(power)
    print(f"cell by cell: {np.sum(np.abs(t) > limit)} of {t.size} pass a corrected t-test")
    mean = tpca.TensorPCA(random_state=0).fit(power)
    overlap = min(abs(c[0] @ v) for c, v in zip(mean.components_, truth().vectors, strict=True))
    print(f'target="mean" finds what both share: strength {mean.strengths_[0]:.1f}, overlap {overlap:.2f}')
    return {"pca": pca, "mean": mean, "cells": int(np.sum(np.abs(t) > limit))}


if __name__ == "__main__":
    main()
