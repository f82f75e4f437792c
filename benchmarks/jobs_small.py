"""What a user tries first: ``TensorPCA().fit`` and a race on small arrays, against the mean and a peer's fit of it.

Peers (see jobs_peers.py) run with one BLAS thread and with one for every core; a row compares with the quickest of the
four, and its note has all of them.  Ours run as a user gets them: as many threads of BLAS as there are cores, to use or
not; the note has them with one thread, too.  Peers do not test whether there is a signal; the rows on pure noise say
what the test costs that ours do.
"""

import functools
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import suite
from jobs_peers import PEERS, SAME, unit
from suite import Row, interleave, seconds_of
from threadpoolctl import threadpool_limits

from tpca import RaceSolver, SpikedTensor, TensorPCA
from tpca.threads import cores

FIT, NOISE, RACE = 1.0, 3.0, 5.0
FLOATS = 30  # times d²: the memory of the race
SECONDS = 2.0  # that the repeats of a job and of its reference may take; of milliseconds there are many
MIN_REPEATS, MAX_REPEATS = 3, 101


@dataclass(frozen=True)
class Size:
    """Samples of a signal in white noise, in memory."""

    samples: int
    dims: tuple[int, ...]
    strength: float

    @property
    def name(self) -> str:
        """As in the table."""
        power = "²³⁴⁵⁶"[len(self.dims) - 2]
        signal = f"λ = {self.strength:g}" if self.strength else "pure noise"
        return f"{self.samples} × {self.dims[0]}{power}, {signal}"

    @property
    def memory(self) -> int:
        """Bytes that the race gets: 30 d² floats of eight bytes."""
        return 8 * FLOATS * self.dims[0] ** 2

    def draw(self) -> tuple[SpikedTensor, np.ndarray]:
        """The truth, and samples in float32."""
        truth = SpikedTensor.random(self.dims, self.strength or 1.0, random_state=1)
        array = np.random.default_rng(2).standard_normal((self.samples, *self.dims), dtype=np.float32)
        if self.strength:
            array += (self.strength * functools.reduce(np.multiply.outer, truth.vectors)).astype(np.float32)
        return truth, array


SIGNALS = [
    Size(300, (8,) * 3, 1.0),
    Size(1000, (20,) * 3, 0.5),
    Size(600, (10,) * 4, 1.0),
    Size(400, (64,) * 3, 2.0),
    Size(200, (32,) * 4, 3.0),
]
QUIET = [Size(size.samples, size.dims, 0.0) for size in SIGNALS[:3]]


def threaded(fit: Callable[[np.ndarray], object], threads: int, array: np.ndarray) -> float:
    """Seconds of a fit with so many threads of BLAS; setting them is not counted."""
    with threadpool_limits(threads, user_api="blas"):
        return seconds_of(lambda: fit(array))


def repeats_within(seconds: float) -> int:
    """Repeats of something that takes so many seconds."""
    return max(MIN_REPEATS, min(MAX_REPEATS, int(SECONDS / seconds)))


def peer_seconds(array: np.ndarray) -> dict[tuple[str, int], float]:
    """Medians of both peers, with one thread and with all."""
    found = {}
    for name, fit in PEERS.items():
        for threads in sorted({1, cores()}):
            first = threaded(fit, threads, array)  # warms up, too
            count = min(suite.most_repeats, max(3, repeats_within(first) // 4))
            found[name, threads] = statistics.median(threaded(fit, threads, array) for _ in range(count))
    return found


def in_words(threads: int) -> str:
    return f"{threads} thread" + ("s" if threads != 1 else "")


def milliseconds(peers: dict[tuple[str, int], float]) -> str:
    return ", ".join(f"{name}, {in_words(threads)} {1e3 * took:.1f} ms" for (name, threads), took in peers.items())


class Contest:
    """Samples, both peers' seconds on them with one thread and with all, and the best of their overlaps."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.truth, self.array = size.draw()
        peers = peer_seconds(self.array)
        self._peer, self._threads = min(peers, key=peers.__getitem__)
        self._seconds = peers[self._peer, self._threads]
        self.reference = f"{self._peer}, {in_words(self._threads)}: the quickest of {len(peers)}"
        self.note = milliseconds(peers)
        self.best = max(self.overlap(fit(self.array)) for fit in PEERS.values())

    def overlap(self, vectors: list[np.ndarray]) -> float:
        """Mean overlap with the planted vectors."""
        return float(np.mean(self.truth.overlaps(unit(vectors))))

    def row(self, ours: Callable[[np.ndarray], object], job: str, target: float, note: str, also: bool = True) -> Row:
        """Our seconds with all threads over those of the quickest peer; the note has ours with one thread, too."""
        count = repeats_within(threaded(ours, cores(), self.array) + self._seconds)
        peer = PEERS[self._peer]
        jobs = {str(threads): functools.partial(threaded, ours, threads, self.array) for threads in {1, cores()}}
        took = interleave(jobs, lambda: threaded(peer, self._threads, self.array), count)
        own = ", ".join(f"{in_words(int(threads))} {1e3 * one.seconds:.1f} ms" for threads, one in took.items())
        return took[str(cores())].row(job, self.reference, target, f"{own}; {note}", also)


def default_fit(array: np.ndarray) -> TensorPCA:
    return TensorPCA(random_state=1).fit(array)


def signal_rows(size: Size) -> Iterator[Row]:
    """The default fit, which must be as close to the truth as the peers' are, and a race in little memory."""
    contest = Contest(size)
    fitted = default_fit(contest.array)
    own = contest.overlap([v[0] for v in fitted.components_])
    note = f"{contest.note}; {fitted.verdict_}, overlap {own:.4f}, best peer {contest.best:.4f}"
    equal = fitted.found_ and own >= contest.best - SAME
    yield contest.row(default_fit, f"TensorPCA().fit, {size.name}", FIT, note, equal)
    solver = RaceSolver(random_state=1, memory_limit=size.memory)
    raced = solver.run(contest.array)
    note = f"{raced.verdict}, overlap {contest.overlap(raced.vectors):.4f}; {size.memory} bytes"
    yield contest.row(solver.run, f"race whole fit, {size.name}, {FLOATS}·d² floats", RACE, note)


def noise_row(size: Size) -> Row:
    """The default fit where there is nothing to find."""
    contest = Contest(size)
    note = f"{contest.note}; {default_fit(contest.array).verdict_}"
    return contest.row(default_fit, f"TensorPCA().fit, {size.name}", NOISE, note)


def rows() -> Iterator[Row]:
    warnings.simplefilter("ignore")  # theirs
    for size in SIGNALS:
        yield from signal_rows(size)
    for size in QUIET:
        yield noise_row(size)
