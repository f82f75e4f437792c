"""The noise model: white noise is left alone, other noise is whitened."""

import math

import numpy as np
import pytest

from noises import coloured, fed, scales, serial, smooth
from tpca.noise import Sketch, is_plain, learn, samples_wanted
from tpca.noise.checks import whiteness

SHAPES = [(2, 2), (10,) * 4, (12,) * 3, (5, 6, 7), (40, 40), (3, 200)]


def sketched(draw, dims, rng, whitening=None):
    """A sketch of as many samples as it wants, a few a reading."""
    sketch = Sketch(dims, rng, whitening)
    while sketch.n < samples_wanted(sketch):
        fed(sketch, draw(4))
    return sketch


def twice(draw, dims, rng):
    """First and second sketch."""
    first = learn(sketched(draw, dims, rng))
    assert first.whitening is not None
    return first, learn(sketched(draw, dims, rng, first.whitening))


def worst(whitening, covariances):
    """Relative deviation of the eigenvalues of W C W from being equal."""
    values = [np.linalg.eigvalsh(w @ c @ w) for w, c in zip(whitening.matrices, covariances, strict=True)]
    return max(float(np.abs(v / v.mean() - 1).max()) for v in values)


@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_white_noise_is_left_alone(dims):
    """At 3.5 standard deviations, of a number whose tails are longer than a normal one's, 1 % a mode is allowed for.

    Of 20 runs with up to four modes more than 5 have then a chance below 2 · 10^-4.
    """
    judged = []
    for seed in range(20):
        rng = np.random.default_rng([seed, len(dims)])
        judged.append(learn(sketched(lambda n, rng=rng: rng.standard_normal((n, *dims)), dims, rng)))
    assert sum(model.whitening is not None or model.block > 1 for model in judged) <= 5
    # Entries of independent Gaussian numbers: the kurtosis of 10^3 of them or more has a standard error below 0.16·2.
    assert np.median([model.kurtosis for model in judged]) == pytest.approx(3, abs=1.3)


@pytest.mark.parametrize("dims", [(12,) * 3, (10,) * 4], ids=str)
@pytest.mark.parametrize("law", ["smooth", "scales"])
def test_other_noise_is_whitened(dims, law):
    """Eigenvalues of W C W of the right one are equal; 0.17 at worst in development, 18 and more before."""
    rng = np.random.default_rng(len(dims))
    covariances = smooth(dims, 0.9) if law == "smooth" else scales(dims, rng)
    first, second = twice(lambda n: coloured(n, covariances, rng), dims, rng)
    assert not first.white
    assert worst(second.whitening, covariances) < min(0.5, worst(first.whitening, covariances))
    assert second.block == 1
    assert second.whitening.shared == (law == "smooth")
    assert not second.directions


def test_modes_that_differ_are_not_whitened_alike():
    rng = np.random.default_rng(0)
    covariances = [*smooth((12, 12), 0.9), *smooth((12,), 0.3)]
    _, second = twice(lambda n: coloured(n, covariances, rng), (12,) * 3, rng)
    assert not second.whitening.shared


def test_dependent_white_noise():
    """It is white as far as modes go, and its blocks are longer than its correlation time of 3."""
    rng = np.random.default_rng(0)
    drawn = iter(serial(1000, (12,) * 3, rng, phi=0.5))
    model = learn(sketched(lambda n: np.stack([next(drawn) for _ in range(n)]), (12,) * 3, rng))
    assert model.whitening is None
    assert model.block == math.ceil(2 * model.dependence.time)
    assert 2 < model.correlation_time < 4.5


def test_noise_both_coloured_and_dependent():
    rng = np.random.default_rng(0)
    covariances = smooth((12,) * 3, 0.9)
    roots = [np.linalg.cholesky(c) for c in covariances]
    drawn = iter(np.einsum("ia,jb,kc,nabc->nijk", *roots, serial(1000, (12,) * 3, rng, phi=0.5), optimize=True))
    _, second = twice(lambda n: np.stack([next(drawn) for _ in range(n)]), (12,) * 3, rng)
    assert worst(second.whitening, covariances) < 0.5
    assert 2 < second.correlation_time < 4.5


