"""One sample at a time: ``partial_fit`` of single samples, against a matrix-vector product with each of them.

And start-up: a new process each, files in the page cache, compiled code as a first start leaves it.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from suite import Row, compare, interleave, seconds_of

from tpca import TensorPCA

DIMS, COUNT, TARGET, FROM_FIRST, START_UP = (16,) * 4, 2000, 5.0, 10.0, 1.5
BEFORE = 20_000  # samples that the race has seen: its rounds are then long, as they are in any long stream


def push(model: TensorPCA, samples: np.ndarray) -> None:
    for i in range(len(samples)):
        model.partial_fit(samples[i : i + 1])


def racing(samples: np.ndarray) -> Callable[[], None]:
    """A race in full swing, given the next samples: noise and its negative in turns, so that nothing is found."""
    model = TensorPCA(solver="race", random_state=0)
    turns = itertools.cycle([samples, -samples])
    for _ in range(BEFORE // COUNT):
        model.partial_fit(next(turns))
    return lambda: push(model, next(turns))


def online() -> Iterator[Row]:
    samples = np.random.default_rng(0).standard_normal((COUNT, *DIMS), dtype=np.float32)
    vector = np.ones(DIMS[0] * DIMS[1], np.float32)

    def products() -> None:
        for sample in samples:
            sample.reshape(len(vector), -1) @ vector

    jobs = {
        "least squares": (lambda: push(TensorPCA(random_state=0), samples), TARGET),
        f"race after {BEFORE} samples": (racing(samples), TARGET),
        "race from the first sample on": (lambda: push(TensorPCA(solver="race", random_state=0), samples), FROM_FIRST),
    }
    for name, (job, target) in jobs.items():
        took = compare(job, products)
        note = f"{1e6 * took.seconds / COUNT:.0f} µs a sample"
        yield took.row(f"partial_fit of one sample, 16⁴: {name}", "a numpy GEMV (256 × 256) a sample", target, note)


def process(*command: str) -> Callable[[], float]:
    return lambda: seconds_of(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def startup() -> Iterator[Row]:
    python = sys.executable
    jobs = {"import tpca": process(python, "-c", "import tpca")}
    jobs["tpca --help"] = process(os.fspath(Path(python).parent / "tpca"), "--help")
    floor = process(python, "-c", "import numpy, scipy")
    for name, took in interleave(jobs, floor, repeats=9).items():
        yield took.row(name, 'python -c "import numpy, scipy"', START_UP)
