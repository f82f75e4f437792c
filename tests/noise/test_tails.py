"""Heavy tails are seen, rows of unequal scale and skewed noise are not taken for them, and clipping pays."""

import numpy as np
import pytest

from tpca.noise import EntrySizes, clip_for
from tpca.tensors import Clipped, DenseBatch, TensorSum

DIMS, N = (8, 8, 8), 32


def sizes_of(samples, exposure=None):
    sizes = EntrySizes()
    sizes.add(DenseBatch(samples, exposure=exposure), 0)
    return sizes


def rows_of_unequal_scale(rng):
    scales = [np.exp(rng.standard_normal(d)) for d in DIMS]
    return rng.standard_normal((N, *DIMS)) * np.einsum("a,b,c->abc", *scales)


# Histograms of 16 000 entries: gains are known to a few per cent; t with 3 degrees of freedom has 1.4, Gaussian 0.97.
# Of lopsided tails: some 1500 entries beyond the bound, all on one side.
LAWS = {
    "gaussian": (lambda rng: rng.standard_normal((N, *DIMS)), False),
    "uniform": (lambda rng: rng.random((N, *DIMS)) - 0.5, False),
    "unequal scales": (rows_of_unequal_scale, False),
    "samples of different size": (
        lambda rng: rng.standard_normal((N, *DIMS)) * rng.exponential(size=(N, 1, 1, 1)),
        False,
    ),
    "skewed": (lambda rng: rng.standard_normal((N, *DIMS)) ** 2 - 1, False),
    "t3": (lambda rng: rng.standard_t(3, (N, *DIMS)), True),
    "t2.5": (lambda rng: rng.standard_t(2.5, (N, *DIMS)), True),
}


@pytest.mark.parametrize("law", LAWS)
def test_entries_are_clipped_where_that_pays(law, rng):
    draw, clipped = LAWS[law]
    assert (clip_for(sizes_of(draw(rng))) is not None) is clipped


@pytest.mark.parametrize("law", LAWS)
def test_entries_that_are_missing_have_no_size(law, rng):
    """Two thirds of the entries, missing more often in some rows than in others: gains are still known to some %."""
    draw, clipped = LAWS[law]
    samples = draw(rng)
    there = rng.random(samples.shape) < np.linspace(0.3, 1, DIMS[-1])
    sizes = sizes_of(np.where(there, samples, 0), there)
    assert (clip_for(sizes) is not None) is clipped
    assert sizes.counts.sum() == sizes.entries == there.sum()  # no zero among them


@pytest.mark.parametrize("heavy", [False, True])
def test_of_large_samples_some_entries_that_are_there_are_looked_at(heavy, rng):
    sample = (rng.standard_t(3, (1, 80, 80, 80)) if heavy else rng.standard_normal((1, 80, 80, 80))) * np.arange(1, 81)
    there = rng.random(sample.shape) < np.linspace(0.3, 1, 80)
    sizes = sizes_of(np.where(there, sample, 0), there)
    assert (clip_for(sizes) is not None) is heavy
    assert sizes.counts.sum() == sizes.entries > 10_000


@pytest.mark.parametrize("factor", [1e-300, 1.0, 1e300])
def test_the_bound_follows_the_scale_of_the_data(factor, rng):
    samples = rng.standard_t(3, (N, *DIMS))
    one, other = clip_for(sizes_of(samples)), clip_for(sizes_of(samples * factor))
    np.testing.assert_allclose(other.scales[0], factor * one.scales[0], rtol=0.05)  # a bin is 4 %
    assert other.share == pytest.approx(one.share, abs=0.02)


def test_a_clipped_mean_is_worth_more(rng):
    """Variance of a mean of t with 2.5 degrees of freedom, in units of the signal: plain 5, clipped about 1.9."""
    clip = clip_for(sizes_of(rng.standard_t(2.5, (N, *DIMS))))
    signal = 0.1
    samples = rng.standard_t(2.5, (2000, *DIMS)) + signal
    part = Clipped([TensorSum()], clip.scales)
    part.add(DenseBatch(samples), 0)
    mean = part.parts[0].total / len(samples) / clip.share
    # 512 entries, each with a variance of about 1.9/2000: the mean of all is known to 0.0014, their variance to 6 %.
    assert abs(mean.mean() - signal) < 0.01
    assert len(samples) * mean.var() < 2.4 < len(samples) * samples.mean(axis=0).var()


def test_entries_beyond_the_bound_are_counted_by_sign(rng):
    samples = rng.standard_normal((50, *DIMS))
    part = Clipped([TensorSum()], (np.full(8, 1.5), np.ones(8), np.ones(8)))
    part.add(DenseBatch(samples), 0)
    assert part.beyond.tolist() == [np.sum(samples > 1.5), np.sum(samples < -1.5)]


def test_samples_of_zeros_say_nothing():
    assert clip_for(sizes_of(np.zeros((3, *DIMS)))) is None


def test_sparse_samples_say_nothing_and_do_no_harm(rng):
    sizes, zeros = sizes_of(rng.standard_normal((5, *DIMS))), sizes_of(np.zeros((5, *DIMS)))
    rows = [row.copy() for row in sizes.rows]
    sizes.merge(zeros)
    assert (sizes.n, sizes.entries) == (5, 10 * 512)
    zeros.merge(sizes)
    assert all(np.array_equal(one, other) for one, other in zip(zeros.rows, rows, strict=True))
    rare = 10 * rng.standard_normal((N, *DIMS)) * (rng.random((N, *DIMS)) < 0.01)
    assert clip_for(sizes_of(rare)) is None


@pytest.mark.parametrize("dims", [DIMS, (40, 30, 30)])
@pytest.mark.parametrize("closing", [False, True])
def test_samples_that_are_looked_at_later_say_the_same(dims, closing):
    """Small and large ones, in batches and parts; those of a closed group are not kept until then."""
    samples = np.random.default_rng(1).standard_t(3, (12, *dims))
    parts = {}
    for later in (False, True):
        whole, other = EntrySizes(later), EntrySizes(later)
        whole.add(DenseBatch(samples[:4]), 0)
        whole.add(DenseBatch(samples[4:8]), 4)
        other.add(DenseBatch(samples[8:]), 8)
        assert bool(whole._waiting) == later
        if closing:
            whole.close()
            other.close()
            assert whole._waiting == other._waiting == ()
        whole.merge(other)
        whole.settle()
        parts[later] = whole
    now, later = parts[False], parts[True]
    assert (now.n, now.entries) == (later.n, later.entries)
    np.testing.assert_array_equal(now.counts, later.counts)
    for row, other in zip(now.rows, later.rows, strict=True):
        np.testing.assert_allclose(row, other, rtol=1e-12, atol=1e-12)  # sums in another order
