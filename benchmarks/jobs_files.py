"""Least squares from files and on a cluster; and the race on workers, from a stored run.

Least squares reads every sample once.  *The pass* is the time inside ``engine.reduce``, over one read of the same store
by the library that wrote it.  Bytes to the client are those that the process of client and scheduler hands to its
sockets: what the scheduler sends to the client, and the questions.
"""

import json
import math
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dask_scaling import TARGETS, bytes_sent, count_bytes, workers
from jobs_race import SAMPLES, Timed, npy_folder, read_npy, read_zarr, zarr_store
from suite import RESULTS, Row, interleave, seconds_of

from tpca import open_stream
from tpca.data import Stream
from tpca.engines import DaskEngine, open_engine
from tpca.solvers import LeastSquares

DIMS, READS, FLIPS, REPEATS = (16,) * 4, 1.0, 99, 3
PASS = {"npy": 5.0, "Zarr": None}  # over one read
ARITHMETIC = (
    "NumPy converts every number, adds it to two bins in double precision, squares and digests it: each of these takes "
    "about as long as the copy from the system's cache that reading is here"
)
TWO_WORKERS = 0.6
HALF_A_SECOND = (
    "a pass of under a second, of which starting, merging and sending 64 sums are a part; without a cluster the other "
    "core reads"
)
TRAFFIC = 0.04


class Counted(Timed):
    """Notes the samples that are asked for, too."""

    read = 0

    def reduce(self, blank, n):
        self.read += n
        return super().reduce(blank, n)


def stream(place: Path) -> Stream:
    return open_stream(str(place), items="batches")


def fit(engine: Timed) -> float:
    """Seconds of the pass of one fit."""
    LeastSquares(random_state=0, n_resamples=FLIPS).run(engine)
    return engine.seconds


def least_squares() -> Iterator[Row]:
    what = f"least squares, {SAMPLES} × {DIMS[0]}⁴"
    with tempfile.TemporaryDirectory() as scratch:
        for kind, make, read in (("npy", npy_folder, read_npy), ("Zarr", zarr_store, read_zarr)):
            place = make(Path(scratch) / kind.lower(), DIMS)
            counted = Counted(open_engine(stream(place)))
            fit(counted)
            yield Row(f"{what} from {kind}: samples read", "samples stored", counted.read / SAMPLES, READS)
            jobs = {"pass": lambda place=place: fit(Timed(open_engine(stream(place))))}
            floor = interleave(jobs, lambda read=read, place=place: seconds_of(lambda: read(place)), REPEATS)
            yield floor["pass"].row(f"{what} from {kind}: the pass", f"reading the {kind} once", PASS[kind], ARITHMETIC)
        with workers(2) as client:
            jobs = {"pass": lambda: fit(Timed(DaskEngine(client, stream(place))))}
            local = interleave(jobs, lambda: fit(Timed(open_engine(stream(place)))), REPEATS)
            count_bytes()
            fit(Timed(DaskEngine(client, stream(place))))
            sent = bytes_sent()
        two = f"{what} from Zarr: the same on two Dask workers"
        yield local["pass"].row(two, "without a cluster", TWO_WORKERS, HALF_A_SECOND)
        share = sent / (4 * SAMPLES * math.prod(DIMS))
        yield Row(f"{what} on two Dask workers: bytes to the client", "bytes of the samples", share, TRAFFIC)


def race_on_workers() -> Row:
    """``python benchmarks/dask_scaling.py`` alone takes longer than ``make bench`` may: its stored run."""
    stored = json.loads((RESULTS / "dask_scaling.json").read_text())
    one, two = (stored["seconds"][name] for name in ("1 worker", "2 workers"))
    ratios = [b / a for a, b in zip(one, two, strict=True)]
    size = 4 * stored["samples"] * math.prod(stored["dims"]) / 1e9
    revision = stored.get("revision", "unknown")
    return Row(
        f"race, rounds over a compressed Zarr store of {size:.1f} GB, two Dask workers",
        "one worker",
        statistics.median(two) / statistics.median(one),
        round(1 / TARGETS["2 workers / 1 worker"], 2),
        (min(ratios), max(ratios)),
        note=f"stored run of `python benchmarks/dask_scaling.py`, revision {revision}; rounds wait for the slower one",
    )


def rows() -> Iterator[Row]:
    yield from least_squares()
    yield race_on_workers()
