"""Tests of peers, re-expressed through our public face: what they ask of themselves, asked of tpca.

Numbers (tensors of examples, tolerances, reference fields) are those of the peers' own tests: TensorLy's ``test_cp``,
pyttb's ``test_cp_als``, eofs' ``test_solution``; conventions of resampling are those of SciPy, hyppo and MNE.  What is
tested here stands in the table of docs/real.md.
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


def test_pyttb_sparse_samples_give_the_answer_of_dense_ones(rng):
    X = rng.standard_normal((40, 6, 5)) * (rng.random((40, 6, 5)) < 0.2) + 0.0
    X[:, 1, 2] += 2
    dense = tpca.TensorPCA(random_state=0).fit(X)
    sparse = tpca.TensorPCA(random_state=0).fit([scipy.sparse.csr_matrix(x) for x in X])
    for u, v in zip(dense.components_, sparse.components_, strict=True):
        assert abs(u[0] @ v[0]) == pytest.approx(1, abs=1e-9)
    assert dense.p_values_[0] == sparse.p_values_[0]


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
