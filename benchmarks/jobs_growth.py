"""How cost grows: time with the samples, state with the samples and with d."""

import itertools
import statistics
from collections.abc import Iterator

import numpy as np
import suite
from suite import Row, seconds_of

from tpca import RaceSolver, SpikedTensor, open_stream

DIMS, MEMORY, STRENGTH = (16,) * 4, "200kB", 10.0
FIRST = 20_000
COUNTS = tuple(FIRST + more for more in (32_000, 64_000, 128_000))
POOL, BATCH = 2000, 250
REPEATS = 5


def slope(x, y) -> float:
    """Of log y over log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def with_samples() -> Iterator[Row]:
    """Time beyond that of the first samples, which holds the search: it ends when the signal is found."""
    stream = iter(
        SpikedTensor.random(DIMS, STRENGTH, random_state=1).stream(random_state=2, batch_size=BATCH, dtype=np.float32)
    )
    pool = list(itertools.islice(stream, POOL // BATCH))  # read again and again
    took: dict[int, list[float]] = {count: [] for count in (FIRST, *COUNTS)}
    state: dict[int, int] = {}

    def fit(count):
        batches = itertools.islice(itertools.cycle(pool), count // BATCH)
        state[count] = (
            RaceSolver(random_state=1, memory_limit=MEMORY).run(open_stream(batches, items="batches")).state_bytes
        )

    fit(FIRST)
    for _ in range(min(REPEATS, suite.most_repeats)):
        for count in took:
            took[count].append(seconds_of(lambda count=count: fit(count)))
    medians = {count: statistics.median(seconds) for count, seconds in took.items()}
    more = [medians[count] - medians[FIRST] for count in COUNTS]
    note = ", ".join(f"{count}: {seconds:.2f} s" for count, seconds in medians.items())
    name = f"race, order 4, d = 16, time over samples beyond {FIRST}: slope of log over log"
    yield Row(name, "linear in N", slope([count - FIRST for count in COUNTS], more), 1.0, 0.05, note=note)
    most, least = max(state.values()), min(state.values())
    yield Row("race, state over samples: most ÷ least", "flat in N", most / least, 1.0, 0.0, note=f"{most} bytes")


def with_length() -> Iterator[Row]:
    """State in d at a memory of a fixed multiple of d²; a few samples are enough to fill it."""
    for order, lengths in ((4, (12, 16, 24, 32)), (6, (6, 8, 10))):
        state = []
        for d in lengths:
            noise = np.random.default_rng(0).standard_normal((100, *(d,) * order), dtype=np.float32)
            state.append(RaceSolver(random_state=1, memory_limit=8 * 250 * d * d).run(noise).state_bytes)
        used = ", ".join(f"d = {d}: {s}" for d, s in zip(lengths, state, strict=True))
        name = f"race, order {order}, state over d: slope of log over log"
        yield Row(name, "as d² (memory = 250 d² floats)", slope(lengths, state), 2.0, 0.05, note=f"bytes, {used}")


def rows() -> Iterator[Row]:
    yield from with_samples()
    yield from with_length()
