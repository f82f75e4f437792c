"""Strong signals in heavy tails: what clipping makes of them is made good, or they are not clipped."""

import warnings

import numpy as np
import pytest
from scipy.stats import binom

from amounts import few_or_many
from tpca import TensorPCA
from tpca.solvers.mean.bending import BEND, squared_share

DIMS = (8, 8, 8)


def made(seed, strength, n=400):
    rng = np.random.default_rng([seed, 51])
    vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]
    return strength * np.einsum("i,j,k->ijk", *vectors) + rng.standard_t(3.0, (n, *DIMS)) / np.sqrt(3.0)


def test_what_clipping_takes_off_a_signal_is_its_square_over_that_of_the_bound():
    noise = np.random.default_rng(1).standard_t(3.0, 400_000)
    noise = np.concatenate([noise, -noise])
    bound = 1.25 * np.median(np.abs(noise)) / 0.6745
    vectors, scales = [np.array([0.6, 0.8]), np.array([1.0])], [np.array([bound, bound]), np.ones(1)]
    signal = 0.5 * bound * vectors[0]
    clipped = np.array([np.clip(noise + s, -bound, bound).mean() for s in signal]) / np.mean(np.abs(noise) <= bound)
    lost = 1 - clipped @ vectors[0] / (0.5 * bound)
    # The mean of 400 000 symmetric pairs is known to 0.001; β is 0.13 to 0.14.
    assert abs(lost - BEND * squared_share(0.5 * bound, vectors, scales)) < 0.006


@few_or_many(8, 200)
@pytest.mark.parametrize("strength", [1.0, 2.0, 4.0, 8.0])
def test_intervals_cover_in_heavy_tails(runs, strength):
    covered = 0
    for seed in range(runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pca = TensorPCA("mean", random_state=0).fit(made(seed, strength))
        low, high = pca.strength_intervals_[0] if pca.n_components_ else (np.nan, np.nan)
        covered += low <= strength <= high
    # With probability 0.95 each holds the truth: fewer than 179 of 200 have a chance of 1e-3 (179 are 90 %).
    assert covered >= binom.ppf(1e-3, runs, 0.95)


def test_a_bound_that_was_asked_for_and_is_too_narrow_is_a_doubt():
    samples = made(0, 8.0)
    doubt = {one.name: one.state for one in TensorPCA("mean", random_state=0, clip=1.0).fit(samples).checks_}
    assert doubt["signal within the bound"] == "bad"
    assert "signal within the bound" not in {one.name for one in TensorPCA("mean", random_state=0).fit(samples).checks_}
