"""Folds, whitening without the rows that judge it, and clipping."""

import numpy as np
import pytest

from tpca.data.rows import open_views
from tpca.engines import LocalEngine
from tpca.errors import SampleError
from tpca.solvers.folds import (
    NONE,
    Clipper,
    FirstLook,
    FoldedViews,
    FoldMoments,
    Folds,
    Whitening,
    auto_shrinkage,
    clipped,
    turn_of,
)


def look_at(views):
    return LocalEngine(open_views(views)).reduce(FirstLook([view.shape[1] for view in views]))


def autoregressive(rng, n, d, r):
    rows = rng.standard_normal((n + 100, d))
    for t in range(1, n + 100):
        rows[t] = r * rows[t - 1] + np.sqrt(1 - r * r) * rows[t]
    return rows[100:]


def test_folds_depend_on_what_is_in_the_rows(rng):
    views = [
        np.concatenate([view, view[:50]]) for view in (rng.standard_normal((200, 2)), rng.standard_normal((200, 5)))
    ]
    order = rng.permutation(250)
    one, other = (Folds.of(look_at(v), 250, 0.2) for v in (views, [view[order] for view in views]))
    np.testing.assert_array_equal(one.number[order], other.number)
    np.testing.assert_array_equal(one.number[:50], one.number[200:])  # copies are in one fold, and one unit
    np.testing.assert_array_equal(one.unit[:50], one.unit[200:])
    assert one.count == 5
    # Binomial with 200 different rows: six standard deviations, 2e-9.
    assert np.abs(np.bincount(one.number[:200]) - 40).max() < 6 * np.sqrt(200 * 0.2 * 0.8)


def test_whole_groups_are_held_out_and_series_in_runs(rng):
    views = [rng.standard_normal((120, 3)) for _ in range(2)]
    labels = np.repeat([f"mouse {i}" for i in range(12)], np.tile([5, 10, 15], 4))
    grouped = Folds.of(look_at(views), 120, 0.25, labels)
    for label in np.unique(grouped.unit):
        assert len(np.unique(grouped.number[grouped.unit == label])) == 1
    assert len(np.unique(grouped.number)) == 4
    runs = Folds.of(look_at(views), 120, 0.25, serial=True)
    assert (np.diff(runs.number) >= 0).all()
    np.testing.assert_array_equal(np.bincount(runs.number), [30] * 4)
    with pytest.raises(SampleError, match="groups must have one label for each of 120 rows, got 5"):
        Folds.of(look_at(views), 120, 0.2, np.arange(5))


def test_neighbours_that_are_correlated_are_seen_in_two_views():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        series = [autoregressive(rng, 200, 4, 0.5) for _ in range(2)]
        assert look_at(series).serial
        assert not look_at([series[0], rng.standard_normal((200, 4))]).serial  # one does no harm
    # Rows in random order: z above 3 in both views in 2e-6 of all fits.
    assert not any(
        look_at([s.standard_normal((100, 4)) for _ in "ab"]).serial for s in map(np.random.default_rng, range(50))
    )


def test_copies_in_a_row_are_no_series(rng):
    assert not look_at([np.repeat(rng.standard_normal((60, 4)), 5, axis=0) for _ in range(2)]).serial


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_whitening_is_that_of_the_shrunk_covariance_of_the_other_rows(share, rng):
    views = [rng.standard_normal((90, 4)) @ rng.standard_normal((4, 4)) + 3, rng.standard_normal((90, 3))]
    look = look_at(views)
    folds = Folds.of(look, 90, 0.2)
    stream = FoldedViews(open_views(views), folds, look.means, [None, None], None)
    moments = LocalEngine(stream).reduce(FoldMoments((4, 3), folds.count))
    for fold in (NONE, 2):
        rows = views[0] if fold == NONE else views[0][folds.number != fold]
        n, mean, covariance = moments.of(moments.without(fold), 0)
        assert n == len(rows)
        np.testing.assert_allclose(mean + look.means[0], rows.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(covariance, np.cov(rows.T), atol=1e-10)
        white = Whitening.learn(mean, covariance, n, share, "view 0")
        shrunk = (1 - share) * np.cov(rows.T) + share * np.trace(np.cov(rows.T)) / 4 * np.eye(4)
        np.testing.assert_allclose(white.factor.T @ shrunk @ white.factor, np.eye(4), atol=1e-9)
        np.testing.assert_allclose(white.back @ white.factor.T, np.eye(4), atol=1e-9)


def test_wide_rows_are_their_coordinates(rng):
    rows = rng.standard_normal((12, 30)) @ rng.standard_normal((30, 30))
    turn = turn_of(rows, rows.mean(axis=0))
    assert turn.shape == (30, 11)
    np.testing.assert_allclose(turn.T @ turn, np.eye(11), atol=1e-9)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(centred @ turn @ turn.T, centred, atol=1e-8)


def test_auto_shrinkage_is_that_of_scikit_learn(rng):
    from sklearn.covariance import oas

    rows = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6))
    rows -= rows.mean(axis=0)
    # scikit-learn's formula is of later print, which differs by terms of 2/d.
    assert auto_shrinkage(rows.T @ rows / 40, 40) == pytest.approx(oas(rows)[1], abs=0.05)
    assert auto_shrinkage(np.eye(4), 10) == 1.0


