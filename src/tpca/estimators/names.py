"""Names and number of the columns of a table, as scikit-learn has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from tpca.errors import SampleError
from tpca.labels import Axis, Coords, Labels


def view_labels(X: Any) -> Labels | None:
    """Names of views and of their columns, where a list of DataFrames or of DataArrays, or one DataFrame, has any."""
    if hasattr(X, "columns") and getattr(X.columns, "nlevels", 1) > 1:  # the first level names the views
        parts = [(str(name), X[name]) for name in dict.fromkeys(X.columns.get_level_values(0))]
    elif isinstance(X, Mapping):
        parts = [(str(name), view) for name, view in X.items()]
    elif isinstance(X, list | tuple):
        parts = [(str(getattr(view, "name", None) or f"view {i}"), view) for i, view in enumerate(X)]
    else:
        return None
    axes = tuple(Axis(name, _columns(view)) for name, view in parts)
    return None if all(axis.coords is None for axis in axes) else Labels(axes)


def _columns(view: Any) -> Coords | None:
    """What the columns of a view are called: those of a DataFrame, or coordinates along the second axis."""
    if hasattr(view, "columns"):
        return np.array([str(name) for name in view.columns])
    dims, coords = tuple(getattr(view, "dims", ())), getattr(view, "coords", {})
    return np.asarray(coords[dims[1]]) if len(dims) == 2 and dims[1] in coords else None


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
    validate_data(estimator, X, reset=reset, skip_check_array=True)
