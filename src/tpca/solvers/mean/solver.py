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

import os
from collections.abc import Sequence
from typing import Any

from tpca.engines import open_engine
from tpca.integers import check_integer
from tpca.solvers.loop import drive, keeper_of
from tpca.solvers.mean.run import MeanRun
from tpca.solvers.memory import parse_memory
from tpca.solvers.options import check_confidence, check_max_samples, check_resume
from tpca.solvers.race.solver import Callback
from tpca.solvers.recovery import Recovery


class MeanSolver:
    """Recover a rank-one signal of unknown strength in unknown noise from the mean of all samples, in one pass.

    Parameters
    ----------
    seed
        Of the random starts.
    memory
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

    def __init__(
        self,
        random_state: int = 0,
        memory_limit: str | float | None = None,
        max_samples: int | None = None,
        confidence: float = 0.95,
        n_components: int = 1,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
    ) -> None:
        self.random_state = check_integer("random_state", random_state, 0)
        self.memory_limit = None if memory_limit is None else parse_memory(memory_limit)
        self.max_samples = check_max_samples(max_samples)
        self.confidence = check_confidence(confidence)
        self.n_components = check_integer("n_components", n_components)
        self.callbacks = tuple(callbacks)
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.resume = check_resume(resume, checkpoint)

    def run(self, source: Any) -> Recovery:
        """Average a stream (or engine) to its end and return what was found, or that nothing was."""
        engine = open_engine(source)
        return drive(MeanRun(self, engine), engine, keeper_of(self))

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as plain values."""
        names = ("random_state", "memory_limit", "max_samples", "confidence", "n_components")
        return {"solver": "mean", **{name: getattr(self, name) for name in names}}
