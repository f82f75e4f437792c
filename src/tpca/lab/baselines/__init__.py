"""The alternatives: published methods, all with ``run(source) -> Recovery``.

The last two run other people's packages, which are imported when they are run: ``pip install 'tpca[peers]'``.
"""

from typing import Any

from tpca.lab.baselines.als import ALS
from tpca.lab.baselines.amp import AMP
from tpca.lab.baselines.oja import Oja
from tpca.lab.baselines.peers import PyttbCpAls, TensorLyParafac
from tpca.lab.baselines.power_iteration import PowerIteration
from tpca.lab.baselines.sgd import SymmetricMatrixSGD, VectorSGD
from tpca.lab.baselines.traces import Homotopy, PartialTrace
from tpca.lab.baselines.unfolding import RecursiveUnfolding, Unfolding

_ALL = (Unfolding, RecursiveUnfolding, PartialTrace, Homotopy, PowerIteration, ALS, VectorSGD, SymmetricMatrixSGD, AMP,
        Oja, TensorLyParafac, PyttbCpAls)  # fmt: skip
BASELINES: dict[str, type[Any]] = {method.__name__: method for method in _ALL}

__all__ = ["ALS", "AMP", "BASELINES", "Homotopy", "Oja", "PartialTrace", "PowerIteration", "PyttbCpAls",
           "RecursiveUnfolding", "SymmetricMatrixSGD", "TensorLyParafac", "Unfolding", "VectorSGD"]  # fmt: skip