def test_heavy_tails_are_no_reason_to_whiten():
    """20 of 20 in development; the number is blurred by the few largest entries, and its limit knows."""
    rng = np.random.default_rng(0)
    models = [learn(sketched(lambda n: rng.standard_t(3, (n, 12, 12, 12)), (12,) * 3, rng)) for _ in range(10)]
    assert sum(model.whitening is None for model in models) >= 8
    assert min(model.kurtosis for model in models) > 5


def test_one_loud_direction_is_no_product_of_modes():
    """16 times as loud as the rest: 4.6 and more in ten runs, where a product of modes never had more than 3.1."""
    rng = np.random.default_rng(3)
    w = np.einsum("a,b,c->abc", *(v / np.linalg.norm(v) for v in rng.standard_normal((3, 12))))

    def draw(n):
        return rng.standard_normal((n, 12, 12, 12)) + 16 * rng.standard_normal((n, 1, 1, 1)) * w

    first, second = twice(draw, (12,) * 3, rng)
    assert math.isnan(first.loudness)
    assert second.directions
    assert "far louder than the rest" in whiteness(second).meaning


def test_a_signal_changes_nothing():
    dims = (12,) * 3
    rngs = [np.random.default_rng(1), np.random.default_rng(1)]
    signal = 50.0 * np.ones(dims)
    plain = learn(sketched(lambda n: rngs[0].standard_normal((n, *dims)), dims, rngs[0]))
    shifted = learn(sketched(lambda n: rngs[1].standard_normal((n, *dims)) + signal, dims, rngs[1]))
    np.testing.assert_allclose(plain.whiteness, shifted.whiteness, atol=1e-10)
    assert plain.dependence.time == pytest.approx(shifted.dependence.time, rel=1e-6)


def test_what_was_never_seen_is_not_taken_for_infinitely_quiet():
    """A row without any noise so far: m = 16 · 144 columns, and a variance of 1/m of the mean is not excluded."""
    rng = np.random.default_rng(0)

    def draw(n):
        samples = rng.standard_normal((n, 12, 12, 12))
        samples[:, 5] = 0.0
        return samples

    _, second = twice(draw, (12,) * 3, rng)
    assert second.whitening.matrices[0][5, 5] == pytest.approx(math.sqrt(16 * 144), rel=0.1)


def test_always():
    rng = np.random.default_rng(0)
    sketch = sketched(lambda n: rng.standard_normal((n, 12, 12, 12)), (12,) * 3, rng)
    assert learn(sketch).whitening is None
    assert learn(sketch, always=True).whitening is not None


def test_nothing_to_learn_from():
    model = learn(Sketch((3, 4), np.random.default_rng(0)))
    assert model.whitening is None
    assert (model.block, model.correlation_time, model.directions) == (1, 1.0, False)


@pytest.mark.parametrize("dims", [(10,) * 4, (12,) * 3, (5, 6, 7)], ids=str)
def test_what_is_plain_is_seen_after_four_pairs(dims):
    """Smooth noise and unequal scales; never white noise, which would have to be 17 standard deviations off, nor tails.

    Heavy tails widen what passes for white by their kurtosis.  Of small samples eight may be too few.
    """
    rng = np.random.default_rng(5)
    for _ in range(5):
        for draw, plain in {
            lambda: rng.standard_normal((8, *dims)): False,
            lambda: rng.standard_t(2.5, (8, *dims)): False,
            lambda: coloured(8, smooth(dims, 0.9), rng): True,
            lambda: coloured(8, scales(dims, rng), rng): True,
        }.items():
            sketch = Sketch(dims, rng)
            fed(sketch, draw())
            assert is_plain(sketch) == plain or (plain and dims == (5, 6, 7))
