"""Errors from sub-batches: right in any noise, also after few of them; an interval that holds at all times."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from amounts import few_or_many
from tpca.solvers.checks import steadiness
from tpca.solvers.race.refinement import PRIOR, Rewards, Sandwich
from tpca.tensors import SubBatches

RUNS = 400


def filled(rows, weights, full=False, dependent=False):
    sandwich = Sandwich(rows.shape[1], full, dependent)
    for some, few in zip(np.array_split(rows, 3), np.array_split(weights, 3), strict=True):
        if len(few):
            sandwich.add(some, few)
    return sandwich


def test_squares_and_products_are_those_of_all_sub_batches():
    rng = np.random.default_rng(0)
    rows, weights = rng.standard_normal((20, 3)), rng.uniform(1, 3, 20)
    believed = np.array([0.5, 1.0, 2.0])
    expected = (20 * np.sum(rows**2, axis=0) + PRIOR * weights.sum() * believed) / (20 + PRIOR) / weights.sum()
    np.testing.assert_allclose(filled(rows, weights).variance(believed), expected)
    more = 2 * np.sum(rows[1:] * rows[:-1], axis=0) * 20 / (20 + PRIOR) / weights.sum()
    np.testing.assert_allclose(filled(rows, weights, dependent=True).variance(believed), expected + more)
    direction = np.array([1.0, -2.0, 0.5])
    found = np.sum((rows @ direction) ** 2) * 20 / 19
    spread = filled(rows, weights, full=True).spread(direction, 3.0)
    assert spread == pytest.approx((20 * found + PRIOR * 3.0) / (20 + PRIOR))


def test_before_the_first_sub_batch_there_is_what_was_believed():
    np.testing.assert_allclose(Sandwich(2, False, False).variance(np.array([1.0, 4.0])), [1.0, 4.0])


@pytest.mark.parametrize("count", [8, 60])
@pytest.mark.parametrize("noise", ["as believed", "louder", "unequal sizes"])
def test_intervals_of_a_sum_hold_95_percent(count, noise):
    """400 runs at 95 %: six standard errors are 0.065; where noise is twice what was believed, after few sub-batches
    the belief still counts for a third, and 0.1 is allowed."""
    rng, inside = np.random.default_rng(0), 0
    sizes = rng.integers(1, 6, count).astype(float) if noise == "unequal sizes" else np.ones(count)
    for _ in range(RUNS):
        rows = np.sqrt(sizes)[:, None] * rng.standard_normal((count, 1)) * (2 if noise == "louder" else 1)
        errors = filled(rows, sizes)
        variance = float(errors.variance(np.ones(1))[0]) * errors.weight
        inside += abs(rows.sum()) <= 1.96 * errors.widened * math.sqrt(variance)
    assert abs(inside / RUNS - 0.95) < (0.1 if noise == "louder" and count == 8 else 0.065)


def rewards(rng, n, mean, dependent=False, sizes=4):
    after = Rewards(1.0, dependent)
    drawn = mean + rng.standard_normal(n) / math.sqrt(sizes)
    after.add(0.8, SubBatches(np.full(n, float(sizes)), {}, drawn))
    return after, drawn


def test_the_strength_is_the_mean_reward_over_the_overlap():
    after, drawn = rewards(np.random.default_rng(0), 30, 0.9)
    assert after.mean == pytest.approx(drawn.mean())
    assert after.strength == pytest.approx(drawn.mean() / 0.8)
    spread = np.sum((4 * (drawn - drawn.mean())) ** 2) * 30 / 29  # of the sum over samples
    expected = math.sqrt((30 * spread + PRIOR * 120) / (30 + PRIOR)) / 120 / 0.8
    assert after.strength_error(1.0) == pytest.approx(expected, rel=1e-9)


@few_or_many(40, 200)
def test_an_interval_at_all_times_holds_at_all_times(runs):
    """Paths of 300 rewards: 5 % may ever leave it; and it is wider, but not by far."""
    rng, left = np.random.default_rng(0), 0
    for _ in range(runs):
        after = Rewards(1.0, False)
        out = False
        for _ in range(60):
            after.add(1.0, SubBatches(np.ones(5), {}, 1 + rng.standard_normal(5)))
            out |= abs(after.strength - 1) > after.scatter.at_all_times(0.05) * after.strength_error(1.0)
        left += out
    assert left <= {200: 25, 40: 9}[runs]  # P(X > 25 of 200) = 1e-5, P(X > 9 of 40) = 2e-5
    assert 1.3 < after.scatter.at_all_times(0.05) / after.scatter.quantile(0.975) < 2


def test_rewards_of_a_slow_direction_are_seen_to_be_alike():
    """3.5 standard errors: 0.0003 of white runs, P(X > 2 of 200) = 4e-5."""
    rng, seen, false = np.random.default_rng(0), 0, 0
    for _ in range(200):
        white = rng.standard_normal(100)
        slow = lfilter([math.sqrt(1 - 0.81)], [1, -0.9], white)
        for kind in (white, slow):
            after = Rewards(1.0, False)
            after.add(1.0, SubBatches(np.ones(100), {}, 0.5 + kind))
            found = steadiness(after.excess).state == "bad"
            assert found == after.slow
            seen, false = seen + (found and kind is slow), false + (found and kind is white)
    assert false <= 2
    assert seen > 180
    assert Rewards(1.0, False).excess is None
    assert rewards(rng, 100, 1.0, dependent=True)[0].excess is None
