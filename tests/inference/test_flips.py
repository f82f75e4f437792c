"""Tests by flips: valid where they claim to be, equal to their formulas, honest about what they cannot say."""

import itertools

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.datasets import load_breast_cancer, load_digits

import naive
from amounts import Traced
from tpca import TensorPCA
from tpca.inference.flips import CHUNK, draw_signs, entry_p_values, resampled
from tpca.inference.whitening import learn_whitening, loud_directions, sphere
from tpca.solvers.least_squares.question import rank_one_lengths


def test_more_than_a_thousand_samples_may_all_be_units_and_larger_ones_have_fewer_flips(rng):
    pca = TensorPCA(dependence=None, random_state=0).fit(rng.standard_normal((1100, 3)) + 1)
    assert pca.result_.n_units == 1100
    assert pca.p_values_[0] == 1 / 1000
    for entries, flips in ((10_000, 999), (20_000, 499)):
        pca = TensorPCA(whiten=None, dependence=None, random_state=0).fit(rng.standard_normal((12, entries)))
        assert pca.null_distribution_.shape == (1, flips)


def test_p_is_that_of_all_flips_where_these_are_few(rng):
    """Eight samples, 128 flips: of the component by its own null, of entries by the largest |t| of each flip."""
    X = rng.standard_normal((8, 4, 3)) + 0.5
    pca = TensorPCA(whiten=None, dependence=None, random_state=0).fit(X)
    null = pca.null_distribution_[0]
    assert null.shape == (127,)
    assert pca.p_values_[0] == naive.flip_p([pca.result_.components[0].statistic, *null])
    signs = np.array([(1.0, *some) for some in itertools.product((1.0, -1.0), repeat=7)])
    sizes = np.abs(np.einsum("sg,gij->sij", signs, X)) / np.sqrt(np.sum(X**2, axis=0))
    largest = sizes.max(axis=(1, 2))
    expected = [[np.mean(largest >= own * (1 - 1e-9)) for own in row] for row in sizes[0]]
    np.testing.assert_allclose(pca.entry_p_values_, expected)


