"""The race in noise that is not white, or whose neighbours are alike: what is found, and what is said of it."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from amounts import few_or_many
from noises import coloured, serial, smooth
from research.noise.laws import LAWS
from tpca import RaceSolver, TensorPCA
from tpca.errors import SolverError
from tpca.tensors.blocks import unit

DIMS, CUBE = (12, 12, 12), (8, 8, 8)


def outer(vectors):
    return np.einsum("a,b,c->abc", *vectors)


def overlaps(found, vectors):
    return min(abs(float(v @ w)) for v, w in zip(found, vectors, strict=True))


def inverse_root(axis, samples):
    """The inverse root of the second moments along an axis."""
    rows = np.moveaxis(samples, axis, 0).reshape(samples.shape[axis], -1)
    values, vectors = np.linalg.eigh(rows @ rows.T / rows.shape[1])
    return (vectors / np.sqrt(values)) @ vectors.T


def test_a_signal_under_loud_noise_is_found_once_preprocess_has_taken_it_down():
    """Strength 1.5 in white noise, before both are coloured: directions of the noise are up to 7000 times as loud.

    Vectors then have a squared error of 11/(400 · 1.5²) = 0.012, overlaps above 0.98; maps are learnt from 200 samples.
    """
    rng = np.random.default_rng(5)
    covariances = smooth(DIMS, 0.9)
    roots = [np.linalg.cholesky(c) for c in covariances]
    vectors = [unit(rng.standard_normal(12)) for _ in DIMS]
    hidden = [np.linalg.solve(root, v) for root, v in zip(roots, vectors, strict=True)]
    strength = 1.5 / np.prod([np.linalg.norm(v) for v in hidden])
    samples = coloured(450, covariances, rng) + strength * outer(vectors)
    maps = [inverse_root(axis, samples[:200]) for axis in (1, 2, 3)]

    def whitened(x):
        return np.einsum("nabc,ia,jb,kc->nijk", x, *maps, optimize=True)

    assert not TensorPCA(solver="race", random_state=1).fit(samples).found_
    white = TensorPCA(solver="race", random_state=1, preprocess=whitened).fit(samples)
    assert white.found_
    seen = [unit(map_ @ v) for map_, v in zip(maps, vectors, strict=True)]
    assert overlaps([v[0] for v in white.components_], seen) > 0.95


def test_the_race_does_not_whiten_and_says_so():
    samples = np.random.default_rng(0).standard_normal((40, 4, 5, 6))
    with pytest.raises(SolverError, match=r"whiten='modes' means nothing to solver='race'"):
        TensorPCA(solver="race", whiten="modes").fit(samples)


@pytest.mark.parametrize(("phi", "window"), [(0.5, 1), (0.9, 1), (0.0, 10)])
@pytest.mark.slow
def test_neighbours_that_are_alike_are_counted_in_blocks(phi, window):
    """Pure noise that claimed a signal in one of three runs before; one run in twenty may, of which there are 4 here.

    Three claims in as many runs of three laws have a chance of 10^-3.
    """
    claims = 0
    for seed in range(4):
        samples = serial(300, CUBE, np.random.default_rng(seed), phi, window)
        found = RaceSolver(random_state=seed).run(samples)
        claims += found.found
        if (phi, window) != (0.5, 1):  # of which sums of some samples are hardly alike
            assert any("Neighbouring samples are alike" in line for line in found.advice)
    assert claims < 3


def test_a_signal_is_found_where_neighbours_are_alike_and_independent_samples_are_not_taken_for_it():
    """A z-value of 4·√(1500/19) = 36 along the signal, so that blocks of some dozens of samples prove it."""
    rng = np.random.default_rng(1)
    vectors = [unit(rng.standard_normal(8)) for _ in range(3)]
    samples = serial(1500, CUBE, rng, 0.9) + 4 * outer(vectors)
    found = RaceSolver(random_state=0).run(samples)
    assert found.found
    assert overlaps(found.vectors, vectors) > 0.9
    samples = serial(200, CUBE, np.random.default_rng(0), 0.9)
    assert not RaceSolver(random_state=0, groups=40).run(samples).found
    # A strong mean, heavy tails and levels that differ are no dependence; 1 run of 1000 or less may say so.
    rng = np.random.default_rng(4)
    offset = 5 * rng.standard_normal((6, 7, 8))
    for noise in (rng.standard_normal, lambda shape: rng.standard_t(3, shape)):
        found = RaceSolver(random_state=0).run(noise((200, 6, 7, 8)) + offset)
        assert not any("Neighbouring samples are alike" in line for line in found.advice)


def tumours():
    """Mean, error and worst of ten measures of 569 tumours, in their units: areas are most of the noise."""
    return load_breast_cancer().data.reshape(-1, 3, 10)


def mixtures():
    """Fluorescence of 64 mixtures, which differ in little but one pattern."""
    datasets = pytest.importorskip("tensorly.datasets")
    return np.nan_to_num(np.asarray(datasets.load_kinetic().tensor))


@pytest.mark.parametrize("data", [tumours, mixtures])
def test_real_samples_in_random_order_are_independent(data):
    """Their noise has one strong pattern, and their mean is obvious.

    One false alarm in 300 runs was seen: at 1 in 100 more than 2 of 16 have a chance of 5·10⁻⁴.  Before, 4 and 8 of 16.
    """
    X, alarms = data(), 0
    for seed in range(16):
        found = RaceSolver(random_state=seed).run(np.random.default_rng([seed, 5]).permutation(X))
        alarms += any("Neighbouring samples are alike" in line for line in found.advice)
        assert found.found
    assert alarms <= 2


@pytest.mark.parametrize("level", [0.0, 6.0])
@pytest.mark.parametrize("phi", [0.5, 0.8])
def test_a_series_is_seen_with_and_without_a_mean(phi, level):
    """Seen in 20 of 20 runs of each kind; 3 of 4 are missed by chance less than once in 1000 times."""
    seen = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        samples = serial(300, CUBE, rng, phi) + level * outer([unit(rng.standard_normal(8)) for _ in range(3)])
        found = RaceSolver(random_state=seed).run(samples)
        seen += any("Neighbouring samples are alike" in line for line in found.advice)
        assert found.found or level == 0 or phi > 0.5
    assert seen >= 3


# Errors, intervals, limits, looks -----------------------------------------------------------------------------------


def planted_in(law, strength, seed):
    """Samples of a random signal in noise of a law, and its vectors."""
    rng = np.random.default_rng(seed)
    vectors = [unit(rng.standard_normal(d)) for d in CUBE]
    return LAWS[law](rng, 300, CUBE) + strength * outer(vectors), vectors


@few_or_many(1, 6)
@pytest.mark.slow
def test_errors_and_intervals_hold_in_noise_of_any_kind(runs):
    """Pooled over five laws.

    24 entries a run, worth about 8 independent ones: six standard errors of sqrt(.05 * .95 / 40) for one run a law,
    of sqrt(.05 * .95 / 240) for six.  Strength: P(X <= 1 of 5) = 3e-5, P(X <= 22 of 30) = 6e-5.
    """
    inside = entries = covered = count = 0
    laws = {"smooth0.9": 12.0, "scales": 40.0, "factors": 6.0, "t3": 2.0, "serial0.5": 2.0}
    for law, strength in laws.items():
        for seed in range(runs):
            samples, vectors = planted_in(law, strength, seed)
            found = RaceSolver(random_state=seed).run(samples)
            if not found.found:
                continue
            count += 1
            low, high = found.strength_interval
            covered += low <= strength <= high
            assert found.strength_sequence[0] <= low
            assert found.strength_sequence[1] >= high
            for v, w, e in zip(found.vectors, vectors, found.standard_errors, strict=True):
                inside += int(np.sum(np.abs(np.sign(v @ w) * v - w) <= 1.96 * e))
                entries += len(v)
    assert count >= 3 * runs
    assert abs(inside / entries - 0.95) < 6 * math.sqrt(0.05 * 0.95 / (8 * count))
    assert covered >= {1: 2, 6: 23}[runs] - (5 * runs - count)


@few_or_many(4, 20)
def test_one_slow_direction_is_no_signal_or_one_with_a_doubt(runs):
    """White noise with one direction of amplitude 4 that is AR(0.9).

    Claims without a doubt, at 5 %: P(X >= 4 of 4) = 6e-6, P(X >= 7 of 20) = 3e-5.
    """
    claims = 0
    for seed in range(runs):
        noise = LAWS["slow-direction"](np.random.default_rng(seed), 400, CUBE)
        found = RaceSolver(random_state=seed).run(noise)
        claims += found.found and not any("along the signal" in line for line in found.advice)
    assert claims < {4: 4, 20: 7}[runs]


@pytest.mark.parametrize("law", ["smooth0.9", "resonances"])
@few_or_many(2, 8)
def test_the_limit_holds_in_noise_that_is_not_white(law, runs):
    """A signal as strong as the limit said after noise alone is found, or limited by no less.

    5 % may be denied: P(X >= 2 of 2) = 0.003 and not one was in 60 runs; P(X >= 5 of 8) = 2e-5.
    """
    denied = 0
    for seed in range(runs):
        noise = LAWS[law](np.random.default_rng(seed + 1000), 300, CUBE)
        limit = RaceSolver(random_state=seed).run(noise).strength_interval[1]
        samples, _ = planted_in(law, limit, seed)
        found = RaceSolver(random_state=seed).run(samples)
        denied += not found.found and found.strength_interval[1] < limit
    assert denied < {2: 2, 8: 5}[runs]


@few_or_many(4, 60)
def test_the_race_claims_nothing_in_noise_however_often_one_looks(runs):
    """20 looks each.  If 5 % of the runs ever claimed: P(X >= 12 of 60) = 4e-5, P(X >= 4 of 4) = 6e-6."""
    claims = 0
    for seed in range(runs):
        noise = np.random.default_rng(seed).standard_normal((400, 5, 4, 3))
        pca, found = TensorPCA(solver="race", random_state=seed), False
        for batch in np.array_split(noise, 20):
            found |= pca.partial_fit(batch).found_
        claims += found
        assert "Tested" not in str(pca.summary())
    assert claims < {60: 12, 4: 4}[runs]


def test_the_mean_test_says_how_often_it_was_looked_at():
    noise = np.random.default_rng(0).standard_normal((120, 5, 4, 3))
    pca, once = (TensorPCA(solver="least_squares", random_state=0) for _ in range(2))
    for looks, batch in enumerate(np.array_split(noise, 3), start=1):
        once.partial_fit(batch)
        pca.partial_fit(batch)
        assert (f"Tested {looks} times" in str(pca.summary())) == (looks > 1)
        assert pca.p_values_[0] <= 1  # more of the same look
    assert once.p_values_[0] == pca.p_values_[0]
    assert "Tested" not in str(once.summary())
