"""What follows the dose: which metabolites, in which tissues, how long after?

Animals of 20 cohorts were given a compound, two of each cohort the same dose, and their metabolites were measured in
six tissues over a day.  Cohorts differ from each other by more than any dose makes, and heavy animals from light ones;
those with a high dose are a little heavier.  Six metabolites rise with the logarithm of the dose.  The data are made
here.

    python examples/dose_response.py [--out dose.png] [--quick]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import xarray
from scipy.stats import norm

import tpca
from tpca.report.style import COLOURS, drawing

METABOLITES = ["carnitine", "acetylcarnitine", "palmitate", "oleate", "butyrate", "ketone", "alanine", "citrate",
               "creatine", "glucose", "glutamate", "glycine", "lactate", "leucine", "malate", "proline", "serine",
               "taurine", "urea", "valine"]  # fmt: skip
TISSUES = ["blood", "brain", "heart", "kidney", "liver", "muscle"]
HOURS = np.array([0.5, 1, 2, 4, 6, 8, 12, 24])
DOSES = np.array([0, 1, 3, 10, 30, 100, 300, 1000])  # mg/kg
EACH = 2  # animals of a cohort with the same dose
MODES = ["metabolite", "tissue", "hours"]
RISING = 6  # the first metabolites do, the others do not


def units(*parts):
    return tuple(np.asarray(part) / np.linalg.norm(part) for part in parts)


def truth():
    """Per decade of the dose: six metabolites, most in the liver, largest after six hours."""
    rising = np.r_[np.linspace(1.0, 0.5, RISING), np.zeros(len(METABOLITES) - RISING)]
    return tpca.SpikedTensor(units(rising, [0.4, 0.0, 0.5, 0.3, 1.0, 0.2], HOURS * np.exp(-HOURS / 6)), 1.0)


def study(cohorts):
    """Concentrations as a DataArray, with the decades of the dose, weight and cohort of every animal."""
    rng, shape = np.random.default_rng(1), truth().dims
    cohort = np.repeat([f"cohort {i}" for i in range(cohorts)], EACH * len(DOSES))
    dose = np.concatenate([rng.permutation(np.repeat(DOSES, EACH)) for _ in range(cohorts)])
    decades = np.log10(1 + dose)
    weight = 250 + 8 * decades + 25 * rng.standard_normal(len(dose))  # grams
    of_weight = np.einsum("i,j,k->ijk", *units(*(rng.standard_normal(d) for d in shape)))
    of_cohort = np.repeat(3 * rng.standard_normal((cohorts, *shape)), EACH * len(DOSES), axis=0)
    noise = rng.standard_normal((len(dose), *shape))
    follows = np.multiply.outer(decades, truth().signal()) + np.multiply.outer((weight - 250) / 5, of_weight)
    coords = dict(zip(MODES, (METABOLITES, TISSUES, HOURS), strict=True))
    coords |= {"decades": ("animal", decades), "weight": ("animal", weight), "cohort": ("animal", cohort)}
    return xarray.DataArray(follows + of_cohort + noise, coords, ("animal", *MODES))


def effect(*arguments, **told):
    return tpca.TensorPCA(target="effect", random_state=0).fit(*arguments, **told)


def indicators(cohort):
    """A column of 0 and 1 for every cohort."""
    return (cohort[:, None] == np.unique(cohort)).astype(float)


def from_file_to_figure(path, plt, out):
    """Six lines from the file to the labelled figure, which is then finished for the gallery."""
    x = xarray.load_dataarray(path)
    besides = np.column_stack([x.weight, indicators(x.cohort.values)[:, 1:]])
    pca = effect(x, x.decades, nuisance=besides, groups=x.cohort)
    found = pca.result_.to_xarray()
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained", width_ratios=(1.5, 1))
    for axis, mode in zip(axes.flat, MODES, strict=False):
        axis.errorbar(found[mode], found[f"vector_{mode}"][0], 2 * found[f"standard_error_{mode}"][0], fmt="o")
    finish(figure, axes, found, x.decades.values, within(pca.transform(x).values, x.cohort.values), out)
    return pca, found


def within(amplitudes, cohort):
    """Amplitudes of the one component less the mean of the cohort."""
    columns = indicators(cohort)
    return amplitudes[:, 0] - columns @ (columns.T @ amplitudes[:, 0] / columns.sum(axis=0))


def finish(figure, axes, found, decades, amplitudes, out):
    """Titles, the amplitude of every animal, and the planted answer, for the gallery."""
    for axis, mode, planted in zip(axes.flat, MODES, truth().vectors, strict=False):
        axis.plot(found[mode], planted, color=COLOURS[1], marker="_", ms=14, mew=2, ls="", label="planted")
        axis.axhline(0, color="0.5", lw=0.8)
    axes[0, 0].set(title="which metabolites", ylabel="weight ± 2 errors")
    axes[0, 0].tick_params(axis="x", labelrotation=90)
    axes[0, 0].legend()
    axes[0, 1].set(title="in which tissues", xmargin=0.08)
    axes[1, 0].set(
        title="when", xlabel="hours after the dose", ylabel="weight ± 2 errors", xticks=[1, 2, 4, 6, 8, 12, 24]
    )
    low, high = decades.min(), decades.max()
    slope, centre = found.attrs["strength"][0], decades.mean()
    jitter = np.random.default_rng(0).uniform(-0.06, 0.06, len(decades))
    axes[1, 1].plot(decades + jitter, amplitudes, "o", ms=3, alpha=0.5)
    axes[1, 1].plot([low, high], [slope * (low - centre), slope * (high - centre)], color=COLOURS[1], label="strength")
    axes[1, 1].set(title="every animal", xlabel="dose (mg/kg)", ylabel="amplitude less that of its cohort")
    axes[1, 1].set(xticks=np.log10(1 + DOSES), xticklabels=DOSES)
    axes[1, 1].legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def overlap(pca):
    """The worst of three."""
    return min(truth().overlaps(pca.components_))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dose_response.png"))
    parser.add_argument("--quick", action="store_true", help="fewer cohorts")
    options = parser.parse_args(arguments)
    samples = study(14 if options.quick else 20)
    decades, weight, cohort = (samples[name].values for name in ("decades", "weight", "cohort"))
    with tempfile.TemporaryDirectory() as folder, drawing() as plt:
        samples.to_netcdf(Path(folder) / "dose.nc")
        pca, found = from_file_to_figure(Path(folder) / "dose.nc", plt, options.out)
    print(f"{len(samples)} animals of {len(np.unique(cohort))} cohorts: {pca.verdict_}, p = {pca.p_values_[0]:.3f}")
    (strength,), ((low, high),) = pca.strengths_, pca.strength_intervals_
    print(f"  strength per decade {strength:.2f}, interval {low:.2f} to {high:.2f}; planted {truth().strength}")
    for mode, planted in zip(MODES, truth().vectors, strict=True):
        vector, error = found[f"vector_{mode}"].values[0], found[f"standard_error_{mode}"].values[0]
        best, sure = np.argmax(np.abs(vector)), np.abs(vector) > norm.isf(0.025 / len(vector)) * error
        largest = f"largest {found[mode].values[best]}: {vector[best]:.2f} ± {error[best]:.2f}"
        print(f"  {mode}: {largest}; {sure.sum()} of {len(vector)} are not zero; overlap {abs(vector @ planted):.3f}")
    own = indicators(cohort)[:, 1:]
    ways = {"weight and cohorts given": pca, "without weight": effect(samples, decades, nuisance=own, groups=cohort)}
    ways["cohorts as groups only"] = effect(samples, decades, nuisance=weight, groups=cohort)
    for name, way in ways.items():
        low, high = way.strength_intervals_[0]
        print(f"{name}: {way.verdict_}, strength {low:.2f} to {high:.2f}, worst overlap {overlap(way):.2f}")
    return {"pca": pca, "ways": ways, "overlaps": {name: overlap(way) for name, way in ways.items()}}


if __name__ == "__main__":
    main()
