"""Errors, intervals and limits that hold in noise of any kind; whitening where it is not white."""

import numpy as np
import pytest
from mean_noises import LAWS, direction, grouped, outer, rank_one, scales, serial, smooth, stopped_and_resumed, unit
from scipy.stats import binom

from amounts import few_or_many
from tpca import MeanSolver
from tpca.errors import MemoryBudgetError
from tpca.noise import Whitening
from tpca.solvers.mean.conclude import Units
from tpca.solvers.mean.errors import Scatter, dimensions, moderated
from tpca.solvers.mean.fit import best_fit
from tpca.solvers.mean.memory import groups_wanted, mean_bytes

DIMS = (6, 7, 8)


def cover(law, strength, runs, whiten="auto", n=200):
    """How often the strength is held, and the share of entries within 1.96 errors, of signals that were found."""
    held, inside = [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, 7])
        truth = rank_one(rng, DIMS)
        found = MeanSolver(random_state=seed, whiten=whiten).run(law(rng, n, DIMS) + strength * outer(truth))
        assert found.found
        low, high = found.strength_interval
        held.append(low <= strength <= high)
        for v, w, e in zip(truth, found.vectors, found.standard_errors, strict=True):
            inside.append(np.mean(np.abs(np.sign(v @ w) * w - v) <= 1.96 * e))
    return sum(held), float(np.mean(inside))


# Strengths at which every signal is found: λ√N of 20 or more standard deviations of the noise next to it.
CASES = {
    "white": (lambda r, n, d: r.standard_normal((n, *d)), 1.5),
    "smooth": (smooth, 2.0),
    "scales": (scales, 3.0),
    "direction": (direction, 3.0),
    "heavy": (LAWS["heavy"], 3.0),
    "serial": (lambda r, n, d: serial(r, n, d, 0.5), 2.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("whiten", ["auto", None])
@pytest.mark.parametrize("case", CASES)
def test_intervals_hold_the_truth_in_noise_of_any_kind(case, whiten):
    law, strength = CASES[case]
    if whiten is None and case in ("smooth", "scales"):
        strength *= 4
    held, inside = cover(law, strength, 24, whiten)
    # 95 % nominal: fewer than this in 1e-4 of all cases.  Entries of a run have a mean with a standard deviation of at
    # most 0.07 (all 21 of them together, a quarter of them independent): 4 standard errors of 24 runs are 0.057.
    assert held >= binom.ppf(1e-4, 24, 0.95)
    assert 0.89 < inside < 0.995


def test_intervals_hold_the_truth_in_smooth_noise():
    held, inside = cover(smooth, 2.0, 12)
    # 95 % nominal: fewer than this in 1e-4 of all cases; a standard error of 0.02 for the entries.
    assert held >= binom.ppf(1e-4, 12, 0.95)
    assert inside > 0.87


def test_smooth_noise_is_whitened_and_hides_less():
    found = {"auto": 0, None: 0}
    for seed in range(10):
        rng = np.random.default_rng([seed, 8])
        samples = smooth(rng, 200, DIMS) + 0.3 * outer([unit((-1.0) ** np.arange(d)) for d in DIMS])
        for whiten in found:
            result = MeanSolver(random_state=seed, whiten=whiten).run(samples)
            found[whiten] += result.found
            assert (result.noise is not None and result.noise.whitening is not None) == (whiten == "auto")
    # Signals that change sign from entry to entry are where this noise is quietest: 1/19 of the mean variance in every
    # mode, so that λ' = 0.3 · 19^1.5 = 25, far beyond all noise; as it is, the noise next to it is above λ√N = 4.
    assert found["auto"] == 10
    assert found[None] <= 2


def test_white_noise_is_not_whitened_unless_asked_for():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((100, *DIMS)) + 2 * outer(rank_one(rng, DIMS))
    auto, never, always = (MeanSolver(whiten=whiten).run(samples) for whiten in ("auto", None, "modes"))
    assert auto.noise.whitening is None
    assert always.noise.whitening is not None
    # Half of the samples, and all of their neighbours, are white within a few per cent.
    np.testing.assert_allclose(auto.strength, never.strength, rtol=1e-6)
    np.testing.assert_allclose(auto.strength_interval, never.strength_interval, rtol=1e-6)
    np.testing.assert_allclose(always.strength, never.strength, rtol=0.05)


def test_whitened_fits_are_those_of_whitened_data():
    """Vectors and strength are carried back: what whitened sums give is what whitened samples give."""
    rng = np.random.default_rng(0)
    samples = smooth(rng, 200, DIMS) + 3 * outer(rank_one(rng, DIMS))
    found = MeanSolver().run(samples)
    whitening = found.noise.whitening
    white = MeanSolver(whiten=None).run(whitening.tensor(samples))
    for v, u in zip(found.vectors, whitening.back(white.vectors), strict=True):
        assert abs(v @ u) > 1 - 1e-8
    assert found.p_value == white.p_value
    # But for what errors add to the lengths, about 1 % here.
    assert found.strength == pytest.approx(white.strength * whitening.factor(white.vectors), rel=0.03)


def test_what_is_whitened_by_nothing_is_told_as_it_is():
    rng = np.random.default_rng(0)
    groups = grouped(rng.standard_normal((160, *DIMS)) + outer(rank_one(rng, DIMS)))
    scatter = Scatter.around(groups, best_fit(groups.mean, rng))
    white = Whitening.of([np.eye(d) for d in DIMS])
    plain, carried = (Units(1.0, 1.0, whitening).told(scatter, 0.95) for whitening in (None, white))
    assert carried.claim.strength == pytest.approx(plain.claim.strength)
    # But for the term of second order: a few per cent of the variance, at λ√N = 13 with some twenty free entries.
    np.testing.assert_allclose(carried.claim.interval, plain.claim.interval, rtol=0.02)
    # Where the truth may be is nearer to 0 than the estimate by as much as the squared error of a vector, up to 6 %.
    for a, b in zip(carried.claim.errors, plain.claim.errors, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.07)


@few_or_many(10, 60)
def test_intervals_of_whitened_signals_hold_and_do_not_begin_at_nothing(runs):
    held = positive = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 11])
        vectors = rank_one(rng, (8, 8, 8))
        noise = smooth(rng, 300, (8, 8, 8))
        roots = np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
        strength = 1.2 / np.prod([np.linalg.norm(np.linalg.solve(roots, v)) for v in vectors])  # λ' = 1.2
        low, high = MeanSolver(random_state=seed).run(noise + strength * outer(vectors)).strength_interval
        held += low <= strength <= high
        positive += low > 0
    assert held >= binom.ppf(1e-4, runs, 0.95)
    # λ'√N = 21 is far from what noise reaches, about 8: no interval begins at 0.  Two in three did.
    assert positive == runs


