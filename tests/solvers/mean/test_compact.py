"""Groups of large samples as their sum and contrasts in bytes: the test stays what it is, and so do fits."""

import tracemalloc

import numpy as np
import pytest
from mean_noises import grouped, outer, rank_one, smooth, stopped_and_resumed
from scipy.stats import binom
from threadpoolctl import threadpool_limits

from amounts import few_or_many
from tpca import MeanSolver
from tpca.engines import LocalEngine
from tpca.solvers.mean import compact as compacting
from tpca.solvers.mean import run as running
from tpca.solvers.mean import test as flips
from tpca.solvers.mean.compact import CompactGrouping
from tpca.solvers.mean.contrasts import BLOCK, RoundedContrasts, blocks_of, group_rows
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.test import flip_test

DIMS, SAMPLES = (42, 40, 41), 192  # as few as tell the noise in the first of eight groups


def compact(groups, sizes=None):
    """Groups with such sums, each of so many samples."""
    sizes = [1] * len(groups) if sizes is None else sizes
    grouping = CompactGrouping(groups.shape[1:], sizes)
    for part, n in zip(groups, sizes, strict=True):
        grouping.add(part.astype(np.float32), n)
    grouping.close()
    return Groups.of(grouping)


def test_groups_are_combinations_of_their_sum_and_contrasts():
    sums, sizes = np.random.default_rng(0).standard_normal((5, 7)), np.array([3, 4, 4, 1, 9])
    totals, ratios = np.cumsum(sums, axis=0), sizes[1:] / np.cumsum(sizes)[1:]
    contrasts = sums[1:] - ratios[:, None] * totals[1:]
    np.testing.assert_allclose(group_rows(ratios) @ np.vstack([totals[-1], *contrasts]), sums, atol=1e-12)
    signal = np.outer(sizes, rank_one(np.random.default_rng(1), (7,))[0])
    np.testing.assert_allclose(signal[1:], ratios[:, None] * np.cumsum(signal, axis=0)[1:])  # nothing of it is left


def read_back(values, dims):
    kept = RoundedContrasts(dims, 1)
    kept.put(0, values.copy().reshape(dims))
    found = np.empty((1, values.size), np.float32)
    for number, some in enumerate(blocks_of(dims)):
        out = np.empty((1, some.stop - some.start), np.float32)
        found[:, some] = kept.read(number, out) * out
    return found[0], kept


def test_rounding_adds_what_is_said_and_is_uncorrelated():
    values = np.random.default_rng(0).standard_normal(64 * 41 * 50, dtype=np.float32)
    found, kept = read_back(values, (64, 41, 50))
    errors = found - values
    units = np.repeat(kept.units[0], [some.stop - some.start for some in blocks_of((64, 41, 50))])
    assert np.all(np.abs(errors) <= units * 0.5001)
    # Relative errors of 131 200 squares are 0.25 % (of uniform ones: variance 4/5 of the square's), correlations 0.3 %.
    assert np.mean((errors / units) ** 2) * 12 == pytest.approx(1, abs=5 * 0.0025)
    assert abs(np.corrcoef(errors, values)[0, 1]) < 5 * 0.003
    assert np.mean(errors**2) < 2e-4


