"""The race, against one read of every sample: from chunks in memory, and from files.

*Passes* are the part of a fit that reads and reduces samples: the time inside ``engine.reduce`` (waiting for the
stream, its checks, adding the samples up) without the contraction of the finished sums with the strategies' replicas.
The *whole fit* is ``RaceSolver.run``, from opening the stream to the estimate.  Samples are pure noise, so that nothing
is found and all strategies run to the end: with a signal they stop early, and the rest is cheaper.
"""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
from suite import Measured, Row, interleave, seconds_of

from tpca import RaceSolver, open_stream
from tpca.engines import open_engine
from tpca.tensors import Gradients

SAMPLES, MANY = 4000, 16_000
POOL = 250  # samples that are really held: a gigabyte, more than any cache
BATCH = 25
SHIFT = 4112  # entries, in whole cache lines; no multiple of any mode's stride
# The least memory that all strategies (flow, symmetric, symmetric pairs) run in.
PROBLEMS = [((32,) * 4, "1.1MB"), ((10,) * 6, "280kB")]
PASSES, FILES = 1.2, {"npy": 1.2, "Zarr": 1.3}
WHOLE = {(4, SAMPLES): 2.9, (4, MANY): 1.6}  # by order and samples
START = "between rounds the replicas are looked at 17·ln N − 45 times, however few samples there are"
SHORT_MODES = "blocks of ten entries: the look for NaN, and calls of NumPy, weigh more"
REPEATS, FILE_REPEATS = 3, 2


class Timed:
    """An engine that notes the seconds it is at work."""

    def __init__(self, engine):
        self._engine, self.seconds = engine, 0.0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def reduce(self, *asked):
        began = time.perf_counter()
        try:
            return self._engine.reduce(*asked)
        finally:
            self.seconds += time.perf_counter() - began


@contextmanager
def contractions() -> Iterator[list[float]]:
    """Seconds of every contraction of a sum, of a group or of all samples, as they happen."""
    took: list[float] = []

    def timed(usual):
        def call(self):
            began = time.perf_counter()
            try:
                usual(self)
            finally:
                took.append(time.perf_counter() - began)

        return call

    with (
        mock.patch.object(Gradients, "close", timed(Gradients.close)),
        mock.patch.object(Gradients, "finish", timed(Gradients.finish)),
    ):
        yield took


class Race:
    """Fits of one source, and the share of each that the passes took."""

    def __init__(self, open_source, memory):
        self._open, self._memory = open_source, memory
        self.shares: list[float] = []

    def whole(self) -> float:
        """Seconds of one fit."""
        engine, found = Timed(open_engine(open_stream(self._open(), items="batches"))), []
        with contractions() as contracted:
            took = seconds_of(lambda: found.append(RaceSolver(random_state=1, memory_limit=self._memory).run(engine)))
        assert not found[0].found, "the strategies stopped early: this was no pure noise"
        self.shares.append((engine.seconds - sum(contracted)) / took)
        return took


def measure(race: Race, floor, repeats: int = REPEATS) -> tuple[Measured, Measured]:
    """Passes and whole fit, both from the same runs against the same floors."""
    whole = interleave({"whole": race.whole}, lambda: seconds_of(floor), repeats)["whole"]
    shares = race.shares[-len(whole.ratios) :]  # without the first run, which only warms up
    share = statistics.median(shares)
    ratios = [ratio * own for ratio, own in zip(whole.ratios, shares, strict=True)]
    passes = Measured(ratios, whole.seconds * share, whole.reference_seconds, whole.least * share)
    return passes, whole


