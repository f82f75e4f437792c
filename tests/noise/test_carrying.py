"""Errors of vectors and lengths carried back from whitened data hold where noise is far louder in some directions."""

import math

import numpy as np
import pytest

from tpca.noise.carrying import carried, carried_interval, errors_of_entries
from tpca.tensors.blocks import unit

D, N = 8, 400  # in white noise a vector of 8 entries is known to an error of 0.13 from 400 samples


def smooth(rng):
    """W^-1 of noise whose neighbours are correlated 0.9."""
    values, axes = np.linalg.eigh(0.9 ** np.abs(np.subtract.outer(np.arange(D), np.arange(D))))
    return (axes * np.sqrt(values)) @ axes.T


def scales(rng):
    """W^-1 of noise with a scale of its own in every entry."""
    return np.diag(np.exp(rng.standard_normal(D)))


def rough(rng, inverse):
    return unit(rng.standard_normal(D))


def wave(rng, inverse):
    return unit(np.sin(math.pi * (np.arange(D) + 0.5) / D))


def like_noise(rng, inverse):
    return unit(inverse @ rng.standard_normal(D))


def estimate(rng, inverse, v):
    """u of the truth, its estimate from N samples of unit noise and strength, and the covariance of that."""
    u = unit(np.linalg.solve(inverse, v))
    found = unit(u + rng.standard_normal(D) / math.sqrt(N))
    return u, found, (np.eye(D) - np.outer(found, found)) / N


@pytest.mark.parametrize("noise", [smooth, scales])
@pytest.mark.parametrize("signal", [rough, wave, like_noise])
def test_intervals_hold_whatever_the_signal_looks_like(noise, signal):
    """95 % intervals of entries and lengths, over 300 draws.

    Over 1000 draws of each 94.4 to 95.4 % of entries were inside, and 92.6 to 97.1 % of lengths (with slopes at the
    estimate down to 90 and 87 %).  The share of entries inside scatters by up to 0.14 from draw to draw, its mean over
    300 draws by 0.008; that of lengths by 0.015.  Bounds are four of these away, chance 3e-5 for each of a dozen.
    """
    rng = np.random.default_rng(1)
    inside, lengths = [], []
    for _ in range(300):
        inverse = noise(rng)
        v = signal(rng, inverse)
        u, found, covariance = estimate(rng, inverse, v)
        known = carried(inverse, found, covariance)
        (errors,) = errors_of_entries([known.errors])
        inside.append(np.mean(np.abs(known.vector - v) <= 1.96 * errors))
        off = math.log(known.length / np.linalg.norm(inverse @ u))
        lengths.append(abs(off) <= 1.96 * known.relative)
    assert 0.91 <= np.mean(inside) <= 0.986, np.mean(inside)
    assert np.mean(lengths) >= 0.86, np.mean(lengths)


def test_small_errors_are_what_slopes_say():
    rng = np.random.default_rng(2)
    inverse, step = smooth(rng), 1e-5
    u = unit(rng.standard_normal(D))
    covariance = step**2 * (np.eye(D) - np.outer(u, u))
    known = carried(inverse, u, covariance)
    raw = inverse @ u
    length = float(np.linalg.norm(raw))
    v = raw / length
    jacobian = (inverse - np.outer(v, v @ inverse)) / length
    # Of second order, in errors of 1e-5 times the condition of W, 7.
    np.testing.assert_allclose(known.errors, jacobian @ covariance @ jacobian.T, atol=1e-3 * step**2)
    assert known.length == pytest.approx(length, rel=1e-6)
    slope = inverse @ v / length
    assert known.relative == pytest.approx(math.sqrt(slope @ covariance @ slope), rel=1e-3)


def test_of_what_is_not_known_nothing_is_said():
    """Errors of the size of the vector itself: √2 for the vector, and no entry by itself is known."""
    u = unit(np.ones(D))
    known = carried(np.diag(np.geomspace(1, 100, D)), u, np.eye(D))
    assert 1 < known.error <= math.sqrt(2)
    (errors,) = errors_of_entries([known.errors])
    assert np.linalg.norm(errors) <= math.sqrt(2) * (1 + 1e-12)
    assert known.relative > 0.2
    exact = carried(np.eye(D), u, np.zeros((D, D)))
    assert exact.error < 1e-7
    assert exact.length == pytest.approx(1.0, abs=1e-12)


def test_intervals_that_begin_at_zero_still_do():
    low, high = carried_interval(2.0, (0.0, 3.0), 10.0, 0.1)
    assert low == 0.0
    assert high == pytest.approx(20 * math.exp(math.hypot(math.log(1.5), 0.1)))
    low, high = carried_interval(2.0, (1.0, 3.0), 10.0, 0.0)
    assert (low, high) == pytest.approx((10.0, 30.0))


def test_errors_that_go_together_add_up():
    apart, alike, against = (carried_interval(2.0, (1.0, 4.0), 1.0, 0.3, rho) for rho in (0.0, 1.0, -1.0))
    assert alike == pytest.approx((2 * math.exp(-math.log(2) - 0.3), 2 * math.exp(math.log(2) + 0.3)))
    assert against == pytest.approx((2 * math.exp(0.3 - math.log(2)), 2 * math.exp(math.log(2) - 0.3)))
    assert alike[0] < apart[0] < against[0] < against[1] < apart[1] < alike[1]
    assert carried_interval(2.0, (0.0, 4.0), 1.0, 0.3, -1.0)[0] == 0.0
