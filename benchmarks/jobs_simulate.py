"""The simulator, against drawing its random numbers; synthetic samples, against drawing their normals."""

import statistics
from collections.abc import Iterator

import numpy as np
from suite import Row, compare, interleave, seconds_of

from research.simulate import advance
from tpca import SpikedTensor
from tpca.threads import compiled

STEPS = 250_000
NS_PER_STEP = 80e-9
LENGTHS = (10, 100, 1000, 10_000, 100_000)
FLAT = 1.1


def draw(count, size, rng):
    """The random numbers of so many steps: three normals and a chi-square variable each."""
    total = 0.0
    for _ in range(count):
        total += rng.standard_normal() + rng.standard_normal() + rng.standard_normal() + rng.chisquare(size)
    return total


def simulator() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    start, signal = np.array([[1e-3, 1.0, 0.0]]), np.array([0.1])

    def steps(d):
        return seconds_of(lambda: advance(start, signal, 1e-6, STEPS, d * d, rng))

    jobs = {str(d): (lambda d=d: steps(d)) for d in LENGTHS}
    middle = float(LENGTHS[2] ** 2 - 3)
    took = interleave(jobs, lambda: seconds_of(lambda: compiled(draw)(STEPS, middle, rng)), repeats=25)
    slowest = max(LENGTHS, key=lambda d: took[str(d)].seconds)
    worst = took[str(slowest)]
    # An absolute figure has no reference that the rest of the machine slows down as well: the quickest repeat counts.
    each = ", ".join(f"d = {d}: {took[str(d)].least / STEPS * 1e9:.0f} ns" for d in LENGTHS)
    seconds = max(took[str(d)].least for d in LENGTHS) / STEPS
    floor = worst.reference_seconds / STEPS
    yield Row(
        f"simulator, a step, the slowest of d = {LENGTHS[0]} … {LENGTHS[-1]}",
        "80 ns",
        seconds / NS_PER_STEP,
        1.0,
        seconds=seconds,
        reference_seconds=NS_PER_STEP,
        note=f"{each}; drawing the numbers of a step alone: {floor * 1e9:.0f} ns",
    )
    # Named without the length, which is another one in every run.
    yield worst.row("simulator, a step, the slowest length", "drawing its random numbers", 2.0)
    medians = [statistics.median(took[str(d)].ratios) for d in LENGTHS]
    yield Row(
        "simulator: slowest ÷ fastest length",
        f"flat from d = {LENGTHS[0]} to {LENGTHS[-1]}",
        max(medians) / min(medians),
        FLAT,
    )


def synthetic() -> Iterator[Row]:
    for dtype in (np.float32, np.float64):
        samples = iter(
            SpikedTensor.random((16,) * 4, 1.0, random_state=1).stream(random_state=2, batch_size=64, dtype=dtype)
        )
        rng = np.random.default_rng(0)

        def floor(rng=rng, dtype=dtype):
            return rng.standard_normal((64, 16, 16, 16, 16), dtype=dtype)

        took = compare(lambda samples=samples: next(samples), floor, repeats=15)
        yield took.row(f"synthetic stream, order 4, d = 16, {dtype.__name__}", "drawing the normals", 1.2)


def rows() -> Iterator[Row]:
    yield from simulator()
    yield from synthetic()
