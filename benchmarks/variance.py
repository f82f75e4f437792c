"""TensorPCA(target="variance") against what holds all samples, or all entries of a pattern; and its claims on noise.

    python benchmarks/variance.py [--out results.json] [--quick] [--show results.json]

One component with amplitudes of mean zero in samples of 24 x 20 x 16, in white noise and in noise that is smooth along
every mode (neighbours correlated 0.5).  Rivals: TensorLy's parafac of all samples less their mean, with the samples as
one more mode (rank one); multilinear PCA with one component a mode, by alternating eigenvectors of covariances
(Lu, Plataniotis, Venetsanopoulos 2008); scikit-learn's IncrementalPCA of flattened samples.  Judged by the overlap of
the whole pattern with the planted one, and by the variance of fresh samples along it over that along the planted one.

Time and peak memory: 400 samples of 40 x 40 x 20 in a file, every fit a process of its own with one BLAS thread,
imports included.

Claims: fits to noise of several kinds at confidence 0.95, with a 95 % interval of the rate.  Two kinds are made of real
numbers: digits whose pixels are permuted within every image, less the image's mean, and the 3 x 10 columns of breast
cancer, standardised, each permuted over the rows.  Coverage: how often intervals of the strength, and those of
entries of vectors, hold what was planted in 300 samples of 6 x 5 x 4.
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
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

DIMS, STRENGTH, FRESH = (24, 20, 16), 3.0, 500
SAMPLES = (50, 100, 200, 400)
BIG, BIG_SAMPLES, BIG_STRENGTH = (40, 40, 20), 400, 12.0
NOISES = {"white": 0.0, "smooth": 0.5}
READINGS = {"several passes": {}, "one pass": {"max_passes": 1}}
METHODS = ("tpca", "tpca, one pass", "parafac", "multilinear PCA", "IncrementalPCA")
KINDS = ("white", "smooth", "heavy tails", "any level", "drift", "digits", "breast cancer")
COVERED = ((3.0, 0.0), (3.0, 0.6), (8.0, 0.0))  # strength, and correlation of neighbours in the noise


def coloured(rng, n, dims, phi):
    samples = rng.standard_normal((n, *dims))
    for axis, d in enumerate(dims, start=1):
        root = np.linalg.cholesky(phi ** np.abs(np.subtract.outer(range(d), range(d))))
        samples = np.moveaxis(np.tensordot(root, samples, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(samples)


def outer(vectors):
    product = np.ones(())
    for v in vectors:
        product = np.multiply.outer(product, v)
    return product


def planted(seed, n, dims, strength, phi):
    """Samples with a background and one component, and the pattern of that."""
    rng = np.random.default_rng(seed)
    pattern = outer([v / np.linalg.norm(v) for v in map(rng.standard_normal, dims)])
    signal = np.multiply.outer(strength * rng.standard_normal(n), pattern)
    return 3 * rng.standard_normal(dims) + signal + coloured(rng, n, dims, phi), pattern


def tpca_pattern(data, **options):
    import tpca

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recovery = tpca.TensorPCA(target="variance", random_state=0, **options).fit(data).recovery_
    return outer(recovery.vectors), recovery.found


def parafac_pattern(data):
    from tensorly.decomposition import parafac

    samples = np.asarray(data, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, factors = parafac(samples - samples.mean(axis=0), 1, init="svd", n_iter_max=200, tol=1e-8)
    return outer([f[:, 0] / np.linalg.norm(f[:, 0]) for f in factors[1:]]), None


def multilinear_pattern(data):
    """The leading eigenvectors of the covariances of the modes, each given the others, until they rest."""
    samples = np.asarray(data, dtype=np.float64)
    samples = samples - samples.mean(axis=0)
    vectors = []
    for mode in range(1, samples.ndim):
        rows = np.moveaxis(samples, mode, -1).reshape(-1, samples.shape[mode])
        vectors.append(np.linalg.eigh(rows.T @ rows)[1][:, -1])
    for _ in range(100):
        before = outer(vectors)
        for mode in range(len(vectors)):
            rest = samples
            for other in reversed(range(len(vectors))):
                if other != mode:
                    rest = np.tensordot(rest, vectors[other], axes=(other + 1, 0))
            vectors[mode] = np.linalg.eigh(rest.T @ rest)[1][:, -1]
        if abs(np.vdot(before, outer(vectors))) > 1 - 1e-9:
            break
    return outer(vectors), None


def incremental_pattern(data):
    from sklearn.decomposition import IncrementalPCA

    pca = IncrementalPCA(1, batch_size=100)
    for start in range(0, len(data), 100):
        pca.partial_fit(
            np.asarray(data[start : start + 100], dtype=np.float64).reshape(len(data[start : start + 100]), -1)
        )
    return pca.components_[0].reshape(data.shape[1:]), None


def fitted(method, data):
    """The pattern that a method finds, of unit length, and whether it claims that."""
    if method.startswith("tpca"):
        return tpca_pattern(data, **({} if method == "tpca" else {"max_passes": 1}))
    return {"parafac": parafac_pattern, "multilinear PCA": multilinear_pattern,
            "IncrementalPCA": incremental_pattern}[method](data)  # fmt: skip


def accuracy(samples, runs):
    rows = []
    for noise, phi in NOISES.items():
        for n in samples:
            found = {method: [] for method in METHODS}
            for seed in range(runs):
                data, pattern = planted(seed, n + FRESH, DIMS, STRENGTH, phi)
                flat = data[n:].reshape(FRESH, -1)
                best = (flat @ pattern.ravel()).var()
                for method in METHODS:
                    own, claimed = fitted(method, data[:n])
                    held_out = float((flat @ own.ravel()).var() / best)
                    found[method].append((abs(float(np.vdot(own, pattern))), held_out, claimed))
            for method, each in found.items():
                overlap, held_out, claims = (list(column) for column in zip(*each, strict=True))
                row = {"noise": noise, "samples": n, "method": method, "overlap": statistics.median(overlap)}
                row |= {"held_out": statistics.median(held_out)}
                rows.append(row | ({"claims": sum(claims)} if claims[0] is not None else {}))
            sys.stderr.write(f"{noise}, {n} samples\n")
    return rows


def peak_kb():
    """Peak resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise SystemExit("peak memory is read from /proc, which this system does not have")


