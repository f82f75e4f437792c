"""Estimators: scikit-learn faces; validate, delegate, expose."""

from tpca.estimators.cca import TensorCCA
from tpca.estimators.pca import Score, TensorPCA

__all__ = ["Score", "TensorCCA", "TensorPCA"]
