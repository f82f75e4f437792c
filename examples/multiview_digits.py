"""Four quadrants of handwritten digits as views: which patterns of ink go together in all four at once?

Fits TensorCCA to the quadrants of scikit-learn's bundled digits, compares the relation it finds, on images it has not
seen, with what pairwise CCA finds, and draws the four recovered patterns.

    python examples/multiview_digits.py [--out digits.png] [--quick]
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from sklearn.cross_decomposition import CCA
from sklearn.datasets import load_digits

import tpca
from tpca.report.style import drawing

NAMES = ("top left", "top right", "bottom left", "bottom right")


def quadrants():
    images = load_digits().images / 16.0
    order = np.random.default_rng(0).permutation(len(images))
    return [images[order, i : i + 4, j : j + 4].reshape(len(images), 16) for i in (0, 4) for j in (0, 4)]


def together(scores):
    """Mean product of standardised scores, with its standard error."""
    products = np.prod([(s - s.mean()) / s.std() for s in scores], axis=0)
    return products.mean(), products.std() / np.sqrt(len(products))


def pairwise_scores(train, test):
    """For every view the mean of its pairwise CCA scores with the other three, signs matched to the first view."""
    scores = [np.zeros(len(test[0])) for _ in test]
    for i, j in itertools.combinations(range(4), 2):
        model = CCA(n_components=1, max_iter=2000).fit(train[i], train[j])
        for k, s in zip((i, j), model.transform(test[i], test[j]), strict=True):
            s = s[:, 0] / s.std()
            scores[k] += s * (np.sign(scores[k] @ s) or 1.0)
    return [s * (np.sign(scores[0] @ s) or 1.0) for s in scores]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("multiview_digits.png"))
    parser.add_argument("--quick", action="store_true", help="one component only")
    options = parser.parse_args(arguments)

    views = quadrants()
    train, test = [v[:1400] for v in views], [v[1400:] for v in views]
    cca = tpca.TensorCCA(n_components=1 if options.quick else 2, random_state=0).fit(train)
    print(f"proven components: {cca.significant_.sum()}, p = {cca.p_values_}")

    print("\nheld-out images, product of all four standardised scores:")
    scores = cca.transform(test)
    for c in range(cca.n_components):
        value, error = together([s[:, c] for s in scores])
        said = f"{cca.correlations_[c]:.2f} ± {cca.correlation_errors_[c]:.2f}"
        print(f"  TensorCCA, component {c}   {value:6.2f} ± {error:.2f}   (fit said {said})")
    ours, (value, error) = together([s[:, 0] for s in scores])[0], together(pairwise_scores(train, test))
    print(f"  pairwise CCA             {value:6.2f} ± {error:.2f}")

    print("\nheld-out images, correlation of every pair of views (component 0):")
    for i, j in itertools.combinations(range(4), 2):
        model = CCA(n_components=1, max_iter=2000).fit(train[i], train[j])
        own = np.corrcoef(*(s[:, 0] for s in model.transform(test[i], test[j])))[0, 1]
        both = np.corrcoef(scores[i][:, 0], scores[j][:, 0])[0, 1]
        print(f"  {NAMES[i]:12s} {NAMES[j]:12s}  TensorCCA {abs(both):.2f}   CCA of these two alone {own:.2f}")

    draw(cca, train, options.out)
    return {"cca": cca, "held out": ours, "pairwise": value}


def draw(cca, train, out):
    """A pattern is what a score goes with: the covariance of the pixels with it, easier to read than weights."""
    with drawing() as plt:
        figure, axes = plt.subplots(
            1, cca.n_components, figsize=(4 * cca.n_components, 3.9), squeeze=False, layout="constrained"
        )
        for c, axis in enumerate(axes[0]):
            picture = np.zeros((8, 8))
            for view, (mean, w) in enumerate(zip(cca.means_, cca.weights_, strict=True)):
                centred = train[view] - mean
                i, j = divmod(view, 2)
                pattern = centred.T @ (centred @ w[c]) / len(centred)
                picture[4 * i : 4 * i + 4, 4 * j : 4 * j + 4] = pattern.reshape(4, 4)
            limit = np.abs(picture).max()
            shown = axis.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
            axis.axhline(3.5, color="black", lw=1)
            axis.axvline(3.5, color="black", lw=1)
            title = (
                f"component {c}: mean product of scores\n{cca.correlations_[c]:.2f} ± {cca.correlation_errors_[c]:.2f}"
            )
            axis.set(xticks=[], yticks=[], title=title)
            axis.grid(False)
            figure.colorbar(shown, ax=axis, shrink=0.8, label="ink that goes with the score")
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
