r"""pyttb's ``cp_als`` for one component, on the mean of all samples.

.. math:: \min_{w, u} \|\bar T - w\, u_1 \otimes \dots \otimes u_{\bar k}\|^2

Reference: D. Dunlavy, N. Johnson et al., *pyttb: Python Tensor Toolbox*; B. Bader, T. Kolda, *Tensor Toolbox*.
An adapter for comparisons, behind the extra ``peers``; the method is theirs.
Different on purpose: the start ``init="nvecs"``, the leading eigenvector of each mode's unfolding times its transpose,
is computed here and handed over, since pyttb's own depends on a random number that cannot be seeded; so is
``"random"``.

State: the mean, pyttb's copy of it, and one unfolding.
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
from tpca.solvers.mean.fit import leading_of_mode
from tpca.solvers.options import check_max_samples
from tpca.solvers.recovery import Recovery
from tpca.tensors.blocks import unit


class PyttbCpAls:
    """CP decomposition of the mean with one component, by pyttb.

    Parameters
    ----------
    init
        ``"nvecs"`` or ``"random"``.
    max_iterations, tolerance
        As ``maxiters`` and ``stoptol`` of ``cp_als``.
    """

    def __init__(
        self,
        *,
        init: str = "nvecs",
        max_iterations: int = 500,
        tol: float = 1e-10,
        random_state: int = 0,
        max_samples: int | None = None,
    ) -> None:
        self.init = check_choice("init", init, ("nvecs", "random"))
        self.max_iterations = check_integer("max_iterations", max_iterations)
        self.tol = check_positive("tol", tol)
        self.random_state = random_state
        self.max_samples = check_max_samples(max_samples)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from all samples of ``source``."""
        pyttb = _pyttb()
        samples = AllSamples(source, self.max_samples)
        rng = generator(self.random_state, "pyttb")
        if self.init == "random":
            start = [rng.uniform(size=d) for d in samples.dims]
        else:
            start = [leading_of_mode(samples.mean, n) for n in range(len(samples.dims))]
        samples.note(*start, working=2 * samples.mean.nbytes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs
            options = {"stoptol": self.tol, "maxiters": self.max_iterations, "printitn": 0}
            first = pyttb.ktensor([v[:, None] for v in start], np.ones(1))
            found, _, _ = pyttb.cp_als(pyttb.tensor(samples.mean), 1, init=first, **options)
        return samples.recovery([unit(np.array(factor, dtype=np.float64)[:, 0]) for factor in found.factor_matrices])


def _pyttb() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyttb
    except ImportError as error:
        raise SolverError("PyttbCpAls needs the package pyttb: pip install 'tpca[peers]'.") from error
    return pyttb
