"""The correlation time of samples."""

import math

import numpy as np
import pytest

from noises import serial
from tpca.noise import Contrasts, Dependence

RNG = np.random.default_rng(0)


def energies(vectors, level):
    """Mean energy of the contrasts of one level, written as in the formula."""
    b = 2**level
    sums = vectors[: len(vectors) // (2 * b) * 2 * b].reshape(-1, 2, b, vectors.shape[1]).sum(axis=2)
    return np.mean(np.sum((sums[:, 1] - sums[:, 0]) ** 2, axis=1)) / (2 * b)


def of(vectors):
    contrasts = Contrasts()
    for vector in vectors:
        contrasts.add(vector)
    return contrasts


def test_energies():
    vectors = RNG.standard_normal((45, 7)) + 3.0
    contrasts = of(vectors)
    unit = 4.0 ** np.frexp(np.abs(vectors[1] - vectors[0]).max())[1]
    found = [unit * e / c for e, c in zip(contrasts.energies, contrasts.counts, strict=True) if c]
    np.testing.assert_allclose(found, [energies(vectors, j) for j in range(5)], rtol=1e-5)  # single precision
    assert contrasts.counts[:5] == [22, 11, 5, 2, 1]
    assert contrasts.nbytes <= 7 * (4 * 7 + 8)  # a sum a level and a contrast in single precision, the first vector


def test_dimensions():
    """Of white vectors as many as there are, of equal ones one: 10 standard errors of 10^4 squares of products."""
    assert of(RNG.standard_normal((20_000, 30))).freedom == pytest.approx(30, rel=0.2)
    assert of(RNG.standard_normal((20_000, 1)) * np.ones(30)).freedom == pytest.approx(1, rel=0.6)


@pytest.mark.parametrize(
    ("phi", "window", "time"), [(0.5, 1, 3.0), (0.9, 1, 19.0), (0.97, 1, 197 / 3), (0.0, 10, 10.0)]
)
def test_correlation_times(phi, window, time):
    """From as many samples as it asks for itself: mean of 10 estimates.

    An estimate at 2^J >= 2τ misses up to 3κ/2^J of AR noise, of which P_J removes all but exponentially small terms; at
    φ = 0.9 these are a fifth.  Its standard error is ``error`` τ, a third of it for 10 estimates; 4 of those.
    """
    found = []
    for _ in range(10):
        contrasts, vectors = Contrasts(), serial(2048, (200,), RNG, phi, window)
        for n, vector in enumerate(vectors, start=1):
            contrasts.add(vector)
            if n >= 32 and n & (n - 1) == 0 and contrasts.dependence().settled:
                break
        found.append(contrasts.dependence())
    times, error = [one.time for one in found], max(one.error for one in found)
    assert np.mean(times) == pytest.approx(time, rel=0.2 + 4 * error / math.sqrt(10))
    assert all(one.present and one.block >= 1.2 * time for one in found)


@pytest.mark.parametrize("noisy", [0.1, 1.0])
def test_samples_that_come_in_sessions(noisy):
    """Runs of 20 that have something in common: τ = (20 + noisy²)/(1 + noisy²), and most neighbours look independent.

    Mean of 10 estimates, each with a standard error of about a third, from two runs of a session or more.
    """
    found = []
    for _ in range(10):
        contrasts = Contrasts()
        shared = np.repeat(RNG.standard_normal((30, 200)), 20, axis=0)
        for n, vector in enumerate(shared + noisy * RNG.standard_normal(shared.shape), start=1):
            contrasts.add(vector)
            if n >= 32 and n & (n - 1) == 0 and contrasts.dependence().settled:
                break
        found.append(contrasts.dependence())
    assert all(one.present for one in found)
    assert np.mean([one.time for one in found]) == pytest.approx((20 + noisy**2) / (1 + noisy**2), rel=0.45)


@pytest.mark.parametrize("size", [4, 30, 300])
def test_independent_samples_are_rarely_taken_for_dependent(size):
    """Three standard errors one-sided, at four levels and with errors that are estimates themselves: 1 in 40.

    Measured 1 to 2.3 of 100 (660 runs); of 150 then more than 13 have a chance below 10^-4.
    """
    found = [of(RNG.standard_normal((32, size))).dependence() for _ in range(150)]
    assert sum(one.present for one in found) <= 13


def test_what_all_samples_have_in_common_does_not_count():
    vectors = RNG.standard_normal((64, 50))
    plain, shifted = of(vectors).dependence(), of(vectors + 1e6).dependence()
    assert shifted.time == pytest.approx(plain.time, rel=1e-5)


def test_neighbours_that_alternate_need_no_blocks():
    assert of(serial(64, (200,), RNG, phi=-0.4)).dependence().block == 1


def test_too_few_samples_say_nothing():
    for n in (0, 1, 2, 3):
        assert not of(RNG.standard_normal((n, 5))).dependence().present
    assert not of(np.ones((32, 5))).dependence().present


def test_blocks():
    assert Dependence(1.1, 0.01, 32).block == 1
    assert Dependence(3.0, 0.1, 32).block == 6
    assert Dependence(3.0, 0.9, 32).block == 1  # may be chance
    assert not Dependence(19.0, 0.1, 64).settled
