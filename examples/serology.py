"""Conditions: which antibodies, against which parts of the virus, tell severe COVID-19 from milder disease?

Blood samples of 438 visits, each measured as antigen × receptor: 6 parts of the virus, 11 kinds of antibodies and what
they bind to (Zohar et al. 2020; Tan et al. 2021).  The data come with TensorLy.  Visits of one patient stand side by
side in the file, and patients are sorted by outcome, so that neighbours are alike: what to make of that is the point.

    python examples/serology.py [--out serology.png] [--quick]
"""

import argparse
from pathlib import Path

import numpy as np
import xarray
from tensorly.datasets import load_covid19_serology

import tpca
from tpca.report.style import COLOURS, drawing

SEVERE = ["Severe", "Deceased"]
MODES = ["antigen", "receptor"]


def load():
    """Samples with names, and the outcome of every sample."""
    stored = load_covid19_serology()
    samples = xarray.DataArray(
        np.asarray(stored.tensor), dims=("visit", *MODES), coords=dict(zip(MODES, stored.ticks[1:], strict=True))
    )
    return samples, np.array(stored.ticks[0])


def mixed(samples, label, n_resamples, permutations):
    """How often shuffled labels give a signal when samples are taken as exchangeable: 5 %, if the test is right."""
    rng = np.random.default_rng(0)
    pca = tpca.TensorPCA(target="effect", dependence=None, n_resamples=n_resamples, random_state=0)
    return sum(pca.fit(samples, rng.permutation(label)).found_ for _ in range(permutations))


def draw(fitted, plt, out):
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", width_ratios=(1, 1.6))
    found = fitted.result_.to_xarray()
    for axis, mode in zip(axes, MODES, strict=True):
        weight, error = found[f"vector_{mode}"][0], found[f"standard_error_{mode}"][0]
        axis.errorbar(found[mode], weight, 2 * error, fmt="o", color=COLOURS[0])
        axis.axhline(0, color="0.5", lw=0.8)
        axis.tick_params(axis="x", labelrotation=90)
        axis.set(title=mode, ylabel="weight ± 2 errors" if mode == "antigen" else "")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("serology.png"))
    parser.add_argument("--quick", action="store_true", help="fewer shuffled labels")
    options = parser.parse_args(arguments)
    samples, outcome = load()
    infected = outcome != "Negative"
    samples, severe = samples[infected], np.where(np.isin(outcome[infected], SEVERE), "severe", "milder")

    default = tpca.TensorPCA(target="effect", random_state=0).fit(samples, severe)
    print("In the order of the file:")
    print(default.summary())
    loose = tpca.TensorPCA(target="effect", dependence=None, random_state=0).fit(samples, severe)
    print("\nIf the order meant nothing (dependence=None):")
    print(str(loose.summary()).splitlines()[0])
    same = max(np.abs(a - b).max() for a, b in zip(default.components_, loose.components_, strict=True))
    print(f"The pattern is the same to {max(same, 1e-15):.0e}: only test and errors differ.")
    runs = 20 if options.quick else 200
    print(f"Shuffled labels, dependence=None: a signal in {mixed(samples, severe, 199, runs)} of {runs}")
    with drawing() as plt:
        draw(default, plt, options.out)
    return {"default": default, "loose": loose}


if __name__ == "__main__":
    main()
