"""Two threads of BLAS against one: whole fits, which a second core must never make slower.

Threads are chosen when a process starts, so every repeat is a new process that does all fits:
``python benchmarks/jobs_threads.py`` prints their seconds as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import suite

from tpca import TensorPCA

TARGET = 1.1  # as quick, and what repeats differ by
REPEATS = 4
WARM = (4, 4, 4), 50  # a fit that loads what all fits need
# Shape and number of samples of every fit; 128³ is where two threads that wait for each other cost most.
FITS = {
    "mean": {(8,) * 3: 2000, (16,) * 3: 300, (32,) * 3: 60, (16,) * 4: 30, (64,) * 3: 6},
    "effect": {(8,) * 3: 2000, (16,) * 3: 200, (32,) * 3: 40, (16,) * 4: 30},
    "race": {(8,) * 3: 2000, (32,) * 3: 100, (16,) * 4: 200, (32,) * 4: 20, (128,) * 3: 10},
}


def fit_of(kind: str, dims: tuple[int, ...], count: int) -> Callable[[], object]:
    """A fit of noise."""
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((count, *dims), dtype=np.float32)
    if kind == "race":
        return partial(TensorPCA(solver="race", random_state=0).fit, samples)
    target = "effect" if kind == "effect" else "mean"
    squares = TensorPCA(target=target, solver="least_squares", n_resamples=19, random_state=0)
    return partial(squares.fit, samples, rng.standard_normal(count) if kind == "effect" else None, dim=0)


def seconds_with(threads: int) -> dict[str, float]:
    """Seconds of every fit in a new process with so many threads of BLAS."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rows() -> Iterator[suite.Row]:
    """A row for every fit."""
    pairs = []
    for _ in range(min(REPEATS, suite.most_repeats)):
        two = seconds_with(2)
        one = seconds_with(1)
        pairs.append((two, one))
    for name in pairs[0][0]:
        took = suite.ratios([(two[name], one[name]) for two, one in pairs])
        yield took.row(f"{name}: two threads of BLAS", "one thread", TARGET)


def main() -> None:
    """Do every fit once."""
    seconds = {}
    for kind, sizes in FITS.items():
        fit_of(kind, *WARM)()
        for dims, count in sizes.items():
            name = f"{kind}, {count} samples of {' × '.join(map(str, dims))}"
            seconds[name] = suite.seconds_of(fit_of(kind, dims, count))
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
