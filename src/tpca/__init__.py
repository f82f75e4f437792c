"""tpca: tensor PCA on streams.

Recover the rank-one signal λ·v_1⊗…⊗v_k̄ hidden in a stream of noisy tensors, in one pass, with memory that grows as d².
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpca.engines import DaskEngine
    from tpca.errors import TpcaError
    from tpca.estimators import MomentPCA, TensorCCA, TensorPCA
    from tpca.model import SpikedTensor
    from tpca.solvers.mean.solver import MeanSolver
    from tpca.solvers.paper.solver import PaperSolver
    from tpca.solvers.race.solver import RaceSolver
    from tpca.solvers.recovery import Recovery
    from tpca.streams import open_stream, open_views

__version__ = "0.1.0"

__all__ = [
    "DaskEngine",
    "MeanSolver",
    "MomentPCA",
    "PaperSolver",
    "RaceSolver",
    "Recovery",
    "SpikedTensor",
    "TensorCCA",
    "TensorPCA",
    "TpcaError",
    "open_stream",
    "open_views",
]

# Where each name lives.  It is imported when it is first asked for: whoever wants one solver, or the help of the
# command, waits neither for scikit-learn (a second) nor for SciPy and Numba (half of one).
_HOMES = {
    "DaskEngine": "tpca.engines",
    "MeanSolver": "tpca.solvers.mean.solver",
    "MomentPCA": "tpca.estimators",
    "PaperSolver": "tpca.solvers.paper.solver",
    "RaceSolver": "tpca.solvers.race.solver",
    "Recovery": "tpca.solvers.recovery",
    "SpikedTensor": "tpca.model",
    "TensorCCA": "tpca.estimators",
    "TensorPCA": "tpca.estimators",
    "TpcaError": "tpca.errors",
    "open_stream": "tpca.streams",
    "open_views": "tpca.streams",
}


def __getattr__(name: str) -> Any:
    """A public name, or the lab, imported now and kept."""
    if name == "lab":
        return importlib.import_module("tpca.lab")
    if name not in _HOMES:
        raise AttributeError(f"module 'tpca' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """All public names and the lab, imported or not."""
    return sorted({*globals(), *__all__, "lab"})
