"""Fits through slabs: samples too large to be held."""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from stream_suite import hdf5, npy, take, zarr_array
from tpca import PaperSolver, RaceSolver, SpikedTensor, TensorPCA, open_stream
from tpca.errors import SampleError
from tpca.solvers import LeastSquares
from tpca.tensors import SlabBatch

SCRIPT = Path(__file__).parents[1] / "memory_of_fit.py"


def in_group(data, work, chunks):
    return hdf5(data, work, "::/group/x", chunks=chunks)


@pytest.fixture
def small_slabs(monkeypatch):
    def cut(entries):
        monkeypatch.setattr("tpca.data.stored.SLAB_ENTRIES", entries)

    return cut


@pytest.mark.parametrize(
    ("dims", "options"),
    [
        ((6, 7, 8), {}),
        ((6,) * 4, {"memory_limit": 9_000}),
        ((4,) * 5, {"memory_limit": 10_000, "max_passes": 3}),
        ((6, 6, 6), {"n_components": 2}),
    ],
)
@pytest.mark.parametrize(
    # That every format is read in slabs, tests/streams sees; one fit each of the others is enough here.
    "kind",
    [zarr_array, pytest.param(npy, marks=pytest.mark.slow), pytest.param(in_group, marks=pytest.mark.slow)],
)
def test_a_fit_through_slabs_is_the_fit_through_whole_samples(kind, dims, options, work, small_slabs):
    samples = (
        take(SpikedTensor.random(dims, 1.5, random_state=2), 120)
        + SpikedTensor.random(dims, 4.0, random_state=3).signal()
    )
    chunks = (5, dims[0], 2, *dims[2:])
    path = npy(samples, work) if kind is npy else kind(samples, work, chunks=chunks)
    whole = RaceSolver(random_state=4, **options).run(path)
    small_slabs(30)
    stream = open_stream(path)
    assert all(isinstance(batch, SlabBatch) and len(batch.parts) > 1 for batch in stream.batches())
    slabs = RaceSolver(random_state=4, **options).run(stream)
    assert whole.found
    assert (slabs.stop_reason, slabs.n_samples, slabs.n_passes) == (whole.stop_reason, whole.n_samples, whole.n_passes)
    assert slabs.state_bytes == whole.state_bytes
    assert slabs.buffer_bytes < whole.buffer_bytes
    for one, other in zip(whole.components, slabs.components, strict=True):
        assert one.strength == pytest.approx(other.strength, rel=1e-6)
        for v, w in zip(one.vectors, other.vectors, strict=True):
            np.testing.assert_allclose(v, w, atol=1e-6)


@pytest.mark.parametrize("policy", ["omit", "zero"])
def test_missing_entries_are_treated_as_in_whole_samples(policy, work, small_slabs):
    samples = take(SpikedTensor.random((5, 6, 7), 3.0), 90)
    samples[3, 0, 1] = np.nan
    samples[10, 4, 5, 6] = np.inf
    samples[11] = np.nan
    path = zarr_array(samples, work, chunks=(4, 5, 2, 7))
    solver = RaceSolver() if policy == "omit" else LeastSquares(random_state=0, n_resamples=19)
    whole = solver.run(open_stream(path, nan_policy=policy))
    small_slabs(70)
    slabs = solver.run(open_stream(path, nan_policy=policy))
    assert slabs.n_skipped == whole.n_skipped == (3 if policy == "omit" else 1)
    for v, w in zip(whole.vectors, slabs.vectors, strict=True):
        np.testing.assert_allclose(v, w, atol=1e-6)
    with pytest.raises(SampleError, match="sample 3 contains NaN or Inf"):
        RaceSolver().run(path)


@pytest.mark.parametrize("policy", ["raise", "zero"])
def test_joint_scores_of_slabs_are_those_of_whole_samples(policy, work, small_slabs):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((20, 5, 6, 7)) + 1
    if policy == "zero":
        samples[rng.random(samples.shape) < 0.2] = np.nan
    path = zarr_array(samples, work, chunks=(4, 5, 2, 7))
    pca = TensorPCA(2, random_state=0, n_resamples=19, nan_policy=policy).fit(samples)
    small_slabs(70)
    assert isinstance(next(open_stream(path, nan_policy=policy).batches()), SlabBatch)
    np.testing.assert_allclose(pca.transform(path), pca.transform(samples), atol=1e-10)


