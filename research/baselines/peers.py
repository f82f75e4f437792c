r"""CP decomposition with one component on the mean of all samples, by other people's packages.

.. math:: \min_{w, u} \|\bar T - w\, u_1 \otimes \dots \otimes u_{\bar k}\|^2

References: J. Kossaifi, Y. Panagakis, A. Anandkumar, M. Pantic, *TensorLy: tensor learning in Python*, JMLR 2019;
D. Dunlavy, N. Johnson et al., *pyttb: Python Tensor Toolbox*; B. Bader, T. Kolda, *Tensor Toolbox*.
Adapters for comparisons, behind the extra ``peers``; the methods are theirs, TensorLy's start included.
Different on purpose: the start of pyttb, with ``init="nvecs"`` the leading eigenvector of each mode's unfolding times
its transpose, is computed here and handed over, since pyttb's own depends on a random number that cannot be seeded; so
is ``"random"``.

State: the mean, and of TensorLy a scaled one and what it was seen to hold besides, about two and a half more; of pyttb
its copy of the mean and one unfolding.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.all_samples import AllSamples
from research.baselines.baseline import Baseline, one_of
from research.baselines.unfolding import unfold
from tpca.errors import SolverError, check_integer
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.options import check_positive, option
from tpca.solvers.rank_one import top_pairs
from tpca.tensors.blocks import Array, unit


@dataclass(kw_only=True, eq=False)
class TensorLyParafac(Baseline):
    """CP decomposition of the mean with one component, by TensorLy.

    Parameters
    ----------
    method
        ``"als"`` is ``parafac``, ``"power"`` is ``parafac_power_iteration``.
    init
        Start of ``parafac``: ``"svd"`` or ``"random"``.
    max_iterations, tol
        As ``n_iter_max`` and ``tol`` of ``parafac``.
    """

    method: str = option("als", one_of("als", "power"))
    init: str = option("svd", one_of("svd", "random"))
    max_iterations: int = option(500, check_integer)
    tol: float = option(1e-10, check_positive)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        with _quietly("TensorLyParafac", "tensorly.decomposition") as decomposition:
            samples = AllSamples(source, self.max_samples)
            state = int(generator(self.random_state, "tensorly").integers(2**31))
            scaled = samples.mean / float(np.linalg.norm(samples.mean))  # its stopping rule looks at absolute errors
            samples.note(scaled, working=5 * samples.mean.nbytes // 2)
            if self.method == "power":
                factors = _power(decomposition, scaled, state)
            else:
                options = {"n_iter_max": self.max_iterations, "tol": self.tol, "random_state": state}
                _, factors = decomposition.parafac(scaled, 1, init=self.init, **options)
        return samples.recovery([unit(np.asarray(factor, dtype=np.float64)[:, 0]) for factor in factors])


@dataclass(kw_only=True, eq=False)
class PyttbCpAls(Baseline):
    """CP decomposition of the mean with one component, by pyttb.

    Parameters
    ----------
    init
        ``"nvecs"`` or ``"random"``.
    max_iterations, tol
        As ``maxiters`` and ``stoptol`` of ``cp_als``.
    """

    init: str = option("nvecs", one_of("nvecs", "random"))
    max_iterations: int = option(500, check_integer)
    tol: float = option(1e-10, check_positive)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        with _quietly("PyttbCpAls", "pyttb") as pyttb:
            samples = AllSamples(source, self.max_samples)
            rng = generator(self.random_state, "pyttb")
            if self.init == "random":
                start = [rng.uniform(size=d) for d in samples.dims]
            else:
                start = [_leading_of_mode(samples.mean, n) for n in range(len(samples.dims))]
            samples.note(*start, working=2 * samples.mean.nbytes)
            options = {"stoptol": self.tol, "maxiters": self.max_iterations, "printitn": 0}
            first = pyttb.ktensor([v[:, None] for v in start], np.ones(1))
            found, _, _ = pyttb.cp_als(pyttb.tensor(samples.mean), 1, init=first, **options)
        return samples.recovery([unit(np.array(factor, dtype=np.float64)[:, 0]) for factor in found.factor_matrices])


def _power(decomposition: Any, tensor: Array, state: int) -> Any:
    """Their power iteration draws from NumPy's global generator: seed it, and leave it as it was."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(state)  # noqa: NPY002
    try:
        return decomposition.parafac_power_iteration(tensor, 1)[1]
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _quietly(method: str, module: str) -> Iterator[Any]:
    """Another package, with its own warnings about shapes and conditioning left unsaid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            package = importlib.import_module(module)
        except ImportError as error:
            name = module.partition(".")[0]
            raise SolverError(f"{method} needs the package {name}: pip install 'tpca[peers]'.") from error
        yield package


def _leading_of_mode(tensor: Array, mode: int) -> Array:
    """The top left singular vector of the unfolding ``mode | other modes``."""
    others = tuple(n for n in range(tensor.ndim) if n != mode)
    return np.asarray(top_pairs(unfold(tensor, ((mode,), others)))[1][0])
