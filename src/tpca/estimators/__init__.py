"""Estimators: scikit-learn faces; validate, delegate, expose."""

from tpca.estimators.tensor_cca import TensorCCA
from tpca.estimators.tensor_pca import TensorPCA
from tpca.result import Score

__all__ = ["Score", "TensorCCA", "TensorPCA"]