def child(method, place):
    """One fit of a file; prints its seconds, peak memory and overlap."""
    pattern = np.load(Path(place).with_name("pattern.npy"))
    data = np.load(place, mmap_mode="r")
    source = str(place) if method.startswith("tpca") else data
    start = time.perf_counter()
    own, _ = fitted(method, source)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_mb": peak_kb() / 1024,
                      "overlap": abs(float(np.vdot(own, pattern)))}))  # fmt: skip


def costs(n, runs):
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "samples.npy"
        data, pattern = planted(0, n, BIG, BIG_STRENGTH, 0.0)
        np.save(place, data)
        np.save(place.with_name("pattern.npy"), pattern)
        rows = {method: [] for method in METHODS}
        for _ in range(runs):
            for method in METHODS:  # interleaved
                command = [sys.executable, __file__, "--child", method, str(place)]
                done = subprocess.run(
                    command, env={**os.environ, **one_thread}, capture_output=True, text=True, check=True
                )
                rows[method].append(json.loads(done.stdout))
    middle = {m: {k: statistics.median(r[k] for r in each) for k in each[0]} for m, each in rows.items()}
    return {"samples": n, "dims": list(BIG), "file_mb": data.nbytes / 2**20, "methods": middle}


def noise(kind, rng, n, dims):
    if kind == "heavy tails":
        return rng.standard_t(3, (n, *dims))
    if kind == "any level":
        return rng.standard_normal((n, *dims)) * np.exp(rng.standard_normal(n)).reshape(-1, *[1] * len(dims))
    if kind == "drift":
        return np.cumsum(rng.standard_normal((n, *dims)), axis=0)
    if kind == "digits":
        rows = rng.permuted(rng.permutation(load_digits().data)[:n], axis=1)
        return (rows - rows.mean(axis=1, keepdims=True)).reshape(n, 8, 8)
    if kind == "breast cancer":
        rows = rng.permuted(load_breast_cancer().data, axis=0)[:n]
        return ((rows - rows.mean(axis=0)) / rows.std(axis=0)).reshape(n, 3, 10)
    return coloured(rng, n, dims, {"white": 0.0, "smooth": 0.8}[kind])


def rate_of(count, runs):
    """A rate with its interval; imported here, for processes that measure memory load no more than they need."""
    from tpca.lab.studies.estimates import rate_interval

    return rate_interval(count, runs)


def claims(runs):
    """Claims on noise, in samples of 6 x 5 x 4 and 8 x 8, 200 of them; real ones have their own shapes."""
    rows = []
    for kind in KINDS:
        for name, options in READINGS.items():
            count = 0
            for seed in range(runs):
                rng = np.random.default_rng([seed, 5])
                count += tpca_pattern(noise(kind, rng, 200, ((6, 5, 4), (8, 8))[seed % 2]), **options)[1]
            rows.append({"noise": kind, "reading": name, "claims": count, "runs": runs})
            sys.stderr.write(f"{kind}, {name}: {count} of {runs}\n")
    return rows


