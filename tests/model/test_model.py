import itertools

import numpy as np
import pytest
from scipy import stats

from tpca import SpikedTensor
from tpca.errors import ModelError, TpcaError
from tpca.model import NOISE_LAWS, Samples, cor, gauge, initial_overlap
from tpca.randomness import generator
from tpca.tensors.blocks import Partition

# False-alarm rate of every statistical test below: at most 1e-5.
ALPHA = 1e-5


@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dims", [(6, 6, 6, 6), (9, 4, 7, 5), (5, 5, 5, 5, 5), (8, 3, 5, 4, 6, 7)])
def test_correlation_is_exact_inside_every_pair(dims, correlation):
    truth = SpikedTensor.random(dims=dims, strength=2.0, correlation=correlation, random_state=3)
    assert truth.dims == dims
    for group in Partition.pairs(dims).groups:
        if len(group) == 2:
            assert cor(truth.vectors[group[0]], truth.vectors[group[1]]) == pytest.approx(correlation, abs=1e-12)
    for v in truth.vectors:
        assert np.linalg.norm(v) == pytest.approx(1.0)


def test_symmetric_gives_every_pair_the_same_vectors_and_every_pair_may_have_its_own_correlation():
    for order in (3, 4, 5, 6):
        truth = SpikedTensor.random((7,) * order, 1.0, correlation=1.0, symmetric=True, random_state=1)
        for v in truth.vectors[1:]:
            np.testing.assert_allclose(v, truth.vectors[0], atol=1e-12)
    truth = SpikedTensor.random((7,) * 4, 1.0, correlation=0.4, symmetric=True, random_state=1)
    np.testing.assert_allclose(truth.correlations(), [0.4, 0.4], atol=1e-12)
    np.testing.assert_allclose(truth.vectors[:2], truth.vectors[2:])
    truth = SpikedTensor.random((8, 8, 9, 9, 7), 1.0, random_state=3, correlation=[0.25, 1.0])
    np.testing.assert_allclose(truth.correlations(), [0.0, 0.25, 1.0], atol=1e-12)


def test_loss_and_overlap_ignore_the_sign():
    truth = SpikedTensor.random((5, 6, 7), 1.0, random_state=0)
    flipped = (truth.vectors[0], -truth.vectors[1], truth.vectors[2])
    np.testing.assert_allclose(truth.overlaps(flipped), 1.0)
    np.testing.assert_allclose(truth.loss(flipped), 0.0, atol=1e-12)
    rows = [v[None] for v in flipped]  # as an estimator has them
    np.testing.assert_array_equal(truth.overlaps(rows), truth.overlaps(flipped))
    np.testing.assert_array_equal(truth.loss(rows), truth.loss(flipped))
    for count in (0, 2):
        with pytest.raises(ModelError, match="of several components give one"):
            truth.overlaps([np.zeros((count, len(v))) for v in flipped])
    other = SpikedTensor((np.eye(5)[0], np.eye(6)[0]), 1.0)
    np.testing.assert_allclose(other.loss((np.eye(5)[1], np.eye(6)[0])), [2.0, 0.0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        *[
            (lambda s=s: SpikedTensor.random((4, 4, 4), s), "strength must be a positive finite number, got")
            for s in (0.0, -1.0, np.nan, np.inf)
        ],
        (lambda: SpikedTensor((np.eye(3)[0], 2 * np.eye(3)[0]), 1.0), "vector 1 must be a unit vector"),
        (lambda: SpikedTensor.random((4,), 1.0), "at least 2 axes"),
        (lambda: SpikedTensor.random((4, 1), 1.0), "at least 2 long"),
        (lambda: SpikedTensor.random((4, 4), 1.0, correlation=1.5), "correlation must lie in"),
        (lambda: SpikedTensor.random((8,) * 4, correlation=[0.1, 1.2]), "correlation must lie in"),
        (lambda: SpikedTensor.random((8,) * 4, correlation=[0.1, 0.2, 0.3]), "one for each of 2 pairs, got 3"),
        (lambda: SpikedTensor.random((4, 5), 1.0, symmetric=True), "equal dims"),
        (lambda: SpikedTensor.random((4, 5), 1.0).overlaps((np.eye(4)[0],)), "one vector per axis with lengths"),
        (lambda: SpikedTensor.random((4, 5), 1.0).stream(noise="pink"), "noise must be one of gaussian"),
        (lambda: SpikedTensor.random((4, 5)).stream(batch_size=0), "batch_size must be a whole number of at least 1"),
        (lambda: SpikedTensor.random((4, 5), 1.0).stream(dtype=np.int32), "float32 or float64"),
    ],
)
def test_bad_models_are_refused(make, says):
    with pytest.raises(ModelError, match=says):
        make()


