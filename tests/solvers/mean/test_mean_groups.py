"""Groups of samples: contiguous, about equal, decorrelated where neighbours are alike."""

import itertools
import math

import numpy as np
import pytest
from mean_noises import grouped, serial

from tpca import MeanSolver, SpikedTensor
from tpca.solvers.mean.coupling import correlation
from tpca.solvers.mean.fit import hosvd_fit
from tpca.solvers.mean.grouping import Grouping, equal_groups, inner_products
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.judge import Judge
from tpca.solvers.mean.observed import balance


@pytest.mark.parametrize(("samples", "block"), [(300, 1), (301, 1), (16, 1), (15, 1), (5, 1), (1, 1), (300, 7), (9, 7)])
def test_groups_of_known_length_are_equal_and_cut_no_block(samples, block):
    sizes = equal_groups(samples, 8, block)
    assert sum(sizes) == samples
    assert len(sizes) == max(1, min(8, samples // block))
    assert all(size % block == 0 for size in sizes[:-1])
    if samples >= 16 * block:
        assert all(size % 2 == 0 for size in sizes[:-1])  # pairs of neighbours are in one group
        assert max(sizes) - min(sizes) <= 4 * block


@pytest.mark.parametrize("block", [1, 2, 5])
def test_groups_of_unknown_length_stay_contiguous_and_about_equal(block):
    samples = np.random.default_rng(0).standard_normal((700, 3))
    grouping = Grouping((3,), 9, block)
    for i, sample in enumerate(samples):
        room, whole = grouping.filling
        assert 1 <= room <= whole
        grouping.add(sample, 1)
        edges = np.cumsum([0, *grouping.counts])
        assert edges[-1] == i + 1
        assert all(edge % block == 0 for edge in edges[:-1])
        if i + 1 >= 9 * block:
            assert len(grouping.counts) == 9
            assert max(grouping.counts[:-1]) <= 2 * min(grouping.counts[:-1])
    parts = [samples[a:b].sum(axis=0) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(grouping.sums, parts, atol=1e-5)
    np.testing.assert_allclose(grouping.total, samples.sum(axis=0), atol=1e-12)
    grouping.close()
    assert 2 * grouping.counts[-1] >= min(grouping.counts[:-1])


def test_the_mean_is_that_of_all_samples_and_flips_are_its():
    samples = np.random.default_rng(0).standard_normal((85, 4, 5))
    groups = grouped(samples)
    np.testing.assert_allclose(groups.mean, np.sqrt(85) * samples.mean(axis=0))
    np.testing.assert_allclose(groups.flipped(np.ones((1, 8)))[0], groups.mean, atol=1e-5)
    assert groups.coupling.time == 0.0
    assert groups.coupling.worth == pytest.approx(8.0)
    assert groups.length == pytest.approx(np.sqrt(85))


def test_neighbours_that_are_alike_are_seen_and_decorrelated():
    rng = np.random.default_rng(0)
    samples = serial(rng, 240, (6, 7, 8), 0.9) + 0.5
    groups = grouped(samples)
    sizes = np.array(equal_groups(240, 8, 1), dtype=float)
    # τ = 19 of 30 samples a group: neighbouring sums have a correlation of about φ/(1 − φ²)/30 = 0.16.
    assert 0.05 < groups.coupling.matrix[0, 1] < 0.3
    assert 5 < groups.coupling.worth < 8
    np.testing.assert_allclose(groups.mean, groups.length * samples.mean(axis=0))
    np.testing.assert_allclose(groups.weights @ groups.shares, 1.0)
    noise = serial(rng, 240, (6, 7, 8), 0.9)
    plain = grouped(noise)
    assert correlation(plain.products, sizes) < plain.coupling.matrix[0, 1] / 2


def test_inner_products_are_those_of_float64():
    sums = np.random.default_rng(0).standard_normal((3, 100, 100)).astype(np.float32)
    flat = sums.reshape(3, -1).astype(float)
    np.testing.assert_allclose(inner_products(sums), flat @ flat.T, rtol=1e-12)


def test_known_blocks_bound_the_groups(monkeypatch):
    seen = []
    close = Grouping.close
    monkeypatch.setattr(Grouping, "close", lambda self: (close(self), seen.append(list(self.counts)))[0])
    data = next(iter(SpikedTensor.random((4, 5, 6), 3.0, random_state=1).stream(random_state=1, batch_size=230)))
    for source in (data, np.split(data, [7, 100])):
        MeanSolver(groups=10).run(source)
    for counts in seen:
        assert sum(counts) == 230
        assert all(count % 10 == 0 for count in counts[:-1])


def test_beside_groups_a_sum_is_kept_of_samples_in_float64_only():
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((4, 3, 5))
    for dtype, kept in ((np.float32, False), (np.float64, True)):
        grouping = Grouping((3, 5), 2, plan=[2, 2])
        for part in parts.astype(dtype):
            grouping.add(part.copy(), 1)
        assert (grouping.total is not None) == kept
        grouping.close()
        exact = parts.astype(dtype).sum(axis=0, dtype=float)
        # Of sums below 8 each addition rounds off half a unit in the last place, 2^-21 or 2^-50: one in either group.
        np.testing.assert_allclose(grouping.whole, exact, rtol=0, atol=3 * 2.0**-50 if kept else 2 * 2.0**-21)


def test_inner_products_are_those_of_all_pairs_whatever_the_pieces():
    sums = np.random.default_rng(1).standard_normal((5, 3, 4001), dtype=np.float32)
    flat = sums.reshape(5, -1).astype(float)
    np.testing.assert_allclose(inner_products(sums), flat @ flat.T, rtol=1e-12, atol=1e-9)


def test_what_one_group_alone_has_seen_is_not_plain_to_see(monkeypatch):
    """Groups do not scatter around the mean of an entry that one of them has, however far it is from zero."""
    monkeypatch.setattr("tpca.solvers.mean.judge.ahead_of_flips", lambda *_: True)  # by chance, as in one case of eight
    dims, rng = (6, 5, 4), np.random.default_rng(43)
    for seen, plain in ((1, False), (8, True)):
        grouping = Grouping(dims, 8, plan=[10] * 8)
        observed = Grouping(dims, 8, plan=[10] * 8)
        for g in range(8):
            part, counts = math.sqrt(10) * rng.standard_normal(dims), np.full(dims, 10.0)
            part[0, 0, 0], counts[0, 0, 0] = (300.0, 10.0) if g < seen else (0.0, 0.0)
            grouping.add(part, 10)
            observed.add(counts, 10)
        balance(grouping, observed)
        judge = Judge.of(Groups.of(grouping, pulls=observed.sums), 0.95, 1, 0)
        assert (judge._plain_to_see(hosvd_fit(judge.groups.mean, 25)) is not None) == plain
