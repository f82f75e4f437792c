import math
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import outer_samples
from tpca.solvers.race.strategies.strategy import WholeSum
from tpca.tensors import DenseBatch, Gradients, Query, RankOne
from tpca.tensors import rows as module
from tpca.tensors.blocks import Partition, unit
from tpca.tensors.rows import ViewsBatch

LONGEST = {2: 5, 3: 5, 4: 5, 5: 4, 6: 3, 7: 3, 8: 2}  # a mode at each order, so that the built samples stay small


def dims_of_order(low, high):
    return st.integers(low, high).flatmap(
        lambda k: st.lists(st.integers(2, LONGEST[k]), min_size=k, max_size=k).map(tuple)
    )


def partitions(dims, rng):
    """Singles, pairs, halves, all modes in one block, and modes thrown together at random."""
    labels = rng.integers(0, len(dims), len(dims))
    modes = rng.permutation(len(dims))
    random = tuple(tuple(modes[labels == label]) for label in np.unique(labels))
    made = [Partition.singles(dims), Partition.pairs(dims), Partition.halves(dims)]
    return [*made, Partition(dims, (tuple(range(len(dims))),)), Partition(dims, random)]


def some_queries(dims, count, dtype, rng, subtract=True):
    """One query per partition, half of them for some of the blocks only, some with a component to subtract."""
    queries = []
    for partition in partitions(dims, rng):
        replicas = tuple(rng.standard_normal((count, *shape)).astype(dtype) for shape in partition.shapes)
        chosen = tuple(int(m) for m in np.flatnonzero(rng.integers(0, 2, len(partition))))
        known = RankOne(rng.standard_normal(), tuple(unit(rng.standard_normal(d)) for d in dims))
        deflate = (known,) if subtract and rng.integers(0, 2) else ()
        queries.append(Query(partition, replicas, chosen or None, deflate))
    return queries


def answers(batches, queries, scale=0.7):
    kept = Gradients(queries, scale)
    for batch in batches:
        kept.add(batch)
    if kept.n:
        kept.finish()
    return kept.answers


def assert_same(found, expected, dtype):
    # Both are computed in float64 and rounded to the dtype of the replicas: neighbours in that dtype at worst.
    near, least = 1e-10 + float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_subnormal)
    for one, other in zip(found, expected, strict=True):
        assert one.gradients.keys() == other.gradients.keys()
        for m, gradient in one.gradients.items():
            assert gradient.dtype == dtype
            scale = float(np.abs(other.gradients[m].astype(np.float64)).max()) or 1.0
            np.testing.assert_allclose(gradient, other.gradients[m], rtol=near, atol=1e-11 * scale + least)
        np.testing.assert_allclose(
            one.rewards, other.rewards, rtol=1e-10, atol=1e-10 * (1 + np.abs(other.rewards).max())
        )


def some_views(dims, n, rng, dtype=np.float64):
    return [rng.standard_normal((n, d)).astype(dtype) for d in dims]


@settings(max_examples=30, deadline=None)
@given(
    dims_of_order(2, 8),
    st.integers(1, 4),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.sampled_from([1, 40, 2**20]),
    st.integers(0, 999),
)
def test_views_answer_like_the_built_samples(dims, count, n, weighted, dtype, chunk, seed):
    rng = np.random.default_rng(seed)
    views, weights = some_views(dims, n, rng), rng.standard_normal(n) if weighted else None
    queries = some_queries(dims, count, dtype, rng)
    with mock.patch.object(module, "CHUNK", chunk):
        found = answers([ViewsBatch(views, weights)], queries)
    assert_same(found, answers([DenseBatch(outer_samples(views, weights))], queries), dtype)


@settings(max_examples=20, deadline=None)
@given(dims_of_order(2, 5), st.integers(2, 9), st.integers(0, 9), st.integers(0, 9), st.booleans(), st.integers(0, 999))
def test_slices_and_splits_answer_like_the_whole(dims, n, start, stop, weighted, seed):
    rng = np.random.default_rng(seed)
    batch = ViewsBatch(some_views(dims, n, rng), rng.standard_normal(n) if weighted else None, first=3)
    samples = outer_samples(batch.views, batch.weights)
    queries = some_queries(dims, 3, np.float64, rng)
    cut = min(start, n)
    assert_same(answers([batch[:cut], batch[cut:]], queries), answers([DenseBatch(samples)], queries), np.float64)
    part = batch[start:stop]
    assert len(part) == len(samples[start:stop])
    assert part.nbytes == sum(view[start:stop].nbytes for view in batch.views) + 8 * weighted * len(part)
    if len(part):
        expected = answers([DenseBatch(samples[start:stop])], queries)
        assert_same(answers([part], queries), expected, np.float64)


