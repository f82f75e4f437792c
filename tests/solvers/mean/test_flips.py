"""The test by sign flips: its level is exact, whatever the noise, and a signal is found."""

import numpy as np
import pytest
from mean_noises import LAWS, grouped, outer, rank_one, serial, smooth
from scipy.stats import binom

from tpca import MeanSolver
from tpca.solvers.mean import test as flips
from tpca.solvers.mean.memory import groups_needed, groups_wanted
from tpca.solvers.mean.test import draw_flips, flip_test, flips_allowed, without
from tpca.solvers.rank_one import along
from tpca.tensors import RankOne


@pytest.mark.parametrize(
    ("confidence", "one", "none", "wanted", "needed"),
    [(0.95, 39, 19, 8, 6), (0.9, 19, 9, 8, 5), (0.99, 199, 99, 10, 8), (0.999, 1999, 999, 13, 11)],
)
def test_flips_and_groups_follow_from_the_confidence(confidence, one, none, wanted, needed):
    assert flips_allowed(confidence) == (one, none)
    assert (groups_wanted(confidence), groups_needed(confidence)) == (wanted, needed)
    for groups in (wanted, needed):
        count = len(draw_flips(groups, confidence, np.random.default_rng(0)))
        assert count in (one, none)
        assert (1 + (count == one)) / (count + 1) <= 1 - confidence + 1e-9  # so many may reach as far


@pytest.mark.parametrize("groups", range(1, 13))
def test_flips_differ_and_none_of_eight_groups_keeps_more_than_half(groups):
    signs = draw_flips(groups, 0.95, np.random.default_rng(0))
    assert signs.shape[1] == groups
    assert np.all(np.abs(signs) == 1)
    assert np.all(signs[:, 0] == 1)
    assert len(np.unique(signs, axis=0)) == len(signs) == min(39 if groups > 7 else 19, 2 ** (groups - 1) - 1)
    assert not np.any(np.all(signs == 1, axis=1))
    if groups >= 7:
        assert np.all(np.sum(signs < 0, axis=1) % 2 == 0)
    if groups == 8:
        assert np.all(np.abs(signs.sum(axis=1)) <= 4)


@pytest.mark.parametrize("with_symmetric", [False, True])
def test_of_all_flips_of_any_data_no_more_than_the_level_are_claimed(with_symmetric, monkeypatch):
    """The reason why the level is exact: of data and all their flips, equally likely as data, 3 of 64 are claimed."""
    rng = np.random.default_rng(0)
    data = rng.standard_t(2.5, (8, 4, 4, 4)) * np.exp(rng.standard_normal((8, 1, 4, 1)))
    data += 3 * outer(rank_one(rng, (4, 4, 4)))  # any data
    codes = np.arange(64)[:, None] >> np.arange(6) & 1
    orbit = np.column_stack([np.ones(64), 1.0 - 2 * codes, 1.0 - 2 * (codes.sum(axis=1) % 2)])
    monkeypatch.setattr(flips, "draw_flips", lambda *_: orbit[1:])
    flipped = (data * signs[:, None, None, None] for signs in orbit)
    p_values = [flip_test(grouped(one), 0.95, np.random.default_rng(1), (), with_symmetric).p_value for one in flipped]
    assert sum(p <= 0.05 for p in p_values) == 3
    assert min(p_values) == 1 / 64


