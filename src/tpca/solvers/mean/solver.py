r"""The mean: where one tensor fits into memory, the best rank-one fit of the mean of all samples is the best there is.

.. math:: \hat v = \arg\max_v\ \langle\bar T, v_1\otimes\dots\otimes v_k\rangle, \qquad
    \bar T = \tfrac1N\sum_i T_i ,

the maximum of the likelihood for Gaussian noise.  One pass; samples are added up in a few contiguous groups
(:mod:`tpca.solvers.mean.grouping`), their mean is fitted from spectral and random starts by alternating least squares
(:mod:`tpca.solvers.mean.fit`), tested against the same sums with the signs of some groups changed
(:mod:`tpca.solvers.mean.test`), and has its errors from the scatter of the groups (:mod:`tpca.solvers.mean.errors`).
Nothing of this takes the noise to be white; but where it is not, it is whitened first (:mod:`tpca.solvers.mean.noise`),
which finds more.  Several components: :mod:`tpca.solvers.mean.components`.

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
from tpca.solvers.mean.memory import default_mean_memory, groups_needed
from tpca.solvers.mean.run import MeanRun, least_group


@dataclass(kw_only=True, eq=False)
class MeanSolver(StreamSolver):
    """Recover a rank-one signal of unknown strength in unknown noise from the mean of all samples, in one pass.

    Parameters
    ----------
    random_state
        Seed of the random starts.
    memory_limit
        Bound on the solver's state, bytes or text like ``"64MB"``; by default what it takes, about seven samples in
        float64, but no more than a tenth of this machine's memory.  It must hold the sums of as many groups as the
        test needs (at 0.95 six; eight are better), the mean, and the work of a fit.
    max_samples
        Limit on what is read; an endless stream needs one.
    confidence
        At most ``1 - confidence`` of all runs on pure noise claim a signal; for one look, at the end.
    n_components
        Components to look for, each in what those before it leave (:mod:`tpca.solvers.mean.components`).  With more
        than one, vectors are never symmetric.
    whiten
        ``"auto"``: where the noise is not white, as the first samples tell, the sums are whitened mode by mode
        (:mod:`tpca.noise`); vectors and strength are those of the data all the same.  ``"modes"``: whitened in any
        case; ``None``: never.
    groups
        Samples that belong together, where that is known: so many that follow each other are one block (a subject, a
        session), and blocks are independent.  No group of the test cuts one.  By default samples may depend on those
        shortly before them only.
    clip
        Bound on entries, in standard deviations of their middle part: entries beyond it count as the bound, so that
        heavy tails cost little.  ``"auto"``: 1.5, where that makes the mean more accurate by a quarter or more and the
        tails are even; ``None``: never.
    center_modes, project
        Modes along which vectors sum to zero, and vectors, by mode, that they are orthogonal to
        (:mod:`tpca.tensors.projection`); modes by name or number.
    callbacks
        Called after every round with its record, and after the fit with the ``"vectors"`` of each component.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints, and seconds between them (0: after every round).  With ``resume`` the run goes on from
        the last one there; on stored data it ends with the same bits as a run that was never interrupted.
    """

    name: ClassVar[str] = "mean"
    counts_entries: ClassVar[bool] = True

    def begin(self, data: Data) -> Run:
        """The sums of the samples, to be fitted at their end."""
        return MeanRun(self, data)

    def least_samples(self, data: Data) -> int:
        """As many groups of samples as a test at all needs; how many make one is in :mod:`tpca.solvers.mean.run`."""
        return groups_needed(self.confidence) * least_group(self, data)

    def budget(self, dims: tuple[int, ...], partial: bool = False) -> int:
        """Bytes that the state may take for samples of shape ``dims``, of which some entries may be missing."""
        if self.memory_limit is None:
            return default_mean_memory(dims, self.confidence, partial)
        return super().budget(dims, partial)