@pytest.mark.parametrize("scale", [1.0, 1e-35, 1e30])
def test_outliers_are_kept_as_they_are_and_others_are_not_drowned(scale):
    rng = np.random.default_rng(0)
    values = rng.standard_cauchy(50 * 41 * 64).astype(np.float32)
    values[::3] = 0
    found, _ = read_back(values * np.float32(scale), (50, 41, 64))
    if scale < 1e-30:
        assert np.all(np.isfinite(found))
        return
    found /= np.float32(scale)
    largest = np.argsort(-np.abs(values))[: values.size // 256]
    np.testing.assert_allclose(found[largest], values[largest], rtol=1e-6)
    assert np.all(found[::3] == 0)
    # The median of the sizes of two thirds Cauchy numbers and one third zeros is 0.41, and a unit 32/127 of that.
    assert np.abs(found - values).max() < 0.06


def test_sums_of_one_value_and_of_none_come_back():
    for value in (0.0, 3.25):
        np.testing.assert_allclose(read_back(np.full(2 * BLOCK, value, np.float32), (64, 32, 32))[0], value, rtol=1e-6)


@pytest.mark.parametrize("dims", [(9, 8, 7), (33, 40, 41), (300, 200), (2, 70_000), (8, 9, 10, 11)])
def test_what_is_made_of_groups_is_that_of_float32(dims):
    """Rounding is 1e-4 of the variance of noise: a contraction with unit vectors is off by 1 % of σ, or five of it."""
    rng = np.random.default_rng(0)
    sums = rng.standard_normal((8, *dims), dtype=np.float32) + 5 * outer(rank_one(rng, dims))
    plain, small = grouped(sums), compact(sums)
    np.testing.assert_allclose(small.mean, plain.mean, atol=1e-6)
    np.testing.assert_allclose(
        small.products, plain.products, atol=0.05 * np.sqrt(plain.entries) + 2e-4 * plain.entries
    )
    vectors = rank_one(rng, dims)
    for own, other in zip(small.gradients(vectors), plain.gradients(vectors), strict=True):
        np.testing.assert_allclose(own, other, atol=0.08)
    several = [np.stack([v, -v]) for v in vectors]
    np.testing.assert_allclose(small.along(several), plain.along(several), atol=0.08)
    signs = np.where(rng.random((3, 8)) < 0.5, -1.0, 1.0)
    np.testing.assert_allclose(np.std(small.flipped(signs) - plain.flipped(signs)), 0, atol=0.015)
    np.testing.assert_allclose(small.flipped(np.ones((1, 8)))[0], small.mean, atol=1e-4)
    before = small.flipped(signs)
    np.testing.assert_allclose(small.transformed(lambda tensor: 2 * tensor).flipped(signs), 2 * before, atol=0.15)


LAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "Cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "scales": lambda rng, shape: rng.standard_normal(shape) * np.exp(3 * rng.standard_normal((1, *shape[1:]))),
    "drift": lambda rng, shape: rng.standard_normal(shape) * np.exp(2 * rng.standard_normal((8, 1, 1, 1))),
    "whole numbers": lambda rng, shape: rng.choice([-1.0, 0, 0, 1], shape),
    "bursts": lambda rng, shape: rng.standard_normal(shape) * np.where(rng.random(shape) < 0.01, 1000, 1),
}


@pytest.mark.parametrize("law", LAWS)
@few_or_many(1, 20)
def test_of_all_flips_of_any_noise_no_more_than_the_level_are_claimed(law, runs, monkeypatch):
    """As of groups in float32: 3 of 64, some more where two are next to equal; far more if outliers were rounded."""
    codes = np.arange(64)[:, None] >> np.arange(6) & 1
    orbit = np.column_stack([np.ones(64), 1.0 - 2 * codes, 1.0 - 2 * (codes.sum(axis=1) % 2)])
    monkeypatch.setattr(flips, "draw_flips", lambda *_: orbit[1:])
    for seed in range(runs):
        data = LAWS[law](np.random.default_rng([seed, 9]), (8, 5, 5, 5))
        every = (compact(data * signs[:, None, None, None]) for signs in orbit)
        assert sum(flip_test(one, 0.95, np.random.default_rng(1)).p_value <= 0.05 for one in every) <= 6


@pytest.mark.parametrize("law", LAWS)
@few_or_many(60, 1000)
def test_noise_is_hardly_ever_a_signal(law, runs):
    claims = 0
    for seed in range(runs):
        groups = compact(LAWS[law](np.random.default_rng([seed, 10]), (8, 6, 5, 6)))
        claims += flip_test(groups, 0.95, np.random.default_rng(seed)).proven(0.95)
    # 5 %: more than this many in 1e-4 of all cases.
    assert claims <= binom.isf(1e-4, runs, 0.05)


@pytest.fixture
def small_ones(monkeypatch):
    monkeypatch.setattr(compacting, "COMPACT", 2**16)
    monkeypatch.setattr(compacting, "MIN_BLOCKS", 2)


