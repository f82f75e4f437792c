import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homes import JAX, homes
from naive import einsum_gradient
from tpca.errors import SampleError
from tpca.tensors import DenseBatch, Query, contract, contract_all
from tpca.tensors.blocks import Partition, narrowed, widened
from tpca.tensors.namespaces import to_host


def partitions(dims):
    made = [Partition.pairs(dims), Partition.halves(dims), Partition.singles(dims)]
    return [p for p in made if len(p) > 1]


@pytest.mark.parametrize("home", homes())
def test_contraction_equals_einsum_for_every_block(home):
    close, orders = home.rtol, {"min_size": 2, "max_size": 4 if home == JAX else 6}

    @settings(max_examples=home.examples, deadline=None)
    @given(st.lists(st.integers(2, 5), **orders).map(tuple), st.integers(1, 5), st.integers(0, 999))
    def check(dims, count, seed):
        rng = np.random.default_rng(seed)
        tensor = rng.standard_normal(dims)
        for partition in partitions(dims):
            replicas = tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes)
            answer = contract(home.put(tensor), Query(partition, replicas))
            for m in range(len(partition)):
                for r in range(count):
                    expected = einsum_gradient(tensor, partition.groups, [w[r] for w in replicas], m)
                    size = max(1.0, np.abs(expected).max())
                    np.testing.assert_allclose(answer.gradients[m][r], expected, rtol=close, atol=close * size)
                    reward = np.sum(expected * replicas[m][r])
                    np.testing.assert_allclose(answer.rewards[r], reward, rtol=10 * close, atol=100 * close * size)

    check()


@pytest.mark.parametrize("home", homes())
def test_many_replicas_are_contracted_in_slices_with_the_same_result(rng, home):
    dims = (2, 2, 3, 3)  # 36 entries: 40 replicas of 4 + 9 outer-product entries cannot go through at once
    tensor = home.put(rng.standard_normal(dims))
    partition = Partition.singles(dims)
    replicas = tuple(rng.standard_normal((40, *shape)) for shape in partition.shapes)
    whole = contract(tensor, Query(partition, replicas))
    for r in range(40):
        one = contract(tensor, Query(partition, tuple(w[r : r + 1] for w in replicas)))
        for m in range(4):
            np.testing.assert_allclose(whole.gradients[m][r], one.gradients[m][0], rtol=home.rtol, atol=home.rtol)


@pytest.mark.parametrize("home", homes())
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "use", [lambda b: b.samples, lambda b: b.add_to(None), lambda b: b.scores([np.ones((1, 3))] * 2)]
)
def test_missing_entries_are_found_when_the_samples_are_used(value, use, home):
    samples = np.zeros((6, 3, 3), np.float32)
    samples[4, 1, 2] = value
    batch = DenseBatch(home.put(samples), unchecked=100)
    with pytest.raises(SampleError, match="sample 104 contains NaN or Inf"):
        use(batch)
    with pytest.raises(SampleError, match="sample 104 contains NaN or Inf"):
        use(batch[3:])
    use(batch[:4])


@pytest.mark.parametrize("home", homes())
def test_sums_are_added_to_what_there_is_and_one_that_overflows_is_no_missing_entry(home):
    large = np.full((3, 2, 2), 3e38, np.float32)
    with np.errstate(over="ignore"):
        assert np.isinf(to_host(DenseBatch(home.put(large), unchecked=0).add_to(None))).all()
    samples = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    total = DenseBatch(home.put(samples)).add_to(home.put(np.ones((3, 4), np.float32)))
    np.testing.assert_array_equal(to_host(total), 1 + samples.sum(axis=0))
    assert DenseBatch(home.put(samples))[:0].add_to(total) is total


@pytest.mark.parametrize("home", homes())
def test_questions_that_share_a_contraction_get_what_they_would_get_alone(home):
    kinds = [np.float32, np.float64] if home.float64 else [np.float32]
    asked = (st.integers(2, 3 if home == JAX else 6), st.integers(2, 4), st.integers(0, 999), st.sampled_from(kinds))

    @settings(max_examples=home.examples, deadline=None)
    @given(*asked)
    def check(order, d, seed, dtype):
        rng, dims = np.random.default_rng(seed), (d,) * order
        tensor = home.put(rng.standard_normal(dims).astype(dtype))
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

    check()


@pytest.mark.parametrize("home", homes())
@pytest.mark.parametrize(
    "groups", [((2, 0), (1, 3)), ((0, 3), (1, 2), (4, 5)), ((1,), (0, 4), (3, 2)), ((0, 1), (2, 3))]
)
def test_identities_are_traces(groups, rng, home):
    order = sum(map(len, groups))
    tensor = rng.standard_normal((3,) * order)
    partition = Partition(tensor.shape, groups)
    replicas = tuple(np.eye(3)[None] if len(group) == 2 else rng.standard_normal((1, 3)) for group in groups)
    wanted = (0,) if order % 2 else None
    traced = tuple(m for m, group in enumerate(groups) if len(group) == 2)
    answer = contract(home.put(tensor), Query(partition, replicas, wanted, traced=traced))
    for m, gradient in answer.gradients.items():
        expected = einsum_gradient(tensor, groups, [w[0] for w in replicas], m)
        np.testing.assert_allclose(gradient[0], expected, rtol=home.rtol, atol=home.rtol)
    np.testing.assert_allclose(answer.rewards[0], np.sum(answer.gradients[0][0] * replicas[0][0]), rtol=home.rtol)


@pytest.mark.parametrize("times", [1.0, 1e6])
def test_half_precision_is_widened_exactly_and_single_narrowed_to_the_nearest_half_or_to_infinity(times):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    np.testing.assert_array_equal(widened(finite), finite.astype(np.float32))
    drawn = np.random.default_rng(0).standard_normal(5000) * 10.0 ** np.arange(-5, 0).repeat(1000)
    numbers = (times * drawn).astype(np.float32)
    half = np.empty(numbers.shape, np.float16)
    narrowed(numbers.copy(), half)
    with np.errstate(over="ignore"):
        cast = numbers.astype(np.float16)
    ties = np.abs(widened(np.nextafter(cast, half)) - numbers) == np.abs(cast - numbers)  # to even, or away from zero
    assert ((half == cast) | ties).all()
    assert np.isinf(half).any() == (times > 1)
