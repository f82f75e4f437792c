"""tpca: tensor PCA on streams.

Recover the rank-one signal λ·v_1⊗…⊗v_k̄ hidden in a stream of noisy tensors, in one pass, with memory that grows as d².
"""

from typing import Any

from tpca.errors import TpcaError
from tpca.model import SpikedTensor
from tpca.solvers.paper import PaperSolver
from tpca.solvers.race import RaceSolver
from tpca.solvers.recovery import Recovery, StopReason
from tpca.streams import open_stream, open_views

__version__ = "0.1.0"

__all__ = [
    "MeanSolver",
    "PaperSolver",
    "RaceSolver",
    "Recovery",
    "SpikedTensor",
    "StopReason",
    "TensorCCA",
    "TensorPCA",
    "TpcaError",
    "open_stream",
    "open_views",
]


def __getattr__(name: str) -> Any:
    """What is slow to import, when it is first asked for: scikit-learn takes a second, parts of SciPy half of one."""
    if name == "MeanSolver":
        from tpca.solvers.mean import MeanSolver

        return MeanSolver
    if name in ("TensorCCA", "TensorPCA"):
        from tpca import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'tpca' has no attribute {name!r}")
