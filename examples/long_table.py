"""From a long table to a labelled figure: which genes answer a drug, in which cells, and when?

Every donor's blood was measured with and without a drug; the table has a row for every donor, gene, cell type and hour
with the logarithm of the ratio.  A few genes answer, in some cell types more than in others, and fade; every single row
drowns in the noise.  The file is made here, and read as anybody would read it.

    python examples/long_table.py [--out table.png] [--quick]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student

import tpca
from tpca.report.style import drawing

GENES = ["CXCL10", "IFIT1", "IFIT3", "ISG15", "MX1", "OAS1", "STAT1", "ACTB", "ALB", "CD4", "CD8A", "CD19", "FOXP3",
         "GAPDH", "GZMB", "IL2", "IL7R", "LYZ", "MS4A1", "NKG7", "PPBP", "S100A8", "TUBB", "VIM"]  # fmt: skip
CELLS = ["B", "CD4 T", "CD8 T", "monocyte", "NK"]
HOURS = np.array([0.5, 1, 2, 4, 8, 12, 24])
MODES = ["gene", "cell", "hours"]
ANSWERS = 7  # the first genes do, the others do not


def truth():
    """Seven genes, most in monocytes, largest after four hours."""
    genes = np.r_[np.linspace(1.0, 0.6, ANSWERS), np.zeros(len(GENES) - ANSWERS)]
    cells, hours = np.array([0.3, 0.4, 0.5, 1.0, 0.6]), HOURS * np.exp(-HOURS / 4)
    return tpca.SpikedTensor(tuple(v / np.linalg.norm(v) for v in (genes, cells, hours)), 1.5)


def write_table(path, donors):
    """A row for every cell of every sample: donor, gene, cell, hours, log_ratio."""
    samples = truth().signal() + np.random.default_rng(1).standard_normal((donors, len(GENES), len(CELLS), len(HOURS)))
    names = pd.MultiIndex.from_product([[f"donor {i}" for i in range(donors)], GENES, CELLS, HOURS])
    table = pd.DataFrame({"log_ratio": samples.round(4).ravel()}, names.set_names(["donor", *MODES])).reset_index()
    table.to_csv(path, index=False)
    return table


def from_file_to_figure(path, plt, out):
    """All that is needed: six lines from the file to the labelled figure."""
    stream = tpca.open_stream(path, sample="donor", modes=MODES, value="log_ratio")
    found = tpca.TensorPCA(random_state=0).fit(stream).result_.to_xarray()
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", width_ratios=(2.4, 1, 1.2))
    for axis, mode in zip(axes, MODES, strict=True):
        axis.errorbar(found[mode], found[f"vector_{mode}"][0], 2 * found[f"standard_error_{mode}"][0], fmt="o")
    finish(figure, axes, out)
    return found


def finish(figure, axes, out):
    """Titles and the planted answer, for the gallery."""
    for axis, mode, planted, at in zip(axes, MODES, truth().vectors, (GENES, CELLS, HOURS), strict=True):
        axis.plot(at, planted, color="#D55E00", marker="_", ms=14, mew=2, ls="", label="planted")
        axis.axhline(0, color="0.5", lw=0.8)
        axis.set(title=mode, ylabel="weight ± 2 errors" if mode == "gene" else "")
        if mode != "hours":
            axis.tick_params(axis="x", labelrotation=90)
            axis.margins(x=0.1 if mode == "cell" else 0.04)
    axes[0].legend()
    axes[2].set(xlabel="hours after the drug")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def row_by_row(table):
    """The obvious alternative: a t-test for every gene, cell and hour, corrected for their number."""
    groups = table.groupby(MODES, sort=False)["log_ratio"]
    t = groups.mean() / (groups.std() / np.sqrt(groups.size()))
    return t[np.abs(t) > student.isf(0.025 / len(t), groups.size().iloc[0] - 1)]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("long_table.png"))
    parser.add_argument("--quick", action="store_true", help="fewer donors")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, drawing() as plt:
        path = Path(folder) / "response.csv"
        table = write_table(path, 120 if options.quick else 200)
        found = from_file_to_figure(path, plt, options.out)
        print(f"{len(table):,} rows, {found.attrs['n_samples']} donors: {found.attrs['verdict']}")
        told = ", ".join(f"{found.attrs[f'strength{end}'][0]:.2f}" for end in ("", "_low", "_high"))
        print(f"  strength, and its interval: {told}; planted {truth().strength}")
        for mode, planted in zip(MODES, truth().vectors, strict=True):
            vector, error = found[f"vector_{mode}"].values[0], found[f"standard_error_{mode}"].values[0]
            best = np.argmax(np.abs(vector))
            sure = np.sum(np.abs(vector) > norm.isf(0.025 / len(vector)) * error)
            largest = f"largest {found[mode].values[best]}: {vector[best]:.2f} ± {error[best]:.2f}"
            print(f"  {mode}: {largest}; {sure} of {len(vector)} are not zero; overlap {abs(vector @ planted):.3f}")
        tests = row_by_row(table)
        print(f"row by row: {len(tests)} of {table.groupby(MODES).ngroups} cells pass a corrected t-test")
        table.drop(index=700).to_csv(path, index=False)
        try:
            tpca.TensorPCA(random_state=0).fit(tpca.open_stream(path, sample="donor", modes=MODES, value="log_ratio"))
        except tpca.TpcaError as refused:
            print("one row lost:", str(refused).replace(str(path), "response.csv").split(";")[0])
    return {"found": found, "tests": tests}


if __name__ == "__main__":
    main()