def noisy(law, strength=0.0):
    """Samples with a signal of so many standard deviations of the noise along it."""
    rng = np.random.default_rng(3)
    noise = {"white": lambda *a: smooth(*a, 0.0), "smooth": smooth, "heavy": lambda r, n, d: r.standard_t(3, (n, *d))}
    samples, signal = noise[law](rng, SAMPLES, DIMS), outer(rank_one(rng, DIMS))
    return (samples + strength * np.tensordot(samples, signal, 3).std() * signal).astype(np.float32)


@pytest.mark.parametrize(("law", "strength"), [("white", 3.0), ("smooth", 3.0), ("heavy", 4.0), ("white", 0.0)])
def test_fits_are_those_of_groups_in_float32(law, strength, small_ones, monkeypatch):
    samples = noisy(law, strength)
    small = MeanSolver(random_state=1).run(samples)
    monkeypatch.setattr(compacting, "COMPACT", 2**60)
    plain = MeanSolver(random_state=1).run(samples)
    assert small.state_bytes != plain.state_bytes
    assert small.found is plain.found is (strength > 0)
    assert small.p_value == plain.p_value
    np.testing.assert_allclose(small.noise_level, plain.noise_level, rtol=1e-3)
    np.testing.assert_allclose(small.strength_interval, plain.strength_interval, rtol=5e-3)
    if small.found:
        np.testing.assert_allclose(small.strength, plain.strength, rtol=1e-4)
        assert all(abs(v @ w) > 1 - 1e-9 for v, w in zip(small.vectors, plain.vectors, strict=True))
        for own, other in zip(small.standard_errors, plain.standard_errors, strict=True):
            np.testing.assert_allclose(own, other, rtol=0.05)  # of an entry of eight groups, which rest on few numbers


def test_the_same_bits_with_two_threads_and_after_a_stop(small_ones, tmp_path):
    samples = noisy("smooth", 3.0)
    with threadpool_limits(1, user_api="blas"):
        alone = MeanSolver(random_state=1).run(samples)
    with threadpool_limits(2, user_api="blas"):
        both = MeanSolver(random_state=1).run(samples)
    again = stopped_and_resumed(samples, tmp_path / "c", (20, 60, 150))
    for one in (both, again):
        assert (one.strength, one.strength_interval, one.history) == (
            alone.strength,
            alone.strength_interval,
            alone.history,
        )
        assert all(np.array_equal(v, w) for v, w in zip(one.standard_errors, alone.standard_errors, strict=True))


def test_large_samples_take_what_is_said_and_are_summed_where_the_last_group_was():
    """The sum of all, that of a group, seven contrasts in bytes and a block of all: far less than eight groups."""
    data = np.random.default_rng(0).standard_normal((64, 64, 64, 65), dtype=np.float32)
    MeanSolver(random_state=0).run(data[:, :8, :8, :8])  # what is imported is not counted
    tracemalloc.start()
    found = MeanSolver(random_state=0).run(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < found.state_bytes < 50 * data[0].size
    engine = LocalEngine(data)
    run, made = running.MeanRun(MeanSolver(), engine), set()
    while (ask := run.ask()) is not None:
        part = engine.reduce(ask.blank, ask.n)
        total = run.noise.tails.parts(part)[0].total
        made |= set() if total is None else {total.ctypes.data}
        run.tell(part)
    assert len(run.grouping.counts) == 8
    assert len(made) <= 3  # two parts of the first group, and one place for all others
    np.testing.assert_allclose(run.grouping.whole, data.sum(axis=0), atol=1e-4)


@pytest.mark.parametrize("sizes", [[4, 4, 1], [4, 4, 9], [3]])
def test_samples_may_end_before_or_go_on_after_what_was_said(sizes):
    sums = np.random.default_rng(0).standard_normal((len(sizes), 30, 30, 30)).astype(np.float32)
    grouping = CompactGrouping((30, 30, 30), [4, 4, 4, 4] if sizes[-1] < 9 else [4, 4, 4])
    for part, n in zip(sums, sizes, strict=True):
        grouping.add(part.copy(), n)
    grouping.close()
    assert grouping.counts == sizes
    groups = Groups.of(grouping)
    for row, n, part in zip(np.eye(len(sizes)), sizes, sums, strict=True):
        np.testing.assert_allclose(groups.mixed(row[None])[0], part / np.sqrt(n), atol=0.1)