@pytest.mark.parametrize("law", LAWS)
def test_noise_of_any_kind_is_hardly_ever_a_signal(law):
    claims, runs = 0, 15
    for seed in range(runs):
        samples = LAWS[law](np.random.default_rng([seed, 1]), 80, (4, 5, 4))
        claims += MeanSolver(random_state=seed).run(samples).found
    # At most 5 % (10 % where neighbouring samples are alike over a group: 80 of them are four correlation times): more
    # than this many in 1e-4 of all cases.
    assert claims <= binom.isf(1e-4, runs, 0.1 if law == "serial" else 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("law", [*LAWS, "white", "serial 0.5"])
def test_the_level_holds_for_noise_of_any_kind(law):
    laws = {**LAWS, "white": lambda r, n, d: smooth(r, n, d, 0.0), "serial 0.5": lambda r, n, d: serial(r, n, d, 0.5)}
    claims, runs = 0, 50
    for seed in range(runs):
        claims += MeanSolver(random_state=seed).run(laws[law](np.random.default_rng([seed, 2]), 300, (8, 8, 8))).found
    # 5 %: more than this many in 1e-4 of all cases, 1e-3 for all laws.
    assert claims <= binom.isf(1e-4, runs, 0.05)


def test_weak_signals_are_found():
    found = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, 3])
        groups = grouped(rng.standard_normal((8, 8, 8, 8)) + 0.45 * np.sqrt(300 / 8) * outer(rank_one(rng, (8, 8, 8))))
        found += flip_test(groups, 0.95, rng).proven(0.95)
    # Measured: 38 of 40 at λ = 0.45 with 300 samples.  Fewer than this at 90 % in 1e-4 of all cases.
    assert found >= binom.ppf(1e-4, 20, 0.9)


def test_p_values_count_flips_and_end_early():
    lengths = np.array([5.0, 1.0, 6.0, 2.0, 7.0, 8.0])
    assert flips._p_value(lengths, 2, 39) == 2 / 4  # the second that reaches as far is the fourth flip
    assert flips._p_value(lengths[:2], 2, 39) == 1 / 40
    assert flips._p_value(np.array([5.0, 5.0, 1.0]), 2, 39) == 2 / 40  # a tie counts
    noise = MeanSolver().run(np.random.default_rng(0).standard_normal((80, 30, 30, 30)))
    assert not noise.found
    assert 2 <= len(noise.evidence.noise) < 39
    assert noise.p_value > 0.05


def test_nothing_is_left_of_known_components_nor_next_to_them():
    rng = np.random.default_rng(0)
    known = [RankOne(s, tuple(rank_one(rng, (5, 6, 7)))) for s in (3.0, 2.0)]
    signal = sum(one.strength * outer(one.vectors) for one in known)
    kept = np.array([1.0, -0.5, 0.0])
    noise = rng.standard_normal((3, 5, 6, 7))
    left = without((noise + kept[:, None, None, None] * signal).astype(np.float32), kept, known)
    alone = without(noise.astype(np.float32), np.zeros(3), known)
    np.testing.assert_allclose(left, alone, atol=1e-5)
    for one in known:
        stack = [np.broadcast_to(v, (3, len(v))) for v in one.vectors]
        sides = [along(left.astype(float), stack, mode) for mode in range(3)]
        # Of noise of level one, with vectors that overlap by about 0.4 in every mode.
        assert max(np.abs(side).max() for side in sides) < 0.2


def test_no_component_is_made_up_besides_those_that_are_there():
    claims, runs = 0, 20
    for seed in range(runs):
        rng = np.random.default_rng([seed, 4])
        signal = sum(s * outer(rank_one(rng, (6, 7, 8))) for s in (3.0, 4.0))
        found = MeanSolver(n_components=3, random_state=seed).run(rng.standard_normal((120, 6, 7, 8)) + signal)
        assert len(found.components) >= 2  # λ√N = 33 and more
        claims += len(found.components) > 2
    # 5 %: more than this many in 1e-4 of all cases.
    assert claims <= binom.isf(1e-4, runs, 0.05)


def test_high_confidence_has_more_flips_and_few_groups_prove_nothing():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((160, 4, 5, 6)) + 0.8 * outer(rank_one(rng, (4, 5, 6)))
    found = MeanSolver(confidence=0.99).run(data)
    assert found.found
    assert found.p_value <= 0.01
    few = MeanSolver(groups=40).run(data)  # four groups have seven flips
    assert not few.found
    assert few.p_value == 1 / 8