def test_purposes_of_one_seed_do_not_share_numbers():
    drawn = [generator(5, purpose).standard_normal(4) for purpose in ("truth", "samples", "paper", "race", "law")]
    assert len({tuple(d) for d in drawn}) == 5
    np.testing.assert_array_equal(generator(5, "race").standard_normal(4), drawn[3])
    # With a shared generator the first noise entries would be the truth's own normals, up to scale: correlation 1.
    truth = SpikedTensor.random((50, 2), 1e-9, random_state=3)
    noise = next(iter(truth.stream(random_state=3, batch_size=1)))[0].ravel()[:50]
    # |correlation| of 50 independent pairs exceeds 0.7 with probability 1e-8.
    assert abs(np.corrcoef(noise, truth.vectors[0])[0, 1]) < 0.7
    with pytest.raises(TpcaError, match="random_state must be a whole number of at least 0, got -1"):
        generator(-1, "truth")


def first_samples(samples, n):
    return np.stack(list(itertools.islice(itertools.chain.from_iterable(samples), n)))


@pytest.mark.parametrize("noise", list(NOISE_LAWS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_streams_repeat_and_do_not_depend_on_the_batch_size(noise, dtype):
    truth = SpikedTensor.random((3, 5, 3), 2.0, random_state=1)
    expected = first_samples(truth.stream(noise=noise, random_state=7, batch_size=13, dtype=dtype), 26)
    again = truth.stream(noise=noise, random_state=7, batch_size=4, dtype=dtype)
    np.testing.assert_array_equal(first_samples(again, 26), expected)
    np.testing.assert_array_equal(first_samples(again, 26), expected)
    assert expected.dtype == dtype
    assert not np.array_equal(first_samples(truth.stream(noise=noise, random_state=8, dtype=dtype), 26), expected)


@pytest.mark.parametrize("noise", ["gaussian", "rademacher", "uniform", "bounded", "correlated", "student-t"])
def test_the_mean_of_the_samples_is_the_signal(noise):
    truth, n = SpikedTensor.random((3, 4, 5), 2.0, random_state=5), 4000
    mean = first_samples(truth.stream(noise=noise, random_state=3), n).mean(axis=0)
    # 60 entries of variance <= 1/n: P(any |error| > 6.5/sqrt(n)) < 60 * 8e-11 for light tails; Student t(3) sums of
    # 4000 are within a factor two of that in the tail.
    assert np.abs(mean - truth.signal()).max() < 6.5 / np.sqrt(n)


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        ("gaussian", stats.norm.cdf),
        ("uniform", stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)).cdf),
        ("student-t", lambda x: stats.t(3).cdf(x * np.sqrt(3))),
    ],
)
def test_noise_entries_follow_their_law(noise, law):
    noise_only = first_samples(Samples((5, 8), noise=noise, random_state=2), 500).ravel()
    assert stats.kstest(noise_only, law).pvalue > ALPHA


def test_rademacher_bounded_and_correlated_noise_are_what_they_say():
    signs = first_samples(Samples((5, 7), noise="rademacher", random_state=2), 400)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    # 14000 fair signs: |sum| < 4.5 sqrt(n) fails with probability 7e-6.
    assert abs(signs.sum()) < 4.5 * np.sqrt(signs.size)
    bounded = first_samples(Samples((5, 7), noise="bounded", random_state=2), 50)
    np.testing.assert_allclose(np.linalg.norm(bounded.reshape(50, -1), axis=1), 1.0)
    correlated = first_samples(Samples((4, 6), noise="correlated", random_state=2), 20_000).reshape(-1, 6)
    covariance = correlated.T @ correlated / len(correlated)
    expected = 0.5 * np.eye(6) + 0.25 * (np.roll(np.eye(6), 1, 0) + np.roll(np.eye(6), -1, 0))
    # Entries of a sample covariance of 80000 rows: standard error < 0.5/sqrt(80000) * sqrt 2 = 0.0025; 0.015 is six
    # of them.
    np.testing.assert_allclose(covariance, expected, atol=0.015)
    assert np.linalg.eigvalsh(expected).max() == pytest.approx(1.0)


def test_c0_is_the_overlap_that_a_random_start_exceeds_and_gauges_follow_the_paper():
    # By construction P(some mode's squared overlap * d < c0) <= delta; the quantile of one mode at level delta/order.
    dims, delta, trials = (12, 12, 12, 12), 0.2, 4000
    c0 = initial_overlap(dims, delta)
    starts = np.random.default_rng(0).standard_normal((trials, 4, 12))
    squared = starts[:, :, 0] ** 2 / np.sum(starts**2, axis=2)
    failures = np.mean((squared * 12 < c0).any(axis=1))
    # standard error sqrt(.2*.8/4000) = 0.0063; five of them on top of delta.
    # The modes are independent and each misses with probability delta/4: 1 - (1 - 0.05)^4 = 0.185.
    assert abs(failures - 0.185) < 5 * 0.0063
    truth = SpikedTensor.random((8,) * 5, 1.0, correlation=0.5, random_state=0)
    gauges = gauge(truth.dims, truth.correlations(), c0=0.04)
    np.testing.assert_allclose(gauges, [0.2 / np.sqrt(8), 0.5 / 8**0.5 + 0.04 / 8, 0.5 / 8**0.5 + 0.04 / 8])
