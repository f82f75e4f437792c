"""Tests of peers, re-expressed through our public face: what they ask of themselves, asked of tpca.

Numbers (tensors of examples, tolerances, reference fields) are those of the peers' own tests: TensorLy's ``test_cp``,
pyttb's ``test_cp_als``, tlviz' ``test_factor_tools``, eofs' ``test_solution``; conventions of resampling are those of
SciPy, hyppo and MNE.  What is tested here stands in the table of docs/real.md.
"""

import itertools
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.stats import permutation_test
from sklearn.decomposition import PCA
from tensorly.cp_tensor import cp_to_tensor
from tensorly.decomposition import parafac
from tensorly.metrics.factors import congruence_coefficient
from tensorly.random import random_cp

import tpca

NOISE = 1e-7  # samples that are all the same are refused


def samples_of(tensor, rng, n=12):
    """Samples whose mean is the tensor, exactly: noise comes with its negative."""
    noise = NOISE * np.abs(tensor).max() * rng.standard_normal((n // 2, *np.shape(tensor)))
    return np.asarray(tensor) + np.concatenate([noise, -noise])


def fit_of(pca, X):
    """What the fit makes of the mean of samples: the sum of its components, each with its length."""
    lengths = [component.length for component in pca.result_.components]
    return pca.inverse_transform(np.array([lengths]))[0], np.nanmean(X, axis=0)


def relative_error(pca, X):
    fitted, mean = fit_of(pca, X)
    return np.linalg.norm(fitted - mean) / np.linalg.norm(mean)


# TensorLy: decomposition/tests/test_cp.py -----------------------------------------------------------------------------


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize(("rank", "components"), [(1, 1), (3, 4)])
@pytest.mark.parametrize("seed", [1, 1234])
def test_tensorly_an_exact_tensor_is_recovered(rank, components, orthogonal, seed, rng):
    """Its ranks and tolerances: 0.01 of the norm, 0.05 of any entry."""
    tensor = np.asarray(random_cp((6, 8, 7), rank=rank, orthogonal=orthogonal, full=True, random_state=seed))
    X = samples_of(tensor, rng)
    pca = tpca.TensorPCA(components, random_state=0).fit(X)
    fitted, _ = fit_of(pca, X)
    assert np.linalg.norm(fitted - tensor) < 0.01 * np.linalg.norm(tensor)
    assert np.abs(fitted - tensor).max() < 0.05


def test_tensorly_sources_are_found_one_by_one(rng):
    """Factors of 8 × 9 × 10, two axes positive and one not: congruence above 0.99, and 1e-3 of the norm."""
    factors = [rng.uniform(size=(8, 3)), rng.standard_normal((9, 3)), rng.uniform(0.1, 1.1, size=(10, 3))]
    tensor = cp_to_tensor((rng.uniform(size=3), factors))
    X = samples_of(tensor, rng)
    pca = tpca.TensorPCA(3, random_state=0).fit(X)
    for factor, vectors in zip(factors, pca.components_, strict=True):
        congruence, _ = congruence_coefficient(factor, vectors.T, absolute_value=True)
        assert congruence > 0.99
    assert np.linalg.norm(fit_of(pca, X)[0] - tensor) < 1e-3
    matching = pca.result_.match([factor.T for factor in factors])
    assert np.abs(matching.cosines).min() > 0.99


def test_tensorly_a_noisy_tensor_of_full_rank_is_fitted_as_well(rng):
    """5 × 5 × 5 random numbers and five components, where it compares line searches: at most its 0.1 behind."""
    tensor = np.random.RandomState(1234).random_sample((5, 5, 5))
    X = samples_of(tensor, rng)
    error = relative_error(tpca.TensorPCA(5, random_state=0, n_resamples=19).fit(X), X)
    theirs = cp_to_tensor(parafac(tensor, rank=5, init="random", random_state=1234, n_iter_max=10, tol=1e-8))
    assert error < np.linalg.norm(tensor - theirs) / np.linalg.norm(tensor) + 0.1


def test_tensorly_errors_fall_with_every_component(rng):
    tensor = random_cp((6, 8, 4), rank=3, full=True, random_state=1)
    X = samples_of(np.asarray(tensor) + 0.1 * rng.standard_normal((6, 8, 4)), rng)
    errors = [relative_error(tpca.TensorPCA(rank, random_state=0, n_resamples=19).fit(X), X) for rank in (1, 2, 3, 4)]
    assert np.all(np.diff(errors) <= 1e-4)
    components = tpca.TensorPCA(4, random_state=0, n_resamples=19).fit(X).result_.components
    shares = [component.joint_share for component in components]
    np.testing.assert_allclose(shares, 1 - np.square(errors), atol=1e-5)


def test_tensorly_the_same_seed_gives_the_same_answer(rng):
    X = samples_of(cp_to_tensor(random_cp((6, 8, 7), rank=3, random_state=1)), rng)
    one, other = (tpca.TensorPCA(2, random_state=1234).fit(X) for _ in range(2))
    for u, v in zip(one.components_, other.components_, strict=True):
        np.testing.assert_array_equal(u, v)
    np.testing.assert_array_equal(one.p_values_, other.p_values_)


def test_tensorly_entries_that_are_missing_are_left_out_of_the_fit(rng):
    """Fibres are missing from one half of the samples or the other: the answer of the full tensor, to 0.001."""
    X = samples_of(random_cp((4, 4, 4), rank=1, full=True, random_state=1), rng, 40)
    holes = X.copy()
    holes[:20, 1, :, 3] = np.nan
    holes[20:, 2:, 2, 3] = np.nan
    whole, partly = (tpca.TensorPCA(random_state=0, nan_policy="zero").fit(x) for x in (X, holes))
    assert np.linalg.norm(fit_of(partly, holes)[0] - fit_of(whole, X)[0]) < 0.001


def test_tensorly_fills_in_what_no_sample_has_and_we_do_not(rng):
    """Entries that were never seen count as 0 in the fit, and have no p-value: one shrinks, and one is told."""
    X = samples_of(random_cp((4, 4, 4), rank=1, full=True, random_state=1), rng, 40)
    holes = X.copy()
    holes[:, 1, :, 3] = np.nan
    pca = tpca.TensorPCA(random_state=0, nan_policy="zero").fit(holes)
    assert np.isnan(pca.entry_p_values_[1, :, 3]).all()
    assert np.isfinite(pca.entry_p_values_).sum() == 60
    assert pca.observed_rates_[0][1] == pytest.approx(0.75)
    assert pca.result_.components[0].length < tpca.TensorPCA(random_state=0).fit(X).result_.components[0].length


# pyttb: tests/test_cp_als.py ------------------------------------------------------------------------------------------

MATRIX = np.array([[29.0, 39.0], [63.0, 85.0]])


@pytest.mark.parametrize(
    ("tensor", "components", "expected"),
    [
        (MATRIX, 2, 0.0),
        (np.array([[0.5, 0.0], [0.5, 0.5]]), 2, 0.0),
        (6 * np.ones((5, 2)), 1, 0.0),
        (MATRIX, 1, np.linalg.svd(MATRIX, compute_uv=False)[1] / np.linalg.norm(MATRIX)),
    ],
    ids=["two components fit a matrix", "a sparse one", "ones are of rank one", "one component is the best"],
)
def test_pyttb_matrices(tensor, components, expected, rng):
    X = samples_of(tensor, rng)
    error = relative_error(tpca.TensorPCA(components, random_state=0).fit(X), X)
    assert error == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("shape", [(2, 2), (3, 4, 5)])
def test_pyttb_nothing_is_fitted_to_zeros(shape, rng):
    noise = rng.standard_normal((20, *shape))
    pca = tpca.TensorPCA(2, random_state=0, n_resamples=199).fit(np.concatenate([noise, -noise]))
    assert not pca.found_
    assert all(np.isfinite(rows).all() for rows in pca.components_)
    assert [component.length for component in pca.result_.components] == pytest.approx([0, 0], abs=1e-12)


def test_pyttb_the_order_of_axes_does_not_matter(rng):
    X = rng.standard_normal((40, 3, 4, 5)) + 1
    pca = tpca.TensorPCA(random_state=0).fit(X)
    for order in itertools.permutations(range(3)):
        turned = tpca.TensorPCA(random_state=0).fit(np.moveaxis(X, [1 + m for m in order], [1, 2, 3]))
        for place, mode in enumerate(order):
            cosine = abs(turned.components_[place][0] @ pca.components_[mode][0])
            assert cosine == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("shape", [(4, 5, 3), (3, 4, 2, 3)])
@pytest.mark.parametrize("rank", [2, 3])
def test_pyttb_a_random_ktensor_is_fitted(shape, rank, rng):
    """Uniform factors, which are all alike: a fit of 1, whatever the order of the axes."""
    factors = [rng.random((length, rank)) for length in shape]
    tensor = cp_to_tensor((None, factors))
    for order in (range(len(shape)), reversed(range(len(shape)))):
        axes = list(order)
        X = samples_of(np.transpose(tensor, axes), rng)
        pca = tpca.TensorPCA(rank, random_state=0, n_resamples=19).fit(X)
        assert 1 - relative_error(pca, X) == pytest.approx(1, rel=1e-6)
        matching = pca.result_.match([factors[axis].T for axis in axes])
        np.testing.assert_allclose(np.abs(matching.cosines), 1, atol=1e-6)


def test_pyttb_several_components_do_not_depend_on_the_order_of_axes(rng):
    X = rng.standard_normal((40, 3, 4, 5)) + np.multiply.outer([1, 2, 3], rng.standard_normal((4, 5)))
    pca = tpca.TensorPCA(2, random_state=0, n_resamples=19).fit(X)
    for order in itertools.permutations(range(3)):
        turned_samples = np.moveaxis(X, [1 + m for m in order], [1, 2, 3])
        turned = tpca.TensorPCA(2, random_state=0, n_resamples=19).fit(turned_samples)
        matching = turned.result_.match([pca.components_[axis] for axis in order])
        np.testing.assert_allclose(matching.cosines, 1, atol=1e-9)


def test_pyttb_a_tucker_tensor_is_fitted_as_well_as_can_be(rng):
    """A core of 2 × 3 × 4 in 5 × 2 × 4, where no fit of two components is exact: as near as TensorLy comes."""
    core = rng.random((2, 3, 4))
    tensor = np.einsum("abc,ia,jb,kc->ijk", core, rng.random((5, 2)), rng.random((2, 3)), rng.random((4, 4)))
    X = samples_of(tensor, rng)
    error = relative_error(tpca.TensorPCA(2, random_state=0, n_resamples=19).fit(X), X)
    assert error < relative_error(tpca.TensorPCA(1, random_state=0, n_resamples=19).fit(X), X)
    ours = 1 - error
    theirs = 1 - min(
        np.linalg.norm(tensor - cp_to_tensor(parafac(tensor, 2, init="random", random_state=seed, n_iter_max=500)))
        / np.linalg.norm(tensor)
        for seed in range(3)
    )
    assert ours >= theirs - 1e-6


def test_pyttb_sparse_samples_give_the_answer_of_dense_ones(rng):
    X = rng.standard_normal((40, 6, 5)) * (rng.random((40, 6, 5)) < 0.2) + 0.0
    X[:, 1, 2] += 2
    dense = tpca.TensorPCA(random_state=0).fit(X)
    sparse = tpca.TensorPCA(random_state=0).fit([scipy.sparse.csr_matrix(x) for x in X])
    for u, v in zip(dense.components_, sparse.components_, strict=True):
        assert abs(u[0] @ v[0]) == pytest.approx(1, abs=1e-9)
    assert dense.p_values_[0] == sparse.p_values_[0]


# tlviz: tests/test_factor_tools.py ------------------------------------------------------------------------------------


def result_with(factors, rng):
    """A fit whose components are the columns of factors."""
    tensor = cp_to_tensor((np.arange(factors[0].shape[1], 0, -1) + 1.0, factors))
    rank = factors[0].shape[1]
    return tpca.TensorPCA(rank, random_state=0, n_resamples=19).fit(samples_of(tensor, rng)).result_


def factor_match_score(factors, others):
    """Mean |product of cosines| of components that belong together, by all ways to order them."""
    product = 1.0
    for factor, other in zip(factors, others, strict=True):
        lengths = np.outer(np.linalg.norm(factor, axis=0), np.linalg.norm(other, axis=0))
        product = product * np.abs(factor.T @ other) / lengths
    rank = len(product)
    return max(np.mean(product[range(rank), order]) for order in itertools.permutations(range(rank)))


@pytest.fixture(scope="module")
def matched_fit():
    """Four orthonormal sources of 10 × 11 × 12, and their result."""
    rng = np.random.default_rng(3)
    factors = [np.linalg.qr(rng.standard_normal((length, 4)))[0] for length in (10, 11, 12)]
    return factors, result_with(factors, rng)


def test_tlviz_lengths_of_columns_do_not_matter(matched_fit):
    factors, result = matched_fit
    assert np.abs(result.match(result).cosines).mean() == pytest.approx(1)
    for scales in ((1.0, 1.0, 1.0), (2.0, 0.5, 1.0), (0.5, 0.5, 0.5), (-1.0, 1.0, 1.0)):
        scaled = [scale * factor.T for scale, factor in zip(scales, factors, strict=True)]
        assert np.abs(result.match(scaled).cosines).mean() == pytest.approx(1)


@pytest.mark.parametrize("permutation", [(2, 1, 3, 0), (1, 0, 3, 2), (3, 2, 1, 0)])
def test_tlviz_permutations_are_found(permutation, matched_fit):
    factors, result = matched_fit
    before = result.match([factor.T for factor in factors])
    after = result.match([factor.T[list(permutation)] for factor in factors])
    assert np.abs(after.cosines).mean() == pytest.approx(1)
    np.testing.assert_array_equal(np.array(permutation)[after.others], before.others)


def test_tlviz_fewer_components_and_one_that_was_replaced(matched_fit, rng):
    """Two of four are found among them; with one of random vectors the other three are."""
    factors, result = matched_fit
    places = {int(source): int(row) for row, source in zip(*pairs_of(result, factors), strict=True)}
    subset = result.match([factor.T[[2, 0]] for factor in factors])
    assert dict(zip(subset.others.tolist(), subset.rows.tolist(), strict=True)) == {0: places[2], 1: places[0]}
    replaced = [factor.T.copy() for factor in factors]
    for rows in replaced:
        rows[1] = rng.standard_normal(rows.shape[1])
    matching = result.match(replaced)
    assert dict(zip(matching.others.tolist(), matching.rows.tolist(), strict=True)) == places
    assert np.sum(np.abs(matching.cosines) > 1 - 1e-9) == 3
    zeros = [factor.T.copy() for factor in factors]
    zeros[0][1] = 0
    assert sorted(np.abs(result.match(zeros).cosines).round(9)) == [0, 1, 1, 1]


def pairs_of(result, factors):
    matching = result.match([factor.T for factor in factors])
    return matching.rows, matching.others


@pytest.mark.parametrize("seed", range(3))
def test_tlviz_the_score_of_any_two_sets_is_that_of_all_permutations(seed, matched_fit):
    """And TensorLy's coefficient of congruence, which is the same for all axes at once."""
    _, result = matched_fit
    rng = np.random.default_rng(seed)
    others = [rng.standard_normal((length, 4)) for length in (10, 11, 12)]
    vectors = [rows.T for rows in result.vectors]
    score = np.abs(result.match([other.T for other in others]).cosines).mean()
    assert score == pytest.approx(factor_match_score(vectors, others), rel=1e-8)
    congruence, _ = congruence_coefficient(vectors, others, absolute_value=True)
    assert score == pytest.approx(congruence, rel=1e-8)


def test_tlviz_degenerate_components_have_a_cosine_of_minus_one(rng):
    """Two components that differ in the sign along one axis cancel: a fit never has such, it is one component."""
    A = np.array([[1, 1, 3], [-1, -1, 0], [1, 1, 2], [2, 2, 6.0]])
    B = np.array([[4, 4, 6], [-3, -3, 2], [0, 0, -8.0]])
    C = np.array([[1, -1, 3], [2, -2, 4], [-1, 1, 2], [2, -2, -3.0]])
    X = samples_of(cp_to_tensor((np.array([2.0, 1.0, 1.0]), [A, B, C])), rng)
    pca = tpca.TensorPCA(3, random_state=0, n_resamples=19).fit(X)
    assert [component.length > 0 for component in pca.result_.components] == [True, True, False]
    own = pca.result_.match([A.T[:1], B.T[:1], C.T[:1]])
    opposed = pca.result_.match([A.T[1:2], B.T[1:2], C.T[1:2]])
    np.testing.assert_allclose(own.cosines, -opposed.cosines)
    np.testing.assert_allclose(np.abs(own.cosines), 1)


# eofs: tests/test_solution.py -----------------------------------------------------------------------------------------


def reference(name):
    return np.load(Path(find_spec("eofs").origin).parent / "tests" / "data" / f"{name}.npy")


@pytest.mark.skipif(find_spec("eofs") is None, reason="eofs is installed with the development packages")
@pytest.mark.parametrize("weights", ["equal", "latitude", "area"])
def test_eofs_reference_fields(weights):
    """Eigenvalues, fractions of variance, EOFs and principal components that eofs was given from elsewhere."""
    field = reference("sst")
    at_sea = np.isfinite(field).all(axis=0)
    scale = np.ones(field.shape[1:]) if weights == "equal" else reference(f"weights.{weights}")
    X = (field * scale)[:, at_sea]
    X = X - X.mean(axis=0)
    pca = tpca.TensorPCA(3, target="variance", random_state=0, n_resamples=19, dependence=None).fit(X)
    np.testing.assert_allclose(pca.explained_variance_, reference(f"eigenvalues.{weights}")[:3], rtol=1e-6)
    if weights == "equal":
        assert [round(value, 4) for value in pca.explained_variance_] == [14.5886, 5.0745, 2.2715]
    np.testing.assert_allclose(pca.explained_variance_ratio_, reference(f"variance.{weights}")[:3] / 100, rtol=1e-6)
    maps = reference(f"eofs.{weights}")[:3, at_sea]
    signs = np.sign(np.sum(maps * pca.components_[0], axis=1))
    np.testing.assert_allclose(pca.components_[0] * signs[:, None], maps, atol=1e-6)
    scores = pca.transform(X) * signs
    np.testing.assert_allclose(scores, reference(f"pcs.{weights}")[:, :3], atol=1e-6 * np.abs(scores).max())


# scikit-learn: decomposition/tests/test_pca.py ------------------------------------------------------------------------


def test_scikit_learn_a_table_has_the_components_of_pca(rng):
    X = rng.standard_normal((60, 7)) @ np.diag([7, 6, 5, 4, 3, 2, 1]) @ rng.standard_normal((7, 7))
    ours, theirs = tpca.TensorPCA(3, target="variance", random_state=0, n_resamples=19).fit(X), PCA(3).fit(X)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(ours.components_[0] @ theirs.components_.T), np.eye(3), atol=1e-7)


# SciPy, hyppo, MNE: p-values of resampling ----------------------------------------------------------------------------


@pytest.mark.parametrize("flips", [199, 999])
def test_scipy_and_hyppo_p_counts_the_data_among_the_flips(flips, rng):
    """(1 + flips that are as large) / (1 + flips)."""
    pca = tpca.TensorPCA(random_state=0, whiten=None, n_resamples=flips).fit(rng.standard_normal((40, 4, 3)) + 0.1)
    null, seen = pca.null_distribution_[0], pca.result_.components[0].statistic
    assert null.shape == (flips,)
    assert pca.p_values_[0] == pytest.approx((1 + np.sum(null >= seen * (1 - 1e-9))) / (1 + flips), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_scipy_few_samples_are_enumerated(seed):
    """8 samples, all 2^8 flips of signs: the p-value of ``scipy.stats.permutation_test``, exactly."""
    X = np.random.default_rng(seed).standard_normal((8, 3, 2)) + 0.4

    def length(signs):
        return np.linalg.norm(np.tensordot(signs, X, axes=1), 2)

    exact = permutation_test(
        (np.ones(8),), length, permutation_type="samples", n_resamples=np.inf, alternative="greater", vectorized=False
    )
    pca = tpca.TensorPCA(random_state=0, whiten=None, dependence=None).fit(X)
    assert pca.result_.n_resamples == 2**7 - 1
    assert pca.p_values_[0] == pytest.approx(exact.pvalue, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_mne_entries_have_the_p_of_the_largest_t(seed):
    """``mne.stats.permutation_t_test`` over all flips, entry by entry; of 256 flips MNE leaves out one."""
    from mne.stats import permutation_t_test

    X = np.random.default_rng(seed).standard_normal((9, 3, 2)) + np.array([1.5, 0.5, 0.0])[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, theirs, _ = permutation_t_test(X.reshape(9, -1), "all", n_jobs=1, verbose="error")
    pca = tpca.TensorPCA(random_state=0, whiten=None, dependence=None).fit(X)
    assert pca.result_.n_resamples == 255
    np.testing.assert_allclose(pca.entry_p_values_.ravel(), theirs, atol=1 / 255)
