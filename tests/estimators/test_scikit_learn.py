"""The suite of scikit-learn, for estimators whose samples are no rows of a table: tables become such samples."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tpca import TensorCCA, TensorPCA


class FoldedPCA(TensorPCA):
    """TensorPCA for tables, which the race does not take: every row becomes a matrix of two equal columns."""

    def fit(self, X, y=None):
        return super().fit(folded(X))

    def partial_fit(self, X, y=None):
        return super().partial_fit(folded(X))

    def transform(self, X):
        return super().transform(folded(X))

    def score(self, X, y=None):
        return super().score(folded(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.array_api_support = False  # folding is done by NumPy
        return tags


def folded(X):
    X = np.asarray(X)
    return X[:, :, None] * np.ones(2, dtype=X.dtype) if X.ndim == 2 else X


class TwiceCCA(TensorCCA):
    """TensorCCA for tables: a table becomes two views, each of them the table beside itself."""

    def fit(self, X, y=None):
        return super().fit(views(X))

    def transform(self, X):
        scores = super().transform(views(X))
        return scores if isinstance(X, Views) else np.hstack(scores)

    def predict(self, X):
        """The second view from the first."""
        return super().predict([views(X)[0], None])[1]

    def score(self, X, y=None):
        return super().score(views(X))


class Views(list):
    """What a table was made into."""


def views(X):
    if isinstance(X, Views):
        return X
    X = np.asarray(X)
    return Views([np.hstack([X, X]), np.hstack([X, X])] if X.ndim == 2 else [X, X])


WORDS = "is refused in the library's own words"
NO_TABLE = {  # checks that make no sense for what is no table, with the reason
    "check_n_features_in": "samples have a shape (shape_in_), not a number of features",
    "check_n_features_in_after_fitting": "samples have a shape (shape_in_), not a number of features",
    "check_complex_data": f"what is complex {WORDS}",
    "check_dtype_object": "object arrays are refused even if they hold numbers",
    "check_estimators_empty_data_messages": f"a mode of length 0 {WORDS}",
    "check_estimator_sparse_tag": "sparse samples come as a list of matrices, not as one table",
    "check_estimator_sparse_array": "sparse samples come as a list of matrices, not as one table",
    "check_estimator_sparse_matrix": "sparse samples come as a list of matrices, not as one table",
    "check_fit2d_1feature": f"a mode of length 1, or few rows, {WORDS}",
    "check_fit2d_predict1d": f"a single row {WORDS}",
}
FEW_ROWS = {
    "check_fit2d_1sample": f"a single row {WORDS}",
    "check_estimators_nan_inf": "its 10 rows are fewer than are needed to learn from and to judge by",
}


def expected(estimator):
    """Checks that fail, and why."""
    if type(estimator) is TensorPCA:  # which takes tables: samples of one axis
        return {name: why for name, why in NO_TABLE.items() if name != "check_n_features_in"}
    return NO_TABLE | FEW_ROWS if isinstance(estimator, TensorCCA) else NO_TABLE


# A check that is listed and passes fails the test, too: xfail_strict.
@pytest.mark.filterwarnings("ignore")  # of data made for other purposes, in which there often is no signal
@parametrize_with_checks(
    [FoldedPCA(solver="race", random_state=0), *(one(random_state=0) for one in (TensorPCA, TwiceCCA))],
    expected_failed_checks=expected,
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
