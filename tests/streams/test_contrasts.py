"""Derived streams: their mean is the regression coefficient of brute force, whatever the blocks, and whoever reads."""

import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from tpca import open_stream
from tpca.engines import LocalEngine
from tpca.errors import SampleError, StreamError
from tpca.streams import stored
from tpca.streams.blocking import Contrast, block_length
from tpca.streams.conditions import read_conditions
from tpca.streams.contrasts import plans
from tpca.streams.effects import DerivedStream
from tpca.streams.running import DerivedPassing
from tpca.tensors import Clipped, Projection, TensorSum
from tpca.tensors.projected import Projected

DIMS = (4, 3, 2)
RNG = np.random.default_rng(0)
N = 150
X = 1e3 * RNG.standard_normal(DIMS) + RNG.standard_normal((N, *DIMS))
Y = RNG.standard_normal(N)
EXTRA = RNG.standard_normal((N, 2))


def mean_of(stream):
    read = LocalEngine(stream).reduce(TensorSum())
    return read.total / (read.n if read.observed is None else read.observed)


def blocks_of(plan):
    order = np.arange(plan.stops.max()) if plan.order is None else plan.order
    return [order[a:b] for a, b in zip(plan.starts, plan.stops, strict=True)]


@pytest.mark.parametrize(
    "y", [Y, np.sort(Y), (Y > 1).astype(float), 1.7e9 + np.arange(N)], ids=["any", "sorted", "rare", "seconds"]
)
@pytest.mark.parametrize("block", [None, 10])
@pytest.mark.parametrize("nuisance", [None, EXTRA])
def test_the_mean_of_derived_samples_is_the_coefficient_within_blocks(y, block, nuisance):
    (plan,) = plans(read_conditions("effect", N, y, nuisance), block)
    expected = naive.block_regression(X, y - y.mean(), blocks_of(plan), nuisance)
    np.testing.assert_allclose(mean_of(DerivedStream(open_stream(X), plan)), expected, rtol=1e-9, atol=1e-9 / y.std())
    assert 0 < plan.efficiency <= 1 + 1e-12
    assert np.isclose(plan.shares.mean(), 1)


def test_weights_are_those_of_weighted_least_squares():
    weight = RNG.random(N) * (RNG.random(N) > 0.3)
    told = read_conditions("effect", N, Y, sample_weight=weight)
    (plan,) = plans(told)
    root = np.sqrt(weight)
    columns = [Y[:, None], *(np.isin(np.arange(N), block)[:, None] for block in blocks_of(plan))]
    found = np.linalg.lstsq(root[:, None] * np.hstack(columns), root[:, None] * X.reshape(N, -1), rcond=None)[0][0]
    np.testing.assert_allclose(mean_of(DerivedStream(open_stream(X), plan)).ravel(), found, rtol=1e-9, atol=1e-9)
    (plan,) = plans(read_conditions("mean", N, None, sample_weight=weight))
    found = np.average(X, axis=0, weights=weight)
    np.testing.assert_allclose(mean_of(DerivedStream(open_stream(X), plan)), found, rtol=1e-12)
    assert len(plan) == np.count_nonzero(weight)  # a sample that does not count is as good as none


