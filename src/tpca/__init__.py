"""tpca: tensor PCA on streams.

Recover the rank-one signal λ·v_1⊗…⊗v_k̄ hidden in a stream of noisy tensors, in one pass, with memory that grows as d².
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from tpca.data import open_stream, open_views
    from tpca.errors import TpcaError
    from tpca.estimators import MomentPCA, TensorCCA, TensorPCA
    from tpca.model import SpikedTensor
    from tpca.result import Result, load
    from tpca.solvers.paper.solver import PaperSolver
    from tpca.solvers.race.run import RaceSolver

__version__ = "0.1.0"

__all__ = [
    "MomentPCA",
    "PaperSolver",
    "RaceSolver",
    "Result",
    "SpikedTensor",
    "TensorCCA",
    "TensorPCA",
    "TpcaError",
    "load",
    "open_stream",
    "open_views",
]

# Where each name lives.  It is imported when it is first asked for: whoever wants one solver, or the help of the
# command, waits neither for scikit-learn (a second) nor for SciPy and Numba (half of one).
_HOMES = {
    "MomentPCA": "tpca.estimators",
    "PaperSolver": "tpca.solvers.paper.solver",
    "RaceSolver": "tpca.solvers.race.run",
    "Result": "tpca.result",
    "SpikedTensor": "tpca.model",
    "TensorCCA": "tpca.estimators",
    "TensorPCA": "tpca.estimators",
    "TpcaError": "tpca.errors",
    "load": "tpca.result",
    "open_stream": "tpca.data",
    "open_views": "tpca.data",
}


def __getattr__(name: str) -> _typing.Any:
    """A public name, imported now and kept."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tpca' has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted(__all__)
