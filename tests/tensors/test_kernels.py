"""Long sums and large products: shared by two threads, with the same bits as by one."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from tpca import threads
from tpca.errors import SampleError
from tpca.tensors import DenseBatch, Query, contract, contraction, dense
from tpca.tensors.blocks import Partition
from tpca.tensors.dense import SHARED, add_rows

DIMS = (3, 5, 7001)


def long_batch(dtype):
    return np.random.default_rng(0).standard_normal((SHARED // int(np.prod(DIMS)) + 1, *DIMS)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_has_the_same_bits_whoever_adds_it_up(dtype, monkeypatch):
    samples = long_batch(dtype)
    found = []
    for second in (False, True):
        monkeypatch.setattr(threads, "_free", second)
        total = DenseBatch(samples).add_to(None)
        found.append(DenseBatch(samples[::-1].copy()).add_to(total.copy()))
    np.testing.assert_array_equal(*found)
    exact = 2 * samples.sum(axis=0, dtype=float)
    # Each of the n additions rounds off half a unit in the last place of a sum below 2^7.
    np.testing.assert_allclose(found[0], exact, rtol=0, atol=2 * len(samples) * 2.0**6 * np.finfo(dtype).eps)
    samples[3, 1, 2, 6999] = np.nan
    with pytest.raises(SampleError, match="sample 13 contains NaN"):
        DenseBatch(samples, unchecked=10).add_to(None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", ["at once", "in pieces of columns"])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_rows_of_a_larger_array_are_added_in_place(count, how, dtype, monkeypatch):
    if "pieces" in how:
        for name in ("SHARED", "WIDE", "COLUMNS"):
            monkeypatch.setattr(dense, name, 8 if name == "COLUMNS" else 1)
    whole = np.random.default_rng(0).standard_normal((9, 60)).astype(dtype)
    total, rows = np.ones(60, dtype), whole[1 : 1 + count, 10:43]
    add_rows(total[20:53], rows)
    add_rows(total[20:20], rows[:, :0])
    expected = np.ones(60)
    expected[20:53] += rows.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_products_of_replicas_are_the_same_one_by_one_and_in_halves(count, monkeypatch):
    rng, dims = np.random.default_rng(0), (6, 5, 4, 7)
    tensor, partition = rng.standard_normal(dims), Partition(dims, ((0, 1), (2, 3)))
    query = Query(partition, tuple(rng.standard_normal((count, *shape)) for shape in partition.shapes))
    usual = contract(tensor, query)
    monkeypatch.setattr(contraction, "HALVED", 1)
    monkeypatch.setattr(contraction, "FOUR", 1)
    monkeypatch.setattr(threads, "_free", True)
    halved = contract(tensor, query)
    for m in (0, 1):
        np.testing.assert_allclose(halved.gradients[m], usual.gradients[m], rtol=1e-12, atol=1e-12)


# The second thread ---------------------------------------------------------------------------------------------------


def test_the_second_thread_does_some_of_the_work(monkeypatch):
    done, names = [], set()
    both = threading.Barrier(2, timeout=60)  # two pieces at a time: one thread alone would wait for ever

    def work(piece):
        both.wait()
        done.append(piece)
        names.add(threading.current_thread().name)

    monkeypatch.setattr(threads, "_free", True)
    threads.share(work, range(6))
    assert sorted(done) == list(range(6))
    assert len(names) == 2
    monkeypatch.setattr(threads, "_free", False)
    done.clear()
    threads.share(done.append, range(3))  # no core is free
    assert done == [0, 1, 2]


def test_a_second_thread_works_only_where_blas_gave_one_up():
    seen = []

    def note(_):
        seen.append(threading.current_thread().name)

    with ThreadpoolController().limit(limits=1, user_api="blas"), threads.calm_blas():
        threads.share(note, range(2))  # whoever allows one thread gets one
    threads.share(note, range(2))
    assert set(seen) == {threading.current_thread().name}
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        several = max(pool["num_threads"] for pool in ThreadpoolController().info() if pool["user_api"] == "blas") > 1
        if not several or threads.cores() < 2:
            pytest.skip("no second core, or a BLAS without a second thread")
        meeting = threading.Barrier(2, timeout=60)  # one thread alone would break it
        with threads.calm_blas():
            threads.share(lambda _: meeting.wait(), range(2))


@pytest.mark.parametrize("pieces", [(0, 1), (1, 0)])
@pytest.mark.parametrize("error", [ZeroDivisionError, IndexError])
def test_an_error_of_either_thread_is_raised(pieces, error, monkeypatch):
    def work(piece):
        if piece == 0:
            raise error

    monkeypatch.setattr(threads, "_free", True)
    with pytest.raises(error):
        threads.share(work, pieces)


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
