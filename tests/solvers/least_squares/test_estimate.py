"""The answer is the least-squares fit of what was asked, from all samples, whatever their order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from tpca import TensorPCA

DIMS = (4, 3, 2)


def fitted(X, y=None, **given):
    """A quick fit: the estimate does not depend on the number of flips."""
    options = given.pop("options", {})
    target = "mean" if y is None else "effect"
    return TensorPCA(target=target, n_resamples=19, confidence=0.9, random_state=0, **options).fit(X, y, **given)


def tensors(pca):
    """Length times pattern of every row, from what the fit holds."""
    rows = []
    for c, component in enumerate(pca.result_.components):
        rows.append(component.length * naive.outer_product([v[c] for v in pca.components_]))
    return np.array(rows)


def check_rank_one(pca, D, tol=1e-7, row=0):
    """A row is the best rank-one fit of D: as long as that of many starts, and a fixed point of it."""
    length = pca.result_.components[row].length
    vectors = [v[row] for v in pca.components_]
    best = naive.rank_one_objective(D, naive.best_rank_one(D, 8, 0))
    assert length == pytest.approx(best, rel=1e-6)
    for m in range(D.ndim):
        pulled = naive.einsum_gradient(D, [(j,) for j in range(D.ndim)], vectors, m)
        np.testing.assert_allclose(pulled, length * vectors[m], atol=tol * length)


def design(rng, n, kind):
    """y, nuisances, weights, groups and the columns that they stand for."""
    given, y = {}, rng.standard_normal(n)
    if kind == "year":
        y = 2000.0 + np.sort(rng.integers(0, 40, n)).astype(float)
    elif kind == "unbalanced":
        y = (np.arange(n) < max(2, n // 8)).astype(float)
    elif kind == "sorted":
        y = np.sort(y)
    if kind in ("nuisances", "collinear", "weights"):
        given["nuisance"] = rng.standard_normal((n, 2)) + np.array([0.0, 1900.0])
    if kind == "collinear":
        extra = given["nuisance"] @ [[1.0], [2.0]] + 3.0
        given["nuisance"] = np.column_stack([given["nuisance"], extra, np.full(n, 7.0)])
    if kind in ("weights", "year"):
        given["sample_weight"] = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.1, 3.0, n))
    if kind == "groups":
        given["groups"] = rng.integers(0, 9, n)
    return y, given


KINDS = ["plain", "year", "unbalanced", "sorted", "nuisances", "collinear", "weights", "groups"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(12, 60))
def test_an_effect_is_that_of_lstsq(kind, seed, n):
    rng = np.random.default_rng(seed)
    y, given_ = design(rng, n, kind)
    X = rng.standard_normal((n, *DIMS)) + 5 + np.multiply.outer(y - y.mean(), rng.standard_normal(DIMS))
    D = naive.least_squares(X, y, given_.get("nuisance"), given_.get("sample_weight"))[0]
    pca = fitted(X, y, **given_)
    check_rank_one(pca, D)
    assert pca.n_samples_seen_ == n


def test_the_mean_is_that_of_lstsq_and_two_labels_are_the_difference_of_their_means(rng):
    X = rng.standard_normal((50, *DIMS)) + rng.standard_normal(DIMS)
    for weights in (None, rng.uniform(0.1, 2.0, 50)):
        check_rank_one(fitted(X, sample_weight=weights), naive.least_squares(X, None, weights=weights)[0])
    y = np.array(["treated", "control"])[(rng.random(40) < 0.3).astype(int)]
    X = rng.standard_normal((40, *DIMS))
    pca = fitted(X, y)
    check_rank_one(pca, X[y == "treated"].mean(axis=0) - X[y == "control"].mean(axis=0))
    assert pca.effects_ == ["treated - control"]


def test_several_covariates_are_each_beside_the_others(rng):
    y, X = rng.standard_normal((50, 3)) + 100, rng.standard_normal((50, *DIMS))
    y[:, 1] += 0.9 * y[:, 0]
    nuisance = rng.standard_normal(50)
    D = naive.least_squares(X, y, nuisance)
    pca = fitted(X, y, nuisance=nuisance)
    assert pca.effects_ == ["y[0]", "y[1]", "y[2]"]
    assert pca.entry_p_values_.shape == (3, *DIMS)
    for row, own in enumerate(D):
        check_rank_one(pca, own, row=row)
    two = fitted(X, y, nuisance=nuisance, options={"n_components": 2})
    assert two.effects_ == ["y[0]", "y[0]", "y[1]", "y[1]", "y[2]", "y[2]"]
    assert [v.shape for v in two.components_] == [(6, d) for d in DIMS]


@pytest.mark.parametrize("weighted", [False, True])
def test_labels_are_one_more_mode(weighted, rng):
    """Amplitudes times the pattern are the best rank-one fit of class means about the overall mean."""
    labels = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 80)]
    signal = naive.outer_product([rng.standard_normal(d) for d in DIMS])
    shift = dict(zip("abcd", (0.0, 1.0, -2.0, 0.5), strict=True))
    X = rng.standard_normal((80, *DIMS)) + np.multiply.outer([shift[one] for one in labels], 3 * signal) + 10
    w = rng.uniform(0.5, 2.0, 80) if weighted else np.ones(80)
    pca = fitted(X, labels, sample_weight=w if weighted else None)
    shares = np.array([w[labels == one].sum() for one in "abcd"]) / w.sum()
    means = np.array([np.average(X[labels == one], axis=0, weights=w[labels == one]) for one in "abcd"])
    centred = (means - np.tensordot(shares, means, 1)) * np.sqrt(shares).reshape(-1, 1, 1, 1)
    best = naive.best_rank_one(centred, 8, 0)
    length = naive.rank_one_objective(centred, best)
    assert pca.result_.components[0].length == pytest.approx(length, rel=1e-8)
    cosines = [abs(v[0] @ u) for v, u in zip(pca.components_, best[1:], strict=True)]
    np.testing.assert_allclose(cosines, 1, atol=1e-9)
    assert pca.entry_p_values_.shape == DIMS
    amplitudes = pca.label_amplitudes_[0]
    assert amplitudes @ shares == pytest.approx(0, abs=1e-9)
    expected = best[0] / np.sqrt(shares)
    assert abs(np.corrcoef(amplitudes, expected)[0, 1]) == pytest.approx(1, abs=1e-9)
    # In the units of the data: strength off its bias, so a little less than the fit's own length.
    assert np.sqrt(np.sum(shares * amplitudes**2)) == pytest.approx(pca.strengths_[0], rel=1e-9)


@pytest.mark.parametrize("kind", ["plain", "year", "nuisances", "groups"])
def test_missing_entries_are_left_out_entry_by_entry(kind, rng):
    y, given_ = design(rng, 60, kind)
    X = rng.standard_normal((60, *DIMS)) + np.multiply.outer(y - y.mean(), rng.standard_normal(DIMS))
    X[rng.random(X.shape) < 0.3] = np.nan
    D = naive.least_squares(X, y, given_.get("nuisance"), given_.get("sample_weight"))[0]
    pca = fitted(X, y, options={"nan_policy": "zero"}, **given_)
    check_rank_one(pca, D)
    assert all(0.5 < rates.min() <= rates.max() < 0.9 for rates in pca.observed_rates_)
    mean = fitted(X, options={"nan_policy": "zero"})
    check_rank_one(mean, np.nanmean(X, axis=0))


def test_entries_never_observed_say_nothing_and_samples_left_out_take_their_rows_with_them(rng):
    X = rng.standard_normal((40, *DIMS)) + 2
    X[:, 1] = np.nan
    X[:, 0, 2, 1] = np.nan
    pca = fitted(X, options={"nan_policy": "zero"})
    assert pca.components_[0][0, 1] == pytest.approx(0, abs=1e-12)
    assert np.isinf(pca.standard_errors_[0][0, 1])
    assert np.isnan(pca.entry_p_values_[1]).all()
    assert np.isnan(pca.entry_p_values_[0, 2, 1])
    assert np.isfinite(pca.entry_p_values_[2]).all()
    y, X = rng.standard_normal(60), rng.standard_normal((60, *DIMS))
    X += np.multiply.outer(y, rng.standard_normal(DIMS))
    w, groups = rng.uniform(0.5, 2, 60), np.arange(60) // 5
    gone = rng.choice(60, 17, replace=False)
    holed = X.copy()
    holed[gone, 1, 1, 1] = np.nan
    left = np.delete(np.arange(60), gone)
    pca = fitted(holed, y, sample_weight=w, groups=groups, options={"nan_policy": "omit"})
    check_rank_one(pca, naive.least_squares(X[left], y[left], weights=w[left])[0])
    assert (pca.n_samples_seen_, pca.n_skipped_) == (43, 17)


@pytest.mark.parametrize("signal", [True, False])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("case", ["mean", "effect", "labels", "groups", "variance"])
def test_the_order_of_samples_changes_nothing(case, holes, signal, rng):
    """Of noise, p is no least one, and samples are more than are kept for the whitening."""
    if holes and case in ("labels", "variance"):
        pytest.skip("takes no missing entries")
    n, orders = (60, 9) if signal else (400, 3)
    y = rng.integers(0, 3, n) + np.arange(n) / 10
    X = rng.standard_normal((n, *DIMS)) * np.exp(rng.standard_normal(DIMS[-1]))
    if signal:
        X += np.multiply.outer(y, naive.outer_product([np.ones(d) for d in DIMS])) / 5
        X += np.multiply.outer(2 * rng.standard_normal(n), naive.outer_product([np.arange(d) - 1.0 for d in DIMS]))
    if holes:
        X[rng.random(X.shape) < 0.2] = np.nan
    labels = np.array(["a", "b", "c"])[np.arange(n) * 3 // n]
    known = {"effect": {"y": y}, "labels": {"y": labels}, "groups": {"groups": np.arange(n) // (n // 50)}}.get(case, {})
    options = {
        "target": {"labels": "effect", "groups": "mean"}.get(case, case),
        "nan_policy": "zero" if holes else "raise",
        "dependence": "auto" if case == "groups" else None,
        "n_resamples": 19 if case == "variance" else 99,
    }

    def fit(order):
        pca = TensorPCA(2 if signal else 1, random_state=0, **options)
        return pca.fit(X[order], **{name: one[order] for name, one in known.items()})

    first = fit(np.arange(n))
    for _ in range(orders):
        pca = fit(rng.permutation(n))
        np.testing.assert_allclose(tensors(pca), tensors(first), atol=1e-9 * first.strengths_[0])
        for own, expected in zip(pca.components_, first.components_, strict=True):
            np.testing.assert_allclose(own, expected, atol=1e-8)
        np.testing.assert_allclose(pca.strengths_, first.strengths_, rtol=1e-6)
        np.testing.assert_allclose(pca.strength_intervals_, first.strength_intervals_, rtol=1e-6, atol=1e-9)
        for own, expected in zip(pca.standard_errors_, first.standard_errors_, strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-6)
        np.testing.assert_array_equal(pca.p_values_, first.p_values_)
        np.testing.assert_array_equal(pca.entry_p_values_, first.entry_p_values_)
        assert pca.result_.p_value == first.result_.p_value
