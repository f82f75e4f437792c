"""What is held beside the samples stays near what is said of it, also where one mode is short."""

import json

import numpy as np
import pytest

from amounts import Traced
from command import run
from research.race_tables import SHAPES, TIMES, peak_of_a_race
from tpca import RaceSolver, TensorPCA, open_stream
from tpca.data import stored as slabs
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.race.strategies import least_bytes
from tpca.solvers.rank_one import rank_ones

OBJECTS = 160_000  # bytes beyond the limit: Python's own objects; 142 kB were seen, of twelve modes


@pytest.mark.parametrize("solver", [RaceSolver, LeastSquares])
@pytest.mark.parametrize("dims", [(2, 160, 160), (160, 160, 2), (2, 1000, 3)])
def test_a_fit_holds_about_what_it_says(solver, dims):
    memory = {RaceSolver: 150_000, LeastSquares: 24_000_000}[solver]
    rng = np.random.default_rng(0)
    solver(max_samples=5).run(rng.standard_normal((5, 3, 4)))  # what is loaded at first use
    samples = (rng.standard_normal((1, *dims), dtype=np.float32) for _ in range(12))  # none is held by the test
    with Traced() as traced:
        found = solver(memory_limit=memory, max_samples=12).run(samples)
    sample = 4 * int(np.prod(dims))
    assert found.state_bytes <= memory
    # Beside state and buffer: the next sample, and what a contraction makes of a sum of samples, in double precision.
    held = memory if solver is LeastSquares else 2 * found.state_bytes
    assert traced.peak <= held + found.buffer_bytes + 6 * sample + 2**17


