"""Estimators: scikit-learn faces; validate, delegate, expose."""

from tpca.estimators.amplitudes import Score
from tpca.estimators.cca import TensorCCA
from tpca.estimators.moment_pca import MomentPCA
from tpca.estimators.pca import TensorPCA

__all__ = ["MomentPCA", "Score", "TensorCCA", "TensorPCA"]
