"""What is taken for dependence between neighbours is none of the effect, however labels are sorted."""

import numpy as np
import pytest

from tpca import TensorPCA
from tpca.inference.design import read_design
from tpca.inference.regression import UnitSum, contributions, regress, residuals_of_all


def sorted_classes(rng, labels, levels):
    """50 independent samples of each label, one after the other, with effects, and noise of the given levels."""
    y = np.repeat(np.arange(labels), 50)
    effects, noise = rng.standard_normal((labels, 6, 5)), rng.standard_normal((len(y), 6, 5))
    return effects[y] + np.asarray(levels)[y][:, None, None] * noise, y.astype(str)


@pytest.mark.parametrize("levels", [(1, 1, 1), (1, 2, 3)])
@pytest.mark.parametrize("labels", [2, 3])
def test_sorted_labels_are_no_dependence(labels, levels):
    """The effect is obvious, samples are independent, and both are said.

    Of independent samples 0.5 % are not tested; more than 2 of 12 are by chance once in 40 000 times.
    """
    found = [
        TensorPCA(target="effect", random_state=0).fit(*sorted_classes(np.random.default_rng(seed), labels, levels))
        for seed in range(12)
    ]
    assert sum(pca.verdict_ != "signal" for pca in found) <= 2
    assert np.median([pca.result_.inflation for pca in found]) < 1.5


@pytest.mark.parametrize("labels", [2, 3, 5])
def test_what_is_left_of_units_is_what_least_squares_leaves(labels, rng):
    """Σ κ (T − fitted T) of every unit, with residuals from ``lstsq``, whatever weights the test gives to units."""
    X, y = sorted_classes(rng, labels, (1, 2, 3, 1, 5))
    design = read_design("effect", len(X), y, None, None, None)
    z, _ = design.rows(np.arange(len(X)))
    unit = np.arange(len(X)) // 10
    units = []
    for number in np.unique(unit):
        rows = unit == number
        moments = (z[rows].T @ X[rows].reshape(10, -1)).copy()
        units.append(UnitSum(moments, z[rows].T @ z[rows], 10))
    ((_, interest),) = design.questions
    regression = regress(units, interest, (6, 5), design.stacked)

    flat = X.reshape(len(X), -1)
    residuals = flat - z @ np.linalg.lstsq(z, flat, rcond=None)[0]
    kappa = z @ regression.overall_map.T
    expected = [np.einsum("nq,ne->qe", kappa[unit == g], residuals[unit == g]).ravel() for g in np.unique(unit)]
    left = residuals_of_all(units, regression, contributions(units, regression)).reshape(len(units), -1)
    np.testing.assert_allclose(left, expected, atol=1e-9)  # entries are sums of ten numbers of size 1


def correlated(rng, n, r):
    """Samples, of which neighbours have the correlation r."""
    X = rng.standard_normal((n, 5, 4))
    for i in range(1, n):
        X[i] = r * X[i - 1] + np.sqrt(1 - r * r) * X[i]
    return X


def told(X, y=None):
    target = "mean" if y is None else "effect"
    pca = TensorPCA(target=target, n_resamples=19, confidence=0.9, random_state=0).fit(X, y)
    return [line for line in pca.result_.advice if line.startswith("Neighbouring samples are correlated")]


def test_dependence_is_told_where_it_is_certain(rng):
    """Three looks, of neighbours, of scores and within bins, at 1 % each: of 20 more than 5 have 10⁻⁵."""
    assert sum(len(told(correlated(rng, 100, 0.0))) for _ in range(20)) <= 5
    (line,) = told(correlated(rng, 400, 0.6))
    assert float(line.split("(")[1].split(")")[0]) == pytest.approx(0.6, abs=0.15)
    assert "dependence=None" in line


def test_dependence_is_told_once_for_all_covariates(rng):
    y = np.column_stack([np.sin(np.arange(200) / 10 + one) for one in range(2)])
    assert len(told(correlated(rng, 200, 0.5), y)) == 1
