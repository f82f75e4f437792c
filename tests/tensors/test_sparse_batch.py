import sys
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from naive import dense_samples
from tpca import RaceSolver, open_stream
from tpca.errors import SampleError
from tpca.tensors import Query
from tpca.tensors.blocks import Partition
from tpca.tensors.sparse import SparseBatch


@dataclass
class Coo:
    """What pydata/sparse's COO shows of itself."""

    coords: Any
    data: Any
    shape: Any
    fill_value: float = 0.0


def some_entries(dims, n, entries, rng, dtype=np.float64):
    """Parts of a batch; with few places and many entries some fall together."""
    coords = np.stack([rng.integers(0, d, entries) for d in dims])
    return coords, rng.standard_normal(entries).astype(dtype), np.sort(rng.integers(0, n, entries)), n, dims


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("wanted", [None, (0,)])
def test_cost_is_that_of_the_entries_in_huge_dims(rng, dtype, wanted):
    # 10^12 entries a sample, 100 of them not zero.  Nothing as long as a mode is formed: temporaries are a few arrays
    # of (replicas or modes) x entries = 4 x 100 numbers, 3.2 kB each, against 32 MB for the replicas of one mode.
    dims, count = (10**6, 10**6), 4
    parts = some_entries(dims, 3, 100, rng)
    batch, partition = SparseBatch(*parts), Partition.singles(dims)
    replicas = [np.zeros((count, d), dtype) for d in dims]
    for block, places in zip(replicas, parts[0], strict=True):
        block[:, places] = rng.standard_normal((count, 100))
    query = Query(partition, tuple(replicas), wanted)
    sums = [{m: np.zeros((count, *partition.shapes[m])) for m in query.blocks}]
    tracemalloc.start()
    try:
        batch.add_gradients([query], sums)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000
    for m, gradient in sums[0].items():
        other = replicas[1 - m][:, parts[0][1 - m]].astype(np.float64)
        expected = np.zeros_like(gradient)
        for e, place in enumerate(parts[0][m]):
            expected[:, place] += parts[1][e] * other[:, e]
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)


def test_scipy_matrices_of_any_format_are_samples(rng):
    dense = rng.standard_normal((3, 4, 5)) * (rng.random((3, 4, 5)) < 0.4)
    makers = [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array]
    batch = SparseBatch.from_coo(make(sample) for make, sample in zip(makers, dense, strict=True))
    assert (len(batch), batch.dims, batch.values.size) == (3, (4, 5), np.count_nonzero(dense))
    np.testing.assert_array_equal(dense_samples(batch.coords, batch.values, batch.sample, batch.n, batch.dims), dense)


def test_coordinate_form_is_taken_from_objects_and_tuples_and_values_become_floats_that_hold_them():
    coords, values, shape = [[0, 1, 1], [2, 0, 0], [1, 1, 1]], [1.0, 2.0, 3.0], (2, 3, 2)
    empty = ([[], [], []], [], shape)
    batch = SparseBatch.from_coo([Coo(np.array(coords), np.array(values), shape), empty, (coords, values, shape)])
    samples = dense_samples(batch.coords, batch.values, batch.sample, batch.n, batch.dims)
    assert len(batch) == 3
    assert samples[0, 0, 2, 1] == 1.0
    assert samples[0, 1, 0, 1] == 5.0  # twice the same place: the values add up
    assert not samples[1].any()
    np.testing.assert_array_equal(samples[0], samples[2])
    for stored, held in {"f2": "f4", "f4": "f4", "i2": "f4", "i4": "f8", "?": "f4"}.items():
        assert SparseBatch.from_coo([([[0], [1]], np.ones(1, stored), (2, 2))]).values.dtype == held


