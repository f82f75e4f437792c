"""Means of a mixture of Gaussians from its third moment, which has no wrong optima.

Rows are members of six clouds of one variance in thirty columns, which overlap.  E[x⊗x] less the noise and E[x⊗x⊗x]
less what the noise adds are sums over the means alone; whitened by the former, the latter has the means as its rank-one
parts.  Expectation maximisation starts somewhere and may end at two means for one cloud.

    python examples/gaussian_mixture.py [--out mixture.png] [--quick]
"""

import argparse
import time
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

import tpca
from tpca.report.style import drawing

D, CLOUDS, SPREAD = 30, 6, 1.0
SHARES = np.array([0.1, 0.12, 0.15, 0.18, 0.2, 0.25])


def table(seed, n):
    """Rows, and the means of their clouds."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((CLOUDS, D)) * 0.7
    return means[rng.choice(CLOUDS, n, p=SHARES)] + SPREAD * rng.standard_normal((n, D)), means


def distances(found, means):
    """Distance of every mean to the one found for it."""
    table = np.linalg.norm(found[:, None] - means[None], axis=2)
    rows, columns = linear_sum_assignment(table)
    each = np.full(len(means), np.nan)
    each[columns] = table[rows, columns]
    return each


def methods(rows, seed):
    """Means by every method, and seconds."""
    em = {"n_components": CLOUDS, "covariance_type": "spherical", "random_state": seed}
    ours = tpca.MomentPCA(n_components=CLOUDS, model="mixture", random_state=seed)
    ways = {
        "third moment": lambda: ours.fit(rows).directions_,
        "EM, random start": lambda: GaussianMixture(init_params="random_from_data", **em).fit(rows).means_,
        "EM, from k-means": lambda: GaussianMixture(**em).fit(rows).means_,
        "EM, from the moment": lambda: GaussianMixture(means_init=ours.directions_, **em).fit(rows).means_,
        "k-means": lambda: KMeans(CLOUDS, n_init=1, random_state=seed).fit(rows).cluster_centers_,
    }
    found = {}
    for name, way in ways.items():
        began = time.perf_counter()
        means = way()
        found[name] = means, time.perf_counter() - began
    return found, ours


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gaussian_mixture.png"))
    parser.add_argument("--quick", action="store_true", help="two tables of 10 000 rows instead of twenty of 20 000")
    options = parser.parse_args(arguments)
    seeds, n = (2, 10_000) if options.quick else (20, 20_000)
    errors, seconds, proven, first = {}, {}, [], None
    for seed in range(seeds):
        rows, means = table(seed, n)
        found, ours = methods(rows, seed)
        first = first or (rows, means, found, ours)
        proven.append(ours.n_components_)
        for name, (own, took) in found.items():
            errors.setdefault(name, []).append(distances(own, means))
            seconds.setdefault(name, []).append(took)
    _, _, _, ours = first
    print(f"{n} rows, {D} columns, {CLOUDS} clouds at distances of about {0.7 * np.sqrt(2 * D):.1f} noise levels")
    print(f"first table: noise variance {ours.noise_variance_:.3f}, shares {np.round(np.sort(ours.shares_), 3)}")
    print(f"components proven in {seeds} tables: {min(proven)} to {max(proven)}")
    for name, each in errors.items():
        wrong = sum(bool(np.nanmax(one) > 1.0 or np.isnan(one).any()) for one in each)
        print(f"  {name:20s} mean error {np.nanmean(each):.3f}, a mean lost in {wrong:2d} of {seeds}")
    draw(first, errors, options.out)
    return {"errors": errors, "proven": proven, "first": ours}


def draw(first, errors, out):
    rows, means, found, _ = first
    with drawing() as plt:
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        plane = PCA(2).fit(means)
        some = plane.transform(rows[:3000])
        left.scatter(*some.T, s=3, alpha=0.25, color="0.6", linewidths=0)
        left.scatter(
            *plane.transform(means).T, s=130, marker="o", facecolors="none", edgecolors="C0", label="true means"
        )
        left.scatter(*plane.transform(found["third moment"][0]).T, s=40, marker="x", color="C1", label="third moment")
        left.scatter(
            *plane.transform(found["EM, random start"][0]).T, s=40, marker="+", color="C2", label="EM, random start"
        )
        left.set(xlabel="first axis of the means", ylabel="second axis", title="the first table")
        left.legend()
        names = list(errors)
        for place, name in enumerate(names):
            values = np.ravel(errors[name])
            jitter = np.random.default_rng(0).uniform(-0.25, 0.25, len(values))
            right.scatter(values, place + jitter, s=8, alpha=0.6)
        right.set(xscale="log", yticks=range(len(names)), yticklabels=names, xlabel="error of a mean, all tables")
        right.invert_yaxis()
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
