"""The alternatives: one file per published method, all with ``run(source) -> Recovery``.

The last two run other people's packages, which are imported when they are run: ``pip install 'tpca[peers]'``.
"""

from tpca.lab.baselines.als import ALS
from tpca.lab.baselines.amp import AMP
from tpca.lab.baselines.homotopy import Homotopy
from tpca.lab.baselines.oja import Oja
from tpca.lab.baselines.partial_trace import PartialTrace
from tpca.lab.baselines.power_iteration import PowerIteration
from tpca.lab.baselines.pyttb_cp_als import PyttbCpAls
from tpca.lab.baselines.recursive_unfolding import RecursiveUnfolding
from tpca.lab.baselines.symmetric_matrix_sgd import SymmetricMatrixSGD
from tpca.lab.baselines.tensorly_parafac import TensorLyParafac
from tpca.lab.baselines.unfolding import Unfolding
from tpca.lab.baselines.vector_sgd import VectorSGD

BASELINES: dict[str, type] = {
    method.__name__: method
    for method in (
        Unfolding,
        RecursiveUnfolding,
        PartialTrace,
        Homotopy,
        PowerIteration,
        ALS,
        VectorSGD,
        SymmetricMatrixSGD,
        AMP,
        Oja,
        TensorLyParafac,
        PyttbCpAls,
    )
}

__all__ = [
    "ALS",
    "AMP",
    "BASELINES",
    "Homotopy",
    "Oja",
    "PartialTrace",
    "PowerIteration",
    "PyttbCpAls",
    "RecursiveUnfolding",
    "SymmetricMatrixSGD",
    "TensorLyParafac",
    "Unfolding",
    "VectorSGD",
]
