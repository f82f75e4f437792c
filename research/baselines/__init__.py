"""The alternatives: published methods, all with ``run(source) -> Recovery``.

The last two run other people's packages, which are imported when they are run: ``pip install 'tpca[peers]'``.
"""

from typing import Any

from research.baselines.als import ALS
from research.baselines.amp import AMP
from research.baselines.oja import Oja
from research.baselines.peers import PyttbCpAls, TensorLyParafac
from research.baselines.power_iteration import PowerIteration
from research.baselines.sgd import SymmetricMatrixSGD, VectorSGD
from research.baselines.traces import Homotopy, PartialTrace
from research.baselines.unfolding import RecursiveUnfolding, Unfolding

_ALL = (Unfolding, RecursiveUnfolding, PartialTrace, Homotopy, PowerIteration, ALS, VectorSGD, SymmetricMatrixSGD, AMP,
        Oja, TensorLyParafac, PyttbCpAls)  # fmt: skip
BASELINES: dict[str, type[Any]] = {method.__name__: method for method in _ALL}

__all__ = ["ALS", "AMP", "BASELINES", "Homotopy", "Oja", "PartialTrace", "PowerIteration", "PyttbCpAls",
           "RecursiveUnfolding", "SymmetricMatrixSGD", "TensorLyParafac", "Unfolding", "VectorSGD"]  # fmt: skip