@settings(max_examples=20, deadline=None)
@given(st.integers(6, 40), st.integers(1, 60))
def test_stored_and_passing_samples_make_the_same_derived_ones(block, size):
    told = read_conditions("effect", N, Y, EXTRA)
    (plan,) = plans(told, block, any_order=False)
    at_once = np.concatenate([batch.samples for batch in DerivedStream(open_stream(X), plan).batches()])
    items = [X[a : a + size] for a in range(0, N, size)]
    passing = DerivedPassing(open_stream(iter(items), items="batches"), told, plan, 0, Contrast(None, block))
    batches = list(passing.batches())
    np.testing.assert_allclose(np.concatenate([batch.samples for batch in batches]), at_once, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(np.concatenate([batch.shares for batch in batches]), plan.shares, rtol=1e-7)


def test_every_reader_knows_how_much_of_the_signal_is_in_what_it_read(tmp_path, monkeypatch):
    (plan,) = plans(read_conditions("effect", N, Y), 7)
    zarr.create_array(str(tmp_path / "d.zarr"), data=X, chunks=(16, 4, 3, 2))
    sums = [TensorSum(), Clipped([TensorSum()], [np.ones(d) for d in DIMS])]
    sums.append(Projected([TensorSum()], Projection(DIMS, (None,) * len(DIMS))))
    for blank in sums:
        read = LocalEngine(DerivedStream(open_stream(X), plan)).reduce(blank, 5)
        inner = read if isinstance(read, TensorSum) else read.parts[0]
        assert inner.worth == pytest.approx(plan.shares[:5].sum())
    monkeypatch.setattr(stored, "SLAB_ENTRIES", 12)
    slabs = LocalEngine(DerivedStream(open_stream(tmp_path / "d.zarr"), plan))
    assert slabs.reduce(TensorSum(), 5).worth == pytest.approx(plan.shares[:5].sum())
    with_gap = X.copy()
    with_gap[plan.starts[1] : plan.stops[1], 0] = np.nan  # block 1 is lost
    left = LocalEngine(DerivedStream(open_stream(with_gap, nan_policy="omit"), plan)).reduce(TensorSum(), 2)
    assert left.worth == pytest.approx(plan.shares[[0, 2]].sum())
    plain = LocalEngine(open_stream(X)).reduce(TensorSum(), 5)
    assert plain.worth == 5


def test_files_slabs_and_sparse_samples_give_what_arrays_give(tmp_path, monkeypatch):
    sorted_y = np.sort(Y)
    (plan,) = plans(read_conditions("effect", N, sorted_y))
    assert plan.order is not None  # dealt: read in runs
    expected = mean_of(DerivedStream(open_stream(X), plan))
    zarr.create_array(str(tmp_path / "d.zarr"), data=X, chunks=(16, 4, 3, 2))
    whole = DerivedStream(open_stream(tmp_path / "d.zarr"), plan)
    np.testing.assert_allclose(mean_of(whole), expected, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(stored, "SLAB_ENTRIES", 12)
    slabs = DerivedStream(open_stream(tmp_path / "d.zarr"), plan)
    assert not slabs.whole
    np.testing.assert_allclose(mean_of(slabs), expected, rtol=1e-9, atol=1e-9)
    told = read_conditions("effect", N, Y)
    (plan,) = plans(told, 10, any_order=False)
    sparse = open_stream([scipy.sparse.csr_array(x) for x in X[:, :, :, 0]])
    flat = mean_of(DerivedPassing(sparse, told, plan, 0, Contrast(None, 10)))
    np.testing.assert_allclose(flat, mean_of(DerivedStream(open_stream(X), plan))[:, :, 0], rtol=1e-9, atol=1e-9)


def test_contrasts_of_labels_are_white_and_lead_back_to_the_amplitudes_of_labels():
    labels = np.array(["a", "b", "c", "d"])[RNG.integers(0, 4, N)]
    amplitudes = {"a": -2.0, "b": 0.5, "c": 0.5, "d": 3.0}
    pattern = RNG.standard_normal(DIMS)
    clean = 7.0 + np.array([amplitudes[one] for one in labels])[:, None, None, None] * pattern
    (plan,) = plans(read_conditions("effect", N, labels))
    mean = mean_of(DerivedStream(open_stream(clean), plan))
    assert mean.shape == (3, *DIMS)
    back = np.tensordot(plan.basis, mean, axes=1)
    centred = np.array(list(amplitudes.values())) - np.mean(list(amplitudes.values()))
    np.testing.assert_allclose(back, np.multiply.outer(centred, pattern), atol=1e-9)
    gram = sum(plan.weights[a:b].T @ plan.weights[a:b] for a, b in zip(plan.starts, plan.stops, strict=True))
    np.testing.assert_allclose(gram / len(plan) * plan.scale, np.eye(3), atol=1e-9)


@pytest.mark.parametrize("policy", ["omit", "zero"])
def test_missing_samples_leave_the_background_out_all_the_same(policy):
    holed = np.full((N, *DIMS), 5.0) + Y[:, None, None, None]
    holed[::7] = np.nan
    (plan,) = plans(read_conditions("effect", N, Y), 10)
    stream = DerivedStream(open_stream(holed, nan_policy=policy), plan)
    np.testing.assert_allclose(mean_of(stream), 1.0, rtol=1e-9)


def test_a_missing_entry_is_named_by_the_number_of_its_sample():
    holed = X.copy()
    holed[41, 0, 0, 0] = np.nan
    (plan,) = plans(read_conditions("effect", N, Y))
    with pytest.raises(SampleError, match="sample 41 contains NaN"):
        mean_of(DerivedStream(open_stream(holed), plan))


def test_blocks_end_when_they_hold_enough_contrast():
    rare = np.zeros(400)
    rare[::10] = 1
    (plan,) = plans(read_conditions("effect", 400, rare))
    assert plan.idle <= 1
    # All blocks but the last end with the sample that brings their sum of squares to the target.
    assert plan.shares[:-1].min() > 0.5
    assert plan.efficiency > 0.8
    assert [block_length(n, 1) for n in (None, 20, 100, 1000, 10**4, 10**6)] == [16, 2, 6, 8, 39, 64]


def test_what_cannot_be_answered_is_refused_with_the_way_out():
    for y, says in [
        (np.ones(N), "y is 1 for all 150 samples"),
        (np.where(np.arange(N) == 3, np.nan, Y), "y is NaN or Inf for sample 3"),
        (Y[:-1], "y must have a row for every sample, 150 of them, got 149"),
        (np.full(N, "a"), "y has one label, 'a'"),
        (np.array([None, *["a"] * (N - 1)], dtype=object), "y has no label for sample 0"),
        (np.arange(N).astype(str), "y has 150 labels for 150 samples"),
        (Y + 1j, "y must be real numbers, got complex128"),
        (np.arange(N).astype("datetime64[D]"), r"y must be numbers, got times \(datetime64\[D\]\).*numpy.timedelta64"),
        ([[1.0, 2.0], [3.0]] * 75, "y must have one value, or as many as all others, .*got 2 for sample 0 and 1 for"),
        (None, "needs y"),
    ]:
        with pytest.raises(SampleError, match=says):
            read_conditions("effect", N, y)
    with pytest.raises(SampleError, match=r"not all 0, got -1 among them"):
        read_conditions("mean", N, None, sample_weight=-np.ones(N))
    for groups, says in [
        (np.arange(N - 1), "groups must have a row for every sample, 150 of them, got 149"),
        (np.zeros((N, 2)), r"groups come one label for every sample, got shape \(150, 2\)"),
        (np.where(np.arange(N) == 7, np.nan, 1.0), "groups is nan for sample 7"),
        (np.array([None, *"ab" * 74, "a"], dtype=object), "groups is None for sample 0"),
        ([[1, 2], [3]] * 75, "groups must have one value, .*got 2 for sample 0 and 1 for sample 1"),
    ]:
        with pytest.raises(SampleError, match=says):
            read_conditions("effect", N, Y, groups=groups)
    with pytest.raises(SampleError, match="is explained by the nuisances"):
        plans(read_conditions("effect", N, Y, 2 * Y + 1))
    with pytest.raises(SampleError, match=r"y\[0\] is explained by the other columns of y and nuisances"):
        plans(read_conditions("effect", N, np.column_stack([Y, 2 * Y])))
    with pytest.raises(SampleError, match="does not vary within groups"):
        plans(read_conditions("effect", N, np.arange(N) // 50, groups=np.arange(N) // 50))
    with pytest.raises(SampleError, match=r"a stream is read once.*give an array"):
        plans(read_conditions("effect", N, (np.arange(N) >= 75).astype(float)), 10, any_order=False)
    told = read_conditions("effect", N, Y)
    (plan,) = plans(told)
    with pytest.raises(StreamError, match="shuffle=True is for the mean"):
        DerivedStream(open_stream(X, shuffle=True), plan)
    short = DerivedPassing(open_stream(iter([X[:100]]), items="batches"), told, plan, 0, Contrast(None, 10))
    with pytest.raises(SampleError, match="y has 150 rows for 100 samples"):
        list(short.batches())
