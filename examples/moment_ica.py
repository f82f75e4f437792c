"""Unmixing photographs by their third moment: tensor PCA as independent component analysis.

Three pictures are mixed into three others, as when several sources reach several sensors.  Whitened, every pixel is a
vector z, and E[z ⊗ z ⊗ z] is a sum of one rank-one term for each source, as strong as the source is skewed.  Each pixel
gives one sample z ⊗ z ⊗ z, made when it is read.  Components and their number come with a test.

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


def sources():
    """Two photographs and a page of handwritten digits, as rows of pixels of mean zero and variance one."""
    photos = [load_sample_image(name)[:416, :624].mean(axis=2) for name in ("china.jpg", "flower.jpg")]
    small = [p.reshape(ROWS, 4, COLUMNS, 4).mean(axis=(1, 3)) for p in photos]
    page = np.block([[load_digits().images[20 * i + j] for j in range(20)] for i in range(13)])[:ROWS, :COLUMNS]
    rows = np.stack([picture.ravel() for picture in (*small, page)])
    return (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)


def cubes(z, order, together=1000):
    """Batches of z ⊗ z ⊗ z in the given order of the pixels."""
    for start in range(0, len(order), together):
        rows = z[order[start : start + together]]
        yield np.einsum("ni,nj,nk->nijk", rows, rows, rows)


def match(found, true):
    """Largest correlations of rows of ``found`` with rows of ``true``, each used once; and the order, with signs."""
    table = found @ true.T / true.shape[1]
    best = max(itertools.permutations(range(len(found))), key=lambda p: sum(abs(table[i, j]) for j, i in enumerate(p)))
    values = np.array([table[i, j] for j, i in enumerate(best)])
    return np.abs(values), list(best), np.sign(values)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("moment_ica.png"))
    parser.add_argument("--quick", action="store_true", help="every fourth pixel")
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    true = sources()
    mixed = rng.uniform(0.3, 1, (3, 3)) @ true
    z = PCA(whiten=True).fit_transform(mixed.T)
    order = rng.permutation(len(z))[:: 4 if options.quick else 1]  # a random sample of these pixels

    # Products of three numbers have heavy tails, and in these lies what is looked for: nothing is clipped.
    pca = tpca.TensorPCA(n_components=3, random_state=0, items="batches", clip=None).fit(cubes(z, order))
    directions = pca.components_[0]
    agree = np.abs(np.sum(pca.components_[0] * pca.components_[1], axis=1))
    ours = directions @ z.T
    fast = FastICA(whiten="unit-variance", random_state=0, fun="cube", max_iter=1000).fit_transform(mixed.T).T
    results = {
        "mixed pictures": mixed / mixed.std(axis=1, keepdims=True),
        "PCA": z.T,
        "third moment": ours,
        "FastICA": fast,
    }

    print("skewness of the sources:", np.round(np.mean(true**3, axis=1), 2))
    print(f"components proven: {pca.n_components_}, strengths {np.round(pca.strengths_, 2)}")
    print("modes agree (they must, all three see the same z):", np.round(agree, 3))
    for name, rows in results.items():
        print(f"  {name:16s} correlation with the sources", np.round(match(rows, true)[0], 3))
    gaussian = rng.standard_normal((len(order), 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        nothing = tpca.TensorPCA(random_state=0, items="batches", clip=None).fit(cubes(gaussian, np.arange(len(order))))
    print(f"Gaussian sources instead: {nothing.stop_reason_.name}")
    draw(true, results, options.out)
    return {"matches": {k: match(v, true)[0] for k, v in results.items()}, "pca": pca, "nothing": nothing}


def draw(true, results, out):
    with drawing() as plt:
        rows = {"sources": true, **results}
        figure, axes = plt.subplots(3, len(rows), figsize=(2.5 * len(rows), 5.4), layout="constrained")
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
