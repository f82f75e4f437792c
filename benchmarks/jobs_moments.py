"""Moments of a wide table, read from a file, against FastICA, which has the table in memory."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.decomposition import FastICA
from suite import Row, interleave, seconds_of

from tpca import MomentPCA

N, D, SOURCES, STEP = 100_000, 1000, 10, 10_000
TARGET, MEMORY = 1.0, 1e9


def write(path: Path) -> np.ndarray:
    """Ten skewed sources mixed into a thousand columns, beside noise; the mixing matrix."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((D, SOURCES), dtype=np.float32)
    table = np.lib.format.open_memmap(path, "w+", np.float32, (N, D))
    for first in range(0, N, STEP):
        sources = rng.standard_exponential((STEP, SOURCES), dtype=np.float32) - 1
        table[first : first + STEP] = sources @ mixing.T + rng.standard_normal((STEP, D), dtype=np.float32)
    table.flush()
    return mixing


def unmixed(weights, mixing) -> float:
    """The least share of a score that is one source's."""
    shares = np.square(weights @ mixing)
    return float(np.min(shares.max(axis=1) / shares.sum(axis=1)))


def fit(path: Path, order: int) -> MomentPCA:
    return MomentPCA(SOURCES, order=order, random_state=0, whiten_rank=SOURCES).fit(path)


def fit_elsewhere(path: Path, order: int) -> dict:
    """A fit in a process of its own: seconds, most memory in bytes, and weights."""
    done = subprocess.run([sys.executable, __file__, str(path), str(order)], check=True, capture_output=True, text=True)
    found: dict = json.loads(done.stdout)
    return found


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npy"
        mixing = write(path)
        table = np.load(path)
        fast = FastICA(SOURCES, fun="cube", whiten="unit-variance", whiten_solver="eigh", random_state=0)
        found: dict[int, dict] = {}

        def seconds(order: int) -> float:
            found[order] = fit_elsewhere(path, order)
            return float(found[order]["seconds"])

        jobs = {order: (lambda order=order: seconds(order)) for order in (3, 4)}
        took = interleave(jobs, lambda: seconds_of(lambda: fast.fit(table)), repeats=1, warm=False)
        other = unmixed(fast.components_, mixing)
        for order, own in found.items():
            share, name = unmixed(np.array(own["weights"]), mixing), f"MomentPCA, order {order}, n = 100 000, d = 1000"
            note = f"{SOURCES} sources, from a file; least share of one in a score {share:.4f}, FastICA {other:.4f}"
            yield took[order].row(f"{name}: time", "FastICA, in memory", TARGET, note, share >= other - 1e-3)
            used = own["peak"] / 1e6
            note = f"{used:.0f} MB; the table has 400, its third moment 8 GB, its fourth 8 TB"
            yield Row(f"{name}: most memory of the process", "1 GB", own["peak"] / MEMORY, 1.0, note=note)


if __name__ == "__main__":
    began = time.perf_counter()
    weights = fit(Path(sys.argv[1]), int(sys.argv[2])).components_
    took = time.perf_counter() - began
    status = Path("/proc/self/status").read_text().splitlines()
    peak = 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    print(json.dumps({"seconds": took, "peak": peak, "weights": weights.tolist()}))
