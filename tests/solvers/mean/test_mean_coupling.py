"""Groups that depend on each other: their covariance, how much they are worth, and that claims stay rare."""

import numpy as np
import pytest
from mean_noises import grouped, outer, rank_one, serial
from scipy.stats import binom

from tpca import MeanSolver
from tpca.solvers.mean.coupling import MIN_WORTH, Coupling, correlation, serial_covariance


def brute_force(sizes, time):
    """Covariance of x_g = S_g/√n_g from that of all samples, over the mean of its diagonal."""
    lags = np.abs(np.subtract.outer(np.arange(sum(sizes)), np.arange(sum(sizes))))
    sums = np.repeat(np.eye(len(sizes)), sizes, axis=1) / np.sqrt(sizes)[:, None]
    whole = sums @ np.exp(-lags / time) @ sums.T
    return whole / np.mean(np.diag(whole))


@pytest.mark.parametrize("sizes", [[5, 5, 5], [3, 1, 7, 4], [2, 2]])
@pytest.mark.parametrize("time", [0.2, 3.0, 500.0])
def test_the_covariance_of_sums_is_that_of_their_samples(sizes, time):
    found = serial_covariance(np.array(sizes, dtype=float), time)
    np.testing.assert_allclose(found, brute_force(sizes, time), rtol=1e-9)


def alike(seed, phi, sizes=(50,) * 8, entries=512, mean=0.0):
    """Inner products of the x of serially correlated samples, from the law of their sums."""
    sizes = np.array(sizes, dtype=float)
    root = np.linalg.cholesky(serial_covariance(sizes, -1 / np.log(phi)))
    x = root @ np.random.default_rng(seed).standard_normal((len(sizes), entries)) + mean * np.sqrt(sizes)[:, None]
    return x @ x.T, sizes


@pytest.mark.parametrize("sizes", [(50,) * 8, (60, 30, 30, 60, 60, 30, 60, 60, 50)])
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_likely_times_are_about_right_whatever_the_signal(sizes, mean):
    true = -1 / np.log(0.97)
    for seed in range(5):
        coupling = Coupling.of(*alike(seed, 0.97, sizes, mean=mean))
        # 512 entries tell θ to 10 % (from 200 simulated fits); one of the grid's steps and one standard error more.
        assert 0.6 * true < coupling.time < 1.8 * true
        np.testing.assert_allclose(coupling.matrix, serial_covariance(coupling.sizes, true), atol=0.15)
        away, there = coupling.roots()
        np.testing.assert_allclose(away @ there, np.eye(len(sizes)), atol=1e-9)


def test_a_time_that_was_seen_limits_what_groups_cannot_tell():
    products, sizes = alike(1, 0.5)
    free, seen = Coupling.of(products, sizes), Coupling.of(products, sizes, seen=3.0)
    assert seen.time == pytest.approx(1 / np.log(2))  # φ = ½
    assert seen.worth > 7.5
    assert free.time == 0 or free.time > seen.time
    contradicted = Coupling.of(*alike(1, 0.97), seen=3.0)
    assert contradicted.time > 20
    few = Coupling.of(*alike(1, 0.97, (100,) * 4), seen=60.0)  # too few groups to tell anything
    assert few.time == 0
    silent = Coupling.of(np.outer(np.sqrt(sizes), np.sqrt(sizes)), sizes, seen=60.0)  # a signal, and no noise
    assert silent.time == 0


def test_independent_groups_are_left_as_they_are():
    alarms, runs = 0, 300
    for seed in range(runs):
        x = np.random.default_rng(seed).standard_normal((8, 512))
        alarms += correlation(x @ x.T, np.full(8, 50.0)) > 0
    # More than two standard errors, told by 21 pairs: about 5 % (48 of 1000); at 7 % more than this in 1e-4 of cases.
    assert alarms <= binom.isf(1e-4, runs, 0.07)


def test_a_memory_as_long_as_the_samples_proves_nothing_and_says_so():
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal((160, 4, 5, 6)), axis=0)
    recovery = MeanSolver().run(walk)
    assert not recovery.found
    assert recovery.p_value == 1.0
    assert recovery.strength_interval == (0.0, np.inf)
    assert "nothing can be proven" in recovery.headline
    signal = MeanSolver().run(walk / 10 + 5 * outer(rank_one(rng, (4, 5, 6))))
    assert not signal.found
    assert grouped(walk).coupling.worth < MIN_WORTH


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "samples"), [(0.97, 400), (0.9, 200), (0.5, 100)])
def test_the_level_holds_where_groups_are_alike(phi, samples):
    claims, runs = 0, 100
    for seed in range(runs):
        claims += (
            MeanSolver(random_state=seed).run(serial(np.random.default_rng([seed, 5]), samples, (7,) * 3, phi)).found
        )
    # 5 %: more than this many in 1e-4 of all cases.  Tridiagonal correlations claimed 14 % at 0.97.
    assert claims <= binom.isf(1e-4, runs, 0.05)


def test_a_signal_in_dependent_noise_is_found():
    found = 0
    for seed in range(10):
        rng = np.random.default_rng([seed, 6])
        found += (
            MeanSolver(random_state=seed)
            .run(serial(rng, 300, (8, 8, 8), 0.9) + 2.2 * outer(rank_one(rng, (8,) * 3)))
            .found
        )
    # λ = 1.7 is found in 88 of 120 runs, 2.2 in about 95 %: fewer than this at 90 % in 1e-3 of cases.
    assert found >= binom.ppf(1e-3, 10, 0.9)
