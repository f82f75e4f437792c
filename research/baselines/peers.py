r"""CP decomposition with one component on the mean of all samples, by other people's packages.

.. math:: \min_{w, u} \|\bar T - w\, u_1 \otimes \dots \otimes u_{\bar k}\|^2

References: J. Kossaifi, Y. Panagakis, A. Anandkumar, M. Pantic, *TensorLy: tensor learning in Python*, JMLR 2019;
D. Dunlavy, N. Johnson et al., *pyttb: Python Tensor Toolbox*; B. Bader, T. Kolda, *Tensor Toolbox*.
Adapters for comparisons, behind the extra ``peers``; the methods are theirs, TensorLy's start included.
Different on purpose: the start of pyttb, the leading eigenvector of each mode's unfolding times its transpose
(``"nvecs"``), is computed here and handed over, since pyttb's own depends on a random number that cannot be seeded.

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

from research.baselines.base import AllSamples, Baseline
from research.baselines.mean import unfold
from tpca.errors import SolverError
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.rank_one import top_pairs
from tpca.tensors.blocks import unit

ITERATIONS, TOL = 500, 1e-10


@dataclass(kw_only=True, eq=False)
class TensorLyParafac(Baseline):
    """CP decomposition of the mean with one component, by TensorLy."""

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        with _quietly("TensorLyParafac", "tensorly.decomposition") as decomposition:
            samples = AllSamples(source, self.max_samples)
            state = int(generator(self.random_state, "tensorly").integers(2**31))
            scaled = samples.mean / float(np.linalg.norm(samples.mean))  # its stopping rule looks at absolute errors
            samples.note(scaled, working=5 * samples.mean.nbytes // 2)
            options = {"n_iter_max": ITERATIONS, "tol": TOL, "random_state": state}
            _, factors = decomposition.parafac(scaled, 1, init="svd", **options)
        return samples.estimate([unit(np.asarray(factor, dtype=np.float64)[:, 0]) for factor in factors])


@dataclass(kw_only=True, eq=False)
class PyttbCpAls(Baseline):
    """CP decomposition of the mean with one component, by pyttb."""

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from all samples of ``source``."""
        with _quietly("PyttbCpAls", "pyttb") as pyttb:
            samples = AllSamples(source, self.max_samples)
            start = []
            for mode in range(len(samples.dims)):
                others = tuple(n for n in range(len(samples.dims)) if n != mode)
                start.append(np.asarray(top_pairs(unfold(samples.mean, ((mode,), others)))[1][0]))
            samples.note(*start, working=2 * samples.mean.nbytes)
            options = {"stoptol": TOL, "maxiters": ITERATIONS, "printitn": 0}
            first = pyttb.ktensor([v[:, None] for v in start], np.ones(1))
            found, _, _ = pyttb.cp_als(pyttb.tensor(samples.mean), 1, init=first, **options)
        return samples.estimate([unit(np.array(factor, dtype=np.float64)[:, 0]) for factor in found.factor_matrices])


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