@settings(max_examples=20, deadline=None)
@given(dims_of_order(2, 4), st.integers(1, 60), st.integers(1, 4), st.integers(0, 999))
def test_single_precision_views_stay_within_its_rounding(dims, n, count, seed):
    rng = np.random.default_rng(seed)
    views, weights = some_views(dims, n, rng, np.float32), rng.random(n)
    queries = some_queries(dims, count, np.float64, rng, subtract=False)
    exact = answers([DenseBatch(outer_samples(views, weights))], queries)
    found = answers([ViewsBatch(views, weights)], queries)
    sizes = answers(
        [DenseBatch(outer_samples([np.abs(view) for view in views], weights))],
        [Query(q.partition, tuple(np.abs(w) for w in q.replicas), q.gradients_of) for q in queries],
    )
    # An entry is a sum of products: each is off by at most a unit roundoff, 2^-24, per operation on its way.
    operations = n + math.prod(dims) + 5 * len(dims)
    for one, other, size in zip(found, exact, sizes, strict=True):
        for m in one.gradients:
            assert np.all(np.abs(one.gradients[m] - other.gradients[m]) <= operations * 2**-24 * size.gradients[m])


def test_products_of_many_large_views_do_not_leave_single_precision(rng):
    dims = (3,) * 8
    views = [np.float32(1e6) * view for view in some_views(dims, 5, rng, np.float32)]  # rewards of about 1e48 > 3e38
    for partition in (Partition.singles(dims), Partition.pairs(dims)):
        query = Query(partition, tuple(rng.standard_normal((2, *shape)) for shape in partition.shapes))
        (found,) = answers([ViewsBatch(views, np.full(5, 1e40))], [query])
        (expected,) = answers([ViewsBatch([view.astype(np.float64) for view in views], np.full(5, 1e40))], [query])
        for m, gradient in found.gradients.items():
            scale = np.abs(expected.gradients[m]).max()
            np.testing.assert_allclose(gradient / scale, expected.gradients[m] / scale, atol=1e-5)


def test_zero_inner_products_and_zero_samples_are_no_trouble(rng):
    dims = (2, 3, 4)
    views = some_views(dims, 4, rng)
    views[1][:, 1:] = 0
    replicas = [rng.standard_normal((2, d)) for d in dims]
    replicas[1][0, 0] = 0  # orthogonal to every sample: only its own block has a gradient
    query = Query(Partition.singles(dims), tuple(replicas))
    assert_same(answers([ViewsBatch(views)], [query]), answers([DenseBatch(outer_samples(views))], [query]), np.float64)
    views[0][:] = 0
    assert not any(g.any() for g in answers([ViewsBatch(views)], [query])[0].gradients.values())
    sums = [{m: np.zeros((2, d)) for m, d in enumerate(dims)}]
    ViewsBatch(views)[4:].add_gradients([query], sums)
    assert not any(g.any() for g in sums[0].values())


def test_the_whole_strategy_gets_the_sum_of_all_samples(rng):
    dims = (3, 4, 5)
    strategy = WholeSum(dims)
    views = some_views(dims, 6, rng)
    for chunk in (1, 2**20):
        with mock.patch.object(module, "CHUNK", chunk):
            found = answers([ViewsBatch(views)], strategy.queries())
        assert_same(found, answers([DenseBatch(outer_samples(views))], strategy.queries()), np.float32)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_the_built_samples(rng, weighted, dtype):
    dims = (3, 4, 2, 5)
    views, weights = some_views(dims, 7, rng, dtype), rng.standard_normal(7) if weighted else None
    vectors = [rng.standard_normal((3, d)) for d in dims]
    scores = ViewsBatch(views, weights).scores(vectors)
    assert scores.dtype == np.float64
    near = 1e-10 if dtype is np.float64 else 1e-4  # float32: d roundings of 2^-24 in each of four factors
    expected = DenseBatch(outer_samples(views, weights)).scores(vectors)
    np.testing.assert_allclose(scores, expected, rtol=near, atol=near * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_memory_is_bounded_by_the_chunk_and_not_by_the_samples(rng, dtype):
    # Temporaries, in units of CHUNK entries of 8 bytes: copies of some replicas of both blocks, 1; what is formed for
    # some samples, 1; the gradient of one block for some replicas, 1/2, and the same times its scale, 1/2.  One more
    # for what is small: 4 * 8 * 2^20 bytes = 34 MB.  The built tensor has 65 GB, and without chunks the n R d = 6e6
    # entries in each of two places and the copies of the replicas would take 100 MB.
    dims, n, count = (300,) * 4, 1000, 20
    batch = ViewsBatch(some_views(dims, n, rng))
    for partition in (Partition.halves(dims), Partition(dims, ((3, 1), (0, 2)))):
        replicas = tuple(rng.standard_normal((count, *shape)).astype(dtype) for shape in partition.shapes)
        sums = [{m: np.zeros((count, *shape)) for m, shape in enumerate(partition.shapes)}]
        tracemalloc.start()
        try:
            batch.add_gradients([Query(partition, replicas)], sums)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * 8 * module.CHUNK < math.prod(dims) * 8 / 1000
