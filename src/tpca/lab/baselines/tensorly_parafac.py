r"""TensorLy's ``parafac`` (or ``parafac_power_iteration``) for one component, on the mean of all samples.

.. math:: \min_{w, u} \|\bar T - w\, u_1 \otimes \dots \otimes u_{\bar k}\|^2

Reference: J. Kossaifi, Y. Panagakis, A. Anandkumar, M. Pantic, *TensorLy: tensor learning in Python*, JMLR 2019.
An adapter for comparisons, behind the extra ``peers``; the method is theirs, start included.

State: the mean, a scaled one, and what TensorLy was seen to hold besides: about two and a half more.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tpca.errors import SolverError
from tpca.integers import check_integer
from tpca.lab.baselines.all_samples import AllSamples
from tpca.lab.baselines.options import check_choice, check_positive
from tpca.randomness import generator
from tpca.solvers.options import check_max_samples
from tpca.solvers.recovery import Recovery
from tpca.tensors.blocks import Array, unit


class TensorLyParafac:
    """CP decomposition of the mean with one component, by TensorLy.

    Parameters
    ----------
    method
        ``"als"`` is ``parafac``, ``"power"`` is ``parafac_power_iteration``.
    init
        Start of ``parafac``: ``"svd"`` or ``"random"``.
    max_iterations, tolerance
        As ``n_iter_max`` and ``tol`` of ``parafac``.
    """

    def __init__(
        self,
        *,
        method: str = "als",
        init: str = "svd",
        max_iterations: int = 500,
        tol: float = 1e-10,
        random_state: int = 0,
        max_samples: int | None = None,
    ) -> None:
        self.method = check_choice("method", method, ("als", "power"))
        self.init = check_choice("init", init, ("svd", "random"))
        self.max_iterations = check_integer("max_iterations", max_iterations)
        self.tol = check_positive("tol", tol)
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        decomposition = _decomposition()
        samples = AllSamples(source, self.max_samples)
        state = int(generator(self.random_state, "tensorly").integers(2**31))
        scaled = samples.mean / float(np.linalg.norm(samples.mean))  # its stopping rule looks at absolute errors
        samples.note(scaled, working=5 * samples.mean.nbytes // 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs, about shapes and conditioning
            if self.method == "power":
                factors = _power(decomposition, scaled, state)
            else:
                options = {"n_iter_max": self.max_iterations, "tol": self.tol, "random_state": state}
                _, factors = decomposition.parafac(scaled, 1, init=self.init, **options)
        return samples.recovery([unit(np.asarray(factor, dtype=np.float64)[:, 0]) for factor in factors])


def _power(decomposition: Any, tensor: Array, state: int) -> Any:
    """Their power iteration draws from NumPy's global generator: seed it, and leave it as it was."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(state)  # noqa: NPY002
    try:
        return decomposition.parafac_power_iteration(tensor, 1)[1]
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _decomposition() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")

            import tensorly.decomposition as decomposition
    except ImportError as error:
        raise SolverError("TensorLyParafac needs the package tensorly: pip install 'tpca[peers]'.") from error
    return decomposition
