r"""The race: strategies propose, candidates are tried, the refinement finishes.  Nothing needs to be known or tuned.

Every round takes B = max(1, ⌊0.06 n⌋, min(max(4, ⌊2²⁰/D⌋), max(⌊n/8⌋, min(4, ⌊n/4⌋)))) fresh samples
of D entries, the same ones for everybody (:mod:`tpca.solvers.race.rounds`):

1. each strategy names the replicas it wants gradients of, each candidate its vectors: all fixed before the samples;
2. the engine reads the samples into mean gradients and rewards; strategies add up the gradients, candidates take their
   rewards as evidence (:mod:`tpca.solvers.race.candidate`);
3. a candidate with enough evidence is a signal *found*, with error at most 1 − ``confidence`` over the whole run;
4. whenever n has grown by 8 %, each candidate looks at its strategy's proposal: it is refined, or replaced by it.

When a signal is found and its candidate is accurate enough the strategies stop, and the refinement
(:mod:`tpca.solvers.race.refine`) uses every further sample until the vectors are as accurate as asked, or the samples
end.  If they end before a signal is found: ``NO_SIGNAL``, with an upper limit on the strength.

The first three samples only tell in what units the data come (:mod:`tpca.solvers.race.scale`), the first few dozen also
whether the noise is white and neighbouring samples are independent (:mod:`tpca.solvers.race.noise`).

Several passes (``max_passes`` > 1 on stored data): the last fifth of the data is held out from the strategies.  After
the first pass, which is the one-pass race, whole passes over their part are repeated, in which vectors climb beside the
main strategy's subspace iteration (:mod:`tpca.solvers.race.ascent`); what has come to rest is tried on the held-out
part only.  So are better vectors of a signal that the first pass has found, but not accurately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tpca.engines import Data
from tpca.solvers.base import StreamSolver, check_passes, check_positive, option
from tpca.solvers.loop import Run
from tpca.solvers.race.components import ComponentsRun
from tpca.solvers.race.evidence import MIN_BLOCKS


@dataclass(kw_only=True, eq=False)
class RaceSolver(StreamSolver):
    """Recover a rank-one signal of unknown strength in unknown noise, in one pass, with bounded memory.

    Parameters
    ----------
    random_state
        Seed of the random starts.
    memory_limit
        Bound on the solver's state, bytes or text like ``"64MB"``; by default the smaller of a tenth of the machine's
        memory and four samples' size, but at least 1 MB.
    max_samples, max_passes
        Limits on what is read; passes beyond the first need a re-readable stream.  ``"auto"`` allows ten where they
        can help.
    confidence
        At most ``1 - confidence`` of all runs on pure noise ever claim a signal.
    tol
        Root mean squared error of a vector at which to stop.  ``None``: use all of a finite stream, and leave an
        endless one at 0.1 (1 % squared error).
    partition
        Groups of modes: two for the block flow, as in ``[(0, 1), (2, 3, 4)]``, by default as even as possible; more,
        of one or two modes each, for replicas of such blocks.
    n_components
        Components to look for, each in what those before it leave (:mod:`tpca.solvers.race.components`).
    whiten
        ``"auto"``: where the noise is not white, as the first samples tell, it is whitened mode by mode; ``"modes"``:
        whitened in any case; ``None``: never.
    groups
        Samples that belong together, the next of which begin a new group: they count as one observation.  By default it
        is found out whether neighbouring samples are alike, and over how many.
    clip
        Bound on entries, in standard deviations of their middle part: entries beyond it count as the bound, so that
        heavy tails cost little.  ``"auto"``: 1.5, where that makes the mean more accurate by a quarter or more and the
        tails are even; ``None``: never.
    center_modes, project
        Modes along which vectors sum to zero, and vectors, by mode, that they are orthogonal to
        (:mod:`tpca.tensors.projection`); modes by name or number.
    callbacks
        Called after every round with its record and, under ``"vectors"``, the current estimate.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints, and seconds between them (0: after every round).  With ``resume`` the run goes on from
        the last one there; on stored data it ends with the same bits as a run that was never interrupted.
    """

    name: ClassVar[str] = "race"

    max_passes: int | str = option(1, check_passes)
    tol: float | None = option(None, check_positive)
    partition: Sequence[Sequence[int]] | None = option(None)

    def begin(self, data: Data) -> Run:
        """A race for every component, one after the other."""
        return ComponentsRun(self, data)

    def least_samples(self, data: Data) -> int:  # noqa: ARG002
        """As many as evidence has sub-batches at least."""
        return MIN_BLOCKS * (self.groups or 1)

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as plain values."""
        groups = None if self.partition is None else [[int(n) for n in group] for group in self.partition]
        return {**super().settings(), "partition": groups}
