r"""What varies: samples :math:`T_i = B + a_i\,v_1\otimes\dots\otimes v_k + \text{noise}`, amplitudes of any sign.

With amplitudes of mean zero the mean says nothing; what is looked for is the rank-one pattern with the largest variance
less what noise gives along it,

.. math:: \max_v\ \operatorname{Var}\langle T, v_1\otimes\dots\otimes v_k\rangle - V_0(v) ,

V_0 being what noise of a separable covariance has there (:mod:`tpca.solvers.variance.level`).  The second moment is a
tensor of order 2k; nothing of it is ever built but contractions (:mod:`tpca.solvers.variance.products`): rewards and
reward-weighted gradients, 2Σd numbers for a pattern, and covariances of the modes, Σd², where they fit.
Search: :mod:`tpca.solvers.variance.search`; evidence: :mod:`tpca.solvers.variance.evidence`; errors:
:mod:`tpca.solvers.variance.refine`; what is read when: :mod:`tpca.solvers.variance.run`.

**What is tested.**  The claim is that a pattern varies by more than *any* separable noise would that has the same
energies off the pattern.  Noise may be white or not, of any tails, its level may change from sample to sample, and
samples may drift; nothing of this is claimed as a component.  What is not of that kind is: noise that is a *sum* of
several separable parts (a smooth background beside white noise of the sensors) varies along the leading pattern of
each, as PCA would say, too.  Differences of neighbouring samples do not cancel an amplitude that varies, and signs of
samples can be flipped without changing it, so neither tells anything here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tpca.engines import Data
from tpca.solvers.base import ClaimingSolver, check_passes, option
from tpca.solvers.loop import Run
from tpca.solvers.memory import parse_memory
from tpca.solvers.variance.limits import default_budget, least_samples, steps_within
from tpca.solvers.variance.run import VarianceRun


@dataclass(kw_only=True, eq=False)
class VarianceSolver(ClaimingSolver):
    """Recover rank-one patterns whose amplitudes vary from sample to sample: ``TensorPCA(target="variance")``.

    Parameters
    ----------
    random_state
        Seed of random starts, which are used where covariances of the modes do not fit into memory.
    memory_limit
        Bound on the solver's state, bytes or text like ``"64MB"``; by default that of the race, or what is needed for
        the best starts, up to 64 MB.  Covariances of the modes, Σd² numbers, and those of a mode within the slices of
        the next are learnt where they fit; without them starts are random, and noise that is not white hides more.
    max_samples
        Limit on what is read; an endless stream needs one.
    max_passes
        Most passes for every component; ``"auto"``: twelve where samples can be read again.  Fewer than four are one.
    confidence
        At most ``1 - confidence`` of all runs on noise of separable covariance claim a component, whenever one looks.
    n_components
        Components to look for, each in what those before it leave.
    callbacks, checkpoint, checkpoint_every, resume
        As for the other solvers.
    """

    name: ClassVar[str] = "variance"

    max_passes: int | str = option("auto", check_passes)

    def start(self, data: Data) -> Run:
        """A run that asks for its first samples."""
        return VarianceRun(self, data)

    def least_samples(self, data: Data) -> int:
        """As many as tests need sub-batches of."""
        stored = data.rereadable and data.length is not None and steps_within(self.max_passes).all > 0
        return least_samples(data.dims, self.confidence, stored)

    def budget(self, dims: tuple[int, ...]) -> int:
        """Bytes that the state may take for samples of shape ``dims``."""
        return default_budget(dims, self.n_components) if self.memory_limit is None else parse_memory(self.memory_limit)
