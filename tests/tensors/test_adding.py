"""Long sums: shared by two threads, with the same bits as by one."""

import numpy as np
import pytest

from tpca import threads
from tpca.errors import SampleError
from tpca.tensors import DenseBatch
from tpca.tensors import kernels as adding
from tpca.tensors.kernels import LONG, MANY, add_rows, portions

DIMS = (3, 5, 7001)


def long_batch(dtype, extra=1):
    count = LONG // int(np.prod(DIMS)) + extra
    return np.random.default_rng(0).standard_normal((count, *DIMS)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_has_the_same_bits_whoever_adds_it_up(dtype, monkeypatch):
    samples = long_batch(dtype)
    found = []
    for second in (False, True):
        monkeypatch.setattr(threads, "_free", second)
        total = DenseBatch(samples).add_to(None, 0.5)
        found.append(DenseBatch(samples[::-1].copy()).add_to(total.copy()))
    np.testing.assert_array_equal(*found)
    exact = 1.5 * samples.sum(axis=0, dtype=float)
    # Each of the n additions rounds off half a unit in the last place of a sum below 2^7.
    np.testing.assert_allclose(found[0], exact, rtol=0, atol=2 * len(samples) * 2.0**6 * np.finfo(dtype).eps)


def test_the_second_thread_does_some_of_the_work(monkeypatch):
    done, names = [], set()
    both = threads.threading.Barrier(2, timeout=60)  # two pieces at a time: one thread alone would wait for ever

    def work(piece):
        both.wait()
        done.append(piece)
        names.add(threads.threading.current_thread().name)

    monkeypatch.setattr(threads, "_free", True)
    threads.share(work, range(6))
    assert sorted(done) == list(range(6))
    assert len(names) == 2
    monkeypatch.setattr(threads, "_free", False)
    done.clear()
    threads.share(done.append, range(3))  # no core is free
    assert done == [0, 1, 2]


def test_a_missing_entry_of_a_long_batch_is_named():
    samples = long_batch(np.float32)
    samples[3, 1, 2, 6999] = np.nan
    with pytest.raises(SampleError, match="sample 13 contains NaN"):
        DenseBatch(samples, unchecked=10).add_to(None)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 25, MANY, 2 * MANY + 3])
def test_rows_are_added_in_portions_that_blas_has_loops_for(count):
    long, short = portions(count, adding.STREAMED), portions(count, adding.STREAMED - 1)
    assert sum(long) == sum(short) == count
    assert set(long) <= {4, 2, 1}
    assert len(long) <= count // 4 + 2
    assert len(short) == -(-count // MANY)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_long_rows_in_portions_and_pieces_have_the_sum_of_all(count, fresh, monkeypatch):
    """The sum is set by the first portion only, in every piece of columns."""
    whole = np.random.default_rng(0).standard_normal((7, 50))
    total, rows = np.full(33, np.nan if fresh else 2.0), whole[:count, 4:37]
    monkeypatch.setattr(adding, "STREAMED", 1)
    monkeypatch.setattr(adding, "COLUMNS", 8)
    add_rows(total, rows, 0.5, fresh)
    np.testing.assert_allclose(total, 0.5 * rows.sum(axis=0) + (0 if fresh else 2), rtol=1e-13)