def coverage(runs):
    """How often intervals hold the planted strength, and 1.96 standard errors the planted entries."""
    import tpca

    rows = []
    for strength, phi in COVERED:
        for name, options in READINGS.items():
            held, entries, found = 0, [], 0
            for seed in range(runs):
                rng = np.random.default_rng([seed, 7, int(strength), int(10 * phi)])
                vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, (6, 5, 4))]
                signal = np.multiply.outer(strength * rng.standard_normal(300), outer(vectors))
                data = signal + coloured(rng, 300, (6, 5, 4), phi)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    own = tpca.TensorPCA(target="variance", random_state=seed, **options).fit(data).recovery_
                if not own.found or own.standard_errors is None:
                    continue
                found, (low, high) = found + 1, own.strength_interval
                held += low < strength < high
                for u, v, error in zip(own.vectors, vectors, own.standard_errors, strict=True):
                    entries += list(np.abs(u - np.sign(u @ v) * v) < 1.96 * error)
            row = {"strength": strength, "phi": phi, "reading": name, "runs": runs, "found": found, "held": held}
            rows.append(row | {"entries": float(np.mean(entries)) if entries else 0.0})
            sys.stderr.write(f"coverage, {row}\n")
    return rows


def accuracy_table(stored):
    counts = sorted({row["samples"] for row in stored["accuracy"]})
    lines = [f"Medians of {stored['runs']} data sets; in brackets, in how many of them it was claimed.", ""]
    lines += [f"| noise | method | {' | '.join(f'{n} samples' for n in counts)} |", "|---|---|" + "---|" * len(counts)]
    for kind in NOISES:
        for method in METHODS:
            cells = []
            for n in counts:
                row = next(
                    r for r in stored["accuracy"] if (r["noise"], r["method"], r["samples"]) == (kind, method, n)
                )
                proven = f" ({row['claims']})" if "claims" in row else ""
                cells.append(f"{row['overlap']:.2f}, {row['held_out']:.2f}{proven}")
            lines.append(f"| {kind} | {method} | {' | '.join(cells)} |")
    return lines


def cost_table(stored):
    lines = ["| method | time | peak memory | overlap |", "|---|---|---|---|"]
    for method, row in stored["costs"]["methods"].items():
        lines.append(f"| {method} | {row['seconds']:.1f} s | {row['peak_mb']:.0f} MB | {row['overlap']:.3f} |")
    return lines


def claim_table(stored):
    lines = ["| noise | several passes | one pass | 95 % interval of both |", "|---|---|---|---|"]
    for kind in dict.fromkeys(row["noise"] for row in stored["claims"]):
        both = [r for r in stored["claims"] if r["noise"] == kind]
        rate = rate_of(*(sum(r[k] for r in both) for k in ("claims", "runs")))
        cells = [f"{r['claims']} of {r['runs']}" for r in both]
        lines.append(f"| {kind} | {' | '.join(cells)} | {rate.low:.1%} to {rate.high:.1%} |")
    return lines


def coverage_table(stored):
    lines = ["| strength | noise | reading | strength in its interval | 95 % interval of that | entries |"]
    lines.append("|---|---|---|---|---|---|")
    for row in stored["coverage"]:
        rate = rate_of(row["held"], row["found"])
        kind = "white" if row["phi"] == 0 else f"smooth, {row['phi']}"
        cells = f"{row['held']} of {row['found']} | {rate.low:.1%} to {rate.high:.1%} | {row['entries']:.1%}"
        lines.append(f"| {row['strength']:g} | {kind} | {row['reading']} | {cells} |")
    return lines


TABLES = {"accuracy": accuracy_table, "costs": cost_table, "claims": claim_table, "coverage": coverage_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path, help="print the tables of a stored run")
    parser.add_argument("--quick", action="store_true", help="few and small runs, to see that all work")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    if options.show:
        stored = json.loads(options.show.read_text())
    else:
        quick = options.quick
        stored = {"machine": {"python": platform.python_version(), "numpy": np.__version__, "cpus": os.cpu_count()}}
        stored |= {"runs": 1 if quick else 8, "costs": costs(60 if quick else BIG_SAMPLES, 1 if quick else 2)}
        stored |= {"accuracy": accuracy(SAMPLES[:1] if quick else SAMPLES, stored["runs"])}
        stored |= {"claims": claims(2 if quick else 300), "coverage": coverage(2 if quick else 300)}
    for table in TABLES.values():
        print("\n".join(table(stored)), end="\n\n")
    if options.out:
        options.out.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
