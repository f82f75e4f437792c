"""Evidence is a martingale in symmetric noise of any kind, and knows when neighbours are alike."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from tpca.solvers.race.evidence import LEVELS, MIN_BLOCKS, Neighbours, Wealth

RUNS, STEPS = 4000, 12


def begun(sigma, first, rewards=()):
    """Wealth before the first bet, or after bets on rewards of one sample each."""
    wealth = Wealth()
    wealth.begin(sigma, first)
    wealth.add(np.asarray(rewards, dtype=float), np.ones(len(rewards)))
    return wealth


def provoked(rng, n):
    """Noise whose level depends on what came before: symmetric given the past, and nothing else."""
    x = rng.standard_normal((RUNS, n))
    for t in range(1, n):
        x[:, t] *= 1 + np.abs(x[:, t - 1])
    return x


NOISES = {
    "gaussian": lambda rng, n: rng.standard_normal((RUNS, n)),
    "heavy": lambda rng, n: rng.standard_cauchy((RUNS, n)),
    "drifting": lambda rng, n: rng.standard_normal((RUNS, n)) * np.geomspace(0.01, 100, n),
    "signs": lambda rng, n: rng.choice([-1.0, 1.0], (RUNS, n)),
    "provoked": provoked,
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("level", [0, 2])
def test_wealth_has_mean_one_in_symmetric_noise(noise, level):
    """At most 2^12 after 12 bets, and of mean exactly one; min(E, 20) has mean <= 1 and variance <= 20.

    False alarm: five standard errors, 3e-7 by the normal approximation.  At level 2 sums of four are bet on.
    """
    x = noise(np.random.default_rng(1), STEPS << level)
    bets = begun(1.0, 4).bets / 2 ** (level / 2)
    sums = x.reshape(RUNS, STEPS, -1).sum(axis=2)
    logs = math.log(2.0) - np.logaddexp(0.0, -2.0 * sums[:, :, None] * bets)  # all bets of all runs
    wealth = np.exp(logs.sum(axis=1)).mean(axis=1)
    assert np.minimum(wealth, 20).mean() < 1 + 5 * math.sqrt(20 / RUNS)
    one = begun(1.0, 4)
    one.add(x[0], np.full(STEPS << level, 4.0))
    assert one.won[level][0] == pytest.approx(math.log(wealth[0]), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("reward", [0.3, 1e9, -1e9])
def test_a_bet_is_one_plus_tanh_however_large(reward):
    wealth = begun(1.0, 1, [reward])
    assert np.isfinite(wealth.log)
    if reward > -1:
        assert wealth.log == pytest.approx(math.log(np.mean(1 + np.tanh(reward * wealth.bets))))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**32 - 1), st.floats(-2, 2))
def test_levels_see_the_same_samples_and_the_least_counts(n, seed, mean):
    rng = np.random.default_rng(seed)
    sums, sizes = rng.standard_normal(n) + mean, rng.integers(1, 9, n).astype(float)
    wealth = begun(1.0, 4)
    cut = int(rng.integers(0, n + 1))
    wealth.add(sums[:cut], sizes[:cut])
    wealth.add(sums[cut:], sizes[cut:])
    assert [level.count for level in wealth.sums] == [n >> a for a in range(LEVELS)]
    for a, level in enumerate(wealth.sums):
        whole = (n >> a) << a
        assert level.seen == pytest.approx(sizes[:whole].sum())
    assert wealth.log <= wealth.won[0][0] + 1e-12
    assert wealth.proof == 0.0 or n >= MIN_BLOCKS


@pytest.mark.parametrize("entries", [1, 5])
@pytest.mark.parametrize("fitted", [1, 2])
def test_the_autocorrelation_is_that_of_the_residuals(fitted, entries):
    rng = np.random.default_rng(0)
    sums, sizes = 3 * rng.standard_normal((40, entries)) + 3, rng.integers(1, 9, 40).astype(float)
    neighbours = Neighbours(entries)
    for some in (slice(0, 1), slice(1, 17), slice(17, 40)):
        neighbours.add(sums[some], sizes[some])
    places = np.cumsum(sizes) - sizes / 2
    design = np.sqrt(sizes)[:, None] * np.stack([np.ones(40), places], axis=1)[:, :fitted]
    y = sums / np.sqrt(sizes)[:, None]
    e = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    r = np.sum(e[1:] * e[:-1]) / np.sum(e * e)
    assert neighbours.autocorrelation(fitted) == pytest.approx(r + fitted / 40, rel=1e-6)


def share_alike(phi, n, trend=0.0, runs=100):
    """How often neighbours are taken for alike at level 0, after n sub-batches."""
    rng = np.random.default_rng(0)
    noise = lfilter([math.sqrt(1 - phi**2)], [1, -phi], rng.standard_normal((runs, n + 100)))[:, 100:]
    return np.mean([begun(1.0, 1, x).level > 0 for x in noise + np.linspace(0, trend, n)])


def test_neighbours_that_are_alike_are_seen():
    # White: three levels are looked at, each at 5 %: P(X > 30 of 100 at 14 %) = 2e-5.
    assert share_alike(0.0, 60) <= 0.3
    assert share_alike(0.9, 60) > 0.9
    assert share_alike(0.9, 24) > 0.6
    # A candidate that gets better by a whole standard deviation of its rewards is no slow direction.
    assert share_alike(0.0, 60, trend=1.0) <= 0.3


def test_evidence_of_a_slow_direction_does_not_count_at_once_and_a_loud_signal_is_none():
    """Ten turns of 16 sub-batches each that are all alike: level 0 is sure, what counts is not."""
    x = np.repeat(np.array([1.0, -0.5, 1.2, -0.3, 0.9, -0.4, 1.1, 0.2, 0.8, -0.2]), 16)
    x += 0.3 * np.random.default_rng(0).standard_normal(len(x))
    wealth = begun(1.0, 1, x)
    assert wealth.won[0][0] > 10
    assert wealth.proof <= math.log(2 / 0.05)
    # Rewards that rise while the candidate improves, with next to no noise: autocorrelation one, and still proven.
    wealth = begun(0.01, 1, 1 - np.exp(-np.arange(1, 21) / 5.0) + 3)
    assert wealth.level == 0
    assert wealth.proof == wealth.log
    assert wealth.log > 5
