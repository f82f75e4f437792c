"""tpca: tensor PCA on streams.

Recover the rank-one signal λ·v_1⊗…⊗v_k̄ hidden in a stream of noisy tensors, in one pass, with memory that grows as d².
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from tpca.data import open_stream as open_stream
    from tpca.data import open_views as open_views
    from tpca.errors import TpcaError as TpcaError
    from tpca.estimators import TensorCCA as TensorCCA
    from tpca.estimators import TensorPCA as TensorPCA
    from tpca.model import SpikedTensor as SpikedTensor
    from tpca.result import Result as Result
    from tpca.result import load as load
    from tpca.solvers.paper.solver import PaperSolver as PaperSolver
    from tpca.solvers.race.run import RaceSolver as RaceSolver

__version__ = "0.1.0"

# Where each name lives.  It is imported when it is first asked for: whoever wants one solver, or the help of the
# command, waits neither for scikit-learn (a second) nor for SciPy.
_HOMES = {
    **dict.fromkeys(("TensorCCA", "TensorPCA"), "tpca.estimators"),
    **dict.fromkeys(("open_stream", "open_views"), "tpca.data"),
    **dict.fromkeys(("Result", "load"), "tpca.result"),
    "PaperSolver": "tpca.solvers.paper.solver",
    "RaceSolver": "tpca.solvers.race.run",
    "SpikedTensor": "tpca.model",
    "TpcaError": "tpca.errors",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _typing.Any:
    """A public name, imported now and kept."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tpca' has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return __all__