def test_flips_leave_the_whitening_alone(rng):
    rows = sphere(rng.standard_normal((50, 5, 4)) * np.exp(rng.standard_normal(4)))
    signs = rng.choice([-1.0, 1.0], (50, 1, 1))
    white = rows.copy()
    one = learn_whitening(white)
    other = learn_whitening(signs * rows)
    for a, b in zip(one.maps, other.maps, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(white, one(rows), rtol=1e-12)
    loud = loud_directions(white)
    np.testing.assert_allclose(np.sort(loud.factors), np.sort(loud_directions(signs * white).factors), rtol=1e-9)
    vectors = [rng.standard_normal(5), rng.standard_normal(4)]
    back = one.back(one.of_vectors(vectors))
    for v, u in zip(vectors, back, strict=True):
        assert abs(v @ u) / np.linalg.norm(v) / np.linalg.norm(u) == pytest.approx(1)


@pytest.mark.parametrize("target", ["mean", "effect"])
def test_errors_and_intervals_are_those_of_the_formula(target, rng):
    """Every sample a unit: errors have the sums of squares of the naive formula, but for degrees of freedom."""
    n, dims = 20, (5, 4, 3)
    y = rng.standard_normal(n) if target == "effect" else None
    pattern = naive.outer_product([rng.standard_normal(d) for d in dims])
    X = rng.standard_normal((n, *dims)) + (pattern if y is None else np.multiply.outer(y, pattern))
    pca = TensorPCA(target=target, dependence=None, random_state=0).fit(X, y)
    assert pca.result_.n_units == n
    C, left = naive.contributions(X, y)
    leverage = 1 / n if y is None else 1 / n + left**2 / (left @ left)
    share = (left**2 @ (np.ones(n) - leverage)) / (left @ left)  # of the scatter, which fitting leaves
    enlarged = np.sqrt((n - 1) / n / share)  # 1/share in place of n/(n - 1)
    reach = student.ppf(0.975, n * share)
    D = C.sum(axis=0) / (left @ left)
    wide = np.multiply.outer(left**2, D) + enlarged * (C - np.multiply.outer(left**2, D))
    strength, ends, errors = naive.interval(wide, left**2, left @ left, reach)
    assert pca.strengths_[0] == pytest.approx(strength, rel=1e-6)
    np.testing.assert_allclose(pca.strength_intervals_[0], ends, rtol=1e-6)
    for own, expected in zip(pca.standard_errors_, errors, strict=True):
        np.testing.assert_allclose(own[0], expected, rtol=1e-5)


def test_the_plain_test_is_that_of_refitting_every_flip(rng):
    """Six units of one sample each: all 32 flips, by slow fits of each."""
    X = rng.standard_normal((6, 3, 4, 2)) + 0.4
    pca = TensorPCA(whiten=None, dependence=None, confidence=0.9, random_state=0).fit(X)
    signs = [(1.0, *some) for some in itertools.product((1.0, -1.0), repeat=5)]
    lengths = [naive.rank_one(np.einsum("g,gabc->abc", s, X))[0] for s in signs]
    # The quick fits of flips are a few sweeps from one start; all flips are fitted in the same way.
    assert pca.p_values_[0] == pytest.approx(naive.flip_p(lengths), abs=2 / 32)


LARGE = (24, 25, 26)  # flipped in single precision


@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_flips_of_large_tensors_are_the_same_in_any_chunks_and_at_any_size(size, rng):
    rows = rng.standard_normal((6, *LARGE))
    signs = draw_signs(6, 40, rng)
    scale = np.full(len(signs), 2.0)
    (values,), p = resampled([size * rows], rank_one_lengths, signs, scale)
    stacks = (signs @ rows.reshape(6, -1)).reshape(-1, *LARGE)
    np.testing.assert_allclose(values, size * rank_one_lengths(stacks) / 2, rtol=1e-2)  # of two maxima as high
    assert np.median(np.abs(values / (size * rank_one_lengths(stacks) / 2) - 1)) < 1e-5
    for most in (1, 100_000):
        (others,), other_p = resampled([size * rows], rank_one_lengths, signs, scale, most)
        np.testing.assert_allclose(others, values, rtol=1e-4)
        assert other_p == p


def test_flips_that_are_the_data_again_tie_with_them(rng):
    """Of seven units that are the same, and one of zeros, the data have the largest length; so have their copies."""
    pattern = rng.standard_normal(LARGE)
    rows = np.array([*[pattern] * 7, 0 * pattern])
    signs = np.vstack([np.ones(8), rng.choice([-1.0, 1.0], (40, 8))])
    signs[7, :] = 1
    signs[20, :] = -1
    signs[21, :7] = -1
    whole = np.abs(signs[:, :7].sum(axis=1)) == 7
    for most in (1, CHUNK):
        values, p = resampled([rows, rows], rank_one_lengths, signs, np.ones(41), most)
        np.testing.assert_allclose(values[0] / values[0, 0], np.abs(signs[:, :7].sum(axis=1)) / 7, rtol=1e-5)
        assert p == pytest.approx(whole.mean())
        entries = entry_p_values(rows, signs, np.ones(41), most)
        np.testing.assert_allclose(entries, whole.mean())


@pytest.mark.parametrize("dims", [(5, 4), (3, 30, 130)])
def test_p_of_entries_is_that_of_the_largest_t(dims, rng):
    rows = rng.standard_normal((12, *dims))
    rows[:, 1, 2] = 0
    signs = draw_signs(12, 200, rng)
    scale = rng.uniform(1, 2, len(signs))
    with np.errstate(invalid="ignore"):
        t = np.abs(np.einsum("sg,g...->s...", signs, rows) / np.sqrt(np.sum(rows**2, axis=0)))
    t /= scale.reshape(-1, *[1] * len(dims))
    largest = np.nanmax(t.reshape(len(t), -1), axis=1)
    expected = np.mean(largest >= t[0][..., None] * (1 - 1e-6), axis=-1)
    expected[1, 2] = np.nan
    told = []
    for most in (1000, CHUNK):
        found = entry_p_values(rows, signs, scale, most, lambda *counts: told.append(counts))
        np.testing.assert_allclose(found, expected, atol=1.01 / len(signs))
        assert told[-1] == (len(signs), len(signs))


def test_the_test_of_large_tensors_takes_little_more_than_their_sums():
    """Units twice, kept samples twice, a chunk of flips; everything was held several times."""
    samples = np.random.default_rng(0).standard_normal((64, 48, 48, 48), dtype=np.float32)

    def fit():
        return TensorPCA(n_resamples=19, random_state=0).fit(samples)

    fit()
    with Traced() as traced:
        assert fit().result_.n_units == 32
    sums = 32 * 8 * 48**3
    assert traced.peak < 4.6 * sums + 8 * CHUNK


def nothing(law, rng):
    """Samples without the effect that is asked for, and what is told with them."""
    match law:
        case "half negated":
            return rng.exponential(1.0, (40, 4, 3)) * np.where(np.arange(40) % 2, 1, -1)[:, None, None], {}
        case "a loud class":
            X = rng.standard_normal((30, 4, 3))
            X[:3] *= 3
            return X, {"y": np.repeat(["a", "b"], [3, 27])}
        case "noise of y":
            y = rng.standard_normal(20)
            return rng.standard_normal((20, 4, 3)) * np.exp(y)[:, None, None], {"y": y}
        case "between groups":
            groups = np.repeat(np.arange(12), 5)
            X = rng.standard_normal((60, 4, 3)) + 2 * rng.standard_normal((12, 4, 3))[groups]
            return X, {"y": np.repeat(["a", "b"], 30), "groups": groups}
        case "few cells":
            X = np.zeros((16, 10, 10))
            X[:, :3, :3] = rng.choice([-1.0, 1.0], (16, 3, 3))
            return X, {}
        case "digits flipped":
            images = load_digits().images
            images = images[rng.choice(len(images), 40, replace=False)]
            return (images - images.mean(axis=0)) * rng.choice([-1.0, 1.0], (40, 1, 1)), {}
        case "cancer permuted":
            data = load_breast_cancer()
            some = rng.choice(len(data.data), 60, replace=False)
            X = data.data[some].reshape(-1, 3, 10) / data.data.std(axis=0).reshape(3, 10)
            return X, {"y": rng.permutation(data.target[some]).astype(str)}
        case "IL-2 flipped":
            datasets = pytest.importorskip("tensorly.datasets")
            X = np.nan_to_num(np.asarray(datasets.load_IL2data().tensor))
            X = X.reshape(len(X), X.shape[1], -1)
            return (X - X.mean(axis=0)) * rng.choice([-1.0, 1.0], (len(X), 1, 1)), {}


LAWS = ["half negated", "a loud class", "noise of y", "between groups", "few cells"]
LAWS += ["digits flipped", "cancer permuted", "IL-2 flipped"]


@pytest.mark.parametrize("law", LAWS)
def test_claims_where_there_is_nothing_are_rare(law):
    """At 5 %: of 60 fits more than 10 claims have a probability of 2·10⁻⁴."""
    claims = 0
    for seed in range(60):
        X, given = nothing(law, np.random.default_rng([11, seed]))
        pca = TensorPCA(target="effect" if "y" in given else "mean", n_resamples=99, random_state=seed)
        claims += pca.fit(X, **given).found_
    assert claims <= 10


def test_a_second_component_that_is_not_there_is_rarely_claimed(rng):
    """A strong first one in coloured noise, in both coordinates: of 2 × 8 at 5 %, more than 5 have 4·10⁻⁴."""
    colour = np.linalg.cholesky(np.full((5, 5), 0.8) + 0.2 * np.eye(5))
    pattern = naive.outer_product([rng.standard_normal(d) for d in (5, 4, 3)])
    found = 0
    for seed in range(8):
        noise = np.random.default_rng([3, seed]).standard_normal((40, 5, 4, 3))
        X = np.einsum("ij,njkl->nikl", colour, noise) + 3 * pattern
        for whiten in ("auto", "modes"):
            pca = TensorPCA(2, whiten=whiten, n_resamples=99, random_state=seed).fit(X)
            assert pca.significant_[0]
            found += pca.significant_[1]
    assert found <= 5


# What cannot be said.


def notes(pca):
    return " ".join(pca.result_.advice)


def test_slow_neighbours_and_too_few_units_are_not_tested_and_the_way_out_is_said(rng):
    X = rng.standard_normal((60, 4, 3)).cumsum(axis=0) + 3
    pca = TensorPCA(random_state=0).fit(X)
    assert pca.verdict_ == "not tested"
    assert "dependence=None" in notes(pca)
    free = TensorPCA(random_state=0, dependence=None).fit(X)
    assert free.verdict_ != "not tested"
    np.testing.assert_allclose(free.result_.components[0].length, pca.result_.components[0].length, rtol=1e-9)
    X = rng.standard_normal((5, 4, 3)) + 9
    pca = TensorPCA(random_state=0).fit(X)
    assert (pca.verdict_, pca.found_) == ("not tested", False)
    assert np.isnan(pca.p_values_).all()
    assert "confidence 0.95 needs 0.05" in notes(pca)
    assert TensorPCA(confidence=0.9, random_state=0).fit(X).found_


def test_integers_are_a_dose_and_strings_are_labels(rng):
    X, y = rng.standard_normal((40, 4, 3)), np.arange(40) % 3
    assert "y.astype(str)" in notes(TensorPCA(target="effect", random_state=0).fit(X, y))
    assert TensorPCA(target="effect", random_state=0).fit(X, y.astype(str)).label_amplitudes_.shape == (1, 3)


def test_an_interval_beside_a_large_p_is_an_upper_limit(rng):
    """The best rank-one pattern of 30 × 30 numbers of noise is long, and takes the noise along for a signal."""
    X = rng.standard_normal((60, 30, 30))
    pca = TensorPCA(random_state=0).fit(X)
    (low, high), p = pca.strength_intervals_[0], pca.p_values_[0]
    assert (p > 0.05, low > 0) == (True, True)
    assert f"Read it as an upper limit, {high:.3g}" in notes(pca)
    pattern = np.outer(*(np.ones(30) / np.sqrt(30) for _ in range(2)))
    assert "upper limit" not in notes(TensorPCA(random_state=0).fit(X + 5 * pattern))


ADVICE = {
    "a mean that was subtracted": (lambda x: x - x.mean(axis=0), "seems to have been subtracted"),
    "heavy tails": (lambda x: np.sign(x) * np.abs(x) ** 6, "Heavy tails"),
    "copies": (lambda x: x[np.arange(60) % 20], "exact copies"),
    "a loud sample": (lambda x: x * np.where(np.arange(60) == 7, 40, 1)[:, None, None], "One sample has"),
}


def test_loud_noise_is_told_beside_what_is_not_proven_and_p_says_whose_it_is(rng):
    """A direction is 60 times as loud: a pattern of 20 standard errors is seen only where it is taken down."""
    loud, quiet = 9 * rng.standard_normal((8, 6)), np.outer(np.arange(8) - 3.5, [1, -1, 1, -1, 1, -1]) / 16
    scores = rng.standard_normal(100)
    Z = np.multiply.outer(np.concatenate([scores, -scores]), loud) + rng.standard_normal((200, 8, 6))
    for pattern, proven in ((0, False), (quiet, False), (loud, True)):
        pca = TensorPCA(random_state=0, dependence=None).fit(Z + pattern)
        assert pca.significant_[0] == proven
        assert ("times as loud" in notes(pca)) == (not proven)
        if pattern is quiet:
            assert "over all tests" in str(pca.summary()).splitlines()[0]


@pytest.mark.parametrize("name", ADVICE)
def test_what_is_odd_about_samples_is_told_in_a_line(name, rng):
    change, says = ADVICE[name]
    X = rng.standard_normal((60, 4, 3))
    assert says in notes(TensorPCA(random_state=0).fit(change(X)))
    assert says not in notes(TensorPCA(random_state=0).fit(X + 0.5))
