import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import einsum_gradient
from tpca.engines import LocalEngine
from tpca.errors import SampleError
from tpca.tensors import DenseBatch, Query, SampleGradients, contract, contract_all
from tpca.tensors.blocks import Partition, widened


def partitions(dims):
    made = [Partition.pairs(dims), Partition.halves(dims), Partition.singles(dims)]
    return [p for p in made if len(p) > 1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=6).map(tuple), st.integers(1, 5), st.integers(0, 999))
def test_contraction_equals_einsum_for_every_block(dims, count, seed):
    rng = np.random.default_rng(seed)
    tensor = rng.standard_normal(dims)
    for partition in partitions(dims):
        replicas = tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes)
        answer = contract(tensor, Query(partition, replicas))
        for m in range(len(partition)):
            for r in range(count):
                expected = einsum_gradient(tensor, partition.groups, [w[r] for w in replicas], m)
                np.testing.assert_allclose(answer.gradients[m][r], expected, rtol=1e-10, atol=1e-10)
                np.testing.assert_allclose(answer.rewards[r], np.sum(expected * replicas[m][r]), rtol=1e-9, atol=1e-9)


def test_every_replica_gets_its_own_samples(rng):
    dims, count, steps = (3, 4, 2, 5), 3, 4
    samples = rng.standard_normal((count * steps, *dims))
    partition = Partition.pairs(dims)
    replicas = tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes)
    for m in range(len(partition)):
        query = Query(partition, replicas, gradients_of=(m,))
        whole = LocalEngine(samples).reduce(SampleGradients(query), len(samples)).gradients
        assert whole.shape == (steps, count, *partition.shapes[m])
        for t in range(steps):
            for r in range(count):
                expected = einsum_gradient(samples[t * count + r], partition.groups, [w[r] for w in replicas], m)
                np.testing.assert_allclose(whole[t, r], expected, rtol=1e-10, atol=1e-12)
        for at in range(2 * count):  # however the samples are cut, each has the replica whose turn it is
            rest = DenseBatch(samples[at:]).sample_gradients(query, at)
            np.testing.assert_allclose(
                rest, whole.reshape(len(samples), *partition.shapes[m])[at:], rtol=1e-10, atol=1e-12
            )


def test_many_replicas_are_contracted_in_slices_with_the_same_result(rng):
    dims = (2, 2, 3, 3)  # 36 entries: 40 replicas of 4 + 9 outer-product entries cannot go through at once
    tensor = rng.standard_normal(dims)
    partition = Partition.singles(dims)
    replicas = tuple(rng.standard_normal((40, *shape)) for shape in partition.shapes)
    whole = contract(tensor, Query(partition, replicas))
    for r in range(40):
        one = contract(tensor, Query(partition, tuple(w[r : r + 1] for w in replicas)))
        for m in range(4):
            np.testing.assert_allclose(whole.gradients[m][r], one.gradients[m][0], rtol=1e-12, atol=1e-13)


def test_total_is_the_sum_of_samples(rng):
    samples = rng.standard_normal((7, 3, 4))
    np.testing.assert_allclose(DenseBatch(samples).add_to(None), samples.sum(axis=0), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "use", [lambda b: b.samples, lambda b: b.add_to(None), lambda b: b.scores([np.ones((1, 3))] * 2)]
)
def test_missing_entries_are_found_when_the_samples_are_used(value, use):
    samples = np.zeros((6, 3, 3), np.float32)
    samples[4, 1, 2] = value
    batch = DenseBatch(samples, unchecked=100)
    with pytest.raises(SampleError, match="sample 104 contains NaN or Inf"):
        use(batch)
    with pytest.raises(SampleError, match="sample 104 contains NaN or Inf"):
        use(batch[3:])
    use(batch[:4])


def test_a_sum_that_overflows_is_not_taken_for_a_missing_entry():
    samples = np.full((3, 2, 2), 3e38, np.float32)
    assert np.isinf(DenseBatch(samples, unchecked=0).add_to(None)).all()


def test_sums_are_added_in_place():
    samples = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    total = np.ones((3, 4), np.float32)
    assert DenseBatch(samples).add_to(total) is total
    np.testing.assert_array_equal(total, 1 + samples.sum(axis=0))
    assert DenseBatch(samples)[:0].add_to(total) is total


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(2, 4), st.integers(0, 999), st.sampled_from([np.float32, np.float64]))
def test_questions_that_share_a_contraction_get_what_they_would_get_alone(order, d, seed, dtype):
    rng = np.random.default_rng(seed)
    dims = (d,) * order
    tensor = rng.standard_normal(dims).astype(dtype)
    queries = [
        Query(p, tuple(rng.standard_normal((count, *shape)).astype(kind) for shape in p.shapes))
        for p in partitions(dims)
        for count, kind in ((1, np.float64), (7, np.float16), (2, np.float32))
    ]
    queries.append(Query(Partition(dims, (tuple(range(order)),)), (np.zeros((1, *dims)),)))
    for query, together in zip(queries, contract_all(tensor, queries), strict=True):
        alone = contract(tensor, query)
        close = 2e-3 if query.replicas[0].dtype == np.float16 else 1e-4 if dtype == np.float32 else 1e-10
        for m in query.blocks:
            assert together.gradients[m].dtype == query.replicas[m].dtype
            np.testing.assert_allclose(together.gradients[m], alone.gradients[m], rtol=close, atol=50 * close)


@pytest.mark.parametrize(
    "groups", [((2, 0), (1, 3)), ((0, 3), (1, 2), (4, 5)), ((1,), (0, 4), (3, 2)), ((0, 1), (2, 3))]
)
def test_identities_are_traces(groups, rng):
    order = sum(map(len, groups))
    tensor = rng.standard_normal((3,) * order)
    partition = Partition(tensor.shape, groups)
    replicas = tuple(np.eye(3)[None] if len(group) == 2 else rng.standard_normal((1, 3)) for group in groups)
    wanted = (0,) if order % 2 else None
    answer = contract(tensor, Query(partition, replicas, wanted))
    for m, gradient in answer.gradients.items():
        expected = einsum_gradient(tensor, groups, [w[0] for w in replicas], m)
        np.testing.assert_allclose(gradient[0], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(answer.rewards[0], np.sum(answer.gradients[0][0] * replicas[0][0]))


def test_every_finite_number_of_half_precision_is_widened_exactly():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    np.testing.assert_array_equal(widened(finite), finite.astype(np.float32))