LIMITS = [  # samples, memory, and what is asked of them
    ((400, 32, 20, 30), 20_000_000, {}),
    pytest.param((2000, 32, 20, 30), 100_000_000, {}, marks=pytest.mark.slow),
    pytest.param((2000, 32, 20, 30), 20_000_000, {"n_components": 3}, marks=pytest.mark.slow),
    pytest.param((2000, 32, 20, 30), 200_000_000, {"target": "effect"}, marks=pytest.mark.slow),
    pytest.param((400, 64, 64, 64), 200_000_000, {}, marks=pytest.mark.slow),
    pytest.param((3000, 32, 32, 32), 2_000_000, {"solver": "race"}, marks=pytest.mark.slow),
    pytest.param((2_000_000, 4, 5), 10_000_000, {}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("shape", "limit", "options"), LIMITS)
def test_a_fit_of_samples_in_memory_keeps_its_limit(shape, limit, options):
    """Of effects five labels.  What is counted, and what is really allocated, beside Python's own objects."""
    rng = np.random.default_rng(0)
    samples = rng.standard_normal(shape, dtype=np.float32)
    labels = None
    if "target" in options:
        labels = np.array(list("abcde"))[rng.integers(0, 5, len(samples))]
    if "solver" not in options:
        options = {**options, "n_resamples": 99}
    TensorPCA(random_state=0, **options).fit(samples[:40], None if labels is None else labels[:40])  # imports
    with Traced() as traced:
        pca = TensorPCA(random_state=0, memory_limit=limit, **options).fit(samples, labels)
    assert pca.result_.n_samples == len(samples)
    assert pca.result_.state_bytes <= limit
    assert traced.peak <= limit + 1_000_000


@pytest.mark.slow
def test_a_large_mean_takes_less_than_300_mb_beside_the_samples():
    samples = np.random.default_rng(0).standard_normal((200, 64, 64, 64), dtype=np.float32)
    TensorPCA(random_state=0, n_resamples=19).fit(samples[:20])  # imports
    with Traced() as traced:
        TensorPCA(random_state=0).fit(samples)
    assert traced.peak <= 300_000_000


@pytest.mark.parametrize("many", [200_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_what_is_held_of_small_samples_that_are_handed_in_does_not_grow(many):
    samples = np.random.default_rng(0).standard_normal((20_000, 4, 3))
    pca = TensorPCA(random_state=0, n_resamples=19)
    with Traced() as traced:
        for _ in range(4):
            pca.partial_fit(samples)
        few = traced.held
        for _ in range(many // len(samples) - 4):
            pca.partial_fit(samples)
        assert traced.held <= few + 1_000_000
    assert pca.n_samples_seen_ == many


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize(("dims", "n"), SHAPES)
@pytest.mark.parametrize("times", TIMES)
def test_a_race_holds_no_more_than_its_limit_beside_the_samples(dims, n, components, times):
    """The most that was allocated while no sample is in memory: answers, state and working copies.

    Python's own objects come on top, the record of every round among them: they do not grow with the samples.
    """
    limit = int(times * components * least_bytes(dims))
    RaceSolver(max_samples=5).run(np.random.default_rng(0).standard_normal((5, 3, 4)))  # what is loaded at first use
    # Other tests may have left a cluster in this process, whose threads allocate, too: the least of a few tries.
    for _ in range(4):
        peak, state = peak_of_a_race(dims, n, components, limit)
        assert state <= limit
        if peak <= limit + OBJECTS:
            return
    pytest.fail(f"{peak} bytes at a limit of {limit}")


def test_a_long_mode_is_found_from_the_short_side():
    rng = np.random.default_rng(0)
    u, v = (w / np.linalg.norm(w) for w in map(rng.standard_normal, (3, 4000)))
    block = np.outer(u, v) + 1e-3 * rng.standard_normal((3, 4000))
    for matrix, expected in ((block, (u, v)), (block.T, (v, u))):
        stacked = np.stack([matrix, -matrix])
        with Traced() as traced:
            fitted, _ = rank_ones(stacked)
        assert traced.peak < 8 * stacked.nbytes  # 4000² entries are 300 times as much
        for found, true in zip(fitted, expected, strict=True):
            assert (np.abs(found @ true) > 0.99).all()


@pytest.mark.parametrize("dims", [(2, 200, 300), (300, 2, 200), (3, 2, 500), (2, 2, 2, 800), (50, 60, 70)])
def test_slabs_of_one_piece_are_as_small_as_asked(dims):
    """Whatever mode is short, and every entry is in exactly one slab."""
    total = int(np.prod(dims))
    for entries in (total // 2, total // 10, total // max(dims)):
        mode, parts = slabs.cut(dims, None, entries)
        assert [place for part in parts for place in range(part.start, part.stop)] == list(range(dims[mode]))
        assert max(part.stop - part.start for part in parts) * total // dims[mode] <= entries
    assert slabs.cut(dims, None, 1)[0] == dims.index(max(dims))  # where none is small enough, the smallest there is


def test_slabs_with_a_short_first_mode_answer_the_same(tmp_path, monkeypatch):
    samples = np.random.default_rng(0).standard_normal((60, 2, 12, 10)) + 0.5
    np.save(tmp_path / "x.npy", samples)
    whole = RaceSolver(random_state=1, memory_limit=50_000).run(open_stream(tmp_path / "x.npy"))
    monkeypatch.setattr("tpca.data.stored.SLAB_ENTRIES", 60)
    stream = open_stream(tmp_path / "x.npy")
    (batch, *_) = list(stream.batches())
    assert batch.nbytes <= 3 * 8 * 60
    parts = RaceSolver(random_state=1, memory_limit=50_000).run(stream)
    assert parts.strength == pytest.approx(whole.strength, rel=1e-3)
    assert parts.buffer_bytes < whole.buffer_bytes


def test_info_says_what_reading_takes(tmp_path):
    one_chunk = str(tmp_path / "x.zarr")
    pytest.importorskip("zarr").create_array(one_chunk, data=np.ones((64, 5, 6), "f4"), chunks=(64, 5, 6))
    told = json.loads(run("info", one_chunk, "--json", cwd=tmp_path).stdout)
    assert told["chunk_bytes"] == 64 * 5 * 6 * 4
    assert told["reading_bytes"] == 2 * told["chunk_bytes"]  # a chunk, and the batch that is made of it
    words = run("info", one_chunk, cwd=tmp_path).stdout
    assert "chunks of 64 × 5 × 6, 7.68 kB each; reading them takes up to 15.4 kB" in words