def test_the_noise_is_part_of_the_memory():
    samples = np.random.default_rng(0).standard_normal((40, 30, 40))
    least = mean_bytes((30, 40), groups_wanted(0.95))
    tight = MeanSolver(memory_limit=least).run(samples)
    assert tight.noise is None
    assert tight.state_bytes == least
    with pytest.raises(MemoryBudgetError, match="whiten='modes' needs"):
        MeanSolver(memory_limit=least, whiten="modes").run(samples)
    roomy = MeanSolver().run(samples)
    assert roomy.noise is not None
    assert roomy.state_bytes > least


def test_a_resumed_run_knows_the_noise(tmp_path):
    rng = np.random.default_rng(0)
    samples = smooth(rng, 130, (5, 6, 7)) + outer(rank_one(rng, (5, 6, 7)))
    whole = MeanSolver(random_state=1).run(samples)
    assert whole.noise.whitening is not None
    again = stopped_and_resumed(samples, tmp_path / "c", (16, 40, 100))
    assert (again.strength, again.strength_interval, again.history) == (
        whole.strength,
        whole.strength_interval,
        whole.history,
    )
    assert all(np.array_equal(v, w) for v, w in zip(again.vectors, whole.vectors, strict=True))


LIMITED = [("smooth", 1.0), ("scales", 0.5), ("direction", 0.7), ("heavy", 0.5)]


@pytest.mark.parametrize(("law", "strength"), LIMITED)
def test_what_is_hidden_in_any_noise_is_below_the_limit(law, strength):
    wrong, runs = 0, 12
    for seed in range(runs):
        rng = np.random.default_rng([seed, 9])
        samples = LAWS[law](rng, 100, (5, 6, 7)) + strength * outer(rank_one(rng, (5, 6, 7)))
        found = MeanSolver(random_state=seed, whiten=None).run(samples)
        wrong += not found.found and found.strength_interval[1] < strength
    # In 5 % of all runs at most: more than this many in 1e-4 of all cases.
    assert wrong <= binom.isf(1e-4, runs, 0.05)


@pytest.mark.parametrize("size", [2.0, 4.0, 8.0])
def test_a_signal_along_the_strongest_noise_is_below_the_limit(size):
    wrong, runs = 0, 12
    for seed in range(runs):
        rng = np.random.default_rng([seed, 10])
        ray = outer(rank_one(rng, (5, 6, 7)))
        strength = (4.0 + size) / 10  # at the edge of being found
        amplitudes = strength + size * rng.standard_normal((100, 1, 1, 1))
        found = MeanSolver(random_state=seed).run(rng.standard_normal((100, 5, 6, 7)) + amplitudes * ray)
        wrong += not found.found and found.strength_interval[1] < strength
    assert wrong <= binom.isf(1e-4, runs, 0.05)


def test_errors_of_equal_noise_are_pooled_and_of_unequal_noise_are_not():
    rng = np.random.default_rng(0)
    v = unit(rng.standard_normal(400))
    across = np.eye(400) - np.outer(v, v)
    pulls = rng.standard_normal((8, 400)) @ across
    variances, freedom = moderated(pulls, v)
    # 8 · 400 squares: a relative standard error of √(2/2800) = 0.027, four of them.
    assert freedom > 500
    np.testing.assert_allclose(variances, 8.0, rtol=0.11)
    assert 200 < dimensions(pulls) <= 399
    loud = np.where(np.arange(400) < 200, 1.0, 10.0)
    variances, freedom = moderated((rng.standard_normal((8, 400)) * loud) @ across, v)
    assert freedom < 20
    assert 30 < np.mean(variances[200:]) / np.mean(variances[:200]) < 120


def test_the_scatter_is_that_of_groups_left_out_of_the_mean():
    """Errors by leaving out one group after the other (jackknife) are the same to first order."""
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((400, 5, 6, 7)) + 5 * outer(rank_one(rng, (5, 6, 7)))
    groups = grouped(samples)
    scatter = Scatter.around(groups, best_fit(groups.mean, rng))
    each = [best_fit(np.delete(samples, slice(50 * g, 50 * g + 50), axis=0).mean(axis=0), rng) for g in range(8)]
    strengths = np.array([one.strength for one in each]) * np.sqrt(400)
    assert scatter.along == pytest.approx(np.sqrt(7 / 8 * np.sum((strengths - strengths.mean()) ** 2)), rel=0.02)
    vectors = np.stack([np.sign(one.vectors[0] @ scatter.fit.vectors[0]) * one.vectors[0] for one in each])
    jackknife = 7 / 8 * np.sum((vectors - vectors.mean(axis=0)) ** 2)
    assert scatter.energies[0] / scatter.fit.strength**2 == pytest.approx(jackknife, rel=0.05)
