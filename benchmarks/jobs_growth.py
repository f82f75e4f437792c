"""How cost grows: time with the samples, state with the samples and with d."""

import math
import statistics
from collections.abc import Iterator

import numpy as np
from suite import Row, seconds_of

from tpca import RaceSolver

DIMS, MEMORY = (16,) * 4, "200kB"
COUNTS = (8000, 16_000, 32_000, 64_000)
POOL, BATCH = 2000, 250
REPEATS = 5


def batches(count: int, flat: np.ndarray):
    """Samples from shifted windows into a pool of noise (see jobs_race)."""
    entries = math.prod(DIMS)
    for first in range(0, count, BATCH):
        start = (first % POOL) * entries + 64 * (first // POOL)
        yield flat[start : start + BATCH * entries].reshape(BATCH, *DIMS)


def slope(x, y) -> float:
    """Of log y over log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def with_samples() -> Iterator[Row]:
    flat = np.random.default_rng(0).standard_normal(
        POOL * math.prod(DIMS) + 64 * (max(COUNTS) // POOL), dtype=np.float32
    )
    took: dict[int, list[float]] = {count: [] for count in COUNTS}
    state: dict[int, int] = {}

    def fit(count):
        state[count] = RaceSolver(seed=1, memory=MEMORY).run(batches(count, flat)).state_bytes

    fit(COUNTS[0])
    for _ in range(REPEATS):
        for count in COUNTS:
            took[count].append(seconds_of(lambda count=count: fit(count)))
    medians = [statistics.median(took[count]) for count in COUNTS]
    note = ", ".join(f"{count}: {seconds:.2f} s" for count, seconds in zip(COUNTS, medians, strict=True))
    yield Row(
        "race, time over samples: slope of log over log", "linear in N", slope(COUNTS, medians), 1.0, 0.05, note=note
    )
    most, least = max(state.values()), min(state.values())
    yield Row("race, state over samples: most ÷ least", "flat in N", most / least, 1.0, 0.0, note=f"{most} bytes")


def with_length() -> Iterator[Row]:
    """State in d at a memory of a fixed multiple of d²; a few samples are enough to fill it."""
    for order, lengths in ((4, (12, 16, 24, 32)), (6, (6, 8, 10))):
        state = []
        for d in lengths:
            noise = np.random.default_rng(0).standard_normal((100, *(d,) * order), dtype=np.float32)
            state.append(RaceSolver(seed=1, memory=8 * 250 * d * d).run(noise).state_bytes)
        used = ", ".join(f"d = {d}: {s}" for d, s in zip(lengths, state, strict=True))
        name = f"race, order {order}, state over d: slope of log over log"
        yield Row(name, "as d² (memory = 250 d² floats)", slope(lengths, state), 2.0, 0.05, note=f"bytes, {used}")


def rows() -> Iterator[Row]:
    yield from with_samples()
    yield from with_length()
