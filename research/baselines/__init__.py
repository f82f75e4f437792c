"""The alternatives: published methods, all with ``run(source) -> Estimate``.

The last two run other people's packages, which are imported when they are run: ``pip install 'tpca[peers]'``.
"""

from typing import Any

from research.baselines.mean import ALS, AMP, PowerIteration, Unfolding
from research.baselines.online import SymmetricMatrixSGD, VectorSGD
from research.baselines.peers import PyttbCpAls, TensorLyParafac

_ALL = (Unfolding, PowerIteration, ALS, VectorSGD, SymmetricMatrixSGD, AMP,
        TensorLyParafac, PyttbCpAls)  # fmt: skip
BASELINES: dict[str, type[Any]] = {method.__name__: method for method in _ALL}

__all__ = ["ALS", "AMP", "BASELINES", "PowerIteration", "PyttbCpAls",
           "SymmetricMatrixSGD", "TensorLyParafac", "Unfolding", "VectorSGD"]  # fmt: skip
