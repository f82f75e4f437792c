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

DIMS, COUNT, START_UP = (16,) * 4, 2000, 1.5
LEAST_SQUARES, RACE = 8.0, 5.0  # over a matrix-vector product
ARITHMETIC = "a GEMV reads the sample once; the sums convert it, add it to two bins, square and digest it"
BEFORE = 20_000  # samples that the race has seen: its rounds are then long, as they are in any long stream
FEW, MANY, GROWTH = 10_000, 1_000_000, 1.2  # samples with a dose before those that are timed


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
        "least squares": (lambda: push(TensorPCA(random_state=0), samples), LEAST_SQUARES, f"; {ARITHMETIC}"),
        f"race after {BEFORE} samples": (racing(samples), RACE, ""),
    }
    for name, (job, target, why) in jobs.items():
        took = compare(job, products)
        note = f"{1e6 * took.seconds / COUNT:.0f} µs a sample{why}"
        yield took.row(f"partial_fit of one sample, 16⁴: {name}", "a numpy GEMV (256 × 256) a sample", target, note)

    yield effect_of_many()


def dosed(before: int) -> Callable[[], None]:
    """An effect of so many samples with a dose, given some more, one after the other."""
    rng = np.random.default_rng(1)
    samples, doses = rng.standard_normal((COUNT, 4, 3, 2)), rng.standard_normal(COUNT)
    model = TensorPCA(target="effect", random_state=0)
    for _ in range(before // COUNT):
        model.partial_fit(samples, doses)

    def more() -> None:
        for i in range(COUNT):
            model.partial_fit(samples[i : i + 1], doses[i : i + 1])

    return more


def effect_of_many() -> Row:
    """Time of a sample does not grow with how many there were."""
    took = compare(dosed(MANY), dosed(FEW))
    note = f"{1e6 * took.seconds / COUNT:.0f} µs a sample"
    return took.row(f"partial_fit of one sample with a dose, after {MANY:,}", f"after {FEW:,}", GROWTH, note)


def process(*command: str) -> Callable[[], float]:
    return lambda: seconds_of(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def startup() -> Iterator[Row]:
    python = sys.executable
    jobs = {"import tpca": process(python, "-c", "import tpca")}
    jobs["tpca --help"] = process(os.fspath(Path(python).parent / "tpca"), "--help")
    floor = process(python, "-c", "import numpy, scipy")
    for name, took in interleave(jobs, floor, repeats=9).items():
        yield took.row(name, 'python -c "import numpy, scipy"', START_UP)