def windows(dims, samples: int) -> list[np.ndarray]:
    """Batches of many samples of noise in a gigabyte: windows into an array of numbers and into its negative, in turns.

    The windows are shifted from turn to turn, so that they are other tensors; what a shift does not change (constant
    vectors) would add up all the same, but for the change of sign.
    """
    entries, half = math.prod(dims), POOL // 2
    turns = samples // half
    flat = np.random.default_rng(1).standard_normal(half * entries + SHIFT * turns, dtype=np.float32)
    signed = (flat, -flat)
    places = [
        (turn % 2, SHIFT * (turn // 2) + first * entries) for turn in range(turns) for first in range(0, half, BATCH)
    ]
    return [signed[sign][start : start + BATCH * entries].reshape(BATCH, *dims) for sign, start in places]


def in_memory() -> Iterator[Row]:
    for dims, memory, samples in (*((*problem, SAMPLES) for problem in PROBLEMS), (*PROBLEMS[0], MANY)):
        batches = windows(dims, samples)
        ones = np.ones(BATCH, np.float32)

        def read(batches=batches, ones=ones):
            for batch in batches:
                ones @ batch.reshape(BATCH, -1)

        passes, whole = measure(Race(lambda batches=batches: iter(batches), memory), read)
        what = f"order {len(dims)}, d = {dims[0]}, {samples} samples in memory, all strategies ({memory})"
        floor = "one BLAS read of every sample (ones @ X)"
        note = f"{POOL} samples' worth of numbers, read through shifted windows of either sign in batches of {BATCH}"
        if len(dims) > 4:
            note += f"; {SHORT_MODES}"
        yield passes.row(f"race passes: {what}", floor, PASSES, note)
        if (len(dims), samples) in WHOLE:
            yield whole.row(f"race whole fit: {what}", floor, WHOLE[len(dims), samples], START)


def signed_pool(dims) -> tuple[np.ndarray, np.ndarray]:
    """Noise and its negative: read in turns they add up to nothing, as fresh noise does on average."""
    pool = np.random.default_rng(2).standard_normal((POOL, *dims), dtype=np.float32)
    return pool, -pool


def npy_folder(folder: Path, dims) -> Path:
    """Files of 250 samples, two of them written, the others links to these: 4000 samples in 2 GB of disk."""
    folder.mkdir()
    for turn in range(SAMPLES // POOL):
        if turn < 2:
            np.save(folder / f"{turn:03d}.npy", signed_pool(dims)[turn])
        else:
            os.link(folder / f"{turn % 2:03d}.npy", folder / f"{turn:03d}.npy")
    return folder


def zarr_store(folder: Path, dims) -> Path:
    """Chunks of 10 samples, the first 500 samples written, the other chunks links to these; not compressed."""
    import zarr

    chunk = 10
    shape, chunks = (SAMPLES, *dims), (chunk, *dims)
    array = zarr.create_array(str(folder), shape=shape, chunks=chunks, dtype="float32", compressors=None)
    for turn, pool in enumerate(signed_pool(dims)):
        array[turn * POOL : (turn + 1) * POOL] = pool
    zeros = Path(*["0"] * len(dims))
    for number in range(2 * POOL // chunk, SAMPLES // chunk):
        place = folder / "c" / str(number) / zeros
        place.parent.mkdir(parents=True)
        os.link(folder / "c" / str(number % (2 * POOL // chunk)) / zeros, place)
    return folder


def read_npy(folder: Path) -> None:
    """Every file with NumPy, some samples at a time."""
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            for _ in range(shape[0] // BATCH):
                np.fromfile(file, dtype, BATCH * math.prod(shape[1:]))


def read_zarr(folder: Path) -> None:
    import zarr

    array = zarr.open(str(folder), mode="r")
    step = array.chunks[0]
    for first in range(0, array.shape[0], step):
        array[first : first + step]


def from_files() -> Iterator[Row]:
    dims, memory = PROBLEMS[0]
    with tempfile.TemporaryDirectory() as scratch:
        for kind, make, read in (("npy", npy_folder, read_npy), ("Zarr", zarr_store, read_zarr)):
            place = make(Path(scratch) / kind.lower(), dims)
            race = Race(lambda place=place: str(place), memory)
            passes, whole = measure(race, lambda read=read, place=place: read(place), FILE_REPEATS)
            what = f"order 4, d = 32, {SAMPLES} samples from {kind}, all strategies ({memory})"
            note = f"files in the page cache; {2 * POOL} samples written, the others are links to them"
            yield passes.row(f"race passes: {what}", f"reading the {kind} file alone", PASSES, note)
            yield whole.row(f"race whole fit: {what}", f"reading the {kind} file alone", FILES[kind], START)


def rows() -> Iterator[Row]:
    yield from in_memory()
    yield from from_files()