GOOD = ([[0, 1], [2, 0]], [1.0, 2.0], (2, 3))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "at least one sample"),
        ([GOOD, ([[0], [0]], [1.0], (2, 4))], r"shape \(2, 3\) as the first one, got \(2, 4\) at sample 1"),
        ([GOOD, ([[0, 1], [2, 3]], [1.0, 2.0], (2, 3))], r"inside shape \(2, 3\), got \(1, 3\) at sample 1"),
        ([([[0, -1], [2, 0]], [1.0, 2.0], (2, 3))], r"got \(-1, 0\) at sample 0"),
        ([([[0, 1], [2, 0]], [1.0, np.nan], (2, 3))], "sample 0 contains NaN or Inf"),
        ([([[0, 1], [2, 0]], [1.0, np.inf], (2, 3))], "sample 0 contains NaN or Inf"),
        ([([[0, 1], [2, 0]], [1.0, 2j], (2, 3))], "real numbers, got dtype complex128 at sample 0"),
        ([([[0, 1], [2, 0]], ["a", "b"], (2, 3))], "real numbers, got dtype"),
        ([([[0, 1]], [1.0, 2.0], (2, 3))], r"\(axes, entries\) = \(2, 2\), got \(1, 2\)"),
        ([([[0, 1], [2, 0]], [[1.0], [2.0]], (2, 3))], r"values of shape \(2, 1\)"),
        ([([[0.5, 1], [2, 0]], [1.0, 2.0], (2, 3))], "coords must be integers, got dtype float64"),
        ([([[0, 1]], [1.0, 2.0], (2,))], r"at least 2 axes, got shape \(2,\)"),
        ([np.ones((2, 3))], r"coords, data and shape, got ndarray of shape \(2, 3\) at sample 0"),
        ([3.0], "got float at sample 0"),
        ([scipy.sparse.eye_array(2).tocsr(), np.eye(2)], r"got ndarray of shape \(2, 2\) at sample 1"),
        ([scipy.sparse.coo_array(np.ones(3))], r"at least 2 axes, got shape \(3,\) at sample 0"),
        ([scipy.sparse.eye_array(2), scipy.sparse.eye_array(3)], r"shape \(2, 2\) as the first one, got \(3, 3\) at"),
        ([Coo([[0], [1]], [1.0], (2, 2), fill_value=1.5)], "got fill_value 1.5 at sample 0"),
    ],
)
def test_what_cannot_be_a_sample_is_refused_with_a_reason(samples, message):
    with pytest.raises(SampleError, match=message):
        SparseBatch.from_coo(samples)
    with pytest.raises(SampleError, match="step 2; use step 1"):
        SparseBatch.from_coo([GOOD] * 3)[::2]


def _planted_sparse(rng, n=400, dims=(30, 40)):
    """Matrices of which 5 % of the entries are seen, scaled so that the mean is the signal 8 u v^T."""
    u, v = (w / np.linalg.norm(w) for w in (rng.standard_normal(d) for d in dims))
    signal = 8 * np.outer(u, v)
    samples = []
    for _ in range(n):
        seen = rng.random(dims) < 0.05
        samples.append(scipy.sparse.csr_array(np.where(seen, (signal + 0.2 * rng.standard_normal(dims)) / 0.05, 0.0)))
    return samples, (u, v)


def test_a_race_on_sparse_samples_is_that_on_dense_ones(rng):
    samples, planted = _planted_sparse(rng)
    dense = np.stack([sample.toarray() for sample in samples])
    sparse = RaceSolver(random_state=1).run(samples)
    whole = RaceSolver(random_state=1).run(dense)
    assert sparse.n_samples == whole.n_samples == len(samples)
    assert sparse.found
    for a, b in zip(sparse.vectors, whole.vectors, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)  # searches in 16 bits: rounding may fall either way
    # The entries' spread is about 8/sqrt(1200)/0.05 * sqrt(0.05) = 1: squared error 40/(64 * 400), far below 0.05.
    assert min(abs(float(a @ b)) for a, b in zip(sparse.vectors, planted, strict=True)) > 0.95


def test_sparse_samples_need_no_compiler(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    samples, planted = _planted_sparse(rng)
    race = RaceSolver(random_state=1).run(samples)
    for vector, expected in zip(race.vectors, planted, strict=True):
        assert abs(float(vector @ expected)) > 0.95  # as above


def test_sparse_streams_may_be_lists_or_iterators_and_name_bad_shapes(rng):
    samples, _ = _planted_sparse(rng, n=10)
    stream = open_stream(samples)
    assert (stream.dims, stream.length, stream.rereadable, stream.kind) == ((30, 40), 10, True, "sparse")
    once = open_stream(iter(samples))
    assert not once.rereadable
    assert sum(len(batch) for batch in once.batches()) == 10
    pieces = open_stream([SparseBatch.from_coo(samples[:4]), SparseBatch.from_coo(samples[4:])])
    assert pieces.length == 10
    assert [batch.first for batch in pieces.batches()] == [0, 4]
    assert [batch.first for batch in pieces.batches(4)] == [4]
    with pytest.raises(SampleError, match="share one shape"):
        list(open_stream([samples[0], scipy.sparse.csr_array((3, 3))]).batches())
