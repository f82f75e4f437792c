"""Folds, and whitening without the rows that judge it."""

import numpy as np
import pytest

from noises import serial
from tpca.data.rows import open_views
from tpca.engines import LocalEngine
from tpca.errors import SampleError
from tpca.solvers.folds import (
    MEMORY,
    NONE,
    FirstLook,
    FoldedRows,
    Folds,
    Passes,
    Turn,
    auto_shrinkage,
    learn_whitenings,
)


def look_at(views):
    return LocalEngine(open_views(views)).reduce(FirstLook([view.shape[1] for view in views]))


def test_folds_depend_on_what_is_in_the_rows(rng):
    views = [np.concatenate([view, view[:50]]) for view in (rng.standard_normal((200, d)) for d in (2, 5))]
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


def test_neighbours_that_are_correlated_are_seen_in_two_views_and_copies_are_no_series(rng):
    assert not look_at([np.repeat(rng.standard_normal((60, 4)), 5, axis=0) for _ in range(2)]).neighbours
    for seed in range(10):
        rng = np.random.default_rng(seed)
        series = [serial(200, (4,), rng, 0.5) for _ in range(2)]
        assert look_at(series).neighbours
        assert not look_at([series[0], rng.standard_normal((200, 4))]).neighbours  # one does no harm
    # Rows in random order: z above 3 in both views in 2e-6 of all fits.
    assert not any(
        look_at([s.standard_normal((100, 4)) for _ in "ab"]).neighbours for s in map(np.random.default_rng, range(50))
    )


@pytest.mark.parametrize(("share", "count"), [(0.0, 2), (0.3, 2), (1.0, 2), ("auto", 2), ("auto", 3), ("auto", 4)])
def test_whitening_is_that_of_the_shrunk_covariance_of_the_other_rows(share, count, rng):
    """Few rows: towards the variances, with a floor, and by a share that grows with the number of views."""
    views = [rng.standard_normal((90, 10)) @ rng.standard_normal((10, 10)) * np.logspace(-2, 2, 10) + 3]
    views += [rng.standard_normal((90, 3)) for _ in range(count - 1)]
    look, turns = look_at(views), [None] * count
    folds = Folds.of(look, 90, 0.2)
    passes = Passes(FoldedRows(open_views(views), folds, look.means, turns), LocalEngine, MEMORY)
    whitenings, variances = learn_whitenings(passes, look, folds.count, turns, share, [NONE, 2])
    np.testing.assert_allclose(variances[0], views[0].var(axis=0, ddof=1))
    for fold, (white, *_) in whitenings.items():
        rows = views[0] if fold == NONE else views[0][folds.number != fold]
        np.testing.assert_allclose(white.mean + look.means[0], rows.mean(axis=0), atol=1e-9)
        plain, own = np.cov(rows.T), share
        target = np.full(10, np.trace(plain) / 10)
        if share == "auto":
            target = np.maximum(np.diag(plain), (0.1 if count == 2 else 1) * np.median(np.diag(plain)))
            once = auto_shrinkage(plain / np.sqrt(np.outer(target, target)), np.ones(10), len(rows), 10)
            own = 1 - (1 - once) ** (count - 1)
            assert 0 < once < 1
        shrunk = (1 - own) * plain + own * np.diag(target)
        weights = white.weights(np.eye(10))
        np.testing.assert_allclose(weights @ shrunk @ weights.T, np.eye(10), atol=1e-9)
        np.testing.assert_allclose(white.whitened(np.eye(10)), weights.T, atol=1e-9)  # gradients by the chain rule


@pytest.mark.parametrize("standardised", [False, True])
def test_wide_rows_are_their_coordinates(standardised, rng):
    rows = rng.standard_normal((12, 30)) @ rng.standard_normal((30, 30))
    turn = Turn.of(rows, rows.mean(axis=0), standardised)
    np.testing.assert_allclose(turn.down.T @ turn.up, np.eye(11), atol=1e-9)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(centred @ turn.down @ turn.up.T, centred, atol=1e-8)
    scaled = centred / rows.std(axis=0) if standardised else centred  # lengths are those of these
    np.testing.assert_allclose(np.sum((centred @ turn.down) ** 2, axis=1), np.sum(scaled**2, axis=1))


def test_auto_shrinkage_is_that_of_scikit_learn(rng):
    from sklearn.covariance import oas

    rows = rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6))
    rows -= rows.mean(axis=0)
    # scikit-learn's formula is of later print, which differs by terms of 2/d.
    assert auto_shrinkage(rows.T @ rows / 40, np.ones(6), 40, 6) == pytest.approx(oas(rows)[1], abs=0.05)
    assert auto_shrinkage(np.eye(4), np.ones(4), 10, 4) == 1.0