@pytest.mark.slow
def test_everybody_can_use_slabs(work, small_slabs):
    samples = take(SpikedTensor.random((3,) * 4, 8.0), 1600).astype(np.float32)
    path = npy(samples, work)
    paper = PaperSolver(strength=8.0).run(path)
    pca = TensorPCA(random_state=0).fit(path)
    scores = pca.transform(path)
    small_slabs(20)
    assert isinstance(next(open_stream(path).batches()), SlabBatch)
    np.testing.assert_allclose(TensorPCA(random_state=0).fit(path).transform(path), scores, rtol=1e-4, atol=1e-4)
    for v, w in zip(PaperSolver(strength=8.0).run(path).vectors, paper.vectors, strict=True):
        np.testing.assert_allclose(v, w, atol=1e-4)


# -- memory, of the whole process --------------------------------------------------------------------------------------


def measured(path, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(path), json.dumps(options)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout)


def huge_zarr(path, d, n):
    """Samples of order 6, one chunk for every index of the first mode: a few chunks in all places, to write less."""
    import zarr

    array = zarr.create_array(str(path), shape=(n, *[d] * 6), dtype="f8", chunks=(1, 1, *[d] * 5))
    rng = np.random.default_rng(0)
    for j in range(3):
        array[0, j] = rng.integers(-3, 4, (d, d)) + rng.integers(-1, 2, (d, 1, 1, 1, 1)).astype(float)
    inside = Path("0/0/0/0/0")
    for i, j in itertools.product(range(n), range(d)):
        chunk = path / "c" / str(i) / str(j) / inside
        if not chunk.exists():
            chunk.parent.mkdir(parents=True)
            shutil.copyfile(path / "c" / "0" / str(rng.integers(3)) / inside, chunk)
    assert math.prod(array.cdata_shape) == array.nchunks_initialized == n * d


def test_of_a_large_sample_a_few_slabs_are_held(tmp_path, small_slabs):
    # d = 14: 60 MB a sample, in slabs of one chunk each, 4.3 MB: three copies of one, and what Zarr needs to decode it.
    d, n = 14, 2
    small_slabs(d**5)
    huge_zarr(tmp_path / "large.zarr", d, n)
    tracemalloc.start()
    try:
        found = RaceSolver(memory_limit="2MB", max_samples=n).run(tmp_path / "large.zarr")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.n_samples == n
    assert peak < 6 * 8 * d**5 < 8 * d**6 / 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no getrusage")
def test_a_sample_that_does_not_fit_into_memory_is_fitted(tmp_path):
    # Order 6, d = 20: half a gigabyte a sample, chunks of 26 MB.  The same at d = 24 (1.5 GB a sample, chunks of 64 MB)
    # took 350 MB and 37 s on the machine of development: three copies of a slab, and what Zarr needs to decode one.
    d, n = 20, 4
    huge_zarr(tmp_path / "huge.zarr", d, n)
    used = measured(tmp_path / "huge.zarr", memory_limit="20MB", max_samples=n)
    assert used["n_samples"] == n
    assert used["state_bytes"] <= 20e6
    assert used["peak"] < 500e6 < 8 * d**6


@pytest.mark.parametrize("size", [2**30, pytest.param(2**32, marks=pytest.mark.slow)])
@pytest.mark.skipif(sys.platform == "win32", reason="no getrusage, no sparse files")
@pytest.mark.slow
def test_a_file_larger_than_memory_is_fitted(size, tmp_path):
    path, dims = tmp_path / "large.npy", (32, 32, 32)
    n = size // (8 * math.prod(dims))
    header = {"descr": "<f8", "fortran_order": False, "shape": (n, *dims)}
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        start, each = file.tell(), 8 * math.prod(dims)
        for i in (*range(40), *rng.integers(40, n, 40)):
            file.seek(start + i * each)
            file.write(rng.standard_normal(dims).tobytes())
        file.truncate(start + n * each)
    used = measured(path)
    assert path.stat().st_size > size
    assert used["n_samples"] == n
    assert used["peak"] < 600e6 < size
