"""``make bench``: ratios against the machine's own limits, measured side by side in one run."""

import json
import platform
import statistics
import time
from pathlib import Path

import numba
import numpy as np

from tpca import RaceSolver, SpikedTensor
from tpca.blocks import Partition
from tpca.simulate import advance
from tpca.solvers.step import ascent_step

REPEATS = 5


def seconds(job):
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def ratio(job, reference):
    """Median of job/reference over interleaved repeats: noise of a shared machine hits both alike."""
    job(), reference()
    return statistics.median(seconds(job) / seconds(reference) for _ in range(REPEATS))


def race_on_memory():
    truth = SpikedTensor.random((32,) * 4, 1.0, seed=1)
    samples = next(iter(truth.stream(seed=2, batch_size=200, dtype=np.float32)))
    flat = samples.reshape(len(samples), -1)
    ones = np.ones(len(samples), np.float32)
    solver = RaceSolver(seed=1, memory=30 * 8 * 32**2)
    return ratio(lambda: solver.run(samples), lambda: ones @ flat)


def synthetic_stream():
    samples = SpikedTensor.random((16,) * 4, 1.0, seed=1).stream(seed=2, batch_size=64)
    generator = np.random.default_rng(0)
    return ratio(lambda: next(iter(samples)), lambda: generator.standard_normal((64, 16, 16, 16, 16)))


def paper_step():
    rng = np.random.default_rng(0)
    shape = Partition.pairs((32,) * 4).shapes[0]
    blocks, gradients = rng.standard_normal((2, 16, *shape))
    return ratio(lambda: ascent_step(blocks, gradients, 0.1), lambda: blocks + gradients)


@numba.njit
def draw_only(count, size, rng):
    total = 0.0
    for _ in range(count):
        total += rng.standard_normal() + rng.standard_normal() + rng.standard_normal() + rng.chisquare(size)
    return total


def reduced_chain():
    """One step against its four random numbers, which no exact simulation can do without."""
    rng, steps, size = np.random.default_rng(0), 2_000_000, 10**8
    start = np.array([[1e-3, 1.0, 0.0]])

    def run():
        return advance(start, np.array([0.1]), 1e-6, steps, size, rng)

    took = min(seconds(run) for _ in range(REPEATS))
    print(f"{'':4s}reduced chain, one core: {steps / took / 1e6:.1f} million steps a second")
    return ratio(run, lambda: draw_only(steps, size - 3.0, rng))


JOBS = [
    ("race, order 4 d 32, 200 samples in memory", "one BLAS read of every sample", race_on_memory),
    ("synthetic stream, order 4 d 16", "drawing the normals", synthetic_stream),
    ("reduced chain, 2 million steps, d = 10,000", "drawing its random numbers", reduced_chain),
    ("ascent step, 16 replicas of 32 x 32", "one addition of the same arrays", paper_step),
]


def main():
    rows = []
    for job, reference, measure in JOBS:
        rows.append({"job": job, "reference": reference, "ratio": measure()})
        print(f"{job:45s} / {reference:35s} {rows[-1]['ratio']:8.2f}")
    machine = {"python": platform.python_version(), "processor": platform.machine(), "numpy": np.__version__}
    out = Path(__file__).parent / "results" / "latest.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
