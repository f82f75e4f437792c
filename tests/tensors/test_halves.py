"""Large samples are added up in two halves: the same sums, on one core or two, and the same answers."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from tpca import threads
from tpca.errors import SampleError
from tpca.tensors import DenseBatch, Gradients, Query, contraction, gradients
from tpca.tensors import contraction as few_replicas
from tpca.tensors import contraction as products
from tpca.tensors import kernels as adding
from tpca.tensors import kernels as halves
from tpca.tensors.blocks import Partition

DIMS = (6, 5, 4, 7)
EDGES = (0, 3, 4, 9, 15)


@pytest.fixture
def all_large(monkeypatch):
    """Samples of any size count as large."""
    monkeypatch.setattr(gradients, "LARGE", 1)


def queries(by_part, count=3):
    rng, partition = np.random.default_rng(1), Partition.singles(DIMS)
    blocks = [tuple(rng.standard_normal((1, *shape)) for shape in partition.shapes) for _ in range(count)]
    return [Query(partition, own, by_part=by_part) for own in blocks]


def answers(samples, by_part, weight=0.3):
    asked = Gradients(queries(by_part), weight, EDGES)
    for first in range(0, len(samples), 7):
        asked.add(DenseBatch(samples[first : first + 7], unchecked=first), first)
    asked.finish()
    return asked.answers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("by_part", [(), (0, 1, 2, 3)])
def test_halves_give_what_single_samples_give(dtype, by_part, all_large):
    samples = np.random.default_rng(0).standard_normal((20, *DIMS)).astype(dtype)
    rounding = 1e-4 if dtype == np.float32 else 1e-11  # sums of 20 samples, about 1e3 times the rounding of one number
    for query, answer in zip(queries(by_part), answers(samples, by_part), strict=True):
        vectors = [w[0] for w in query.replicas]
        each = 0.3 * np.einsum("nabcd,a,b,c,d->n", samples, *vectors)
        parts = np.split(each, EDGES[1:])
        np.testing.assert_allclose(
            answer.by_part.rewards, [p.mean() for p in parts], atol=rounding * np.abs(each).max()
        )
        own = 0.3 * np.einsum("nabcd,b,c,d->na", samples, *vectors[1:])
        np.testing.assert_allclose(answer.gradients[0][0], own.mean(axis=0), atol=rounding * np.abs(own).max())
        if by_part:
            means = [p.mean(axis=0) for p in np.split(own, EDGES[1:])]
            np.testing.assert_allclose(answer.by_part.gradients[0], means, atol=rounding * np.abs(own).max())


def test_the_bits_do_not_depend_on_the_second_core(all_large, monkeypatch):
    samples = np.random.default_rng(0).standard_normal((20, *DIMS), dtype=np.float32)
    names, work = set(), halves.adder
    monkeypatch.setattr(halves, "adder", lambda *given: (names.add(threading.current_thread().name), work(*given))[1])
    alone = answers(samples, (0, 1, 2, 3))
    assert len(names) == 1
    monkeypatch.setattr(threads, "_free", True)
    answers(samples, ())
    assert len(names) == 1  # too little to wake anybody for
    monkeypatch.setattr(halves, "SHARED", 1)
    for _ in range(200):  # on a busy machine one thread may be through before the other has woken up
        shared = answers(samples, (0, 1, 2, 3))
        if len(names) == 2:
            break
    assert len(names) == 2
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one.by_part.rewards, other.by_part.rewards)
        for m in range(4):
            np.testing.assert_array_equal(one.gradients[m], other.gradients[m])


def test_every_sample_is_added_once_to_either_half(all_large, monkeypatch):
    added, work = [], halves.adder

    def counted(total, *rest):
        add = work(total, *rest)
        return lambda start, stop: (added.append((stop - start) * total.size), add(start, stop))[1]

    monkeypatch.setattr(halves, "adder", counted)
    samples = np.random.default_rng(0).standard_normal((20, *DIMS), dtype=np.float32)
    answers(samples, ())
    assert len(added) > 2
    assert sum(added) == samples.size


def test_missing_entries_show_in_a_sum_of_halves(all_large):
    samples = np.zeros((20, *DIMS), np.float32)
    samples[9, 5, 4, 3, 6] = np.nan
    with pytest.raises(SampleError, match="sample 9 "):
        answers(samples, ())


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_rows_of_a_larger_array_are_added_in_place(dtype, count):
    whole = np.random.default_rng(0).standard_normal((7, 40)).astype(dtype)
    total, rows = np.ones(60, dtype), whole[1 : 1 + count, 10:30]
    adding.add_rows(total[20:40], rows, 0.5)
    adding.add_rows(total[20:20], rows[:, :0], 0.5)
    expected = np.ones(60)
    expected[20:40] += 0.5 * rows.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-2 if dtype == np.float16 else 1e-6)


def test_rows_are_added_without_an_address_as_well(monkeypatch):
    monkeypatch.setattr(adding.cython_blas, "__pyx_capi__", {})
    adding._gemv.cache_clear()
    try:
        total = np.ones(3, np.float32)
        adding.add_rows(total, np.ones((4, 3), np.float32), 0.5)
        np.testing.assert_array_equal(total, np.full(3, 3.0))
    finally:
        adding._gemv.cache_clear()


def test_a_second_thread_works_only_where_blas_gave_one_up():
    seen = []

    def note(_):
        seen.append(threading.current_thread().name)

    with ThreadpoolController().limit(limits=1, user_api="blas"), threads.calm_blas(10):
        threads.share(note, range(2))  # whoever allows one thread gets one
    threads.share(note, range(2))
    assert set(seen) == {threading.current_thread().name}
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        several = max(pool["num_threads"] for pool in ThreadpoolController().info() if pool["user_api"] == "blas") > 1
        if not several or threads.cores() < 2:
            pytest.skip("no second core, or a BLAS without a second thread")
        meeting = threading.Barrier(2, timeout=60)  # one thread alone would break it
        with threads.calm_blas(10):
            threads.share(lambda _: meeting.wait(), range(2))


def test_products_of_a_round_are_the_same_in_halves(monkeypatch):
    rng = np.random.default_rng(0)
    tensor, partition = rng.standard_normal((6, 5, 4, 7)), Partition((6, 5, 4, 7), ((0, 1), (2, 3)))
    query = Query(partition, tuple(rng.standard_normal((9, *shape)) for shape in partition.shapes))
    usual = contraction.contract(tensor, query)
    monkeypatch.setattr(products, "HALVED", 1)
    monkeypatch.setattr(threads, "_free", True)
    halved = contraction.contract(tensor, query)
    for m in (0, 1):
        np.testing.assert_allclose(halved.gradients[m], usual.gradients[m], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_products_of_a_round_are_those_of_whole_matrices(count, monkeypatch):
    """A transposed matrix is multiplied as it lies in memory, without a copy; rows come in fours."""
    matrix, turned = np.random.default_rng(0).standard_normal((2, 30, 20))
    monkeypatch.setattr(products, "FITTED", 1)
    multiplied, work = [], np.matmul
    monkeypatch.setattr(np, "matmul", lambda *given, out: (multiplied.append((given, out)), work(*given, out=out))[1])
    for other in (matrix, turned.T):
        rows = np.random.default_rng(1).standard_normal((count, len(other)))
        product = products.multiply(rows, other)
        np.testing.assert_allclose(product, rows @ other, rtol=1e-12, atol=1e-12)
        assert product.shape == (count, other.shape[1])
        assert product.flags.c_contiguous
    assert len(multiplied) == (2 if count >= products.FOUR else 0)
    for ((rows, other), out), own in zip(multiplied, (matrix, turned), strict=False):
        assert len(rows) % products.FOUR == 0
        assert np.shares_memory(other, own)
        assert out.flags.f_contiguous == other.flags.f_contiguous


@pytest.mark.parametrize("count", range(1, 9))
def test_a_few_products_are_those_of_every_vector(count, monkeypatch):
    rng = np.random.default_rng(0)
    matrix, weights = rng.standard_normal((10, 12)), rng.standard_normal((count, 12))
    monkeypatch.setattr(few_replicas, "PIECE", 100)
    many = few_replicas._rounded_up(weights)
    assert len(many) == count + (count % 4 == 3)
    room = np.full((2, 10, len(many)), np.nan)
    few_replicas._few_products(matrix, many, room[1])
    np.testing.assert_allclose(room[1][:, :count], matrix @ weights.T, rtol=1e-12, atol=1e-12)
    assert np.isnan(room[0]).all()


def test_the_looks_of_a_batch_are_split_at_once(all_large, monkeypatch):
    """However many sub-batches end in it, and whatever blocks are asked about."""
    split, usual = [], few_replicas._Side.split
    monkeypatch.setattr(few_replicas._Side, "split", lambda *given: (split.append(1), usual(*given))[1])
    samples = np.random.default_rng(0).standard_normal((7, *DIMS), dtype=np.float32)
    for by_part, sides in (((), 1), ((0, 1, 2, 3), 2)):
        split.clear()
        Gradients(queries(by_part), 0.3, range(20)).add(DenseBatch(samples), 0)
        assert len(split) == sides


def test_an_error_of_either_thread_is_raised(monkeypatch):
    monkeypatch.setattr(threads, "_free", True)
    for first, second in ((0, 1), (1, 0)):
        with pytest.raises(ZeroDivisionError):
            threads.share(lambda number: 1 / number, (first, second))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # of Python, and of JAX where another test has loaded it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_process_has_a_second_thread_of_its_own(monkeypatch):
    monkeypatch.setattr(threads, "_free", True)
    threads.share(int, (1, 2))
    child = os.fork()
    if child == 0:
        done = []
        threads.share(done.append, (1, 2))
        os._exit(0 if sorted(done) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
