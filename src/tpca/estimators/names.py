"""Names and number of the columns of a table, as scikit-learn has them."""

from __future__ import annotations

from typing import Any

from sklearn.utils import validation

from tpca.errors import SampleError


def check_names(estimator: Any, X: Any, width: int, *, reset: bool) -> None:
    """Note the columns of a table that is fitted (``reset``), or compare those of another with them."""
    if reset:
        estimator.n_features_in_ = width
    elif width != estimator.n_features_in_:
        raise SampleError(
            f"X has {width} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} features "
            "as input; give rows with the columns that were fitted."
        )
    if not hasattr(X, "shape"):  # a path, a list or batches: without names
        return
    if "validate_data" in vars(validation):
        validation.validate_data(estimator, X, reset=reset, skip_check_array=True)
    else:  # before version 1.6
        estimator._check_feature_names(X, reset=reset)
