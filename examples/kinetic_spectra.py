"""Variation: what differs between mixtures whose light is measured by colour of lamp, colour of light, and time?

64 mixtures of four catecholamines, excited at 10 wavelengths; their light was measured at 12 wavelengths over 60
moments of a reaction (Nikolajsen et al. 2003; the data come with TensorLy).  A sample is 12 × 10 × 60.  PCA of the 7200
numbers has 7200 loadings a component; a rank-one pattern has 82, and keeps nearly all of the variance.  One of the
mixtures was cut off before the end, which the second pattern shows at a glance.

    python examples/kinetic_spectra.py [--out kinetic.png] [--quick]
"""

import argparse
from pathlib import Path

import numpy as np
import xarray
from sklearn.decomposition import PCA
from tensorly.datasets import load_kinetic

import tpca
from tpca.report.style import COLOURS, drawing

MODES = ["emission", "excitation", "time"]
UNITS = ["emission (nm)", "excitation (nm)", "time (min)"]


def load():
    stored = load_kinetic()
    return xarray.DataArray(
        np.asarray(stored.tensor, dtype=float), dims=("mixture", *MODES),
        coords={mode: np.asarray(ticks, dtype=float) for mode, ticks in zip(MODES, stored.ticks[1:], strict=True)},
    )  # fmt: skip


def draw(pca, found, plt, out):
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, mode, unit in zip(axes, MODES, UNITS, strict=True):
        at = found[mode].values
        for c, colour in zip(range(pca.n_components), COLOURS, strict=False):
            weight, error = found[f"vector_{mode}"].values[c], 2 * found[f"standard_error_{mode}"].values[c]
            axis.plot(at, weight, color=colour, label=f"pattern {c + 1}: {pca.explained_variance_ratio_[c]:.1%}")
            axis.fill_between(at, weight - error, weight + error, color=colour, alpha=0.25, lw=0)
        axis.axhline(0, color="0.5", lw=0.8)
        axis.set(xlabel=unit)
    axes[0].legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("kinetic.png"))
    parser.add_argument("--quick", action="store_true", help="every third moment")
    options = parser.parse_args(arguments)
    samples = load()
    if options.quick:
        samples = samples[..., ::3]
    pca = tpca.TensorPCA(3, target="variance", dependence=None, random_state=0).fit(samples)
    print(pca.summary())
    plain = PCA(3).fit(samples.values.reshape(len(samples), -1)).explained_variance_ratio_
    print("PCA without the rank-one form:", ", ".join(f"{share:.1%}" for share in plain))
    jump = np.abs(np.diff(pca.components_[2][1]))
    scores = pca.transform(samples).values[:, 1]
    odd = int(np.argmax(np.abs(scores - np.median(scores))))
    silent = float((samples[odd] == 0).all(MODES[:2]).mean())
    print(f"Pattern 2 jumps at {samples.time.values[jump.argmax() + 1]:.1f} min; mixture {odd} is far from all others:")
    print(f"  {silent:.0%} of its moments are zero. Without it:")
    rest = tpca.TensorPCA(3, target="variance", dependence=None, random_state=0).fit(samples.drop_isel(mixture=odd))
    print("  shares", ", ".join(f"{share:.1%}" for share in rest.explained_variance_ratio_))
    order = np.random.default_rng(0).permutation(len(samples))
    again = tpca.TensorPCA(3, target="variance", dependence=None, random_state=0).fit(samples[order])
    change = max(np.abs(a - b).max() for a, b in zip(pca.components_, again.components_, strict=True))
    print(f"In another order of the samples, weights change by {max(change, 1e-15):.0e}")
    with drawing() as plt:
        draw(pca, pca.result_.to_xarray(), plt, options.out)
    return {"pca": pca, "rest": rest, "plain": plain, "change": change, "odd": odd}


if __name__ == "__main__":
    main()
