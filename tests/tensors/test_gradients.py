import itertools

import numpy as np
import pytest

import naive
from tpca.tensors import DenseBatch, Gradients, Query
from tpca.tensors.blocks import Partition

DIMS = (3, 4, 5)
PARTITIONS = [
    Partition.singles(DIMS),
    Partition.pairs(DIMS),
    Partition(DIMS, ((2, 0), (1,))),
    Partition(DIMS, ((1, 2, 0),)),
]


class OneByOne:
    """Samples that cannot be added up: every one is contracted by itself, in the slowest way."""

    first = dropped = 0
    summable = False

    def __init__(self, samples):
        self._samples = samples
        self.nbytes = samples.nbytes

    def __len__(self):
        return len(self._samples)

    def __getitem__(self, some):
        return OneByOne(self._samples[some])

    def add_gradients(self, queries, sums):
        for query, own in zip(queries, sums, strict=True):
            for sample, r in itertools.product(self._samples, range(len(query.replicas[0]))):
                blocks = [block[r] for block in query.replicas]
                for m in query.blocks:
                    own[m][r] += naive.einsum_gradient(sample, query.partition.groups, blocks, m)


def samples_of(n, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal((n, *DIMS)).astype(dtype)


def query_of(partition, count=2, dtype=np.float64, seed=1, **more):
    rng = np.random.default_rng(seed)
    replicas = tuple(rng.standard_normal((count, *shape)).astype(dtype) for shape in partition.shapes)
    return Query(partition, replicas, **more)


def reduced(kind, samples, cuts, queries, scale):
    batches = [kind(part) for part in np.split(samples, cuts) if len(part)]
    kept = Gradients(queries, scale)
    for batch in batches:
        kept.add(batch)
    assert kept.n == len(samples)
    kept.finish()
    return kept.answers


@pytest.mark.parametrize("kind", [DenseBatch, OneByOne])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradients_come_in_the_type_of_their_replicas_and_rewards_in_double(kind, dtype):
    samples, query = samples_of(5), query_of(PARTITIONS[0], dtype=dtype, gradients_of=(2, 0))
    (answer,) = reduced(kind, samples, [], [query], 1.0)
    assert list(answer.gradients) == [2, 0]
    assert {g.dtype for g in answer.gradients.values()} == {np.dtype(dtype)}
    assert answer.rewards.dtype == np.float64
    assert answer.nbytes == 2 * (3 + 5) * np.dtype(dtype).itemsize + 2 * 8


@pytest.mark.parametrize("kind", [DenseBatch, OneByOne])
def test_what_does_not_fit_into_half_precision_is_infinite_and_not_a_warning(kind):
    query = query_of(PARTITIONS[0], dtype=np.float16)
    (answer,) = reduced(kind, 1e8 * samples_of(5), [], [query], 1.0)
    assert all(np.isinf(g).any() for g in answer.gradients.values())
    assert np.isfinite(answer.rewards).all()


@pytest.mark.parametrize("n", [1, 2, 7])
def test_samples_are_never_changed(n):
    samples = samples_of(n)
    samples.flags.writeable = False
    before = samples.copy()
    for cuts in ([], [1]):
        reduced(DenseBatch, samples, cuts, [query_of(PARTITIONS[0])], 3.0)
    np.testing.assert_array_equal(samples, before)


def test_bytes_are_those_of_the_arrays_held_and_a_closed_group_holds_the_smaller():
    query = query_of(PARTITIONS[0], count=3, dtype=np.float16)
    for dtype in (np.float32, np.float64):
        kept = Gradients([query])
        assert kept.nbytes == 0
        kept.add(DenseBatch(samples_of(4, dtype)))
        assert kept.nbytes == 60 * np.dtype(dtype).itemsize
        kept.close()  # 36 numbers in float64 are 288 bytes: less than a sum in double precision, more than in single
        assert kept.nbytes == min(288, 60 * np.dtype(dtype).itemsize)
    slow = Gradients([query, query])
    slow.add(OneByOne(samples_of(1)))
    assert slow.nbytes == 2 * 8 * 3 * (3 + 4 + 5)


def test_a_sum_of_many_samples_in_single_precision_stays_accurate():
    # 4000 numbers with mean 10 and unit spread in batches of 40: a plain running sum in float32 errs by about
    # sqrt(100) * 2^-24 relative, 6e-7; 1e-5 is far beyond, and far below what the noise of the mean (2e-3) would show.
    samples = samples_of(4000, np.float32) + np.float32(10)
    query = query_of(PARTITIONS[0], count=1)
    (answer,) = reduced(DenseBatch, samples, list(range(40, 4000, 40)), [query], 1.0)
    (exact,) = reduced(DenseBatch, samples.astype(np.float64), [], [query], 1.0)
    np.testing.assert_allclose(answer.rewards, exact.rewards, rtol=1e-5, atol=1e-4)