class TestClipper:
    def test_clean_rows_are_not_touched(self):
        # Distances of 10 normal columns: the median of chi_10 is 3.06, and P(chi_10 > 3 · 3.06) = 1e-13 for a row.
        rows = np.random.default_rng(0).standard_normal((1000, 10))
        assert Clipper(rows, 3.0)(rows) is rows

    def test_columns_of_any_place_and_unit(self):
        rows = np.random.default_rng(0).standard_normal((1000, 10)) * 10.0 ** np.arange(-1, 9) + 1e5
        assert Clipper(rows, 3.0)(rows) is rows

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_gross_outlier_is_drawn_back_along_its_direction(self, dtype):
        rows = np.random.default_rng(0).standard_normal((1000, 10)).astype(dtype)
        clean, rows[500] = rows.copy(), 1e4
        clipper = Clipper(rows, 3.0)
        found = clipper(rows)
        assert found.dtype == dtype
        assert rows[500, 0] == 1e4  # the caller's array is left alone
        np.testing.assert_array_equal(np.delete(found, 500, axis=0), np.delete(clean, 500, axis=0))
        before, after = rows[500] - clipper.center, found[500] - clipper.center
        assert before @ after / np.linalg.norm(before) / np.linalg.norm(after) == pytest.approx(1)
        # Three typical distances in units of the median deviation, 0.67: a length of about 3 · 3.06.
        assert np.linalg.norm(after) == pytest.approx(3 * 3.06, rel=0.1)

    def test_outliers_do_not_move_the_limit(self):
        rows = np.random.default_rng(0).standard_normal((1000, 10))
        clean = Clipper(rows, 3.0)
        rows[:100] = 1e8
        far = Clipper(rows, 3.0)
        # With a tenth of the rows far off the median distance is the 5/9 quantile of the others': 3.16, not 3.06.
        assert np.linalg.norm(far(rows)[0] - far.center) < 1.3 * np.linalg.norm(clean(rows)[0] - clean.center)

    def test_views_where_most_rows_are_the_same_keep_the_others(self):
        rows = np.zeros((100, 3))
        rows[:40] = np.random.default_rng(0).standard_normal((40, 3))
        found = Clipper(rows, 3.0)(rows)
        changed = np.flatnonzero((found != rows).any(axis=1))
        assert len(changed) <= 4
        constant = np.full((50, 3), 0.1)
        np.testing.assert_array_equal(Clipper(constant, 3.0)(constant), constant)

    def test_columns_that_hardly_ever_move(self):
        rows = np.random.default_rng(0).standard_normal((1000, 4))
        rows[:, 1], rows[:, 2] = 7.0, 0.0
        rows[::20, 2] = 1.0
        found = Clipper(rows, 3.0)(rows)
        np.testing.assert_array_equal(found[:, 1], 7.0)
        assert np.isfinite(found).all()
        assert np.mean(found[::20, 2]) > 0.5

    def test_no_rows(self):
        with pytest.raises(SampleError, match="clip needs rows to tell what is far, got none"):
            Clipper(np.empty((0, 3)), 3.0)

    def test_nothing_to_clip_with(self, rng):
        views = [rng.standard_normal((5, 2)), rng.standard_normal((5, 3))]
        assert all(one is other for one, other in zip(clipped(views, None), views, strict=True))
