"""Unmixing photographs by moments that are never built: MomentPCA as independent component analysis.

Three pictures are mixed into three others, as when several sources reach several sensors.  Whitened, every pixel is a
vector z, and the third moment E[z⊗z⊗z] and the fourth cumulant are sums of one rank-one term for each source, as strong
as the source is skewed, or as far from Gaussian as its tails are.  Then twenty tables of eight sources each, against
FastICA on the same rows.

    python examples/moment_ica.py [--out ica.png] [--quick]
"""

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_sample_image
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning

import tpca
from tpca.report.style import drawing

ROWS, COLUMNS = 104, 156
KINDS = {
    "light tails": ["uniform"] * 4 + ["two values"] * 2 + ["triangular"] * 2,
    "all kinds": ["uniform", "laplace", "two values", "exponential", "triangular", "gamma", "laplace", "uniform"],
    "heavy tails": ["laplace"] * 8,
    "skewed": ["exponential", "gamma"] * 4,
}


def sources():
    """Two photographs and a page of handwritten digits, as rows of pixels of mean zero and variance one."""
    photos = [load_sample_image(name)[:416, :624].mean(axis=2) for name in ("china.jpg", "flower.jpg")]
    small = [p.reshape(ROWS, 4, COLUMNS, 4).mean(axis=(1, 3)) for p in photos]
    page = np.block([[load_digits().images[20 * i + j] for j in range(20)] for i in range(13)])[:ROWS, :COLUMNS]
    rows = np.stack([picture.ravel() for picture in (*small, page)])
    return (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)


def match(found, true):
    """Largest correlations of rows of ``found`` with rows of ``true``, each used once; and the order, with signs."""
    table = found @ true.T / true.shape[1]
    best = max(itertools.permutations(range(len(found))), key=lambda p: sum(abs(table[i, j]) for j, i in enumerate(p)))
    values = np.array([table[i, j] for j, i in enumerate(best)])
    return np.abs(values), list(best), np.sign(values)


def draws(kind, n, rng):
    """A source of mean zero and variance one."""
    return {
        "uniform": lambda: np.sqrt(3) * rng.uniform(-1, 1, n),
        "two values": lambda: rng.choice([-1.0, 1.0], n),
        "triangular": lambda: np.sqrt(6) * rng.triangular(-1, 0, 1, n),
        "laplace": lambda: rng.laplace(size=n) / np.sqrt(2),
        "exponential": lambda: rng.exponential(size=n) - 1,
        "gamma": lambda: (rng.gamma(4, size=n) - 4) / 2,
    }[kind]()


def amari(product):
    """Amari distance of weights times mixing from a permutation: 0 is perfect, 1 the worst."""
    p = np.abs(product)
    d = len(p)
    return ((p.sum(1) / p.max(1) - 1).sum() + (p.sum(0) / p.max(0) - 1).sum()) / (2 * d * (d - 1))


def fits(rows, seed):
    """Weights by every method."""
    d = rows.shape[1]
    ours = {
        f"order {k}": tpca.MomentPCA(d, order=k, random_state=seed, validation_fraction=0).fit(rows).components_
        for k in (3, 4)
    }
    options = {"whiten": "unit-variance", "random_state": seed, "max_iter": 1000, "tol": 1e-6}
    return ours | {f"FastICA, {fun}": FastICA(fun=fun, **options).fit(rows).components_ for fun in ("cube", "logcosh")}


def compared(seeds, n):
    """Amari distances of every method, on tables of eight mixed sources of every kind."""
    found = {}
    for name, kinds in KINDS.items():
        each = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            table = np.stack([draws(kind, n, rng) for kind in kinds], axis=1)
            mixing = rng.standard_normal((len(kinds),) * 2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                for method, weights in fits(table @ mixing.T, seed).items():
                    each.setdefault(method, []).append(amari(weights @ mixing))
        found[name] = each
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("moment_ica.png"))
    parser.add_argument("--quick", action="store_true", help="two tables of every kind")
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    true = sources()
    mixed = rng.uniform(0.3, 1, (3, 3)) @ true
    rows = mixed.T[rng.permutation(true.shape[1])]  # pixels in random order: a random sample of these pictures
    found = {order: tpca.MomentPCA(3, order=order, random_state=0).fit(rows) for order in (3, 4)}
    fast = FastICA(whiten="unit-variance", random_state=0, fun="cube", max_iter=1000).fit_transform(mixed.T).T
    results = {
        "mixed pictures": mixed / mixed.std(axis=1, keepdims=True),
        "PCA": PCA(whiten=True).fit_transform(mixed.T).T,
        "third moment": _whole(found[3], mixed),
        "fourth cumulant": _whole(found[4], mixed),
        "FastICA": fast,
    }
    print("skewness of the sources:", np.round(np.mean(true**3, axis=1), 2))
    print("excess kurtosis:        ", np.round(np.mean(true**4, axis=1) - 3, 2))
    for order, pca in found.items():
        print(f"order {order}: {pca.significant_.sum()} proven, strengths {np.round(pca.strengths_, 2)}")
    for name, pictures in results.items():
        print(f"  {name:16s} correlation with the sources", np.round(match(pictures, true)[0], 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tables = (rng.standard_normal((4000, 3)) for _ in range(20))
        nothing = [tpca.MomentPCA(3, order=4, random_state=0).fit(table).found_ for table in tables]
    print(f"Gaussian sources instead: a signal in {sum(nothing)} of {len(nothing)} tables (5 % are due)")

    seeds, n = (2, 2000) if options.quick else (20, 4000)
    distances = compared(seeds, n)
    print(f"mean Amari distance of {seeds} tables, in thousandths (eight sources, {n} rows):")
    print(f"  {'':12s}" + "".join(f"{name:>18s}" for name in distances["skewed"]))
    for name, each in distances.items():
        print(f"  {name:12s}" + "".join(f"{1000 * np.mean(values):18.1f}" for values in each.values()))
    draw(true, results, options.out)
    matches = {name: match(pictures, true)[0] for name, pictures in results.items()}
    return {"matches": matches, "found": found, "nothing": nothing, "distances": distances}


def _whole(pca, mixed):
    """Scores of all three, proven or not, for the picture."""
    return pca.transform(mixed.T).T


def draw(true, results, out):
    with drawing() as plt:
        rows = {"sources": true, **results}
        figure, axes = plt.subplots(3, len(rows), figsize=(2.2 * len(rows), 5.0), layout="constrained")
        for column, (name, pictures) in zip(axes.T, rows.items(), strict=True):
            values, order, signs = match(pictures, true)
            for j, axis in enumerate(column):
                axis.imshow((signs[j] * pictures[order[j]]).reshape(ROWS, COLUMNS), cmap="gray", vmin=-2, vmax=2)
                axis.set(xticks=[], yticks=[])
                axis.grid(False)
                if name != "sources":
                    axis.set_xlabel(f"correlation {values[j]:.2f}")
            column[0].set_title(name)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
