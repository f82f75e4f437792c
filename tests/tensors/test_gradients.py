"""What sums of gradients keep and give, beside the answers themselves (``test_batches.py``)."""

import numpy as np
import pytest

from tpca.tensors import DenseBatch, Gradients, Query, SparseBatch
from tpca.tensors.blocks import Partition

DIMS = (3, 4, 5)


def samples_of(n, dtype=np.float64):
    return np.random.default_rng(0).standard_normal((n, *DIMS)).astype(dtype)


def sparse_of(n):
    """Samples that are not added up."""
    coords = np.stack([np.repeat(entries, n) for entries in np.indices(DIMS).reshape(3, -1)])
    values = np.random.default_rng(0).standard_normal(coords.shape[1])
    order = np.argsort(owners := np.tile(np.arange(n), 60), kind="stable")
    return SparseBatch(coords[:, order], values[order], owners[order], n, DIMS)


def query_of(count=2, dtype=np.float64):
    rng = np.random.default_rng(1)
    return Query(Partition.singles(DIMS), tuple(rng.standard_normal((count, d)).astype(dtype) for d in DIMS))


def answered(batches, query, scale=1.0):
    kept = Gradients([query], scale)
    for batch in batches:
        kept.add(batch)
    kept.finish()
    return kept.answers[0]


@pytest.mark.parametrize("batch", [DenseBatch(samples_of(5)), sparse_of(5)])
def test_what_does_not_fit_into_half_precision_is_infinite_and_not_a_warning(batch):
    answer = answered([batch], query_of(dtype=np.float16), 1e8)
    assert all(np.isinf(g).any() for g in answer.gradients.values())
    assert np.isfinite(answer.rewards).all()
    assert answer.nbytes == 2 * (3 + 4 + 5) * 2 + 2 * 8


@pytest.mark.parametrize("n", [1, 2, 7])
def test_samples_are_never_changed(n):
    samples = samples_of(n)
    samples.flags.writeable = False
    before = samples.copy()
    answered([DenseBatch(samples[:1]), DenseBatch(samples[1:])], query_of(), 3.0)
    np.testing.assert_array_equal(samples, before)


def test_bytes_are_those_of_the_arrays_held_and_a_closed_group_holds_the_smaller():
    query = query_of(3, np.float16)
    for dtype in (np.float32, np.float64):
        kept = Gradients([query])
        assert kept.nbytes == 0
        kept.add(DenseBatch(samples_of(4, dtype)))
        assert kept.nbytes == 60 * np.dtype(dtype).itemsize
        kept.close()  # 36 numbers in float64 are 288 bytes: less than a sum in double precision, more than in single
        assert kept.nbytes == min(288, 60 * np.dtype(dtype).itemsize)
    slow = Gradients([query, query])
    slow.add(sparse_of(1))
    assert slow.nbytes == 2 * 8 * 3 * (3 + 4 + 5)


def test_a_sum_of_many_samples_in_single_precision_stays_accurate():
    # 4000 numbers with mean 10 and unit spread in batches of 40: a plain running sum in float32 errs by about
    # sqrt(100) * 2^-24 relative, 6e-7; 1e-5 is far beyond, and far below what the noise of the mean (2e-3) would show.
    samples = samples_of(4000, np.float32) + np.float32(10)
    answer = answered([DenseBatch(samples[i : i + 40]) for i in range(0, 4000, 40)], query_of(1))
    exact = answered([DenseBatch(samples.astype(np.float64))], query_of(1))
    np.testing.assert_allclose(answer.rewards, exact.rewards, rtol=1e-5, atol=1e-4)
