r"""The mean: where one tensor fits into memory, the best rank-one fit of the mean of all samples is the best there is.

.. math:: \hat v = \arg\max_v\ \langle\bar T, v_1\otimes\dots\otimes v_k\rangle, \qquad
    \bar T = \tfrac1N\sum_i T_i ,

the maximum of the likelihood for Gaussian noise.  One pass; rounds of samples are added up in a few groups
(:mod:`tpca.solvers.mean.run`), fitted from spectral and random starts by alternating least squares
(:mod:`tpca.solvers.mean.fit`) and judged by contrasts between the groups, which hold noise only
(:mod:`tpca.solvers.mean.test`).  Several components: :mod:`tpca.solvers.mean.components`.

Where all modes have the same length, the signal may be ±v ⊗ … ⊗ v (moment tensors): such a fit is made and judged, too
(:mod:`tpca.solvers.mean.symmetric`), and returned where it is proven and the data do not say that the vectors differ.
The record of the fit in ``history`` says so (``"symmetric"``).

The confidence holds for one look, at the end of the samples.  There is no stopping rule: whoever looks again and again
and stops when a signal is claimed errs more often; the race (:mod:`tpca.solvers.race.solver`) is made for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tpca.engines import Data
from tpca.solvers.base import StreamSolver
from tpca.solvers.loop import Run
from tpca.solvers.mean.run import MeanRun


@dataclass(kw_only=True, eq=False)
class MeanSolver(StreamSolver):
    """Recover a rank-one signal of unknown strength in unknown noise from the mean of all samples, in one pass.

    Parameters
    ----------
    random_state
        Seed of the random starts.
    memory_limit
        Bound on the solver's state, bytes or text like ``"64MB"``; by default as :class:`~tpca.RaceSolver`: room for
        about four samples, but at least 1 MB.  It must hold the mean, a contrast and the work of a fit, about three
        samples in float64; with more there are more contrasts, which make the test more robust.
    max_samples
        Limit on what is read; an endless stream needs one.
    confidence
        At most ``1 - confidence`` of all runs on pure noise claim a signal; for one look, at the end.
    n_components
        Components to look for, each in what those before it leave (:mod:`tpca.solvers.mean.components`).  With more
        than one, vectors are never symmetric.
    callbacks
        Called after every round with its record, and after the fit with the ``"vectors"`` of each component.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints, and seconds between them (0: after every round).  With ``resume`` the run goes on from
        the last one there; on stored data it ends with the same bits as a run that was never interrupted.
    """

    name: ClassVar[str] = "mean"

    def start(self, data: Data) -> Run:
        """The sums of the samples, to be fitted at their end."""
        return MeanRun(self, data)
